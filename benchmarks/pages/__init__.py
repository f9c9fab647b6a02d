"""Times of the pages in a headless Chromium. `--only NAME` measures one part, each in minutes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure

PARTS = ("cells", "live", "texts", "tree", "trace", "states", "hours", "what-if", "outputs")


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    unknown = set(environment.only) - set(PARTS)
    if unknown:
        raise SystemExit(f"pages has no part {min(unknown)!r}; there are {', '.join(PARTS)}")
    for part in environment.only or PARTS:
        yield from importlib.import_module(f"benchmarks.pages.{part.replace('-', '_')}").measure(environment, runs)
