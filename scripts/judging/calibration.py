"""What a calibration found: forms the decisions, counts, and puts it into a document, a text and a table.

The document (`calibration.json`, schema timerbench.calibration/1) holds everything that the text and the table are made of.
"""

import math
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import numpy as np

from . import pool
from .pool import Decision, Pairs, Pool, Rate, Run, rate
from .rules import Rules

FORMAT = "timerbench.calibration/1"
GRID = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0)
EFFECTS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1, 0.12, 0.15, 0.18, 0.2, 0.25, 0.3, 0.4, 0.5)
SHARE = 0.95
MOST_UNDECIDED = 0.05

# What is to be reached: (tool, what, which rate, at most or at least).
TARGETS = (("gate", "A/A", "alarms", "at most", 0.01), ("compare", "A/A", "alarms", "at most", 0.01),
           ("gate", "A/A", "undecided", "at most", 0.05), ("compare", "A/A", "undecided", "at most", 0.05),
           ("compare", "percent:10", "found", "at least", 0.95), ("compare", "percent:20", "found", "at least", 0.99))
WORDS = {"A/A": "nothing", "alloc": "one allocation an arm", "clock": "one clock reading an arm",
         "instructions:2": "2 % of instructions", "none": "nothing"}


def in_words(planted: str) -> str:
    return f"{planted[8:]} % of arm + cancel" if planted.startswith("percent:") else WORDS.get(planted, planted)


@dataclass(frozen=True)
class Effort:
    """How many decisions are formed."""

    compare_like: int
    compare_planted: int
    smallest: int


FULL = Effort(compare_like=400, compare_planted=200, smallest=80)
QUICK = Effort(compare_like=20, compare_planted=10, smallest=8)


def rates_of(tool: str, planted: str, decisions: Sequence[Decision], disjoint: Rate | None = None) -> dict[str, Any]:
    """The entry of one line of the table. `disjoint`: alarms (A/A) among decisions that share no run."""
    entry: dict[str, Any] = {"tool": tool, "planted": planted, "decisions": len(decisions),
                             "alarms": rate(decisions, lambda decision: decision.alarm).document(),
                             "undecided": rate(decisions, lambda decision: decision.undecided).document()}
    if planted != "A/A":
        entry["found"] = rate(decisions, lambda decision: decision.found and decision.alarm).document()
    if disjoint is not None:
        entry["disjoint_alarms"] = disjoint.document()
    return entry


@dataclass
class Formed:
    """Decisions to be made, formed once so that other rules can be tried on the same ones."""

    gate: dict[str, list[Pairs]]
    compare: dict[str, list[Pairs]]
    disjoint: list[Pairs]

    def total(self) -> int:
        return sum(map(len, [*self.gate.values(), *self.compare.values(), self.disjoint]))


def form(runs: Sequence[Run], like: str, planted: Sequence[str], rounds: int, effort: Effort, seed: int) -> Formed:
    made = Pool(runs, np.random.default_rng(seed))
    gate = {"A/A": made.gate_pairs(like, like)}
    compare = {"A/A": made.many_compare_pairs(like, like, rounds, effort.compare_like)}
    for kind in planted:
        gate[kind] = made.gate_pairs(pool.NONE, kind)
        compare[kind] = made.many_compare_pairs(pool.NONE, kind, rounds, effort.compare_planted)
    return Formed(gate, compare, made.disjoint_compare_pairs(like, rounds))


Progress = Callable[[int], None]


def decide_all(formed: Formed, rules: Rules, service: str, progress: Progress = lambda done: None) \
        -> tuple[list[dict[str, Any]], dict[str, list[Decision]]]:
    """The table's entries, and the A/A decisions by tool."""
    done = 0

    def each(pairs: Sequence[Pairs]) -> list[Decision]:
        nonlocal done
        decisions = []
        for pair in pairs:
            progress(done)
            decisions.append(pool.decide(pair, rules, service))
            done += 1
        return decisions

    disjoint = rate(each(formed.disjoint), lambda decision: decision.alarm)
    entries, like = [], {}
    for tool, groups in (("gate", formed.gate), ("compare", formed.compare)):
        for planted, pairs in groups.items():
            decisions = each(pairs)
            entries.append(rates_of(tool, planted, decisions, disjoint if (tool, planted) == ("compare", "A/A") else None))
            if planted == "A/A":
                like[tool] = decisions
    return entries, like


def up_to_whole_percent(value: float) -> float:
    return math.ceil(round(value * 100, 6)) / 100


def thresholds(like: dict[str, list[Decision]], formed: Formed, rules: Rules, service: str, noise: Sequence[pool.RowNoise],
               effort: Effort) -> dict[str, Any]:
    """Minimum effects that this machine asks for, in whole per cent: the smallest with which no A/A decision of this pool is an alarm
    and at most MOST_UNDECIDED of them cannot be decided.

    gate: and not below the distance of the two builds that lie farthest apart, whatever the interval of a single run says.
    compare: its rounds average over builds, so that distance does not bind it.
    """
    between = max((row.between for row in noise if row.by_visits), default=0.0)
    no_alarm = {tool: pool.alarm_threshold(decisions) for tool, decisions in like.items()}
    decided = {tool: pool.deciding_threshold(thinned(pairs, effort.smallest), rules, service, unit, MOST_UNDECIDED, EFFECTS)
               for tool, unit, pairs in (("gate", "visits", formed.gate["A/A"]), ("compare", "rounds", formed.compare["A/A"]))}

    def least(tool: str, unit: str, *others: float) -> float:
        # Where no effect would do it, noise is not cured by another one: the rules' own is not lowered.
        own = max((rule.minimum_effect[unit] for metrics in rules.metrics.values() for rule in metrics.values() if rule.kind == "time"),
                  default=0.0)
        enough = decided[tool] if decided[tool] is not None else own
        return up_to_whole_percent(max(no_alarm.get(tool, 0.0), enough, 0.01, *others))
    return {"between_builds": between, "no_alarm_above": no_alarm, "decided_from": decided,
            "minimum_effect": {"visits": least("gate", "visits", between), "rounds": least("compare", "rounds")}}


def thinned(pairs: Sequence[Pairs], most: int) -> list[Pairs]:
    """At most so many of them, evenly spread."""
    return list(pairs[::max(math.ceil(len(pairs) / most), 1)])


def by_service(noise: Sequence[pool.RowNoise]) -> list[dict[str, Any]]:
    return [{"service": row.service, "case": row.case, "metric": row.metric, "between_builds": row.between,
             "within_build": row.within,
             "judged_by": "gate and compare" if row.by_visits else "compare"} for row in sorted(noise, key=lambda row: -row.between)]


def rules_document(rules: Rules) -> dict[str, Any]:
    effects = {f"{experiment}/{name}": rule.minimum_effect for experiment, metrics in rules.metrics.items()
               for name, rule in metrics.items() if rule.kind == "time"}
    return {"alpha": rules.alpha, "miss": rules.miss, "max_undecided": rules.max_undecided, "reference": rules.reference,
            "fewest": rules.fewest, "trim": rules.trim, "minimum_effect": effects}


def smallest(formed: Formed, rules: Rules, service: str, effort: Effort, progress: Progress = lambda done: None) -> dict[str, Any]:
    """The smallest worsening found in 95 % of decisions, by tool: A/A decisions with one side's times of the service made longer."""
    found = {}
    for position, (tool, pairs) in enumerate((("gate", formed.gate["A/A"]), ("compare", formed.compare["A/A"]))):
        chosen = thinned(pairs, effort.smallest)
        progress(position)
        found[tool] = {"share": SHARE, "decisions": len(chosen), "grid": list(GRID),
                       "change": pool.smallest_found(chosen, rules, service, SHARE, GRID) if chosen else None}
    return found


def reached(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each target with what was measured. `ok` is None where there was nothing to measure it on."""
    found = []
    for tool, planted, what, sense, target in TARGETS:
        entry = next((entry for entry in entries if (entry["tool"], entry["planted"]) == (tool, planted)), None)
        measured = entry[what]["rate"] if entry is not None and what in entry and entry[what]["total"] else None
        ok = None if measured is None else measured <= target if sense == "at most" else measured >= target
        found.append({"tool": tool, "planted": planted, "rate": what, "sense": sense, "target": target, "measured": measured, "ok": ok})
    for entry in entries:
        if entry["tool"] in ("counts", "instructions"):
            like = entry["planted"] == "A/A"
            what, sense, target = ("alarms", "at most", 0.0) if like else ("found", "at least", 1.0)
            measured = entry[what]["rate"]
            found.append({"tool": entry["tool"], "planted": entry["planted"], "rate": what, "sense": sense, "target": target,
                          "measured": measured, "ok": measured <= target if like else measured >= target})
    return found


# ---- for people ----

def percent(value: float | None, digits: int = 1) -> str:
    return "-" if value is None or math.isnan(value) else f"{value * 100:.{digits}f} %"


def _rate(entry: dict[str, Any] | None) -> str:
    if entry is None or not entry["total"]:
        return "-"
    low, high = entry["ci95"]
    return f"{entry['count']} of {entry['total']} = {percent(entry['rate'])} [{low * 100:.1f} {high * 100:.1f}]"


def _columns(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]


def table(document: dict[str, Any]) -> list[str]:
    """The rates, for the README: what was planted, how often each tool found it, how often it cried wolf or could not tell."""
    lines = [["tool", "planted", "called a regression [95 %]", "cannot decide [95 %]"]]
    for entry in document["rates"]:
        like = entry["planted"] == "A/A"
        lines.append([entry["tool"], in_words(entry["planted"]), _rate(entry["alarms"] if like else entry["found"]),
                      _rate(entry["undecided"])])
    text = _columns(lines)
    for entry in document["rates"]:
        if entry["planted"] == "A/A" and entry["alarms"]["total"]:
            text.append(f"False alarms of a whole run, {entry['tool']}: {percent(entry['alarms']['rate'], 2)}, upper 95 % bound "
                        f"{percent(entry['alarms']['upper95'], 2)}" + _shared(entry) + ".")
    for tool, found in document["smallest_found"].items():
        text.append(f"Like runs, the times of one service multiplied afterwards: smallest worsening that {tool} finds in 95 %: " + (
            f"{percent(found['change'], 0)}." if found["change"] is not None else f"more than {percent(max(found['grid']), 0)}."))
    missed = [target for target in document["targets"] if target["ok"] is False]
    for target in missed:
        text.append(f"Not reached: {target['tool']}, {in_words(target['planted'])} planted, {target['rate']} {target['sense']} "
                    f"{percent(target['target'], 0)}: {percent(target['measured'])}.")
    if document["quick"]:
        text.append("QUICK: too few runs for these rates to mean anything.")
    return text


def _shared(entry: dict[str, Any]) -> str:
    if "disjoint_alarms" not in entry or not entry["disjoint_alarms"]["total"]:
        return ""
    alone = entry["disjoint_alarms"]
    return (f" if the decisions were independent; they are drawn from the same runs. Without a run in common: "
            f"{alone['count']} of {alone['total']}, bound {percent(alone['upper95'])}")


def text_report(document: dict[str, Any]) -> str:
    environment, settings = document["environment"], document["settings"]
    revision = environment["git"]["revision"] + (" with uncommitted changes" if environment["git"]["dirty"] else "")
    lines = ["timerbench: calibration" + ("   QUICK" if document["quick"] else ""),
             f"  started    {document['started_utc']}, finished {document['finished_utc']}",
             f"  cpu        {environment['cpu']['model']}, {environment['cpu']['online']} online"
             + (", virtual machine" if environment["cpu"]["virtual_machine"] else ""),
             f"  kernel     {environment['kernel']}, {environment['libc']}",
             f"  build      {environment['compiler']}, {environment['build_type']}: {environment['flags']}",
             f"  revision   {revision}",
             f"  placement  {document['placement']}, {settings['builds']} builds of the same objects",
             f"  runs       {document['runs']['like']} without and {document['runs']['planted']} with planted work in {settings['service']}, "
             f"{in_seconds(document['runs']['median_s'])} each; {settings['rounds']} rounds a side in compare",
             f"  judged     {', '.join(settings['services'])}, {document['rows']} rows; alpha {document['rules']['alpha']:g}", ""]
    lines += ["How often (the rules as they are)", *table(document), ""]
    proposed = document["proposed"]
    lines.append(f"Minimum effects that this machine asks for: gate {percent(proposed['minimum_effect']['visits'], 0)} (visits), "
                 f"compare {percent(proposed['minimum_effect']['rounds'], 0)} (rounds)")
    lines.append(f"  Builds of the same source lie up to {percent(proposed['between_builds'])} apart. No A/A decision would be an alarm above "
                 + ", ".join(f"{percent(value)} ({tool})" for tool, value in proposed["no_alarm_above"].items()) + ".")
    lines.append(f"  At most {MOST_UNDECIDED * 100:g} % of A/A decisions are undecided from " + ", ".join(
        f"{percent(value, 0) if value is not None else 'more than ' + percent(max(EFFECTS), 0)} ({tool})"
        for tool, value in proposed["decided_from"].items()) + " on.")
    if document["rates_as_proposed"]:
        lines += ["", "How often (with these; they were set on the very same runs)",
                  *table(document | {"rates": document["rates_as_proposed"], "smallest_found": document["smallest_as_proposed"],
                                     "targets": document["targets_as_proposed"]})]
    lines += ["", "Noise by row", *_columns([["service", "case", "between builds", "a run within a build", "judged by"], *(
        [row["service"], short_case(row["case"]), percent(row["between_builds"]), percent(row["within_build"]), row["judged_by"]]
        for row in document["noise"])])]
    if document["planted_percent"]:
        lines += ["", "What was really planted, measured beside each run: " + "; ".join(
            f"{kind}: {entry['mean']:.1f} % (standard deviation {entry['sd']:.1f})" for kind, entry in document["planted_percent"].items())]
    lines += ["", *(f"{remark}" for remark in document["remarks"])]
    return "\n".join(lines).rstrip() + "\n"


def in_seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"


def short_case(case: str) -> str:
    return "window" if '"kind":"window"' in case else "article" if '"kind":"article"' in case else case
