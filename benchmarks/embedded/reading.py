"""Time of reading commands on finished sweeps: a person waits for each.

The sweeps are run by `wtb run`, which keeps their matrices at its end. All figures are wall times of whole commands,
with the time of the bare imports that `wtb list` needs beside them: on a busy machine both take longer. Files are in
the cache of the system, and modules are compiled.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from secrets import token_hex

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds, ratios
from benchmarks.harness.timing import seconds_of_command
from benchmarks.harness.workers import ROOT

WTB = [sys.executable, "-m", "wtb"]
SIZES = {"small": 10_000, "large": 100_000}  # cells of each sweep, by its name
VARIANTS = 10
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "list": ("list",),
    "status": ("status", "small"),
    "show": ("show", "small"),
    "show --cells": ("show", "small", "--cells"),
}
SOON_S, MATRIX_S = 0.45, 0.6
FLOW = """
from wtb import END, Workflow

wf = Workflow("flow")


@wf.node
def only(state, *, k: int = 0):
    return {"y": state["x"] + k}


for number in range(1, %d):
    only.variant(f"v{number}", k=number)
wf.entry(only)
wf.edge(only, END)
"""
MODULES = "import runpy, sys\nsys.argv = ['wtb', 'list']\ntry: runpy.run_module('wtb', run_name='__main__')\n"
MODULES += "except SystemExit: pass\nimport json\njson.dump(list(sys.modules), open('modules.json', 'w'))"
IMPORT = "import importlib, json, sys\nfor name in json.load(open('needed.json')): importlib.import_module(name)"
OWN = ("wtb", "__main__")


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    folder = environment.folder / f"reading-{token_hex(6)}"
    folder.mkdir()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    for name, cells in SIZES.items():
        _run(folder, env, name, cells)
    _write_needed(folder, env)
    commands = {**COMMANDS, "matrix": ("matrix", "large")}
    bare: list[float] = []
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(runs + 1):
        imports_s = seconds_of_command([sys.executable, "-c", IMPORT], folder, env)
        took = {name: seconds_of_command([*WTB, *words], folder, env) for name, words in commands.items()}
        if number:  # the first round compiles
            bare.append(imports_s)
            for name, command_s in took.items():
                seconds[name].append(command_s)
    for name in COMMANDS:
        yield of_rounds(f"`wtb {name}`, {SIZES['small']:,} cells", seconds[name], "s", SOON_S)
    yield of_rounds(f"`wtb matrix`, {SIZES['large']:,} cells", seconds["matrix"], "s", MATRIX_S)
    yield of_rounds("bare imports of `wtb list`", bare, "s")
    over_bare = ratios(seconds["list"], bare)
    yield of_rounds("`wtb list` / its bare imports", over_bare, "x")


def _run(folder: Path, env: Mapping[str, str], name: str, cells: int) -> None:
    """Run a sweep of this many cells to its end."""
    (folder / "flow.py").write_text(FLOW % VARIANTS)
    with (folder / f"{name}.jsonl").open("w") as out:
        out.writelines(
            f'{{"id": "{n}", "input": {{"x": {n}}}, "expected": {{"y": {n}}}}}\n' for n in range(cells // VARIANTS)
        )
    sweep = {
        "sweep": name,
        "workflow": "flow:wf",
        "cases": f"{name}.jsonl",
        "vary": {"only": "all"},
        "evaluate": [{"exact_match": {"field": "y"}}],
        "run": {"pool": "thread"},
    }
    (folder / f"{name}.json").write_text(json.dumps(sweep))
    seconds_of_command([*WTB, "run", f"{name}.json", "--quiet"], folder, env)


def _write_needed(folder: Path, env: Mapping[str, str]) -> None:
    """Write a list of the modules of other packages that `wtb list` imports."""
    seconds_of_command([sys.executable, "-c", MODULES], folder, env)
    loaded = json.loads((folder / "modules.json").read_text())
    needed = [name for name in loaded if name.partition(".")[0] not in OWN]
    (folder / "needed.json").write_text(json.dumps(needed))
