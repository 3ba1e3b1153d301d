package timerbench.originals;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * CompletableFuture.orTimeout: a scheduled task in the JDK's one shared executor (which removes on cancel) that fails
 * the future; a future completed before it cancels the task. The executor cannot be closed: whoever arms also cancels.
 */
final class OrTimeoutTimers implements Timers {
    @Override
    public Pending arm(long delayNs, Runnable onFire) {
        CompletableFuture<Void> future = new CompletableFuture<>();
        future.whenComplete((value, failure) -> {
            if (failure != null) {
                onFire.run();
            }
        });
        future.orTimeout(delayNs, TimeUnit.NANOSECONDS);
        return () -> future.complete(null);
    }

    @Override
    public String drain(long live) {
        return "";
    }

    @Override
    public boolean cancelBeforeClose() {
        return true;
    }

    @Override
    public void close() {}
}
