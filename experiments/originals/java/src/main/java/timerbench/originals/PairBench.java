package timerbench.originals;

import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/**
 * Arms a 1 s timeout and cancels it, as a benchmark that JMH calls batch-size times an iteration. Each subclass calls
 * its system directly, so that the compiler sees one receiver and no layer of ours is timed. One object a thread.
 */
@State(Scope.Thread)
@BenchmarkMode(Mode.SingleShotTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public abstract class PairBench {
    /** Pairs cancelled since the batch started. */
    long cancelled;

    /** Takes the instance to arm on. */
    abstract void use(Timers timers);

    /** One pair. Returns what was armed, so that it cannot be optimised away. */
    public abstract Object armCancel();

    @Setup(Level.Trial)
    public void useCurrent() {
        use(Trial.current().timers());
    }

    @Setup(Level.Iteration)
    public void startTogether() throws InterruptedException, BrokenBarrierException {
        cancelled = 0;
        Trial.current().startTogether();
    }

    @TearDown(Level.Iteration)
    public void endTogether() throws InterruptedException, BrokenBarrierException {
        Trial.current().endTogether(cancelled);
    }
}
