package timerbench.originals;

import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The JDK's ScheduledThreadPoolExecutor with one thread: a heap behind one lock. Without removal a cancelled task stays
 * in the heap until its deadline brings it to the top; with removal cancel takes it out at once.
 */
final class ExecutorTimers implements Timers {
    private static final long LOOK_EVERY_MS = 5;
    private static final long NS_PER_MS = 1_000_000;

    private final ScheduledThreadPoolExecutor executor;
    private final boolean removes;

    ExecutorTimers(boolean removes) {
        this.removes = removes;
        executor = new ScheduledThreadPoolExecutor(1, Timers.daemons("jdk-executor"));
        executor.setRemoveOnCancelPolicy(removes);
        executor.prestartAllCoreThreads();
    }

    ScheduledThreadPoolExecutor executor() {
        return executor;
    }

    @Override
    public Pending arm(long delayNs, Runnable onFire) {
        ScheduledFuture<?> future = executor.schedule(onFire, delayNs, TimeUnit.NANOSECONDS);
        return () -> future.cancel(false);
    }

    @Override
    public String drain(long live) throws InterruptedException {
        if (removes) {
            return "";
        }
        long dead = executor.getQueue().size() - live;
        long start = System.nanoTime();
        while (executor.getQueue().size() > live) {
            Thread.sleep(LOOK_EVERY_MS);
        }
        long ms = (System.nanoTime() - start) / NS_PER_MS;
        return dead + " dead entries were left, the last gone " + ms + " ms later";
    }

    @Override
    public boolean cancelBeforeClose() {
        return false;
    }

    @Override
    public void close() {
        executor.shutdownNow();
    }
}
