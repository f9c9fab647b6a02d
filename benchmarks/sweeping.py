"""The workload T and how its sweep is timed: 64 combinations x 10 cases of three trivial nodes."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import Any, TypedDict

from wtb.codec import decode
from wtb.context import Context
from wtb.prepare import prepare
from wtb.running import SweepRun, run_to_end, workspaces_of
from wtb.spec import parse_spec
from wtb.store import reading
from wtb.store.database import Database
from wtb.workflow import END, Workflow

VARIANTS, CASES = 4, 10
CELLS = VARIANTS**3 * CASES
NODE_RUNS = (VARIANTS + VARIANTS**2 + VARIANTS**3) * CASES
SLOTS = 16


class State(TypedDict, total=False):
    x: int
    a: int
    b: int
    c: str


def expected(x: int, a: int, b: int, c: int) -> State:
    """The final state of a case under the a-th, b-th and c-th variant."""
    return {"x": x, "a": x + a, "b": (x + a) * 10 + b, "c": f"{(x + a) * 10 + b}-{c}"}
