package timerbench.originals;

import com.sun.jna.Native;
import com.sun.jna.Platform;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * What the process has used. The CPU clock is the system's own, called directly: the JDK gives the CPU time of the
 * process in steps of 10 ms, which is as long as a batch.
 */
final class Clocks {
    private static final int CLOCK_PROCESS_CPUTIME_ID = 2;
    private static final int READINGS = 1_000;
    private static final int WARM_LOOPS = 100;
    private static long sink;

    static {
        Native.register(Clocks.class, Platform.C_LIBRARY_NAME);
    }

    private Clocks() {}

    private static native int clock_gettime(int clock, long[] timespec);

    /** CPU time of every thread of the process since it started, ns. */
    static long processCpuNs() {
        long[] timespec = new long[2];
        if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, timespec) != 0) {
            throw new IllegalStateException("the system has no CPU clock of the process");
        }
        return timespec[0] * 1_000_000_000L + timespec[1];
    }

    /** CPU time of the calling thread since it started, ns. */
    static long threadCpuNs() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    /** What one System.nanoTime() costs now, ns. */
    static synchronized double nanoTimeCostNs() {
        long start = System.nanoTime();
        long sum = 0;
        for (int i = 0; i < READINGS; i++) {
            sum += System.nanoTime();
        }
        sink = sum;
        return (double) (System.nanoTime() - start) / READINGS;
    }

    /** Compiles the loop of nanoTimeCostNs, which is several times slower before. */
    static void warmUp() {
        for (int i = 0; i < WARM_LOOPS; i++) {
            nanoTimeCostNs();
        }
    }

    /** Heap in use, bytes, with what is dead but not collected. */
    static long heapBytes() {
        return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
    }

    /** Heap in use after two collections, bytes: what is still referenced. */
    static long liveHeapBytes() {
        System.gc();
        System.gc();
        return heapBytes();
    }

    /** Resident memory of the process, bytes. */
    static long residentBytes() {
        try {
            for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
                if (line.startsWith("VmRSS:")) {
                    return Long.parseLong(line.replaceAll("[^0-9]", "")) * 1024;
                }
            }
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
        throw new IllegalStateException("/proc/self/status has no VmRSS");
    }
}
