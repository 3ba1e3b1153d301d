package timerbench.originals;

import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/** What each system must do before its figures mean anything. None of them documents an early fire. */
final class Verify {
    private static final int FIRE_MS = 20;
    private static final int CANCELLED_MS = 10;
    private static final int SENTINEL_MS = 40;
    private static final int EVENTS = 100;
    private static final int LONGEST_MS = 30;
    private static final long PATIENCE_S = 5;
    private static final double NS_PER_MS = 1e6;
    private static final String FIRES = "a timeout fires";
    private static final String CANCELLED = "a cancelled timeout does not fire";
    private static final String NEVER_EARLY = "no timeout fires early";

    private final Report report;
    private final Random random = new Random(1);

    Verify(Report report) {
        this.report = report;
    }

    void run() throws InterruptedException {
        for (Systems.Callback system : Systems.CALLBACK) {
            try (Timers timers = system.openTimers()) {
                fires(system.service(), timers);
                cancelledDoesNot(system.service(), timers);
                neverEarly(system.service(), timers);
            }
        }
        for (Systems.Blocking system : Systems.BLOCKING) {
            blocking(system);
        }
    }

    private void fires(String service, Timers timers) throws InterruptedException {
        Firing firing = new Firing(timers, FIRE_MS);
        boolean fired = firing.awaited(TimeUnit.SECONDS.toNanos(PATIENCE_S));
        String detail = fired ? late(firing.lateNs()) : "nothing seen in " + PATIENCE_S + " s";
        report.check(FIRES, service, fired && firing.lateNs() >= 0, FIRE_MS + " ms: " + detail);
    }

    private void cancelledDoesNot(String service, Timers timers) throws InterruptedException {
        AtomicBoolean fired = new AtomicBoolean();
        Timers.Pending pending =
                timers.arm(TimeUnit.MILLISECONDS.toNanos(CANCELLED_MS), () -> fired.set(true));
        boolean cancelled = pending.cancel();
        boolean sentinel = new Firing(timers, SENTINEL_MS).awaited(TimeUnit.SECONDS.toNanos(PATIENCE_S));
        report.check(CANCELLED, service, cancelled && sentinel && !fired.get(), String.format(
                "cancel said %b, a later sentinel %s, the cancelled one %s", cancelled,
                sentinel ? "fired" : "did not fire", fired.get() ? "fired" : "did not fire"));
    }

    private void neverEarly(String service, Timers timers) throws InterruptedException {
        Firing[] firings = new Firing[EVENTS];
        for (int i = 0; i < EVENTS; i++) {
            firings[i] = new Firing(timers, 1 + random.nextInt(LONGEST_MS));
        }
        long patienceEnds = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        int seen = 0;
        long earliest = Long.MAX_VALUE;
        for (Firing firing : firings) {
            if (firing.awaited(patienceEnds - System.nanoTime())) {
                seen++;
                earliest = Math.min(earliest, firing.lateNs());
            }
        }
        report.check(NEVER_EARLY, service, seen == EVENTS && earliest >= 0, earliest(seen, earliest));
    }

    private void blocking(Systems.Blocking system) throws InterruptedException {
        long start = System.nanoTime();
        boolean expired = system.expire().await(TimeUnit.MILLISECONDS.toNanos(FIRE_MS));
        long lateNs = System.nanoTime() - start - TimeUnit.MILLISECONDS.toNanos(FIRE_MS);
        report.check(FIRES, system.service(), expired && lateNs >= 0, FIRE_MS + " ms: " + late(lateNs));

        boolean ended = system.endEarly().await(TimeUnit.SECONDS.toNanos(PATIENCE_S));
        report.check(CANCELLED, system.service(), ended, ended
                ? "a wait that was ended by another thread did not run out" : "the wait ran out");

        long earliest = Long.MAX_VALUE;
        int expirations = 0;
        for (int i = 0; i < EVENTS; i++) {
            long delayNs = TimeUnit.MILLISECONDS.toNanos(1 + random.nextInt(LONGEST_MS));
            start = System.nanoTime();
            expirations += system.expire().await(delayNs) ? 1 : 0;
            earliest = Math.min(earliest, System.nanoTime() - start - delayNs);
        }
        report.check(NEVER_EARLY, system.service(), expirations == EVENTS && earliest >= 0,
                earliest(expirations, earliest));
    }

    private static String late(long ns) {
        return String.format("%.3f ms late", ns / NS_PER_MS);
    }

    private static String earliest(int seen, long ns) {
        String what = seen == 0 ? "none to tell" : String.format("%+.3f ms", ns / NS_PER_MS);
        return String.format("%d of %d timeouts of 1 to %d ms seen, the earliest %s", seen, EVENTS, LONGEST_MS, what);
    }

    /** A timeout that is armed and not cancelled. */
    private static final class Firing {
        private final CountDownLatch fired = new CountDownLatch(1);
        private final AtomicLong lateNs = new AtomicLong();

        Firing(Timers timers, int durationMs) {
            long delayNs = TimeUnit.MILLISECONDS.toNanos(durationMs);
            long armed = System.nanoTime();
            timers.arm(delayNs, () -> {
                lateNs.set(System.nanoTime() - armed - delayNs);
                fired.countDown();
            });
        }

        boolean awaited(long patienceNs) throws InterruptedException {
            return fired.await(patienceNs, TimeUnit.NANOSECONDS);
        }

        long lateNs() {
            return lateNs.get();
        }
    }
}
