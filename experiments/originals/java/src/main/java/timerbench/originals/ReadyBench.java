package timerbench.originals;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.State;

/** A future that is done when it is looked at, with a timeout around it and without. */
@State(Scope.Thread)
@BenchmarkMode(Mode.SingleShotTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class ReadyBench {
    // Not final: the compiler must not know that it is done.
    private CompletableFuture<Integer> ready = CompletableFuture.completedFuture(1);

    @Benchmark
    public Integer orTimeoutBare() {
        return ready.getNow(null);
    }

    @Benchmark
    public Integer orTimeout() {
        return ready.orTimeout(1, TimeUnit.SECONDS).getNow(null);
    }

    @Benchmark
    public Integer getBare() throws ExecutionException, InterruptedException {
        return ready.get();
    }

    @Benchmark
    public Integer getTimed() throws ExecutionException, InterruptedException, TimeoutException {
        return ready.get(1, TimeUnit.SECONDS);
    }
}
