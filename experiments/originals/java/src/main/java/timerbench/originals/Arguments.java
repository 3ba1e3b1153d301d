package timerbench.originals;

import java.util.ArrayList;
import java.util.List;

/** The command line. A mistake in it is an IllegalArgumentException whose message names it. */
final class Arguments {
    /** What to do. */
    enum Mode { VISIT, VERIFY, LIST }

    static final List<String> EXPERIMENTS =
            List.of("ready_path", "arm_cancel", "allocs", "scaling", "accuracy", "memory", "soak");

    final Mode mode;
    final String experiment;
    final long round;
    final long seed;
    final boolean full;
    final List<String> systems = new ArrayList<>();

    Arguments(String[] words) {
        Mode wanted = Mode.VISIT;
        String name = null;
        Long roundGiven = null;
        Long seedGiven = null;
        Boolean fullGiven = null;
        for (int i = 0; i < words.length; i++) {
            switch (words[i]) {
                case "--verify" -> wanted = Mode.VERIFY;
                case "--list" -> wanted = Mode.LIST;
                case "--quick" -> fullGiven = false;
                case "--full" -> fullGiven = true;
                case "--experiment" -> name = value(words, i++);
                case "--system" -> systems.add(value(words, i++));
                case "--round" -> roundGiven = number(words, i++);
                case "--seed" -> seedGiven = number(words, i++);
                default -> throw new IllegalArgumentException("\"" + words[i] + "\" is no option; there are "
                        + "--experiment, --round, --seed, --quick, --full, --system, --verify and --list");
            }
        }
        if (wanted == Mode.VISIT) {
            require(name != null, "--experiment is missing; one of " + String.join(", ", EXPERIMENTS));
            require(EXPERIMENTS.contains(name),
                    "--experiment \"" + name + "\" is unknown; one of " + String.join(", ", EXPERIMENTS));
            require(roundGiven != null && seedGiven != null, "--round and --seed are wanted, each a number");
            require(fullGiven != null, "--quick or --full is wanted");
            for (String part : systems) {
                require(Systems.names().stream().anyMatch(service -> service.contains(part)),
                        "--system \"" + part + "\" matches none of " + String.join(", ", Systems.names()));
            }
        }
        mode = wanted;
        experiment = name;
        round = roundGiven == null ? 0 : roundGiven;
        seed = seedGiven == null ? 0 : seedGiven;
        full = fullGiven != null && fullGiven;
    }

    private static String value(String[] words, int option) {
        require(option + 1 < words.length, words[option] + " wants a value after it");
        return words[option + 1];
    }

    private static long number(String[] words, int option) {
        String text = value(words, option);
        String otherwise = words[option] + " \"" + text + "\" is no whole number from 0 to " + Long.MAX_VALUE;
        require(text.matches("[0-9]+"), otherwise);
        try {
            return Long.parseLong(text);
        } catch (NumberFormatException tooLarge) {
            throw new IllegalArgumentException(otherwise, tooLarge);
        }
    }

    private static void require(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalArgumentException(otherwise);
        }
    }
}
