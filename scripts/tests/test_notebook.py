"""scripts/notebook and notebooks/: what a page is made of, that a service looks the same everywhere, bad input."""

import concurrent.futures
import copy
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

from sandbox import ALL_PACKAGES, SCRIPTS, SandboxTest

ROOT = SCRIPTS.parent
NOTEBOOKS = ROOT / "notebooks"
COMMITTED = ROOT / "results" / "epyc-2-cores"
PACKAGES = ["python3-pandas", "python3-matplotlib", "python3-ipykernel", "jupyter-nbconvert"]
SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"

sys.path.insert(0, str(NOTEBOOKS))
import timerbench_reports as reports  # noqa: E402 # the path above leads to it

# The committed figures hold to the byte for the matplotlib of Debian 12.
MATPLOTLIB = "3.6.3"
try:
    import ipykernel  # noqa: F401
    import matplotlib
    import nbconvert  # noqa: F401

    import timerbench_plots as plots
    import timerbench_style as style
    MISSING = None
except ImportError as error:
    MISSING = f"the packages of the notebook are not installed ({error}); scripts/setup --notebook installs them"
needs_packages = unittest.skipIf(MISSING, MISSING or "")


# --- made-up reports ---


def row(service, metric, case, samples, unit="ns/op", **more):
    ordered = sorted(samples)
    middle = ordered[len(ordered) // 2]
    figures = {"n": len(samples), "min": ordered[0], "p10": ordered[0], "p50": middle, "max": ordered[-1],
               "mean": sum(samples) / len(samples), "ci95": [middle * 0.95, middle * 1.05], "outliers": {"low": 0, "high": 0}}
    return {"service": service, "metric": metric, "case": case, "unit": unit, **figures, "samples": samples, **more}


def made_up(experiment, rows, quick=True):
    return {"schema": "timerbench.report/1", "experiment": experiment, "quick": quick, "seed": 1,
            "marks": ["QUICK RUN"] if quick else [], "parameters": {}, "checks": [], "rows": rows,
            "environment": {"cpu": {"model": "made-up processor", "usable": 4}, "compiler": "GNU 12.2.0", "git": {"revision": "abc", "dirty": False}}}


def pair(population, regime="saturating"):
    paced = {"pairs_per_ms": 1000} if regime == "paced" else {}
    return {"kind": "article", "population": population, "duration_ms": 1000, "deadline": "earliest", "regime": regime, **paced}


def arm_cancel(services, quick=True):
    rows = [row("floor/steady_clock", "arm_cancel", {}, [20.0])]
    for number, service in enumerate(services):
        for population in (0, 64):
            cost = 10.0 * 1.3**number + population
            rows.append(row(service, "arm_cancel", pair(population), [cost] * 3, aa_gap=0.01, clock_ratio={
                "n": 3, "p50": cost / 20, "ci95": [cost / 21, cost / 19], "min": cost / 20, "p10": cost / 20}))
        rows.append(row(service, "arm_cancel_rest_cpu", pair(0), [4.0]))
        rows.append(row(service, "arm_cancel", pair(0, "paced"), [77777.0]))
    return made_up("arm_cancel", rows, quick)


def accuracy(services, quick=True):
    rng = random.Random(1)
    rows = [row(service, "callback_start", {"environment": environment, "duration_ms": 10}, [rng.uniform(-0.5, 9) for _ in range(200)], "ms")
            for environment in ("idle", "cores_busy") for service in ("limit/clock_nanosleep", *services)]
    return made_up("accuracy", rows, quick)


# Pictures of experiments that came later, and the report each needs.
LATER = {"wasted_work": "aftermath", "incident": "aftermath", "amplification": "aftermath", "waiting": "waiting", "clock_steps": "clocks",
         "originals_cost": "originals/arm_cancel", "originals_lateness": "originals/accuracy", "originals_memory": "originals/memory"}
SERVICES = ["coarse_slot", "twin", "asio", "libevent/common", "brand_new/one", "brand_new/two", "x y & <z>"]


def quick_run(folder):
    """Three services that nobody has heard of, one experiment likewise, three reports that are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    fire = made_up("fire", [row(service, metric, {"timers": timers}, [1.0 + number])
                           for number, service in enumerate(SERVICES) for metric in ("burst", "spread") for timers in (10, 1000)])
    fire["rows"].append({"service": "asio", "metric": "burst", "case": {"timers": 5}, "skipped": "too many threads"})
    # Each way to say that a run is quick is enough.
    fire["marks"] = []
    late = accuracy(SERVICES)
    late["quick"] = False
    for content in (arm_cancel(SERVICES), late, fire):
        (folder / f"{content['experiment']}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def run_notebook(*arguments, **environment):
    return subprocess.run(["/bin/bash", str(SCRIPTS / "notebook"), *map(str, arguments)], check=False, capture_output=True, text=True,
                          env=os.environ | environment, timeout=280)


# --- what can be read from a picture ---


def looks(svg, kind="service"):
    """{service: the colours of its marks} of a picture; of a policy, with that kind."""
    found = {}
    for group in xml.etree.ElementTree.fromstring(svg).iter(f"{SVG}g"):
        parts = group.get("id", "").split("--")
        if parts[0] != kind:
            continue
        for mark in group.iter():
            for name, value in re.findall(r"(fill|stroke): (#[0-9a-f]{6})", mark.get("style", "")):
                if value not in ("#ffffff", "#b22222"):
                    found.setdefault(parts[1], set()).add(value)
    return found


def words(svg):
    """The texts of a picture, in which letters are drawn as paths."""
    return [text.strip().replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&") for text in re.findall(r"<!--(.*?)-->", svg, re.DOTALL)]


@needs_packages
class Executed(unittest.TestCase):
    """The notebook on the committed results, and on a made-up quick run."""

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="timerbench notebook ä ")
        cls.addClassCleanup(holder.cleanup)
        top = pathlib.Path(holder.name)
        folders = {"committed": COMMITTED, "quick": quick_run(top / "a quick run")}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            running = {name: pool.submit(run_notebook, "--no-setup", "--out", top / f"out {name}", folder) for name, folder in folders.items()}
            cls.results = {name: (result.result(), top / f"out {name}") for name, result in running.items()}

    def page(self, name):
        result, out = self.results[name]
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        return (out / "report.html").read_text(encoding="utf-8")

    def pictures(self, name):
        result, out = self.results[name]
        self.assertEqual(result.returncode, 0, result.stderr)
        return {path.stem: path.read_text(encoding="utf-8") for path in sorted((out / "figures").glob("*.svg"))}

    def test_every_picture_is_there(self):
        self.assertLessEqual({"cost_bars", "cost_bars_paced", "population_window", "population_article", "scaling_own", "scaling_handed_over",
                              "lateness", "herd", "soak_bound", "other_ready_path"}, set(self.pictures("committed")))
        self.assertEqual(set(self.pictures("quick")), {"cost_bars", "cost_bars_paced", "population_article", "lateness", "other_fire"})

    def test_pictures_of_later_experiments_are_there_or_a_sentence_is(self):
        held = set(reports.read_runs([COMMITTED])[0].reports)
        page = self.page("committed")
        for picture, experiment in LATER.items():
            self.assertEqual(picture in self.pictures("committed"), experiment in held, picture)
            if experiment not in held and not experiment.startswith("originals/"):
                self.assertIn(f"there is no report of {experiment} in {COMMITTED.name}", page)
        without = not any(name.startswith("originals/") for name in held)
        self.assertEqual(page.count("there is no folder originals with reports"), without)
        self.assertEqual(self.page("quick").count("there is no folder originals with reports in a quick run"), 1)

    def test_the_page_holds_every_picture_and_no_error(self):
        for name in self.results:
            page = self.page(name)
            self.assertEqual(page.count('<img class="timerbench-picture"'), len(self.pictures(name)))
            self.assertNotIn("Traceback", page)
        self.assertIn("asio_per_thread/locked", self.page("committed"))

    def test_nothing_is_fetched_from_a_network(self):
        for name in self.results:
            page = self.page(name)
            self.assertEqual(re.findall(r"(?i)<(?:script|link|iframe|object|embed)\b", page), [])
            self.assertEqual(re.findall(r"(?i)(?:src|href|srcset|poster)\s*=\s*[\"']?(?!data:|#)[^\"'>\s]+", page), [])
            self.assertEqual(re.findall(r"(?i)url\(\s*[\"']?(?!data:)[^)]+|@import", page), [])
            for picture, svg in self.pictures(name).items():
                for element in xml.etree.ElementTree.fromstring(svg).iter():
                    for attribute in ("href", f"{XLINK}href"):
                        self.assertTrue(element.get(attribute, "#").startswith("#"), f"{picture}: {element.attrib}")
                    self.assertNotIn(element.tag, (f"{SVG}script", f"{SVG}image"))

    def test_a_service_has_one_colour_in_all_pictures_of_a_run(self):
        for name in self.results:
            seen = {}
            for picture, svg in self.pictures(name).items():
                found = looks(svg)
                self.assertGreater(len(found) + len(looks(svg, "policy")), 0 if picture.startswith("other_") else 3, picture)
                for service, colours in found.items():
                    seen.setdefault(service, set()).update(colours)
            self.assertEqual({service: colours for service, colours in seen.items() if len(colours) != 1}, {})
            self.assertEqual(len({next(iter(colours)) for colours in seen.values()}), len(seen), seen)

    def test_a_service_has_the_same_colour_in_every_run(self):
        committed, quick = ({service: colours for svg in self.pictures(name).values() for service, colours in looks(svg).items()}
                            for name in ("committed", "quick"))
        common = set(committed) & set(quick)
        self.assertLessEqual({"coarse_slot", "twin", "asio", "libevent/common", "limit/clock_nanosleep"}, common)
        self.assertEqual({service: committed[service] for service in common}, {service: quick[service] for service in common})

    def test_services_that_nobody_has_heard_of_show_up(self):
        pictures = self.pictures("quick")
        for picture in ("cost_bars", "population_article", "lateness", "other_fire"):
            self.assertEqual(set(looks(pictures[picture])) - {"limit/clock_nanosleep"}, set(SERVICES), picture)
            self.assertLessEqual(set(SERVICES), set(words(pictures[picture])), picture)

    def test_an_experiment_that_nobody_has_heard_of_shows_up(self):
        self.assertIn("burst, ns/op", words(self.pictures("quick")["other_fire"]))
        self.assertIn("too many threads", self.page("quick"))

    def test_a_missing_report_leaves_a_sentence(self):
        for experiment in ("scaling", "allocs", "lost_wakeup", "aftermath", "waiting", "clocks"):
            self.assertIn(f"there is no report of {experiment} in", self.page("quick"))
        for experiment in reports.read_runs([COMMITTED])[0].reports:
            self.assertNotIn(f"there is no report of {experiment} in", self.page("committed"))

    def test_a_quick_run_is_marked_in_every_title(self):
        for picture, svg in self.pictures("quick").items():
            self.assertTrue(any("QUICK RUN" in text for text in words(svg)), picture)
        self.assertIn("QUICK RUN", self.page("quick"))
        self.assertFalse(any("QUICK RUN" in text for svg in self.pictures("committed").values() for text in words(svg)))

    def test_the_limit_stands_in_every_panel_of_lateness(self):
        groups = re.findall(r'id="service--limit/clock_nanosleep--(\d+)"', self.pictures("committed")["lateness"])
        panels = len(re.findall(r'id="axes_\d+"', self.pictures("committed")["lateness"]))
        # A row of panels: one for each environment, and its key.
        self.assertEqual(len(groups), panels // 4 * 3)

    def test_committed_figures_are_what_the_notebook_draws(self):
        for path in sorted((COMMITTED / "figures").glob("*.svg")):
            drawn, committed = self.pictures("committed")[path.stem], path.read_text(encoding="utf-8")
            self.assertLess(len(committed), 400_000, path)
            self.assertEqual(looks(drawn), looks(committed), path)
            self.assertEqual(words(drawn), words(committed), path)
            if matplotlib.__version__ == MATPLOTLIB:
                self.assertTrue(drawn == committed, f"{path} is out of date; scripts/notebook --out DIR {COMMITTED} draws it anew")

    def test_nothing_but_the_page_and_its_pictures_is_left(self):
        for name, (_, out) in self.results.items():
            self.assertEqual({path.name for path in out.iterdir()}, {"report.html", "figures"}, name)
            self.assertEqual({path.suffix for path in (out / "figures").iterdir() if path.name != ".made-by-notebook"}, {".svg"}, name)


@needs_packages
class Drawn(unittest.TestCase):
    """The functions themselves."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="timerbench draw ")
        self.addCleanup(holder.cleanup)
        self.top = pathlib.Path(holder.name)

    def folder(self, name, *reports):
        path = self.top / name
        path.mkdir()
        for content in reports:
            (path / f"{content['experiment']}.json").write_text(json.dumps(content), encoding="utf-8")
        return path

    def test_regimes_do_not_meet_in_one_picture(self):
        runs = plots.load([self.folder("run", arm_cancel(SERVICES))])
        saturating, paced = plots.cost_bars(runs), plots.cost_bars(runs, regime="paced")
        self.assertIn("saturating", saturating.title)
        self.assertIn("paced", paced.title)
        self.assertEqual([text for text in words(saturating.svg) if "77" in text and "777" in text], [])
        self.assertTrue(any("777" in text.replace("\u2009", "") for text in words(paced.svg)))
        self.assertNotIn("paced", " ".join(words(plots.population(runs, kind="article").svg)))

    def test_the_same_reports_give_the_same_bytes(self):
        folder = self.folder("run", arm_cancel(SERVICES), accuracy(SERVICES))
        one, other = ([plots.cost_bars(runs).svg, plots.lateness(runs).svg] for runs in (plots.load([folder]), plots.load([folder])))
        self.assertEqual(one, other)

    def test_the_settings_of_the_user_change_nothing(self):
        runs = plots.load([self.folder("run", arm_cancel(SERVICES))])
        expected = plots.cost_bars(runs).svg
        with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "none"}):
            self.assertEqual(plots.cost_bars(runs).svg, expected)

    def test_several_folders_stand_side_by_side(self):
        runs = plots.load([self.folder("one", arm_cancel(SERVICES, quick=False)), self.folder("two", arm_cancel(SERVICES[:2])),
                           self.folder("three", accuracy(SERVICES))])
        picture = plots.cost_bars(runs)
        text = words(picture.svg)
        self.assertIn("one", text)
        self.assertIn("two [QUICK RUN]", text)
        self.assertIn("three has no report of arm_cancel.", picture.remarks)

    def test_folders_of_one_name_can_be_told_apart(self):
        for parent in ("a", "b"):
            (self.top / parent).mkdir()
        folders = [self.folder(f"{parent}/out", arm_cancel(SERVICES[:2])) for parent in ("a", "b")]
        self.assertEqual([run.label for run in plots.load(folders).all], ["a/out", "b/out"])
        self.assertEqual(len({run.label for run in plots.load([folders[0], folders[0]]).all}), 2)

    def test_many_services_and_families(self):
        many = [f"family{family}/{member}" for family in range(15) for member in range(4)]
        runs = plots.load([self.folder("run", arm_cancel(many))])
        self.assertEqual(set(looks(plots.cost_bars(runs).svg)), set(many))
        for _, names in runs.palette.panels(many):
            self.assertLessEqual(len(names), style.PANEL_LINES)
            self.assertEqual(len({(runs.palette[name].colour, runs.palette[name].marker) for name in names}), len(names))
        self.assertEqual(len({(runs.palette[name].colour, runs.palette[name].marker) for name in many}), len(many))

    def test_hues_of_families_differ_for_the_colour_blind(self):
        # Machado's matrices, severity 1: how a hue looks without one kind of cone. Shades are also told apart by marker and dash.
        blind = {"deuteranope": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
                 "protanope": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]}
        measured = ["coarse_slot", "asio", "libevent", "hashed_wheel/10ms", "locked_heap"]
        palette = style.Palette(measured)
        for kind, matrix in blind.items():
            seen = [tuple(sum(weight * part for weight, part in zip(line, style.to_rgb(palette[name].colour))) for line in matrix)
                    for name in measured]
            for number, one in enumerate(seen):
                for other in seen[number + 1:]:
                    self.assertGreater(sum((a - b) ** 2 for a, b in zip(one, other)) ** 0.5, 0.15, kind)

    def test_noise_is_the_twin_and_the_halves(self):
        content = arm_cancel(["coarse_slot", "twin"])
        rows = plots.select(plots.load([self.folder("run", content)]).frame("arm_cancel"), metric="arm_cancel",
                            case=json.dumps(pair(0), sort_keys=True))
        noise = plots.noise_of(rows)
        self.assertAlmostEqual(noise["twin"], 0.3)
        self.assertAlmostEqual(noise["A/A"], 0.01)
        self.assertEqual(plots.noise_of(rows[rows["service"] == "nobody"]), {})

    def test_rows_without_a_figure_are_explained(self):
        content = arm_cancel(SERVICES)
        content["rows"] = [entry for entry in content["rows"] if entry["service"] != "asio"]
        content["rows"] += [{"service": "asio", "metric": "arm_cancel", "case": pair(0), "skipped": "nobody can do this"},
                            {"service": "locked_heap", "metric": "arm_cancel", "case": pair(0), "error": "cancelled 9 of 10"}]
        picture = plots.cost_bars(plots.load([self.folder("run", content)]))
        self.assertIn("nobody can do this", words(picture.svg))
        self.assertIn("asio skipped: nobody can do this.", picture.remarks)
        self.assertIn("locked_heap in error: cancelled 9 of 10.", picture.remarks)

    def test_reports_that_hold_nothing_to_draw(self):
        empty = [made_up(name, [{"service": "asio", "metric": "m", "case": {}, "skipped": "why not"}])
                 for name in ("arm_cancel", "scaling", "accuracy", "allocs", "lost_wakeup", "other")]
        runs = plots.load([self.folder("run", *empty)])
        for shown in (plots.cost_bars(runs), plots.population(runs), plots.scaling(runs), plots.lateness(runs), plots.allocations_table(runs),
                      plots.soak_bound(runs), plots.other_experiments(runs)[0]):
            self.assertIsInstance(shown, plots.Sentence)

    def test_a_loss_in_the_soak_is_a_cross_and_no_bound(self):
        case = {"tasks": 5, "seam": "closed"}
        content = made_up("lost_wakeup", [row("asio", "completions", case, [1e6], "1"), row("asio", "stopped_tasks", case, [3.0], "1"),
                                         row("twin", "completions", case, [1e6], "1"), row("twin", "stopped_tasks", case, [0.0], "1"),
                                         row("twin", "bound_95", case, [3e-6], "1/timeout")])
        picture = plots.soak_bound(plots.load([self.folder("run", content)]))
        self.assertIn("3 of 1 M lost", words(picture.svg))
        self.assertIn("0 of 1 M", words(picture.svg))

    def test_cores_are_marked(self):
        cases = [{"timers": "own", "workers": workers} for workers in (1, 2, 4, 8)]
        content = made_up("scaling", [row(service, metric, case, [10.0 * case["workers"]]) for case in cases
                                     for metric in ("arm_cancel", "arm_cancel_cpu") for service in SERVICES])
        text = words(plots.scaling(plots.load([self.folder("run", content)])).svg)
        self.assertEqual(text.count("4 cores"), 2)
        self.assertIn("wall time in each thread", " ".join(text))
        self.assertIn("CPU time of the whole process", " ".join(text))


class Stored(unittest.TestCase):
    def test_the_notebook_is_stripped(self):
        notebook = json.loads((NOTEBOOKS / "timers.ipynb").read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            self.assertEqual((cell.get("outputs", []), cell.get("execution_count"), cell["metadata"]), ([], None, {}), cell["id"])
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        self.assertLess(max(len(cell["source"]) for cell in code), 6)
        # Every picture has a text above it that says how to read it.
        kinds = [cell["cell_type"] for cell in notebook["cells"]]
        self.assertNotIn(("code", "code"), list(zip(kinds, kinds[1:]))[2:])


class BadInput(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="timerbench bad input ")
        self.addCleanup(holder.cleanup)
        self.top = pathlib.Path(holder.name)
        self.run_folder = quick_run(self.top / "run")
        self.out = self.top / "out"
        self.out.mkdir()
        (self.out / "report.html").write_text("an earlier page", encoding="utf-8")

    def refused(self, *expected, folders=None, out=None):
        result = run_notebook("--no-setup", "--out", out or self.out, *(folders or [self.run_folder]))
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for word in expected:
            self.assertIn(word, result.stderr)
        self.assertEqual((self.out / "report.html").read_text(encoding="utf-8"), "an earlier page")

    def test_arguments(self):
        self.refused("'--bogus'", folders=["--bogus"])
        self.refused("'nowhere'", folders=["nowhere"])
        self.refused("fire.json", folders=[self.run_folder / "fire.json"])

    @needs_packages
    def test_a_folder_without_reports(self):
        (self.top / "empty").mkdir()
        (self.top / "empty" / "verdict.json").write_text('{"schema": "timerbench.verdict/1"}', encoding="utf-8")
        self.refused("empty", "no report", folders=[self.run_folder, self.top / "empty"])

    @needs_packages
    def test_an_output_that_is_a_file(self):
        (self.top / "file").touch()
        self.refused("file", "not a folder", out=self.top / "file")

    @needs_packages
    def test_a_broken_report(self):
        (self.run_folder / "fire.json").write_text('{"schema": "timerbench.rep', encoding="utf-8")
        self.refused("fire.json")


class BadReports(unittest.TestCase):
    """What the reader refuses; it needs the standard library only."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="timerbench bad reports ä ")
        self.addCleanup(holder.cleanup)
        self.folder = quick_run(pathlib.Path(holder.name) / "run")
        self.path = self.folder / "fire.json"

    def refused(self, *expected):
        with self.assertRaises(reports.Unusable) as raised:
            reports.read_runs([self.folder])
        for word in ("fire.json", *expected):
            self.assertIn(word, str(raised.exception))
        self.assertNotIn("\n", str(raised.exception))

    def change(self, change):
        quick_run(self.folder)
        content = json.loads(self.path.read_text(encoding="utf-8"))
        change(content)
        self.path.write_text(json.dumps(content), encoding="utf-8")

    def test_good(self):
        self.assertEqual(set(reports.read_runs([self.folder])[0].reports), {"arm_cancel", "accuracy", "fire"})

    def test_broken_json(self):
        text = self.path.read_text(encoding="utf-8")
        for broken in ("", text[:len(text) // 2], "[]", '{"rows": []}', text.replace("1.0", "NaN", 1), text.replace("1.0", "1,0", 1),
                       text.replace('"seed": 1', '"seed": 1, "seed": 2')):
            self.path.write_text(broken, encoding="utf-8")
            self.refused()
        self.path.write_bytes(b'{"schema": "\xff"}')
        self.refused()

    def test_rows_that_cannot_be_drawn(self):
        changes = {
            "no samples": lambda content: content["rows"][2].update(samples=[]),
            "one that is not a number": lambda content: content["rows"][2].update(samples=[1.0, None]),
            "p90 that is not a number": lambda content: content["rows"][2].update(p90="fast"),
            "neither a p50": lambda content: content["rows"][2].pop("p50"),
            "no case": lambda content: content["rows"][2].pop("case"),
            "no service": lambda content: content["rows"][2].update(service=""),
            "interval": lambda content: content["rows"][2].update(ci95=[1.0]),
            "twice": lambda content: content["rows"].insert(2, copy.deepcopy(content["rows"][1])),
            "not an object": lambda content: content["rows"].insert(2, []),
            "clock": lambda content: content["rows"][2].update(clock_ratio=7),
        }
        for word, change in changes.items():
            with self.subTest(word):
                self.change(change)
                self.refused("row 2", word)

    def test_a_newer_version_is_named(self):
        self.change(lambda content: content.update(schema="timerbench.report/2"))
        self.refused("timerbench.report/2", "timerbench.report/1")

    def test_a_second_report_of_an_experiment(self):
        shutil.copy(self.folder / "accuracy.json", self.path)
        self.refused("second report", "'accuracy'")

    def test_other_files_of_the_project_are_passed_over(self):
        self.path.write_text('{"schema": "timerbench.verdict/1"}', encoding="utf-8")
        self.assertEqual(set(reports.read_runs([self.folder])[0].reports), {"arm_cancel", "accuracy"})

    def test_default_folders(self):
        root = self.folder.parent
        self.assertEqual(reports.default_folders(root), [])
        for name in ("b", "a", "a.old"):
            shutil.copytree(self.folder, root / "results" / name)
        (root / "results" / "empty").mkdir()
        (root / "out").mkdir()
        self.assertEqual([path.name for path in reports.default_folders(root)], ["a", "b"])
        shutil.copy(self.path, root / "out")
        self.assertEqual(reports.default_folders(root), [root / "out"])


@needs_packages
class Failing(unittest.TestCase):
    """What happens to the notebook itself."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="timerbench failing ")
        self.addCleanup(holder.cleanup)
        self.top = pathlib.Path(holder.name)
        shutil.copytree(NOTEBOOKS, self.top / "notebooks", ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
        shutil.copytree(SCRIPTS, self.top / "scripts", ignore=shutil.ignore_patterns("tests", "__pycache__"))
        self.out = self.top / "out"
        self.command = ["/bin/bash", str(self.top / "scripts" / "notebook"), "--no-setup", "--out", str(self.out), str(quick_run(self.top / "run"))]

    def first_cell(self, source):
        path = self.top / "notebooks" / "timers.ipynb"
        notebook = json.loads(path.read_text(encoding="utf-8"))
        notebook["cells"][1]["source"] = source
        path.write_text(json.dumps(notebook), encoding="utf-8")

    def test_a_kernel_that_dies(self):
        self.first_cell("import os\nos._exit(1)")
        result = subprocess.run(self.command, check=False, capture_output=True, text=True, timeout=280)
        self.assertEqual((result.returncode, result.stderr.splitlines()[-1:]), (1, ["notebook: the kernel died; is there enough memory?"]))

    def test_a_cell_that_fails(self):
        self.first_cell("raise ValueError('out of ink')")
        result = subprocess.run(self.command, check=False, capture_output=True, text=True, timeout=280)
        self.assertEqual((result.returncode, result.stderr), (1, "notebook: a cell failed: ValueError: out of ink\n"))
        self.assertEqual(list(self.out.iterdir()), [])

    def test_an_interrupt_leaves_no_kernel_and_no_page(self):
        sign = self.top / "kernel"
        self.first_cell(f"import os, time\nopen({str(sign)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
        with subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as process:
            end = time.monotonic() + 120
            while not (sign.exists() and sign.read_text()) and time.monotonic() < end and process.poll() is None:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            error = process.communicate(timeout=120)[1]
        self.assertEqual(process.returncode, 130, error)
        kernel = pathlib.Path("/proc") / sign.read_text()
        while kernel.exists() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertFalse(kernel.exists())
        self.assertNotIn("Traceback", error)
        self.assertEqual(list(self.out.iterdir()), [])


class Packages(SandboxTest):
    """With a stand-in for the notebook, which only takes note that it would run."""

    def setUp(self):
        super().setUp()
        notebooks = self.checkout / "notebooks"
        notebooks.mkdir()
        (notebooks / "execute.py").write_text("import os, sys\nopen(os.environ['STATE'] + '/executed', 'w').write('\\n'.join(sys.argv[1:]))\n",
                                              encoding="utf-8")
        self.results = self.elsewhere / "my results"
        self.results.mkdir()

    def test_missing_packages_are_installed_and_no_others(self):
        self.installed(["python3", "python3-pandas"])
        result = self.run_script("notebook", "my results")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue(self.noted("apt-calls")[-1].endswith(" python3-matplotlib python3-ipykernel jupyter-nbconvert"), self.noted("apt-calls"))
        self.assertEqual(self.noted("executed"), ["--out", str(self.checkout / "out"), "--", "my results"])

    def test_without_setup_they_are_named(self):
        result = self.run_script("notebook", "--no-setup", "my results")
        self.assert_one_line_exit_2(result, *PACKAGES, "scripts/setup --notebook")
        self.assertEqual((self.noted("apt-calls"), self.noted("executed")), ([], []))

    def test_nothing_is_installed_when_all_are_there(self):
        self.installed([*ALL_PACKAGES, *PACKAGES])
        self.assertEqual(self.run_script("notebook", "--out", "my out").returncode, 0)
        self.assertEqual(self.noted("apt-calls"), [])
        self.assertEqual(self.noted("executed"), ["--out", str(self.elsewhere / "my out"), "--"])

    def test_setup_leaves_them_out_unless_asked(self):
        self.assertIn("nothing to do", self.run_script("setup").stdout)
        self.assertIn("python3-matplotlib", self.run_script("setup", "--notebook").stdout)
        self.assertIn("nothing to do", self.run_script("setup", "--notebook").stdout)

    def test_a_failing_apt_is_one_line(self):
        self.flag("apt-fails")
        self.assert_one_line_exit_2(self.run_script("notebook", "my results"), "jupyter-nbconvert", "Unable to locate")
        self.assertEqual(self.noted("executed"), [])


if __name__ == "__main__":
    unittest.main()
