"""`python -m benchmarks [NAME ...] [--runs 5] [--only PART] [--json FILE]`: measure, and show the met targets."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from benchmarks.harness.environment import environment
from benchmarks.harness.figures import Figure, table
from wtb.config.distribution import start_collecting

BENCHMARKS = {
    "start": "embedded.start",
    "reading": "embedded.reading",
    "tiny": "embedded.tiny",
    "rows": "embedded.row_versions",
    "guards": "embedded.guards",
    "processes": "embedded.processes",
    "sleepy": "embedded.sleepy",
    "wide": "embedded.wide",
    "large": "embedded.large",
    "durable": "embedded.durable",
    "files": "embedded.files",
    "rollback": "embedded.rollback",
    "queued": "distributed.queued",
    "idle": "distributed.idle",
    "million": "distributed.million",
    "plans": "distributed.query_plans",
    "api": "distributed.api",
    "streams": "distributed.streams",
    "tallies": "distributed.tallies",
    "telemetry": "distributed.telemetry",
    "evidence": "embedded.evidence",
    "saver": "embedded.saver",
    "policy": "embedded.policy",
    "graphs": "embedded.graphs",
    "pages": "pages",
    "judges": "embedded.judges",
    "llm": "embedded.llm",
}
LONG = ("million",)  # hours: only by name


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; default all but {', '.join(LONG)}"
    )
    parser.add_argument("--runs", type=int, default=5, help="rounds; a figure is their median (default 5)")
    parser.add_argument("--cells", type=int, default=1_000_000, help="of `million`, a multiple of 1000 (a million)")
    parser.add_argument("--beside", type=int, default=100_000, help="cells of sweeps beside `streams` (100,000)")
    parser.add_argument("--streaming", type=float, default=20.0, metavar="SECONDS", help="of `streams`, at least (20)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PART", help="of pages, streams, llm; repeatable"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    if args.streaming < 20:
        parser.error("--streaming is at least 20")
    if args.runs < 1 or args.cells < 1000 or args.cells % 1000 or args.beside < 1000 or args.beside % 1000:
        parser.error("--runs is at least 1, --cells and --beside multiples of 1,000")
    start_collecting()  # as `wtb` does; what is held against it runs here, too
    figures: list[Figure] = []
    with environment(cells=args.cells, only=args.only, beside=args.beside, streaming=args.streaming) as place:
        for name in args.names or [name for name in BENCHMARKS if name not in LONG]:
            print(f"{name} ...", file=sys.stderr, flush=True)
            measured: list[Figure] = []
            try:
                measured.extend(importlib.import_module(f"benchmarks.{BENCHMARKS[name]}").measure(place, args.runs))
            finally:  # what fails after hours takes nothing with it
                print(table(measured), flush=True)
            figures += measured
            if args.json:
                args.json.write_text(json.dumps([figure.document() for figure in figures], indent=2) + "\n")


if __name__ == "__main__":
    main()
