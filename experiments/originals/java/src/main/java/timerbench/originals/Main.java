package timerbench.originals;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.Map;
import java.util.Properties;
import java.util.Random;

/**
 * The Java originals: Netty's HashedWheelTimer (ticks of 10, 30 and 100 ms), ScheduledThreadPoolExecutor with and
 * without removal on cancel, CompletableFuture.orTimeout, LockSupport.parkNanos and Future.get with a timeout.
 *
 * <p>The costs are measured by JMH in this process, its raw iteration values being the samples; accuracy, memory and
 * the checks by hand-written code. What does not compare, and what was done about it: code is slow until it is
 * compiled, so each system is warmed up on another instance first; collections run when they will, and their time is
 * in the figures as a server pays it, but each case starts after one; Netty and the executor without removal defer
 * their cancels, so their pairs are also made at a pace that they can keep up with, and the CPU time of the process
 * counts until they have caught up; these are callbacks on the system's own thread, where other programs poll futures;
 * every system here reads the clock anew for each timeout. The clock is System.nanoTime, CLOCK_MONOTONIC on Linux.
 */
public final class Main {
    private static final int CHECK_FAILED = 1;
    private static final int USER_MISTAKE = 2;
    private static final int UNWRITABLE = 2;

    private Main() {}

    /** The line on stderr that a mistake gets names the options. */
    public static void main(String[] words) throws Exception {
        System.setOut(System.err);
        Arguments arguments;
        try {
            arguments = new Arguments(words);
        } catch (IllegalArgumentException mistake) {
            System.err.println("originals/java: " + mistake.getMessage());
            System.exit(USER_MISTAKE);
            return;
        }
        try {
            // Not System.out, which keeps to itself that a write failed.
            System.exit(run(arguments, new Report(new FileOutputStream(FileDescriptor.out))));
        } catch (Report.Unwritable failure) {
            System.err.println("originals/java: " + failure.getMessage());
            System.exit(UNWRITABLE);
        }
    }

    /** The exit code. */
    private static int run(Arguments arguments, Report report) throws Exception {
        if (arguments.mode == Arguments.Mode.LIST) {
            Systems.names().forEach(report::line);
            return 0;
        }
        report.versions(versions());
        if (arguments.mode == Arguments.Mode.VERIFY) {
            new Verify(report).run();
        } else {
            visit(arguments, report);
        }
        return report.failedChecks() == 0 ? 0 : CHECK_FAILED;
    }

    private static void visit(Arguments arguments, Report report) throws InterruptedException {
        Clocks.warmUp();
        Random random = new Random(arguments.seed * 1_000_003 + arguments.round);
        Visit visit = new Visit(arguments.experiment, arguments.full, arguments.systems, random, report);
        switch (arguments.experiment) {
            case "ready_path" -> new ReadyPath(visit).run();
            case "arm_cancel" -> new ArmCancel(visit).run();
            case "allocs" -> new Allocs(visit).run();
            case "scaling" -> new Scaling(visit).run();
            case "accuracy" -> new Accuracy(visit).run();
            case "memory" -> new Memory(visit).run();
            default -> System.err.println("originals/java: the soak is for the wheel of the article only");
        }
    }

    private static Map<String, Object> versions() throws IOException {
        Properties pinned = new Properties();
        try (InputStream file = Main.class.getResourceAsStream("/versions.properties")) {
            pinned.load(file);
        }
        return Json.object(
                "java", System.getProperty("java.runtime.version"),
                "java_vm", System.getProperty("java.vm.name"),
                "netty", pinned.getProperty("netty"),
                "jmh", pinned.getProperty("jmh"),
                "jna", pinned.getProperty("jna"));
    }
}
