package timerbench.originals;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

/** The JSON lines of a visit, one object a line, each written as it is known. Used by one thread. */
final class Report {
    /** Standard output cannot be written: nothing is worth measuring any more. */
    static final class Unwritable extends RuntimeException {
        private static final long serialVersionUID = 1;

        Unwritable(IOException why) {
            super("standard output cannot be written: " + why.getMessage(), why);
        }
    }

    private final OutputStream out;
    private int failedChecks;

    /** What is written to `out` must not wait in a buffer. */
    Report(OutputStream out) {
        this.out = out;
    }

    void versions(Map<String, Object> versions) {
        line("versions", versions);
    }

    /** Batch means: one clock cost for each sample. An empty note is left out. */
    void samples(String service, Map<String, Object> cell, String metric, String unit, List<Double> samples,
            List<Double> clockNs, String note) {
        Map<String, Object> row = row(service, cell, metric, unit);
        row.put("samples", samples);
        row.put("clock_ns", clockNs);
        if (!note.isEmpty()) {
            row.put("note", note);
        }
        row.put("single_events", false);
        line("row", row);
    }

    /** One sample an event; the clock's cost is the same for all of them. */
    void events(String service, Map<String, Object> cell, String metric, String unit, List<Double> samples,
            double clockNs, String note) {
        Map<String, Object> row = row(service, cell, metric, unit);
        row.put("samples", samples);
        row.put("clock_ns", java.util.Collections.nCopies(samples.size(), clockNs));
        row.put("note", note);
        row.put("single_events", true);
        line("row", row);
    }

    void skipped(String service, Map<String, Object> cell, String metric, String unit, String why) {
        Map<String, Object> row = row(service, cell, metric, unit);
        row.put("skipped", why);
        line("row", row);
    }

    void error(String service, Map<String, Object> cell, String metric, String unit, String why) {
        Map<String, Object> row = row(service, cell, metric, unit);
        row.put("error", why);
        line("row", row);
    }

    void check(String name, String service, boolean ok, String detail) {
        if (!ok) {
            failedChecks++;
        }
        line("check", Json.object("name", name, "service", service, "ok", ok, "detail", detail));
    }

    int failedChecks() {
        return failedChecks;
    }

    private static Map<String, Object> row(String service, Map<String, Object> cell, String metric, String unit) {
        return Json.object("service", service, "case", cell, "metric", metric, "unit", unit);
    }

    private void line(String kind, Map<String, Object> value) {
        line(Json.write(Json.object(kind, value)));
    }

    /** As it is. */
    void line(String text) {
        try {
            out.write((text + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (IOException why) {
            throw new Unwritable(why);
        }
    }
}
