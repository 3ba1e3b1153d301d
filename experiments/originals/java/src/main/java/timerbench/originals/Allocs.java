package timerbench.originals;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** What a pair allocates, by the counter that the JVM keeps for each thread. */
final class Allocs {
    private static final int PAIRS = 10_000;
    private static final int WARM_PAIRS = 100_000;
    private static final String NO_COUNT = "the JVM counts the bytes that a thread allocates, not the objects";

    private final Visit visit;

    Allocs(Visit visit) {
        this.visit = visit;
    }

    void run() {
        for (Systems.Blocking system : visit.blocking()) {
            visit.report().skipped(system.service(), cell(), "allocations", "1/op", system.noPair());
            visit.report().skipped(system.service(), cell(), "bytes", "B/op", system.noPair());
        }
        List<Systems.Callback> systems = new ArrayList<>(visit.callback());
        Collections.shuffle(systems, visit.random());
        systems.forEach(this::measure);
    }

    private void measure(Systems.Callback system) {
        List<Double> bytes = new ArrayList<>();
        List<Double> clockNs = new ArrayList<>();
        try (Timers timers = system.openTimers()) {
            PairBench pairs = system.pairs().get();
            pairs.use(timers);
            allocated(pairs, WARM_PAIRS);
            for (int i = 0; i < visit.batches(); i++) {
                bytes.add((double) allocated(pairs, PAIRS) / PAIRS);
                clockNs.add(Clocks.nanoTimeCostNs());
            }
        }
        visit.report().skipped(system.service(), cell(), "allocations", "1/op", NO_COUNT);
        visit.report().samples(system.service(), cell(), "bytes", "B/op", bytes, clockNs,
                "by the caller's thread, compiled code, " + PAIRS + " pairs a sample");
    }

    private static long allocated(PairBench pairs, int count) {
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        long self = Thread.currentThread().getId();
        long before = threads.getThreadAllocatedBytes(self);
        for (int i = 0; i < count; i++) {
            pairs.armCancel();
        }
        return threads.getThreadAllocatedBytes(self) - before;
    }

    private static Map<String, Object> cell() {
        return Json.object("kind", "article", "duration_ms", 1000);
    }
}
