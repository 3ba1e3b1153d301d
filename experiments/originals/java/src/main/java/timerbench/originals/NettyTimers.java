package timerbench.originals;

import io.netty.util.HashedWheelTimer;
import io.netty.util.Timer;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Netty's HashedWheelTimer: arm and cancel each put an entry in a queue, and the wheel's thread takes at most 100 000
 * armed ones a tick out of it, cancelled or not. What comes faster waits in the queue.
 */
final class NettyTimers implements Timers {
    private static final long SENTINEL_DELAY_MS = 1;
    private static final long NS_PER_MS = 1_000_000;

    private final HashedWheelTimer wheel;

    NettyTimers(long tickMs) {
        wheel = new HashedWheelTimer(Timers.daemons("netty-wheel"), tickMs, TimeUnit.MILLISECONDS);
        wheel.start();
    }

    Timer wheel() {
        return wheel;
    }

    @Override
    public Pending arm(long delayNs, Runnable onFire) {
        return wheel.newTimeout(timeout -> onFire.run(), delayNs, TimeUnit.NANOSECONDS)::cancel;
    }

    /** The queue is first in, first out: when a new timer has fired, all that was put in before it is out. */
    @Override
    public String drain(long live) throws InterruptedException {
        CountDownLatch fired = new CountDownLatch(1);
        long armed = System.nanoTime();
        wheel.newTimeout(timeout -> fired.countDown(), SENTINEL_DELAY_MS, TimeUnit.MILLISECONDS);
        fired.await();
        long lateMs = (System.nanoTime() - armed) / NS_PER_MS - SENTINEL_DELAY_MS;
        return "a 1 ms timer armed behind the pairs fired " + lateMs + " ms late";
    }

    @Override
    public boolean cancelBeforeClose() {
        return true;
    }

    @Override
    public void close() {
        wheel.stop();
    }
}
