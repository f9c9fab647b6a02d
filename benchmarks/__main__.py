"""`python -m benchmarks [NAME ...] [--runs 5] [--json FILE]`: measure, and say which targets are met."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from benchmarks.figures import Figure, table
from benchmarks.places import places

NAMES = (
    "tiny",
    "processes",
    "sleepy",
    "large",
    "durable",
    "files",
    "rewinding",
    "queued",
    "resting",
    "plans",
    "tallies",
    "evidence",
    "saver",
    "graphs",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; default all")
    parser.add_argument("--runs", type=int, default=5, help="rounds; a figure is their median (default 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in NAMES]
    if unknown or given.runs < 1:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}" if unknown else "--runs is below 1")
    figures: list[Figure] = []
    with places() as where:
        for name in given.names or NAMES:
            print(f"{name} ...", file=sys.stderr, flush=True)
            figures += importlib.import_module(f"benchmarks.{name}").measure(where, given.runs)
    print(table(figures))
    if given.json:
        given.json.write_text(json.dumps([figure.document() for figure in figures], indent=2) + "\n")


if __name__ == "__main__":
    main()
