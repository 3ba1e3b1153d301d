package timerbench.originals;

import java.util.concurrent.ThreadFactory;

/**
 * One running instance of a callback system, as the hand-written experiments use it. The costs are not measured
 * through it: the benchmarks call the systems directly. Any thread may call arm, cancel and drain.
 */
interface Timers extends AutoCloseable {
    /** What was armed. */
    interface Pending {
        /** True if this call kept it from firing. */
        boolean cancel();
    }

    /** Runs onFire on the system's own thread once delayNs have passed. */
    Pending arm(long delayNs, Runnable onFire);

    /** Waits until what was cancelled has left the system, while live others stay armed; says what it found, or "". */
    String drain(long live) throws InterruptedException;

    /** True if what is still armed is to be cancelled before close: it would stay, or close would take far longer. */
    boolean cancelBeforeClose();

    @Override
    void close();

    /** Threads that do not keep the process alive. */
    static ThreadFactory daemons(String name) {
        return task -> {
            Thread thread = new Thread(task, name);
            thread.setDaemon(true);
            return thread;
        };
    }
}
