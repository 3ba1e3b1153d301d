package timerbench.originals;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** The pair by several threads at once on one shared instance, as servers share it. */
final class Scaling {
    private static final int[] WORKERS = {1, 2, 4, 8};

    // What the lazy systems must at most drain after a case.
    private static final int MOST_LAZY_PAIRS_QUICK = 800_000;
    private static final int MOST_LAZY_PAIRS_FULL = 2_000_000;

    private final Visit visit;
    private final Warmup warmup = new Warmup();

    private record Cell(Systems.Callback system, int workers) {}

    Scaling(Visit visit) {
        this.visit = visit;
    }

    void run() throws InterruptedException {
        for (Systems.Blocking system : visit.blocking()) {
            for (int workers : WORKERS) {
                visit.report().skipped(system.service(), cell(workers), "arm_cancel", "ns/op", system.noPair());
                visit.report().skipped(system.service(), cell(workers), "process_cpu", "ns/op", system.noPair());
            }
        }
        List<Cell> cells = new ArrayList<>();
        for (Systems.Callback system : visit.callback()) {
            for (int workers : WORKERS) {
                cells.add(new Cell(system, workers));
            }
        }
        Collections.shuffle(cells, visit.random());
        for (Cell cell : cells) {
            measure(cell.system(), cell.workers());
        }
    }

    private void measure(Systems.Callback system, int workers) throws InterruptedException {
        Map<String, Object> cell = cell(workers);
        int pairs = warmup.warm(system);
        if (system.lazyCancel()) {
            int most = visit.full() ? MOST_LAZY_PAIRS_FULL : MOST_LAZY_PAIRS_QUICK;
            pairs = Math.min(pairs, most / (visit.batches() + 1) / workers);
        }
        try (Timers timers = system.openTimers()) {
            System.gc();
            Class<?> benchmark = system.pairs().get().getClass();
            long cpuBefore = Clocks.processCpuNs();
            Trial.begin(timers, workers);
            Jmh.batchesNs(benchmark, "armCancel", workers, pairs, 1);
            Trial trial = Trial.begin(timers, workers);
            Jmh.batchesNs(benchmark, "armCancel", workers, pairs, visit.batches());
            String left = timers.drain(0);
            double cpuToDrained = Clocks.processCpuNs() - cpuBefore;

            long batchPairs = (long) pairs * workers;
            String why = trial.countsWrong(batchPairs * visit.batches());
            if (!why.isEmpty()) {
                visit.report().error(system.service(), cell, "arm_cancel", "ns/op", why);
                visit.report().error(system.service(), cell, "process_cpu", "ns/op", why);
                return;
            }
            visit.report().samples(system.service(), cell, "arm_cancel", "ns/op",
                    Numbers.dividedBy(trial.elapsedNs(), pairs), trial.clockNs(),
                    "JMH's threads in this process, " + pairs + " pairs a thread and batch, from their common start "
                            + "until the last is done" + (left.isEmpty() ? "" : "; afterwards " + left));
            if (system.lazyCancel()) {
                visit.report().samples(system.service(), cell, "process_cpu", "ns/op",
                        List.of(cpuToDrained / (batchPairs * (visit.batches() + 1))),
                        List.of(Numbers.median(trial.clockNs())),
                        "one sample a visit: from the first pair until all had left: " + left);
            } else {
                visit.report().samples(system.service(), cell, "process_cpu", "ns/op",
                        Numbers.dividedBy(trial.processCpuNs(), batchPairs), trial.clockNs(), "");
            }
        }
    }

    private static Map<String, Object> cell(int workers) {
        return Json.object("workers", workers);
    }
}
