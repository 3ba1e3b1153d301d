package timerbench.originals;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.LongAccumulator;
import java.util.concurrent.atomic.LongAdder;

/**
 * What one run of JMH and the program that started it share: the instance under test, and beside JMH's times the CPU
 * time of the process, the clock's cost and the counts. JMH runs in this process and makes its own benchmark objects,
 * so the current trial is found in a static field; it is set before JMH starts its threads.
 */
final class Trial {
    private static volatile Trial current;
    private static final LongAdder FIRED = new LongAdder();

    /** The task of every pair: it is cancelled, so it must never run. */
    static final Runnable NEVER = FIRED::increment;

    private final Timers timers;
    private final CyclicBarrier start;
    private final CyclicBarrier end;
    private final LongAdder cancelled = new LongAdder();

    // When the last caller of the current batch was done; each caller adds its own time.
    private final LongAccumulator lastEndNs = new LongAccumulator(Math::max, Long.MIN_VALUE);

    // Written by the barriers' actions, which one thread runs while the others wait; read after JMH's threads ended.
    private final List<Double> clockNs = new ArrayList<>();
    private final List<Long> processCpuNs = new ArrayList<>();
    private final List<Long> callerCpuNs = new ArrayList<>();
    private final List<Long> elapsedNs = new ArrayList<>();
    private long cpuAtStart;
    private long callerCpuAtStart;
    private long startNs;

    private Trial(Timers timers, int threads) {
        this.timers = timers;
        start = new CyclicBarrier(threads, this::startBatch);
        end = new CyclicBarrier(threads, this::endBatch);
    }

    static Trial begin(Timers timers, int threads) {
        FIRED.reset();
        current = new Trial(timers, threads);
        return current;
    }

    static Trial current() {
        return current;
    }

    Timers timers() {
        return timers;
    }

    /** Every caller thread calls this just before its batch. */
    void startTogether() throws InterruptedException, BrokenBarrierException {
        start.await();
    }

    /** Every caller thread calls this just after its batch, with the number of pairs that it cancelled. */
    void endTogether(long pairsCancelled) throws InterruptedException, BrokenBarrierException {
        lastEndNs.accumulate(System.nanoTime());
        cancelled.add(pairsCancelled);
        end.await();
    }

    private void startBatch() {
        callerCpuAtStart = Clocks.threadCpuNs();
        cpuAtStart = Clocks.processCpuNs();
        startNs = System.nanoTime();
    }

    private void endBatch() {
        processCpuNs.add(Clocks.processCpuNs() - cpuAtStart);
        callerCpuNs.add(Clocks.threadCpuNs() - callerCpuAtStart);
        elapsedNs.add(lastEndNs.getThenReset() - startNs);
        clockNs.add(Clocks.nanoTimeCostNs());
    }

    /** The clock's cost beside each batch, ns. */
    List<Double> clockNs() {
        return clockNs;
    }

    /** CPU time of the process over each batch, ns. */
    List<Long> processCpuNs() {
        return processCpuNs;
    }

    /** CPU time of the caller over each batch, ns; only where there is one caller. */
    List<Long> callerCpuNs() {
        return callerCpuNs;
    }

    /** The time of each batch from its callers' common start until the last of them was done, ns. */
    List<Long> elapsedNs() {
        return elapsedNs;
    }

    /** "" if each of the pairs was cancelled and none fired; otherwise what is wrong. */
    String countsWrong(long pairs) {
        if (cancelled.sum() == pairs && FIRED.sum() == 0) {
            return "";
        }
        return "of " + pairs + " pairs " + cancelled.sum() + " were cancelled and " + FIRED.sum() + " fired";
    }
}
