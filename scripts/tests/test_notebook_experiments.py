"""The notebook's pictures of aftermath, waiting, clocks and the originals: what they show of made-up reports, or a sentence."""

import json
import pathlib
import re
import tempfile
import unittest
import xml.etree.ElementTree

import test_notebook as common
from test_notebook import SVG, looks, made_up, needs_packages, reports, row, words

try:
    import numpy as np

    import timerbench_after as after
    import timerbench_frames as frames
    import timerbench_plots as plots
    import timerbench_style as style
except ImportError:
    pass  # The tests say so.

CANCELS, RETRIES = ("no_timeout", "detach", "coop_10ms", "deadline"), ("no_retry", "naive", "inside", "budget")
WITH_SERIES = ("no_timeout/no_retry", "detach/naive", "deadline/budget")
SKIPPED = "a million others would be a million threads"


def reason(service, metric, case, why):
    return {"service": service, "metric": metric, "case": case, "unit": "1", "skipped": why}


def aftermath():
    """Wasted work 2 and lost 0.5 ms a request, 3 of 9 attempts; 24 and 1.5 ms, 4 of 13 for detach/naive, which never gets well."""
    lines = []
    for cancel in CANCELS:
        for retry in RETRIES:
            policy = f"{cancel}/{retry}"
            case = {"form": "simulated", "scale": "full", "policy": policy, "cancel": cancel, "retry": retry, "rate": 1000.0, "requests": 100000}
            bad = policy == "detach/naive"
            for metric, value, unit in (("wasted", 24.0 if bad else 2.0, "ms/request"), ("lost", 1.5 if bad else 0.5, "ms/request"),
                                        ("store_calls", 4.0 if bad else 3.0, "1/request"), ("calls", 13.0 if bad else 9.0, "1/request")):
                lines.append(row("wheel", metric, case, [value], unit))
            lines.append(reason("wheel", "recovery", case, "not normal again within the 7 s after the incident") if bad
                         else row("wheel", "recovery", case, [3.0], "s"))
            # Another form is not to be mixed in.
            lines += [row("wheel", "wasted", case | other, [777.0], "ms/request") for other in ({"form": "loopback"}, {"scale": "loopback"})]
            if policy in WITH_SERIES:
                quiet = [1000.0] * 200 + [0.0] * 100 + [0.0 if bad else 1000.0] * 700
                lines += [row("wheel", "goodput_by_time", case, quiet, "1/s"),
                          row("wheel", "p99_by_time", case, [20.0 if value else 3000.0 for value in quiet], "ms"),
                          row("wheel", "store_calls_by_time", case, [1.0 + (value == 0) for value in quiet], "1/request")]
    content = made_up("aftermath", lines)
    content["parameters"] = {"simulated": {"rate": 1000.0, "limit_ms": 3000.0, "incident_at_ms": 20000.0, "incident_ms": 10000.0, "bin_ms": 100.0}}
    return content


def waiting():
    lines = []
    for service in ("condition_variable", "futex/spin_0us", "thread_per_wait", "coarse_slot", "brand_new"):
        for waits in (1, 100, 10000):
            case = {"kind": "outstanding", "waits": waits}
            lines += [row(service, "cpu", case, [12.0], "us/wait"), row(service, "rss", case, [0.0 if waits == 1 else 300.0], "B"),
                      row(service, "wake_up", case, [5.0] * 9, "us"), row(service, "overshoot", case, [0.1] * 9, "ms")]
        lines.append(row(service, "lasted", {"kind": "poked", "asked_ms": 30}, [30.0], "ms"))
    return made_up("waiting", lines)


def clocks():
    lines = []
    for step in (-3600, -5, -1, 1, 5, 3600):
        case = {"kind": "deadline", "step_s": step, "timeout_ms": 3000, "step_after_ms": 1000}
        lines += [row("wall/wait_until", "error", case, [-1000.0 * step if step < 0 else -2000.0], "ms"),
                  row("steady/wait_until", "error", case, [0.0], "ms"), row("handed/remaining", "error", case, [1.0], "ms")]
    lines.append(row("locked_heap", "error", {"kind": "watch"}, [7.0], "ms"))
    lines += [row(f"lease/{name}", metric, {"kind": "lease", "ttl_ms": 3000}, [5.0], "1") for name in ("nothing", "token")
              for metric in ("leases", "expired_in_use", "writes", "stale", "stale_accepted", "overwrites")]
    return made_up("clocks", lines)


# Caller's time in clock readings with nothing else armed, out of order.
COSTS = {"original/go/after_func": 14.0, "coarse_slot": 1.5, "original/ruby/timeout": 397.0, "per_thread_wheel": 0.6, "original/libuv/timer": 0.4,
         "original/netty/10ms": 3.0}


def original_reports():
    cost, memory, late = [], [], []
    for service, clock in COSTS.items():
        for population in (0, 10000, 1000000):
            case = {"kind": "article", "population": population, "duration_ms": 1000, "regime": "saturating"}
            if service == "original/ruby/timeout" and population:
                cost += [reason(service, metric, case, SKIPPED) for metric in ("arm_cancel", "process_cpu")]
                continue
            ratio = {"n": 3, "p50": clock, "ci95": [clock, clock], "min": clock, "p10": clock}
            cost.append(row(service, "arm_cancel", case, [clock * 20] * 3, clock_ratio=ratio))
            # A single sample comes without a ratio, but with the clock beside it.
            cost.append(row(service, "process_cpu", case, [clock * 50], clock_ns=[25.0]))
            cost.append(row(service, "arm_cancel", case | {"regime": "paced", "pairs_per_ms": 100}, [7777.0] * 3, clock_ratio=ratio | {"p50": 777.0}))
        held = {"kind": "cancelled", "timers": 200000, "duration_ms": 60000}
        # Less than a hundredth of a byte is nothing, whatever its sign.
        live, resident = {"coarse_slot": (0.004, 0.1), "original/libuv/timer": (-0.004, 0.8)}.get(service, (clock, clock * 2))
        memory += [row(service, "held", held, [live], "B"), row(service, "rss", held, [resident], "B")]
        late += [row(service, "callback_start", {"duration_ms": duration}, [clock * share for share in range(-1, 20)], "ms")
                 for duration in (1, 5, 10, 25, 100)]
    return [made_up("arm_cancel", cost), made_up("memory", memory), made_up("accuracy", late),
            made_up("soak", [row("original/libuv/timer", "completions", {"tasks": 5}, [9.0], "1")])]


def spans(svg):
    """Left end and width of each shaded incident, in points."""
    found = []
    for group in xml.etree.ElementTree.fromstring(svg).iter(f"{SVG}g"):
        if group.get("id", "").startswith("span--incident--"):
            numbers = [float(number) for number in re.findall(r"-?[\d.]+", group.find(f"{SVG}path").get("d"))][::2]
            found.append((min(numbers), max(numbers) - min(numbers)))
    return found


class Made(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="timerbench experiments ä ")
        self.addCleanup(holder.cleanup)
        self.top = pathlib.Path(holder.name)

    def folder(self, name, *contents, originals=None):
        path = self.top / name
        for place, held in ((path, contents), (path / "originals", originals)):
            if held is not None:
                place.mkdir(parents=True)
            for content in held or ():
                (place / f"{content['experiment']}.json").write_text(json.dumps(content), encoding="utf-8")
        return path

    def load(self, *contents, originals=None):
        return plots.load([self.folder("run", *contents, originals=originals)])


@needs_packages
class Aftermath(Made):
    def test_every_policy_has_its_bars_and_figures(self):
        runs = self.load(aftermath())
        everybody = {f"{cancel}/{retry}" for cancel in CANCELS for retry in RETRIES}
        for picture, usual, bad in ((plots.wasted_work(runs), "2 + 0.5", "24 + 1.5"), (plots.amplification(runs), "3 of 9", "4 of 13")):
            self.assertEqual(set(looks(picture.svg, "policy")), everybody)
            text = words(picture.svg)
            self.assertEqual((text.count(usual), text.count(bad)), (15, 1))
            self.assertNotIn("777", " ".join(text))
            self.assertIn("per layer, work left running (detach)", text)

    def test_bars_end_where_they_should(self):
        runs = self.load(aftermath())
        for picture, solid, whole in ((plots.wasted_work(runs), 24.0, 25.5), (plots.amplification(runs), 4.0, 13.0)):
            widths = []
            for group in xml.etree.ElementTree.fromstring(picture.svg).iter(f"{SVG}g"):
                if group.get("id", "").startswith("policy--detach/naive--"):
                    numbers = [float(number) for number in re.findall(r"-?[\d.]+", group.find(f"{SVG}path").get("d"))][::2]
                    widths.append(max(numbers) - min(numbers))
            self.assertEqual(len(widths), 1)
            # The axis ends 4 % beyond the longest bar, solid and hatched together.
            self.assertAlmostEqual(widths[0], 1.95 * 72 * solid / (whole * 1.04), delta=0.1)

    def test_a_policy_has_one_colour_in_all_pictures(self):
        runs = self.load(aftermath())
        seen = {}
        for picture in (plots.wasted_work(runs), plots.incident(runs), plots.amplification(runs)):
            for policy, colours in looks(picture.svg, "policy").items():
                seen.setdefault(policy, set()).update(colours)
        self.assertEqual({policy: colours for policy, colours in seen.items() if len(colours) != 1}, {})
        self.assertEqual(len({next(iter(colours)) for colours in seen.values()}), len(seen))

    def test_the_incident_is_shaded_where_it_was(self):
        picture = plots.incident(self.load(aftermath()))
        self.assertEqual(set(looks(picture.svg, "policy")), set(WITH_SERIES))
        shaded = spans(picture.svg)
        self.assertEqual(len(shaded), 3 * len(WITH_SERIES))
        # A panel of 2.75 inches goes from half an incident before its beginning to four after it.
        self.assertEqual({round(width) for _, width in shaded}, {44})
        self.assertAlmostEqual(min(left for left, _ in shaded), 0.95 * 72 + 22, delta=0.5)

    def test_recovery_stands_beside_the_curves(self):
        picture = plots.incident(self.load(aftermath()))
        text = " ".join(words(picture.svg))
        self.assertEqual((text.count("normal 3 s after its end"), text.count("not normal again")), (2, 1))

    def test_curves_are_thinned_in_the_order_of_time(self):
        frame = plots.measured(plots.select(after.simulated(self.load(aftermath())), policy="detach/naive", metric="p99_by_time"))
        line = next(frame.itertuples())
        line.samples[450] = 9999.0
        join = next(entry[-1] for entry in after.SERIES if entry[0] == "p99_by_time")
        for points in (1000, 40):
            times, values = after._series(line, 0.1, 20.0, (-5.0, 40.0), join, points)
            self.assertLessEqual(len(times), points)
            self.assertTrue((np.diff(times) > 0).all() and times[0] >= -5 and times[-1] <= 40)
            self.assertEqual(values.max(), 9999.0)
            self.assertAlmostEqual(times[values.argmax()], 25.05, delta=0.6)
            self.assertEqual({values[times < -0.6].max(), values[times > 0.6].min()}, {20.0, 3000.0})

    def test_without_parameters_there_is_no_incident(self):
        for parameters in ({}, {"simulated": {"bin_ms": "soon"}}, {"simulated": 7}, []):
            content = aftermath()
            content["parameters"] = parameters
            runs = frames.load([self.folder(f"run {parameters}".replace("/", ""), content)])
            self.assertIn("do not say when the incident was", str(plots.incident(runs)))
            self.assertIsInstance(plots.wasted_work(runs), plots.Picture)


@needs_packages
class Waits(Made):
    def test_every_way_of_waiting_is_there_in_each_column(self):
        picture = plots.waiting(self.load(waiting()))
        names = {"condition_variable", "futex/spin_0us", "thread_per_wait", "coarse_slot", "brand_new"}
        self.assertEqual(set(looks(picture.svg)), names)
        for name in names:
            self.assertEqual(len(re.findall(rf'id="service--{name}--\d+"', picture.svg)), 4, name)
        text = words(picture.svg)
        self.assertLessEqual({"us per wait (log)", "resident B per wait (log)", "waits at a time (log)", "0"}, set(text))
        self.assertIn("rss: the axis is linear below 300, so that it can show 0.", picture.remarks)

    def test_the_rest_of_waiting_and_clocks_shows_up(self):
        shown = plots.other_experiments(self.load(waiting(), clocks()))
        self.assertEqual({picture.name for picture in shown}, {"other_waiting_poked", "other_clocks_watch", "other_clocks_lease"})
        lease = next(picture for picture in shown if picture.name == "other_clocks_lease")
        self.assertIn("stale_accepted", words(lease.svg))
        self.assertIn("Not shown of clocks: writes, stale.", lease.remarks)

    def test_steps_of_the_clock(self):
        picture = plots.clock_steps(self.load(clocks()))
        self.assertEqual(set(looks(picture.svg)), {"wall/wait_until", "steady/wait_until", "handed/remaining"})
        text = words(picture.svg)
        self.assertLessEqual({"error, ms (symlog)", "the wall clock is set by, s (symlog)", "−3600", "3600"}, set(text))
        self.assertIn("timeout of 3 s, the clock is set after 1 s", " ".join(text))


@needs_packages
class Originals(Made):
    def test_reports_of_the_subfolder_are_read(self):
        runs = self.load(waiting(), originals=original_reports())
        self.assertEqual(runs.experiments(), ["waiting", *(f"originals/{name}" for name in ("accuracy", "arm_cancel", "memory", "soak"))])
        pictures = plots.originals(runs)
        self.assertEqual([picture.name for picture in pictures], ["originals_cost", "originals_lateness", "originals_memory"])
        for picture in pictures:
            self.assertEqual(set(looks(picture.svg)), set(COSTS), picture.name)
            self.assertTrue(any("QUICK RUN" in text for text in words(picture.svg)))
        self.assertIn("other_originals_soak", {picture.name for picture in plots.other_experiments(runs)})

    def test_cost_is_sorted_and_relative_to_the_clock(self):
        picture = plots.originals(self.load(originals=original_reports()))[0]
        text = words(picture.svg)
        self.assertEqual([entry for entry in text if entry in COSTS], sorted(COSTS, key=COSTS.get))
        # The caller's ratio, and the single sample of the process over the clock beside it.
        self.assertEqual(text.count("1.5 / 3"), 3)
        self.assertEqual([entry for entry in text if "777" in entry], [])
        self.assertEqual(sum(SKIPPED[:30] in entry for entry in text), 2)
        self.assertIn(f"original/ruby/timeout skipped: {SKIPPED}.", picture.remarks)
        for population in ("0 others armed", "10\u2009000 others armed", "1\u2009000\u2009000 others armed"):
            self.assertTrue(any(population in entry for entry in text), population)

    def test_lateness_shows_durations(self):
        text = " ".join(words(plots.originals(self.load(originals=original_reports()))[1].svg))
        for duration in ("after 1 ms", "after 10 ms", "after 100 ms"):
            self.assertIn(duration, text)
        self.assertNotIn("after 25 ms", text)

    def test_memory_that_is_nothing_can_be_shown(self):
        picture = plots.originals(self.load(originals=original_reports()))[2]
        text = words(picture.svg)
        self.assertEqual([entry for entry in text if entry in COSTS][:3], ["coarse_slot", "original/libuv/timer", "per_thread_wheel"])
        self.assertIn("3 / 6", text)
        self.assertTrue(any("200\u2009000 cancelled, of 60 s" in entry for entry in text))

    def test_a_missing_subfolder_is_one_sentence(self):
        for runs in (self.load(waiting()), plots.load([self.folder("empty", clocks(), originals=[])])):
            self.assertIsInstance(plots.originals(runs), plots.Sentence)
            self.assertIn("scripts/originals makes one", str(plots.originals(runs)))

    def test_a_subfolder_without_one_of_the_reports(self):
        cost, late, memory = plots.originals(self.load(originals=original_reports()[:1]))
        self.assertIsInstance(cost, plots.Picture)
        self.assertIn("there is no report of originals/accuracy in run; scripts/originals makes one.", str(late))
        self.assertIn("there is no report of originals/memory in run; scripts/originals makes one.", str(memory))

    def test_runs_with_and_without_originals_stand_side_by_side(self):
        runs = plots.load([self.folder("one", waiting(), originals=original_reports()), self.folder("two", waiting())])
        self.assertIn("two has no report of originals/arm_cancel.", plots.originals(runs)[0].remarks)

    def test_originals_do_not_enter_the_pictures_of_ours(self):
        runs = self.load(common.arm_cancel(["coarse_slot", "twin"]), originals=original_reports())
        self.assertEqual(set(looks(plots.cost_bars(runs).svg)), {"coarse_slot", "twin"})


@needs_packages
class Everything(Made):
    def test_what_has_a_place_in_the_palette_has_a_colour_of_its_own(self):
        pinned = [name for _, members in style.FAMILIES.values() for name in members]
        palette = style.Palette([*pinned, *(f"unheard_of_{number}/one" for number in range(2 * len(style.SPARE_HUES)))])
        self.assertEqual(len({look.colour for look in palette.looks.values()}), len(palette.looks))
        for hue in style.RETRIES.values():
            self.assertNotEqual(hue, style.ALERT)

    def test_the_same_reports_give_the_same_bytes(self):
        folder = self.folder("run", aftermath(), waiting(), clocks(), originals=original_reports())
        one, other = ([picture.svg for picture in (plots.wasted_work(runs), plots.incident(runs), plots.amplification(runs), plots.waiting(runs),
                                                   plots.clock_steps(runs), *plots.originals(runs))]
                      for runs in (plots.load([folder]), plots.load([folder])))
        self.assertEqual(one, other)

    def test_reports_that_hold_nothing_to_draw(self):
        def empty(name, case):
            return made_up(name, [reason("asio", "m", case, "why not")])
        for number, case in enumerate(({}, {"kind": "outstanding"}, {"kind": "deadline"}, {"form": "simulated", "scale": "full"})):
            runs = plots.load([self.folder(str(number), *(empty(name, case) for name in ("aftermath", "waiting", "clocks")),
                                           originals=[empty(name, case) for name in ("arm_cancel", "accuracy", "memory")])])
            for shown in (plots.wasted_work(runs), plots.incident(runs), plots.amplification(runs), plots.waiting(runs), plots.clock_steps(runs),
                          *plots.originals(runs)):
                self.assertIsInstance(shown, plots.Sentence)
                self.assertIn("No picture", str(shown))


class BadOriginals(Made):
    """The reader needs the standard library only."""

    def test_the_file_is_named(self):
        folder = self.folder("run", waiting(), originals=original_reports())
        path = folder / "originals" / "soak.json"
        for content in ('{"schema": "timerbench.rep', (folder / "originals" / "memory.json").read_text(encoding="utf-8")):
            path.write_text(content, encoding="utf-8")
            with self.assertRaises(reports.Unusable) as raised:
                reports.read_runs([folder])
            self.assertIn("originals/soak.json", str(raised.exception))
            self.assertNotIn("\n", str(raised.exception))

    def test_an_experiment_may_be_in_both(self):
        folder = self.folder("run", *original_reports()[:1], originals=original_reports()[:1])
        self.assertEqual(list(reports.read_runs([folder])[0].reports), ["arm_cancel", "originals/arm_cancel"])

    def test_the_subfolder_itself_may_be_given(self):
        folder = self.folder("run", waiting(), originals=original_reports())
        self.assertEqual(list(reports.read_runs([folder / "originals"])[0].reports),
                         [f"originals/{name}" for name in ("accuracy", "arm_cancel", "memory", "soak")])

    def test_a_file_of_that_name_is_passed_over(self):
        folder = self.folder("run", waiting())
        (folder / "originals").touch()
        self.assertEqual(list(reports.read_runs([folder])[0].reports), ["waiting"])


if __name__ == "__main__":
    unittest.main()
