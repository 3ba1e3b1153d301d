package timerbench.originals;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.results.IterationResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.Options;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.VerboseMode;

/**
 * Runs one benchmark through JMH in this process (forks 0): a fork for each system and case, with half a second of
 * warm-up in each, would take longer than the whole visit may. What that costs in isolation is paid back by a process
 * for each visit, a shuffled order, a warm-up of each system and a batch that is not counted before each case.
 */
final class Jmh {
    private Jmh() {}

    /** The wall time of each iteration, ns: of its slowest thread. Batch is the number of calls by each thread. */
    static List<Double> batchesNs(Class<?> benchmark, String method, int threads, int batch, int iterations) {
        Options options = new OptionsBuilder()
                .include("^" + Pattern.quote(benchmark.getName() + "." + method) + "$")
                .mode(Mode.SingleShotTime)
                .forks(0)
                .threads(threads)
                .warmupIterations(0)
                .measurementIterations(iterations)
                .measurementBatchSize(batch)
                .shouldFailOnError(true)
                .verbosity(VerboseMode.SILENT)
                .build();
        List<Double> batches = new ArrayList<>();
        try {
            new Runner(options).runSingle().getBenchmarkResults().forEach(run -> {
                for (IterationResult iteration : run.getIterationResults()) {
                    batches.add(iteration.getRawPrimaryResults().stream().mapToDouble(result -> result.getScore()).max()
                            .orElseThrow());
                }
            });
        } catch (RunnerException failure) {
            throw new IllegalStateException(failure);
        }
        return batches;
    }
}
