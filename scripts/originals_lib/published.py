"""The table for the README: what was published, what the original did here, what ours did here."""

import json
import os
from typing import Any, Mapping

from judging import reports

from . import reaching
from .tables import Notes, figure, versions

PATH = os.path.join(os.path.dirname(os.path.realpath(__file__)), "published.json")


def read() -> dict[str, Any]:
    with open(PATH, encoding="utf-8") as file:
        return json.load(file)


def _in_unit(value: float, unit: str) -> str:
    if unit == "ms":
        return f"{value:+.3f}"
    if unit == "1":
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.2f}" if unit == "1/op" else figure(value)


def _cell(rows: reaching.Rows, service: str, entry: Mapping[str, Any], notes: Notes) -> str:
    row = rows.get((service, reports.canonical(entry["case"]), entry["metric"]))
    if row is None:
        row = rows.get((service, "{}", "available"))
    if why := reaching.why_absent(row):
        return f"– ({notes.mark(why)})"
    value = row.get(entry["value"])
    return _in_unit(value, row["unit"]) if isinstance(value, (int, float)) else f"– ({notes.mark('too few samples for it')})"


def table(documents: Mapping[str, dict[str, Any]]) -> list[str]:
    """Markdown. Needs at least one document."""
    published = read()
    notes = Notes()
    lines = ["| | original | published | the original here | ours here | |", "| --- | --- | ---: | ---: | ---: | --- |"]
    for entry in published["figures"]:
        rows = reaching.by_key(documents.get(entry["experiment"]))
        for number, pair in enumerate(entry["of"]):
            lines.append("| {} | `{}` | {} | {} | {} | `{}` |".format(
                entry["figure"] if number == 0 else "", pair["original"].removeprefix("original/"), pair["published"] or "–",
                _cell(rows, pair["original"], entry, notes), _cell(rows, pair["ours"], entry, notes), pair["ours"]))
    some = next(iter(documents.values()))
    environment = some["environment"]
    lines += ["", f"Published: {published['where']}. Here: {environment['cpu']['model']}, {environment['cpu']['usable']} usable cores"
              + (", a quick run: not for quoting" if some["quick"] else "") + "."]
    lines += [f"Versions: {versions(some)}."]
    if notes.letters:
        lines += ["Not measured: " + "; ".join(f"({letter}) {text}" for text, letter in notes.letters.items()) + "."]
    return lines
