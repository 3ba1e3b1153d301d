package timerbench.originals;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import java.util.stream.Stream;

/** The systems of this program, by the names of the report. */
final class Systems {
    /** A system with callbacks. lazyCancel: what was cancelled stays in it for a while. */
    record Callback(String service, boolean lazyCancel, Supplier<Timers> open, Supplier<PairBench> pairs) {
        Timers openTimers() {
            return open.get();
        }
    }

    /** A system that blocks its caller: a wait that runs out, and one that another thread ends after END_AFTER_MS. */
    record Blocking(String service, Wait expire, Wait endEarly, String noPair) {}

    /** Waits for at most delayNs and says whether it ended as it should: for its reason, and not before its time. */
    interface Wait {
        boolean await(long delayNs) throws InterruptedException;
    }

    static final long END_AFTER_MS = 2;
    static final String OR_TIMEOUT = "original/jdk/or_timeout";
    static final String FUTURE_GET = "original/jdk/future_get";
    static final String PARK_NANOS = "original/jdk/park_nanos";

    static final List<Callback> CALLBACK = List.of(
            new Callback("original/netty/10ms", true, () -> new NettyTimers(10), NettyPairs::new),
            new Callback("original/netty/30ms", true, () -> new NettyTimers(30), NettyPairs::new),
            new Callback("original/netty/100ms", true, () -> new NettyTimers(100), NettyPairs::new),
            new Callback("original/jdk/executor", true, () -> new ExecutorTimers(false), ExecutorPairs::new),
            new Callback("original/jdk/executor_remove", false, () -> new ExecutorTimers(true), ExecutorPairs::new),
            new Callback(OR_TIMEOUT, false, OrTimeoutTimers::new, OrTimeoutPairs::new));

    static final List<Blocking> BLOCKING = List.of(
            new Blocking(PARK_NANOS, Systems::parkNanos, Systems::parkNanosUnparked,
                    "the wait blocks its thread: ending it early is another thread's unpark and a switch of threads, "
                            + "not an arm and a cancel"),
            new Blocking(FUTURE_GET, Systems::futureGet, Systems::futureGetCompleted,
                    "the wait blocks its thread: ending it early is another thread's complete and a switch of threads, "
                            + "not an arm and a cancel"));

    private Systems() {}

    static List<String> names() {
        return Stream.concat(CALLBACK.stream().map(Callback::service), BLOCKING.stream().map(Blocking::service))
                .toList();
    }

    /** parkNanos may return for no reason; such a return shows as an early fire. */
    private static boolean parkNanos(long delayNs) {
        long start = System.nanoTime();
        LockSupport.parkNanos(delayNs);
        return System.nanoTime() - start >= delayNs;
    }

    private static boolean parkNanosUnparked(long delayNs) throws InterruptedException {
        Thread waiter = Thread.currentThread();
        Thread ender = later(() -> LockSupport.unpark(waiter));
        boolean expired = parkNanos(delayNs);
        ender.join();
        return !expired;
    }

    private static boolean futureGet(long delayNs) throws InterruptedException {
        return expires(new CompletableFuture<>(), delayNs);
    }

    private static boolean futureGetCompleted(long delayNs) throws InterruptedException {
        CompletableFuture<Void> future = new CompletableFuture<>();
        Thread ender = later(() -> future.complete(null));
        boolean expired = expires(future, delayNs);
        ender.join();
        return !expired;
    }

    private static boolean expires(CompletableFuture<Void> future, long delayNs) throws InterruptedException {
        try {
            future.get(delayNs, TimeUnit.NANOSECONDS);
            return false;
        } catch (TimeoutException expired) {
            return true;
        } catch (ExecutionException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private static Thread later(Runnable action) {
        Thread thread = new Thread(() -> {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(END_AFTER_MS));
            action.run();
        });
        thread.start();
        return thread;
    }
}
