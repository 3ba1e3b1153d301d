package timerbench.originals;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/**
 * How late a timeout is seen: from just before it was armed. Callback systems get many at once, a random time apart, so
 * that they fall on every part of a tick; blocking ones get as many threads as keep the machine nearly idle.
 */
final class Accuracy {
    private static final int[] DURATIONS_MS = {1, 5, 10, 25, 100};
    private static final int EVENTS_QUICK = 200;
    private static final int EVENTS_FULL = 1_000;
    private static final int WARM_EVENTS = 200;
    private static final int WARM_MS = 2;
    private static final double NS_PER_MS = 1e6;
    // All of a case's events are armed over more than the longest tick.
    private static final double SPREAD_NS = 120e6;
    private static final double SHORTEST_GAP_NS = 0.5e6;
    private static final int FEWEST_WAITERS = 4;
    private static final int MOST_WAITERS = 96;
    private static final int WAITERS_PER_MS = 2;
    private static final int PAUSE_MS = 5;
    private static final long PATIENCE_S = 20;

    private final Visit visit;

    private record Cell(String service, int durationMs, Probe probe) {}

    /** Makes events and returns how late each was, ms. */
    private interface Probe {
        List<Double> lateness(int durationMs, int events) throws InterruptedException;
    }

    Accuracy(Visit visit) {
        this.visit = visit;
    }

    void run() throws InterruptedException {
        Map<String, Probe> probes = new LinkedHashMap<>();
        for (Systems.Callback system : visit.callback()) {
            probes.put(system.service(), (ms, events) -> callbacks(system, ms, events));
        }
        for (Systems.Blocking system : visit.blocking()) {
            probes.put(system.service(), (ms, events) -> waits(system, ms, events));
        }
        for (Probe probe : probes.values()) {
            probe.lateness(WARM_MS, WARM_EVENTS);
        }
        List<Cell> cells = new ArrayList<>();
        for (int durationMs : DURATIONS_MS) {
            probes.forEach((service, probe) -> cells.add(new Cell(service, durationMs, probe)));
        }
        Collections.shuffle(cells, visit.random());
        for (Cell cell : cells) {
            Map<String, Object> key = Json.object("duration_ms", cell.durationMs());
            try {
                List<Double> late =
                        cell.probe().lateness(cell.durationMs(), visit.full() ? EVENTS_FULL : EVENTS_QUICK);
                visit.report().events(cell.service(), key, "callback_start", "ms", late, Clocks.nanoTimeCostNs(),
                        "after " + WARM_EVENTS + " events that only warm the code up");
            } catch (IllegalStateException lost) {
                visit.report().error(cell.service(), key, "callback_start", "ms", lost.getMessage());
            }
        }
    }

    private List<Double> callbacks(Systems.Callback system, int durationMs, int events) throws InterruptedException {
        double[] late = new double[events];
        CountDownLatch seen = new CountDownLatch(events);
        double meanGapNs = Math.max(SHORTEST_GAP_NS, SPREAD_NS / events);
        long delayNs = TimeUnit.MILLISECONDS.toNanos(durationMs);
        try (Timers timers = system.openTimers()) {
            for (int i = 0; i < events; i++) {
                LockSupport.parkNanos((long) (visit.random().nextDouble() * 2 * meanGapNs));
                int event = i;
                long armed = System.nanoTime();
                timers.arm(delayNs, () -> {
                    late[event] = (System.nanoTime() - armed - delayNs) / NS_PER_MS;
                    seen.countDown();
                });
            }
            await(seen, events);
        }
        return Arrays.stream(late).boxed().toList();
    }

    private List<Double> waits(Systems.Blocking system, int durationMs, int events) throws InterruptedException {
        double[] late = new double[events];
        CountDownLatch seen = new CountDownLatch(events);
        AtomicInteger next = new AtomicInteger();
        long delayNs = TimeUnit.MILLISECONDS.toNanos(durationMs);
        int waiters = Math.min(MOST_WAITERS, Math.max(FEWEST_WAITERS, WAITERS_PER_MS * durationMs));
        for (int waiter = 0; waiter < waiters; waiter++) {
            Random random = new Random(visit.random().nextLong());
            Thread thread = Timers.daemons("waiter").newThread(() -> {
                for (int event = next.getAndIncrement(); event < events; event = next.getAndIncrement()) {
                    LockSupport.parkNanos((long) (random.nextDouble() * (durationMs + PAUSE_MS) * NS_PER_MS));
                    long start = System.nanoTime();
                    try {
                        system.expire().await(delayNs);
                    } catch (InterruptedException stopped) {
                        return;
                    }
                    late[event] = (System.nanoTime() - start - delayNs) / NS_PER_MS;
                    seen.countDown();
                }
            });
            thread.start();
        }
        await(seen, events);
        return Arrays.stream(late).boxed().toList();
    }

    private static void await(CountDownLatch seen, int events) throws InterruptedException {
        if (!seen.await(PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(
                    seen.getCount() + " of " + events + " timeouts were not seen within " + PATIENCE_S + " s");
        }
    }
}
