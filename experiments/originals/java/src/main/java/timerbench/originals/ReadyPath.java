package timerbench.originals;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** A timeout around a future that is done at once, and the same look at the future without it. */
final class ReadyPath {
    private static final int CALLS = 4_000_000;
    private static final double WARM_NS = 500e6;
    private static final int PROBES = 5;
    private static final String CALLBACKS = "a callback is armed beside the operation: it has no first poll to time";
    private static final String PARKS = "parkNanos waits for a permit and wraps no operation";

    private final Visit visit;

    private record Cell(String service, String bare, String timed) {}

    ReadyPath(Visit visit) {
        this.visit = visit;
    }

    void run() {
        List<Cell> cells = new ArrayList<>();
        for (String service : Systems.names()) {
            if (!visit.wants(service)) {
                continue;
            }
            switch (service) {
                case Systems.OR_TIMEOUT -> cells.add(new Cell(service, "orTimeoutBare", "orTimeout"));
                case Systems.FUTURE_GET -> cells.add(new Cell(service, "getBare", "getTimed"));
                case Systems.PARK_NANOS -> skip(service, PARKS);
                default -> skip(service, CALLBACKS);
            }
        }
        Collections.shuffle(cells, visit.random());
        cells.forEach(this::measure);
    }

    private void measure(Cell cell) {
        warm(cell.bare());
        warm(cell.timed());
        List<Double> bare = new ArrayList<>();
        List<Double> timed = new ArrayList<>();
        List<Double> clockNs = new ArrayList<>();
        for (int i = 0; i < visit.batches(); i++) {
            bare.addAll(batches(cell.bare(), 1));
            timed.addAll(batches(cell.timed(), 1));
            clockNs.add(Clocks.nanoTimeCostNs());
        }
        visit.report().samples(cell.service(), ready(), "above_bare", "ns/op", Numbers.differences(timed, bare),
                clockNs, "JMH in this process, " + CALLS + " calls a batch, each with and without in turn, warmed up "
                        + "for 0.5 s; a done future arms nothing");
        visit.report().samples(cell.service(), ready(), "poll", "ns/op", bare, clockNs, "");
    }

    private static void warm(String method) {
        double batchNs = Numbers.median(batches(method, PROBES)) * CALLS;
        batches(method, (int) Math.ceil(WARM_NS / batchNs));
    }

    /** ns a call of each batch. */
    private static List<Double> batches(String method, int iterations) {
        return Numbers.dividedBy(Jmh.batchesNs(ReadyBench.class, method, 1, CALLS, iterations), CALLS);
    }

    private void skip(String service, String why) {
        visit.report().skipped(service, ready(), "above_bare", "ns/op", why);
        visit.report().skipped(service, ready(), "poll", "ns/op", why);
    }

    private static Map<String, Object> ready() {
        return Json.object("kind", "ready", "duration_ms", 1000);
    }
}
