package timerbench.originals;

import java.util.List;
import java.util.stream.IntStream;

/** Sums on samples. */
final class Numbers {
    private Numbers() {}

    static double median(List<Double> values) {
        List<Double> sorted = values.stream().sorted().toList();
        return sorted.get(sorted.size() / 2);
    }

    static List<Double> dividedBy(List<? extends Number> values, double divisor) {
        return values.stream().map(value -> value.doubleValue() / divisor).toList();
    }

    static List<Double> differences(List<Double> minuends, List<Double> subtrahends) {
        return IntStream.range(0, minuends.size()).mapToObj(i -> minuends.get(i) - subtrahends.get(i)).toList();
    }
}
