package timerbench.originals;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** What timeouts that were cancelled still hold: what a collection just after the last one cannot free. */
final class Memory {
    private static final int TIMERS_QUICK = 200_000;
    private static final int TIMERS_FULL = 1_000_000;
    private static final int WARM_TIMERS = 1_000;
    private static final int DURATION_MS = 60_000;
    private static final double NS_PER_MS = 1e6;
    private static final String NOTHING_ARMED = "the waiting thread is the timer: nothing is left when its wait ends";

    private final Visit visit;

    Memory(Visit visit) {
        this.visit = visit;
    }

    void run() throws InterruptedException {
        for (Systems.Blocking system : visit.blocking()) {
            visit.report().skipped(system.service(), cell(), "held", "B", NOTHING_ARMED);
            visit.report().skipped(system.service(), cell(), "rss", "B", NOTHING_ARMED);
        }
        List<Systems.Callback> systems = new ArrayList<>(visit.callback());
        Collections.shuffle(systems, visit.random());
        for (Systems.Callback system : systems) {
            measure(system);
        }
    }

    private void measure(Systems.Callback system) {
        try (Timers timers = system.openTimers()) {
            armAndCancel(timers, WARM_TIMERS);
            long heapBefore = Clocks.liveHeapBytes();
            long residentBefore = Clocks.residentBytes();
            armAndCancel(timers, timers());
            long last = System.nanoTime();
            long heldBytes = Clocks.liveHeapBytes() - heapBefore;
            double readAfterMs = (System.nanoTime() - last) / NS_PER_MS;
            long residentBytes = Clocks.residentBytes() - residentBefore;

            List<Double> clockNs = List.of(Clocks.nanoTimeCostNs());
            visit.report().samples(system.service(), cell(), "held", "B", List.of((double) heldBytes / timers()),
                    clockNs, String.format("live after two collections, the last over %.0f ms after the last cancel",
                            readAfterMs));
            visit.report().samples(system.service(), cell(), "rss", "B", List.of((double) residentBytes / timers()),
                    clockNs, "the heap's growth with what has been collected since");
        }
    }

    private static void armAndCancel(Timers timers, int count) {
        long delayNs = TimeUnit.MILLISECONDS.toNanos(DURATION_MS);
        for (int i = 0; i < count; i++) {
            timers.arm(delayNs, Trial.NEVER).cancel();
        }
    }

    private int timers() {
        return visit.full() ? TIMERS_FULL : TIMERS_QUICK;
    }

    private Map<String, Object> cell() {
        return Json.object("kind", "cancelled", "timers", timers(), "duration_ms", DURATION_MS);
    }
}
