package timerbench.originals;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/**
 * The pair among others that are armed. As fast as the caller can (saturating) and, for the systems that keep what was
 * cancelled, a hundred pairs each millisecond (paced): the first is what their callers pay while their queue grows
 * without bound, the second what they pay while it does not.
 */
final class ArmCancel {
    private static final int[] POPULATIONS = {0, 10_000, 1_000_000};
    private static final int BURSTS = 50;
    private static final double BYTES_PER_MB = 1e6;

    private final Visit visit;
    private final Warmup warmup = new Warmup();

    private record Cell(Systems.Callback system, int population) {}

    ArmCancel(Visit visit) {
        this.visit = visit;
    }

    void run() throws InterruptedException {
        for (Systems.Blocking system : visit.blocking()) {
            for (int population : POPULATIONS) {
                skip(system.service(), cell(population, "saturating"), system.noPair());
            }
        }
        List<Cell> cells = new ArrayList<>();
        for (Systems.Callback system : visit.callback()) {
            for (int population : POPULATIONS) {
                cells.add(new Cell(system, population));
            }
        }
        Collections.shuffle(cells, visit.random());
        for (Cell cell : cells) {
            measure(cell.system(), cell.population());
        }
    }

    private void measure(Systems.Callback system, int population) throws InterruptedException {
        int pairs = warmup.warm(system);
        try (Timers timers = system.openTimers();
                Population others = new Population(timers, population, visit.random())) {
            timers.drain(population);
            System.gc();
            saturating(system, timers, population, pairs);
            if (system.lazyCancel()) {
                paced(system, timers, population);
            }
        }
    }

    private void saturating(Systems.Callback system, Timers timers, int population, int pairs)
            throws InterruptedException {
        Map<String, Object> cell = cell(population, "saturating");
        Class<?> benchmark = system.pairs().get().getClass();
        long cpuBefore = Clocks.processCpuNs();
        long heapBefore = Clocks.heapBytes();
        Trial.begin(timers, 1);
        Jmh.batchesNs(benchmark, "armCancel", 1, pairs, 1);
        Trial trial = Trial.begin(timers, 1);
        List<Double> batches = Jmh.batchesNs(benchmark, "armCancel", 1, pairs, visit.batches());
        long heapAfter = Clocks.heapBytes();
        String left = timers.drain(population);
        double cpuToDrained = Clocks.processCpuNs() - cpuBefore;

        long allPairs = (long) pairs * batches.size();
        if (wrong(system, cell, trial, allPairs)) {
            return;
        }
        String note = "JMH in this process, " + pairs + " pairs a batch, " + warmNote();
        if (system.lazyCancel()) {
            note += String.format("; after %d pairs %s; heap %+.0f MB, collections included", allPairs + pairs, left,
                    (heapAfter - heapBefore) / BYTES_PER_MB);
        }
        visit.report().samples(system.service(), cell, "arm_cancel", "ns/op", Numbers.dividedBy(batches, pairs),
                trial.clockNs(), note);
        if (system.lazyCancel()) {
            // The batch that is not timed leaves its part to drain too.
            double perPair = cpuToDrained / (allPairs + pairs);
            visit.report().samples(system.service(), cell, "process_cpu", "ns/op", List.of(perPair),
                    List.of(Numbers.median(trial.clockNs())),
                    "one sample a visit: from the first pair until all had left: " + left);
        } else {
            visit.report().samples(system.service(), cell, "process_cpu", "ns/op",
                    Numbers.dividedBy(trial.processCpuNs(), pairs), trial.clockNs(), "");
        }
    }

    /** The caller sleeps between its bursts; of its CPU time only the bursts count. */
    private void paced(Systems.Callback system, Timers timers, int population) {
        Map<String, Object> cell = cell(population, "paced");
        cell.put("pairs_per_ms", Paced.BURST_PAIRS);
        Class<?> benchmark = system.pairs().get().getClass();
        Trial.begin(timers, 1);
        Jmh.batchesNs(benchmark, "burst", 1, BURSTS, 1);
        Trial trial = Trial.begin(timers, 1);
        List<Double> batches = Jmh.batchesNs(benchmark, "burst", 1, BURSTS, visit.batches());

        long pairs = (long) Paced.BURST_PAIRS * BURSTS;
        if (wrong(system, cell, trial, pairs * batches.size())) {
            return;
        }
        List<Double> cpu = new ArrayList<>();
        for (int i = 0; i < batches.size(); i++) {
            double others = trial.processCpuNs().get(i) - trial.callerCpuNs().get(i);
            cpu.add((others + batches.get(i)) / pairs);
        }
        visit.report().samples(system.service(), cell, "arm_cancel", "ns/op", Numbers.dividedBy(batches, pairs),
                trial.clockNs(), "JMH in this process, a sample is " + BURSTS + " bursts of " + Paced.BURST_PAIRS
                        + " pairs, a millisecond apart, " + warmNote());
        visit.report().samples(system.service(), cell, "process_cpu", "ns/op", cpu, trial.clockNs(),
                "the bursts and all other threads, without the caller's own sleeping and waking");
    }

    private boolean wrong(Systems.Callback system, Map<String, Object> cell, Trial trial, long pairs) {
        String why = trial.countsWrong(pairs);
        if (why.isEmpty()) {
            return false;
        }
        visit.report().error(system.service(), cell, "arm_cancel", "ns/op", why);
        visit.report().error(system.service(), cell, "process_cpu", "ns/op", why);
        return true;
    }

    private void skip(String service, Map<String, Object> cell, String why) {
        visit.report().skipped(service, cell, "arm_cancel", "ns/op", why);
        visit.report().skipped(service, cell, "process_cpu", "ns/op", why);
    }

    private static String warmNote() {
        return "warmed up for 0.5 s on another instance before the system's first case and by a batch on this one";
    }

    private static Map<String, Object> cell(int population, String regime) {
        return Json.object("kind", "article", "population", population, "duration_ms", 1000, "regime", regime);
    }
}
