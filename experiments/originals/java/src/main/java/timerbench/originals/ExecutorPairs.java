package timerbench.originals;

import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;

/** The pair of the JDK's executor, with either policy. */
public class ExecutorPairs extends PairBench implements Paced {
    private ScheduledThreadPoolExecutor executor;

    @Override
    void use(Timers timers) {
        executor = ((ExecutorTimers) timers).executor();
    }

    @Override
    @Benchmark
    public Object armCancel() {
        ScheduledFuture<?> future = executor.schedule(Trial.NEVER, 1, TimeUnit.SECONDS);
        if (future.cancel(false)) {
            cancelled++;
        }
        return future;
    }

    @Override
    @Benchmark
    public Object burst(Pace pace) {
        Object last = null;
        for (int i = 0; i < BURST_PAIRS; i++) {
            last = armCancel();
        }
        return last;
    }
}
