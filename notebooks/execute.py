"""Executes timers.ipynb without a browser and writes OUT/report.html and OUT/figures/*.svg. Run by scripts/notebook.

usage: execute.py --out DIR [RESULT_DIR...]

The report needs no network: its pictures and its style are in it. Files of OUT are replaced when all of them are
made; when something fails they stay. Exit codes: 0 written; 1 a cell of the notebook failed; 2 unusable input or output; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pathlib
import shutil
import sys
import tempfile

from timerbench_reports import Unusable, default_folders, read_runs, shorten

HERE = pathlib.Path(__file__).resolve().parent
SECONDS_A_CELL = 600
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Timers, in pictures</title>
<style>
body {{ font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #222; max-width: 100em; margin: 2em auto; padding: 0 1.5em; }}
h1, h2, p, ul {{ max-width: 52em; }}
h2 {{ margin-top: 2.2em; border-top: 1px solid #ddd; padding-top: 1em; }}
a.anchor-link, .prompt {{ display: none; }}
code {{ background: #f3f3f3; padding: 0 0.25em; }}
img.timerbench-picture {{ margin: 1em 0; }}
img.timerbench-picture + ul {{ font-size: 0.85em; color: #555; max-width: 70em; }}
table.timerbench-table {{ border-collapse: collapse; font-size: 0.85em; margin: 1em 0; }}
table.timerbench-table th, table.timerbench-table td {{ padding: 0.2em 0.7em; text-align: right; border-bottom: 1px solid #e4e4e4; }}
table.timerbench-table th {{ vertical-align: bottom; }}
.timerbench-missing {{ color: #8a4b00; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


class Failed(Exception):
    """A cell of the notebook failed; the text is one line."""


def private_jupyter(folder: pathlib.Path) -> None:
    """Lets the kernel be this very Python, and nothing of the user's Jupyter be read or written."""
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        os.environ[name] = str(folder / name.lower())
        (folder / name.lower()).mkdir()
    os.environ.pop("JUPYTER_PATH", None)
    kernel = folder / "jupyter_data_dir" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}), encoding="utf-8")


def make(folders: list[pathlib.Path], work: pathlib.Path) -> None:
    """Writes report.html and figures/ into the folder `work`."""
    figures = work / "figures"
    figures.mkdir()
    (work / "jupyter").mkdir()
    private_jupyter(work / "jupyter")
    os.environ |= {"TIMERBENCH_RESULTS": json.dumps([os.path.abspath(folder) for folder in folders]), "TIMERBENCH_FIGURES": str(figures),
                   "PYTHONDONTWRITEBYTECODE": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    # Slow to import, and not needed to tell bad input.
    import nbformat
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from nbconvert import HTMLExporter
    from nbconvert.preprocessors import CellExecutionError, ExecutePreprocessor

    notebook = nbformat.read(HERE / "timers.ipynb", as_version=4)
    try:
        ExecutePreprocessor(timeout=SECONDS_A_CELL, kernel_name="python3").preprocess(notebook, {"metadata": {"path": str(HERE)}})
    except CellExecutionError as error:
        raise Failed(f"a cell failed: {error.ename}: {shorten(error.evalue, 160)}") from None
    except CellTimeoutError:
        raise Failed(f"a cell ran for more than {SECONDS_A_CELL} s") from None
    except DeadKernelError:
        raise Failed("the kernel died; is there enough memory?") from None
    exporter = HTMLExporter(template_name="basic", exclude_input=True, exclude_input_prompt=True, exclude_output_prompt=True)
    body, _ = exporter.from_notebook_node(notebook)
    (work / "report.html").write_text(PAGE.format(body=body), encoding="utf-8")


def publish(work: pathlib.Path, out: pathlib.Path) -> int:
    """Moves what was made to its place, takes pictures away that an earlier run left and this one did not make, and
    returns how many pictures there are. Other files of OUT/figures stay."""
    made = sorted((work / "figures").glob("*.svg"))
    figures = out / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    listed = figures / ".made-by-notebook"
    before = listed.read_text(encoding="utf-8").split("\n") if listed.is_file() else []
    for name in before:
        if name.endswith(".svg") and "/" not in name:
            (figures / name).unlink(missing_ok=True)
    for path in [*made, work / "report.html"]:
        place = (figures if path.suffix == ".svg" else out) / path.name
        shutil.copyfile(path, f"{place}.new")
        os.replace(f"{place}.new", place)
    listed.write_text("\n".join(path.name for path in made), encoding="utf-8")
    return len(made)


def main() -> int:
    parser = argparse.ArgumentParser(prog="notebook", allow_abbrev=False)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("folders", metavar="RESULT_DIR", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    try:
        folders = arguments.folders or default_folders()
        runs = read_runs(folders)
        print(f"notebook: reading {', '.join(f'{run.folder} ({len(run.reports)} reports)' for run in runs)}", flush=True)
        with tempfile.TemporaryDirectory(prefix="timerbench-notebook.") as work:
            make(folders, pathlib.Path(work))
            count = publish(pathlib.Path(work), arguments.out)
    except Unusable as error:
        print(f"notebook: {error}", file=sys.stderr)
        return 2
    except Failed as error:
        print(f"notebook: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"notebook: {error.filename or arguments.out!s} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    print(f"notebook: {arguments.out / 'report.html'} and {count} pictures in {arguments.out / 'figures'}")
    return 0


if __name__ == "__main__":
    # The client's event loop tells of tasks that an interrupt cut off.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
