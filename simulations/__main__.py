"""`python -m simulations`: run them and print, or write to a page, what came out."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from simulations import experiments
from simulations.tables import render, replace

CASES = (5, 10, 20, 37, 100, 300, 1_000)
FEW = (10, 100)


def simulate(cases: tuple[int, ...], runs: int, seed: int) -> list[experiments.Found]:
    """All experiments. runs: simulated sweeps of each; a fifth of it where every sweep is compared as a whole."""
    found: list[experiments.Found] = []
    for n in cases:
        found += experiments.coverage_of_means(n, runs, seed)
        found += experiments.coverage_of_differences(n, runs, seed)
        found += experiments.false_alarms(n, runs, seed)
        found += experiments.false_winners(n, runs // 5, seed)
        found += experiments.false_effects(n, runs // 5, seed)
        if n >= 6:
            found += experiments.power(n, runs, seed)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m simulations", description=__doc__)
    parser.add_argument("--small", action="store_true", help="a few seconds of it, for a first look")
    parser.add_argument("--runs", type=int, default=5_000, help="simulated sweeps of each kind (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: %(default)s)")
    parser.add_argument("--update", type=Path, metavar="PAGE", help="write the tables to this page, between its marks")
    options = parser.parse_args()
    began = time.monotonic()
    found = simulate(FEW, 500, options.seed) if options.small else simulate(CASES, options.runs, options.seed)
    text = render(found)
    if options.update:
        replace(options.update, text)
    else:
        print(text)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
