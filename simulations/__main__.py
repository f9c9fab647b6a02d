"""`python -m simulations`: check every promise of docs/statistics.md against sweeps whose truth is known.

Exits with 1 where a figure breaks its bound by more than chance.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path

import numpy as np

from simulations.experiments import promises
from simulations.promises import Found, Promise
from simulations.tables import FIGURES, PAGE, partly, render, replace, summary


@cache
def known_promises() -> Sequence[Promise]:
    """Return all promises; to make them takes a second, so each process does it once."""
    return tuple(promises())


def simulate(number: int, share: float, seed: int) -> tuple[int, int]:
    """Count the hits of one promise, by its number, over a share of its runs."""
    promise = known_promises()[number]
    name = zlib.crc32(f"{promise.claim}|{promise.situation}|{promise.size}".encode())
    return promise.count(np.random.default_rng([seed, name]), max(20, int(promise.runs * share)))


class Done:
    """The figures of earlier runs, in a file that grows by a line for each.

    Args:
        file: It; None to remember nothing.
        share, seed: Of this run. Figures of other ones do not count.
    """

    def __init__(self, file: Path | None, share: float, seed: int) -> None:
        self._file, self._run = file, (share, seed)
        lines = file.read_text("utf-8").splitlines() if file is not None and file.exists() else []
        self.counts = {tuple(key): (hits, of) for key, hits, of in map(json.loads, lines)}

    def key(self, promise: Promise) -> tuple[object, ...]:
        return (promise.claim, promise.situation, promise.size, promise.runs, *self._run)

    def add(self, promise: Promise, counted: tuple[int, int]) -> None:
        self.counts[self.key(promise)] = counted
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps([self.key(promise), *map(int, counted)]) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulations", description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the runs of each promise (default: all)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="promises whose text has this in it, or any of several; with --update, whole tables",
    )
    parser.add_argument(
        "--bound", action="store_true", help="only promises that have a bound, which others cannot break"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: %(default)s)")
    parser.add_argument("--update", action="store_true", help=f"write the tables to {PAGE} and {FIGURES}")
    parser.add_argument("--done", type=Path, metavar="FILE", help="figures of a run of this code that was interrupted")
    options = parser.parse_args()
    began = time.monotonic()
    all_promises = known_promises()
    filters = options.only or [""]
    numbers = [
        number
        for number, promise in enumerate(all_promises)
        if any(part in f"{promise.claim}, {promise.situation}" for part in filters)
        and (promise.has_bound or not options.bound)
    ]
    if options.update and (parts := partly([all_promises[number] for number in numbers], all_promises)):
        parser.error(f"--update takes whole tables: --only {', '.join(filters)} leaves out some of {parts[0]!r}")
    done = Done(options.done, options.share, options.seed)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        pending = [number for number in numbers if done.key(all_promises[number]) not in done.counts]
        jobs = {pool.submit(simulate, number, options.share, options.seed): all_promises[number] for number in pending}
        for count, job in enumerate(as_completed(jobs), start=1):
            done.add(jobs[job], job.result())
            if count % max(1, len(jobs) // 20) == 0:
                print(f"{count} of {len(jobs)} figures, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    results = [Found(all_promises[number], *done.counts[done.key(all_promises[number])]) for number in numbers]
    if options.update:
        replace(PAGE, summary(results), whole=not options.only)
        replace(FIGURES, render(results, options.share), whole=not options.only)
    else:
        print(render(results, options.share))
    broken = [figure for figure in results if figure.broken]
    for figure in broken:
        promise = figure.promise
        bound = promise.at_most if figure.broken == "too many" else promise.at_least
        print(
            f"broken: {promise.claim}, {promise.situation}, {promise.size}: {figure.share:.1%} of {figure.of:,}, "
            f"asked {bound:.1%}",
            file=sys.stderr,
        )
    print(
        f"{len(results)} figures, {len(broken)} beyond their bounds, {time.monotonic() - began:.0f} s", file=sys.stderr
    )
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
