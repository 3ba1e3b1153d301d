package timerbench.originals;

import java.util.concurrent.locks.LockSupport;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;

/**
 * Holds a benchmark to one call a millisecond. JMH leaves the time of such a method out: with it the score of a batch
 * is the sum over its calls alone.
 */
@State(Scope.Thread)
public class Pace {
    private static final long BEAT_NS = 1_000_000;
    private static final long GIVE_UP_AFTER_NS = 10 * BEAT_NS;

    private long next;

    /** A caller that has fallen far behind starts counting anew instead of making up for it in one burst. */
    @Setup(Level.Invocation)
    public void awaitBeat() {
        long now = System.nanoTime();
        if (next == 0 || now - next > GIVE_UP_AFTER_NS) {
            next = now;
        }
        while (now < next) {
            LockSupport.parkNanos(next - now);
            now = System.nanoTime();
        }
        next += BEAT_NS;
    }
}
