"""What the judging of times rests on. Pure functions over numpy and scipy.

Values are logarithms of times relative to a reference, one for each block (a visit or a round), in the order in which they
were taken. A block's value is a median, so single bad samples are gone; blocks, not samples, are the unit of resampling,
because samples of one visit are correlated.

Location of a row is a trimmed mean of its blocks. Noise of a shared machine only adds time, in some blocks much, so for visits
the slower half is left out; differences of rounds are symmetric and keep all. The standard error comes from the bootstrap
(scipy.stats.bootstrap). The ends of an interval are that error times a quantile of Student's t: a level corrected for hundreds
of rows lies far beyond what resampling a dozen blocks can show directly, and Student's tails with the degrees of freedom that
trimming leaves (Yuen 1974) stay honest there. Blocks that follow each other resemble each other when the machine drifts; the
error is widened, and the freedom narrowed, by the lag-1 autocorrelation found in them.

The faster half of a noisy side lies further below its middle than that of a quiet one. So a row counts as worse only when its
median is worse by the minimum effect too (`median_shift`) and the rank test agrees; the interval alone would mistake a quieter
machine for slower code.

What that is bad at: a drift that lasts for many blocks (lag-1 autocorrelation of the blocks themselves above 0.5) is found too
small in a dozen of them. The minimum effect has to cover it, as it has to cover what differs between two builds.

Correction for many rows: Bonferroni on the level of the interval. With m rows and a false-alarm rate alpha of the whole run,
each lower end is one-sided at alpha / m.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

Trim = tuple[float, float]
RESAMPLES = 999
MOST_FREEDOM_LOST = 3  # as a divisor: what is found of an autocorrelation in a dozen blocks is itself uncertain
SEED = 20111


def block_medians(values: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """The median of each block, in the order of the blocks' numbers."""
    order = np.argsort(blocks, kind="stable")
    _, sizes = np.unique(blocks, return_counts=True)
    ordered = values[order]
    if np.all(sizes == sizes[0]):
        return np.median(ordered.reshape(len(sizes), sizes[0]), axis=1)
    return np.array([np.median(block) for block in np.split(ordered, np.cumsum(sizes)[:-1])])


def student(level: float, freedom: float) -> float:
    """The value that Student's t exceeds with the probability `level`. Exact for small levels, and fast."""
    return -float(special.stdtrit(freedom, level))


def _cuts(count: int, trim: Trim) -> tuple[int, int]:
    """Where the part of `count` sorted blocks that trimming leaves begins and ends."""
    return int(trim[0] * count), count - int(trim[1] * count)


def kept(count: int, trim: Trim) -> int:
    """How many of `count` blocks trimming leaves."""
    begin, end = _cuts(count, trim)
    return end - begin


def location(values: np.ndarray, trim: Trim) -> float | np.ndarray:
    """Trimmed mean along the last axis: the shares `trim` are left out at the low and at the high end."""
    begin, end = _cuts(np.shape(values)[-1], trim)
    return np.mean(np.sort(values, axis=-1)[..., begin:end], axis=-1)


def standard_error(values: np.ndarray, trim: Trim, resamples: int = RESAMPLES, seed: int = SEED) -> float | np.ndarray:
    """Bootstrap standard error of `location` along the last axis, which holds n >= 2 blocks.

    The factor sqrt(n / (n - 1)) makes up for the bootstrap's bias: a resample varies by the sample's own spread.
    """
    values = np.asarray(values, dtype=float)
    count = values.shape[-1]
    if count < 2:
        raise ValueError("a standard error needs at least 2 blocks")
    from scipy import stats  # not at the head: it takes half of the time that a command needs to start

    result = stats.bootstrap((values,), lambda sample, axis=-1: location(sample, trim), n_resamples=resamples,
                             vectorized=True, axis=-1, method="percentile", random_state=np.random.default_rng(seed))
    return result.standard_error * math.sqrt(count / (count - 1))


def autocorrelation(values: np.ndarray) -> float:
    """Lag-1 autocorrelation of blocks in the order of time, from 0 to 0.9, corrected for its bias in short series."""
    count = len(values)
    if count < 4:
        return 0.0
    centred = values - np.mean(values)
    total = float(np.dot(centred, centred))
    if total <= 0:
        return 0.0
    found = float(np.dot(centred[1:], centred[:-1])) / total
    return min(max(found + (1 + 3 * found) / count, 0.0), 0.9)


@dataclass(frozen=True)
class Estimate:
    """A difference of logarithms, its standard error and the degrees of freedom of that error."""

    value: float
    error: float
    freedom: float

    def bound(self, level: float, upper: bool) -> float:
        """End of the interval that the true difference lies beyond with a probability of at most `level` on that side."""
        distance = self.error * student(level, self.freedom) if self.error > 0 else 0.0
        return float(self.value + distance if upper else self.value - distance)


def series_estimates(series: list[np.ndarray], trim: Trim) -> list[Estimate]:
    """Location of each series of blocks, with its error. Series of one length are resampled together."""
    errors = np.zeros(len(series))
    lengths = np.array([len(values) for values in series])
    for length in np.unique(lengths):
        chosen = np.flatnonzero(lengths == length)
        errors[chosen] = standard_error(np.stack([series[number] for number in chosen]), trim)
    result = []
    for values, error in zip(series, errors):
        dependence = autocorrelation(winsorized(values, trim))
        widening = (1 + dependence) / (1 - dependence)
        freedom = max((kept(len(values), trim) - 1) / min(widening, MOST_FREEDOM_LOST), 1.0)
        result.append(Estimate(float(location(values, trim)), float(error) * math.sqrt(widening), freedom))
    return result


def winsorized(values: np.ndarray, trim: Trim) -> np.ndarray:
    """What trimming would leave out is moved to the nearest value that stays."""
    order = np.sort(values)
    begin, end = _cuts(len(values), trim)
    return np.clip(values, order[begin], order[end - 1])


def difference(base: Estimate, head: Estimate) -> Estimate:
    """Head minus base of two independent series (Welch)."""
    variance = base.error ** 2 + head.error ** 2
    if variance <= 0:
        return Estimate(head.value - base.value, 0.0, min(base.freedom, head.freedom))
    freedom = variance ** 2 / (base.error ** 4 / base.freedom + head.error ** 4 / head.freedom)
    return Estimate(head.value - base.value, math.sqrt(variance), freedom)


def rank_test(base: np.ndarray, head: np.ndarray, paired: bool) -> float | None:
    """p of "both sides are alike", two-sided: Wilcoxon's signed ranks for rounds, Mann-Whitney's for visits.

    None when there are fewer than 2 values a side. 1 when nothing differs.
    """
    if min(len(base), len(head)) < 2:
        return None
    from scipy import stats

    if paired:
        differences = head - base
        if not np.any(differences):
            return 1.0
        mode = "exact" if len(differences) <= 50 and len(np.unique(np.abs(differences))) == len(differences) \
            and np.all(differences) else "approx"
        return float(stats.wilcoxon(differences, mode=mode).pvalue)
    return float(stats.mannwhitneyu(base, head, alternative="two-sided").pvalue)


def smallest_detectable(estimate: Estimate, level: float, minimum_effect: float, power: float) -> float:
    """The smallest relative worsening that would have been called a regression with the probability `power`.

    The true difference has to lie `power` above the alarm threshold, which is the larger of the interval's half width and
    the minimum effect. Infinite when that is beyond every number.
    """
    threshold = max(estimate.error * student(level, estimate.freedom) if estimate.error > 0 else 0.0,
                    math.log1p(minimum_effect))
    needed = threshold + estimate.error * student(1 - power, estimate.freedom)
    return math.expm1(needed) if needed < 700 else math.inf


def median_shift(base: np.ndarray, head: np.ndarray) -> float:
    """Difference of the medians of two independent series."""
    return float(np.median(head) - np.median(base))


def spread(values: np.ndarray) -> float:
    """The distance from the 10th to the 90th percentile relative to the median."""
    low, middle, high = np.percentile(values, [10, 50, 90])
    return float((high - low) / middle)
