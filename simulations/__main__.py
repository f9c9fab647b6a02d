"""`python -m simulations`: hold every promise of docs/statistics.md against sweeps whose truth is known.

Exits with 1 where a figure breaks its bound by more than chance.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import zlib
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np

from simulations.experiments import promises
from simulations.promises import Found
from simulations.tables import FIGURES, PAGE, partly, render, replace, summary


def simulate(number: int, share: float, seed: int) -> tuple[int, int]:
    """Count the hits of one promise, by its number, over a share of its runs."""
    promise = list(promises())[number]
    name = zlib.crc32(f"{promise.claim}|{promise.situation}|{promise.size}".encode())
    return promise.count(np.random.default_rng([seed, name]), max(20, int(promise.runs * share)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulations", description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the runs of each promise (default: all)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="promises whose text has this in it, or any of several; with --update, whole tables",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: %(default)s)")
    parser.add_argument("--update", action="store_true", help=f"write the tables to {PAGE} and {FIGURES}")
    options = parser.parse_args()
    began = time.monotonic()
    known = list(promises())
    asked = options.only or [""]
    texts = (f"{one.claim}, {one.situation}" for one in known)
    chosen = [number for number, text in enumerate(texts) if any(part in text for part in asked)]
    if options.update and (parts := partly([known[number] for number in chosen], known)):
        parser.error(f"--update takes whole tables: --only {', '.join(asked)} leaves out some of {parts[0]!r}")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(simulate, number, options.share, options.seed) for number in chosen]
        for count, _ in enumerate(as_completed(jobs), start=1):
            if count % max(1, len(jobs) // 20) == 0:
                print(f"{count} of {len(jobs)} figures, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        found = [Found(known[number], *job.result()) for number, job in zip(chosen, jobs, strict=True)]
    if options.update:
        replace(PAGE, summary(found), whole=not options.only)
        replace(FIGURES, render(found, options.share), whole=not options.only)
    else:
        print(render(found, options.share))
    broken = [one for one in found if one.broken]
    for one in broken:
        asked = one.promise.at_most if one.broken == "too many" else one.promise.at_least
        print(
            f"broken: {one.promise.claim}, {one.promise.situation}, {one.promise.size}: {one.share:.1%} of {one.of:,}, "
            f"asked {asked:.1%}",
            file=sys.stderr,
        )
    print(f"{len(found)} figures, {len(broken)} beyond their bounds, {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
