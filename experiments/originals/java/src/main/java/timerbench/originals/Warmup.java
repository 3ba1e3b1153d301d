package timerbench.originals;

import java.util.HashMap;
import java.util.Map;

/**
 * Warms the code of each system up once, for half a second on an instance of its own that is thrown away with its
 * backlog, and finds how many pairs make a batch.
 */
final class Warmup {
    private static final long WARM_NS = 500_000_000;
    private static final double BATCH_NS = 10e6;
    private static final int PROBE_PAIRS = 10_000;
    private static final int PROBES = 10;
    private static final int FEWEST_PAIRS = 10_000;
    private static final int MOST_PAIRS = 250_000;
    private static final int WARM_BURSTS = 2_000;

    private final Map<String, Integer> pairsPerBatch = new HashMap<>();

    /** Returns the pairs of a batch of about 10 ms. */
    int warm(Systems.Callback system) {
        return pairsPerBatch.computeIfAbsent(system.service(), service -> calibrate(system));
    }

    private static int calibrate(Systems.Callback system) {
        PairBench pairs = system.pairs().get();
        try (Timers scratch = system.openTimers()) {
            Trial.begin(scratch, 1);
            burst(pairs, scratch);
            long start = System.nanoTime();
            double pairNs = 0;
            while (System.nanoTime() - start < WARM_NS) {
                // The last run decides: by then the code is compiled.
                pairNs = Numbers.median(Jmh.batchesNs(pairs.getClass(), "armCancel", 1, PROBE_PAIRS, PROBES))
                        / PROBE_PAIRS;
            }
            return (int) Math.max(FEWEST_PAIRS, Math.min(MOST_PAIRS, BATCH_NS / pairNs));
        }
    }

    /** A burst a millisecond would be interpreted for a second: its loop is compiled before. */
    private static void burst(PairBench pairs, Timers scratch) {
        if (pairs instanceof Paced paced) {
            pairs.use(scratch);
            for (int i = 0; i < WARM_BURSTS; i++) {
                paced.burst(null);
            }
        }
    }
}
