package timerbench.originals;

import java.util.List;
import java.util.Random;

/** One visit of an experiment: what to measure, how long, and where to write it. */
record Visit(String experiment, boolean full, List<String> systems, Random random, Report report) {
    private static final int BATCHES_QUICK = 5;
    private static final int BATCHES_FULL = 10;

    boolean wants(String service) {
        return systems.isEmpty() || systems.stream().anyMatch(service::contains);
    }

    List<Systems.Callback> callback() {
        return Systems.CALLBACK.stream().filter(system -> wants(system.service())).toList();
    }

    List<Systems.Blocking> blocking() {
        return Systems.BLOCKING.stream().filter(system -> wants(system.service())).toList();
    }

    /** Samples a case. */
    int batches() {
        return full ? BATCHES_FULL : BATCHES_QUICK;
    }
}
