package timerbench.originals;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;

/** The pair of CompletableFuture.orTimeout: a future that is completed before its timeout. */
public class OrTimeoutPairs extends PairBench {
    private static final Integer VALUE = 1;

    @Override
    void use(Timers timers) {}

    @Override
    @Benchmark
    public Object armCancel() {
        CompletableFuture<Integer> future = new CompletableFuture<Integer>().orTimeout(1, TimeUnit.SECONDS);
        if (future.complete(VALUE)) {
            cancelled++;
        }
        return future;
    }
}
