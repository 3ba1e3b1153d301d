package timerbench.originals;

import java.util.Random;
import java.util.concurrent.TimeUnit;

/** Timeouts that stay armed while others are measured: deadlines uniform in 120 to 840 s. They end with their instance. */
final class Population implements AutoCloseable {
    private static final long EARLIEST_S = 120;
    private static final long LATEST_S = 840;

    private final Timers timers;
    private final Timers.Pending[] others;

    Population(Timers timers, int size, Random random) {
        this.timers = timers;
        others = new Timers.Pending[size];
        for (int i = 0; i < size; i++) {
            long delayNs = random.nextLong(TimeUnit.SECONDS.toNanos(EARLIEST_S), TimeUnit.SECONDS.toNanos(LATEST_S));
            others[i] = timers.arm(delayNs, Trial.NEVER);
        }
    }

    @Override
    public void close() {
        if (timers.cancelBeforeClose()) {
            for (Timers.Pending other : others) {
                other.cancel();
            }
        }
    }
}
