package timerbench.originals;

import io.netty.util.Timeout;
import io.netty.util.Timer;
import io.netty.util.TimerTask;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;

/** The pair of Netty's wheel. */
public class NettyPairs extends PairBench implements Paced {
    private static final TimerTask NEVER = timeout -> Trial.NEVER.run();

    private Timer wheel;

    @Override
    void use(Timers timers) {
        wheel = ((NettyTimers) timers).wheel();
    }

    @Override
    @Benchmark
    public Object armCancel() {
        Timeout timeout = wheel.newTimeout(NEVER, 1, TimeUnit.SECONDS);
        if (timeout.cancel()) {
            cancelled++;
        }
        return timeout;
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
