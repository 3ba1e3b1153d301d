"""judging/statistics.py: known answers, and rates of false alarms on noise with known properties."""

import math
import unittest
from unittest import mock

import judging_reports  # noqa: F401  finds the package
import numpy as np
from scipy import stats

from judging import statistics

NONE = (0.0, 0.0)
LOW = (0.0, 0.5)


class KnownAnswers(unittest.TestCase):
    def test_block_medians(self):
        found = statistics.block_medians(np.array([1.0, 9.0, 2.0, 5.0, 7.0]), np.array([0, 0, 0, 3, 3]))
        self.assertEqual(found.tolist(), [2.0, 6.0])

    def test_location(self):
        values = np.array([4.0, 1.0, 100.0, 2.0])
        self.assertEqual(statistics.location(values, NONE), 26.75)
        self.assertEqual(statistics.location(values, LOW), 1.5)
        self.assertEqual(statistics.location(values, (0.25, 0.25)), stats.trim_mean(values, 0.25))
        self.assertEqual(statistics.kept(14, LOW), 7)

    def test_standard_error_is_that_of_the_mean(self):
        values = np.random.default_rng(1).normal(0, 1, 40)
        self.assertAlmostEqual(statistics.standard_error(values, NONE, 4000), stats.sem(values), delta=0.05 * stats.sem(values))

    def test_standard_error_covers_the_trimmed_mean(self):
        generator = np.random.default_rng(2)
        samples = generator.normal(0, 1, (400, 20)) + (generator.random((400, 20)) < 0.3) * generator.exponential(5, (400, 20))
        true = np.std(statistics.location(samples, LOW))
        found = np.median([statistics.standard_error(sample, LOW, 199) for sample in samples[:60]])
        self.assertGreater(found, 0.8 * true)
        self.assertLess(found, 1.4 * true)

    def test_constant_blocks_have_no_error(self):
        self.assertEqual(statistics.standard_error(np.full(10, 3.0), NONE), 0)
        estimate = statistics.series_estimates([np.full(10, 3.0)], NONE)[0]
        self.assertEqual((estimate.value, estimate.bound(0.01, True)), (3.0, 3.0))

    def test_autocorrelation(self):
        self.assertEqual(statistics.autocorrelation(np.full(10, 1.0)), 0)
        self.assertEqual(statistics.autocorrelation(np.tile([1.0, -1.0], 10)), 0)
        self.assertEqual(statistics.autocorrelation(np.arange(200.0)), 0.9)
        noise = np.random.default_rng(3).normal(0, 1, 20000)
        for index in range(1, len(noise)):
            noise[index] += 0.6 * noise[index - 1]
        self.assertAlmostEqual(statistics.autocorrelation(noise), 0.6, delta=0.03)

    def test_bounds_are_those_of_student(self):
        estimate = statistics.Estimate(1.0, 0.5, 9)
        self.assertAlmostEqual(estimate.bound(0.025, True), 1 + 0.5 * 2.262157162740992)
        self.assertAlmostEqual(estimate.bound(0.025, False), 1 - 0.5 * 2.262157162740992)

    def test_difference_is_that_of_welch(self):
        generator = np.random.default_rng(4)
        base, head = generator.normal(0, 1, 12), generator.normal(1, 3, 20)
        one, two = (statistics.Estimate(float(np.mean(side)), float(stats.sem(side)), len(side) - 1) for side in (base, head))
        found = statistics.difference(one, two)
        expected = stats.ttest_ind(head, base, equal_var=False)
        self.assertAlmostEqual(found.value / found.error, expected.statistic)
        self.assertAlmostEqual(2 * stats.t.sf(abs(found.value / found.error), found.freedom), expected.pvalue)

    def test_rank_tests(self):
        low, high = np.arange(5.0), np.arange(5.0) + 10
        self.assertAlmostEqual(statistics.rank_test(low, high, paired=False), 2 / 252)
        self.assertAlmostEqual(statistics.rank_test(np.zeros(10), np.arange(10.0) + 1, paired=True), 2 / 1024)
        self.assertEqual(statistics.rank_test(low, low, paired=True), 1)
        self.assertIsNone(statistics.rank_test(low[:1], high, paired=False))

    def test_smallest_detectable(self):
        precise = statistics.Estimate(0.0, 0.0, 10)
        self.assertAlmostEqual(statistics.smallest_detectable(precise, 0.01, 0.15, 0.95), 0.15)
        rough = statistics.Estimate(0.0, 0.1, 10)
        self.assertAlmostEqual(statistics.smallest_detectable(rough, 0.01, 0.15, 0.95),
                               math.expm1(0.1 * (stats.t.isf(0.01, 10) + stats.t.isf(0.05, 10))))
        self.assertEqual(statistics.smallest_detectable(statistics.Estimate(0.0, 1e4, 1), 0.01, 0.15, 0.95), math.inf)

    def test_spread(self):
        self.assertAlmostEqual(statistics.spread(np.linspace(90, 110, 101)), 0.16)


def correlated(generator, series, length, rho):
    """AR(1) noise, settled."""
    noise = generator.normal(0, 1, (series, length + 30))
    for index in range(1, length + 30):
        noise[:, index] += rho * noise[:, index - 1]
    return 0.05 * noise[:, 30:]


class AlarmRates(unittest.TestCase):
    """Shares of series without a step whose lower end lies above nothing. No minimum effect helps."""

    SERIES = 1000
    LEVEL = 0.01

    def alarms(self, base, head):
        count = len(base)
        estimates = statistics.series_estimates([*base, *head], LOW)
        return sum(statistics.difference(estimates[number], estimates[count + number]).bound(self.LEVEL, False) > 0
                   for number in range(count))

    def visits(self, samples):
        """Medians of 14 visits of 4 samples."""
        return np.median(samples.reshape(len(samples), 14, 4), axis=-1)

    def test_correlated_noise(self):
        generator = np.random.default_rng(5)
        base, head = (self.visits(correlated(generator, self.SERIES, 56, 0.6)) for _ in range(2))
        self.assertLessEqual(self.alarms(base, head), self.LEVEL * self.SERIES)
        with mock.patch.object(statistics, "autocorrelation", return_value=0.0):
            self.assertGreater(self.alarms(base, head), 1.5 * self.LEVEL * self.SERIES)

    def test_noise_that_only_adds(self):
        generator = np.random.default_rng(6)
        base, head = (generator.normal(0, 0.005, (self.SERIES, 14))
                      + (generator.random((self.SERIES, 14)) < 0.4) * generator.exponential(0.3, (self.SERIES, 14)) for _ in range(2))
        self.assertLessEqual(self.alarms(base, head), self.LEVEL * self.SERIES)

    def test_a_step_is_found_in_it(self):
        generator = np.random.default_rng(7)
        base = generator.normal(0, 0.01, (100, 14))
        head = generator.normal(0.1, 0.01, (100, 14))
        self.assertGreaterEqual(self.alarms(base, head), 99)


if __name__ == "__main__":
    unittest.main()
