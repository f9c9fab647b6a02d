"""How a sweep runs, and where it stops: the sections `limits` and `run` of a sweep file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from wtb.fields import Name, Positive, Seconds, Size, Strict, durability_of


class Limits(Strict):
    """Where a sweep stops; None is no limit. Durations in seconds."""

    cell_timeout: Seconds | None = None
    node_runs: Positive | None = None
    usd: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] | None = None
    wall: Seconds | None = None


class Rlimits(Strict):
    """What a node process may take; None is no limit. Sizes in bytes. They are limits, not a sandbox.

    memory: of each of its processes. files: open at a time. file_size: of each file that it writes.
    processes: in its whole tree.
    """

    memory: Size | None = None
    files: Positive | None = None
    file_size: Size | None = None
    processes: Positive | None = 500


class Recycle(Strict):
    """When a node process is replaced by a fresh one: after so many node runs, or once it has grown by so much."""

    runs: Positive = 10_000
    memory: Size = 1_000_000_000


class Run(Strict):
    """How a sweep runs. Durations in seconds; `env` None hands on the whole environment.

    pool: None is `process` where the code can be imported there, else `thread`.
    set_aside_after: so many ends of its node process, and a cell is not tried again. priority: workers take sweeps of
    a higher one first.
    """

    concurrency: Positive = 8
    priority: Annotated[int, Field(strict=True, ge=-1000, le=1000)] = 0
    pool: Literal["process", "thread"] | None = None
    rlimits: Rlimits = Rlimits()
    recycle: Recycle = Recycle()
    set_aside_after: Positive = 3
    durability: Annotated[float | Literal["sync"], BeforeValidator(durability_of)] = 0.02
    share: Annotated[bool, Field(strict=True)] = True
    env: tuple[Name, ...] | None = None
    grace: Seconds = 10.0
