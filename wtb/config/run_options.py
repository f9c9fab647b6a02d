"""How a sweep runs, and where it stops: the sections `limits` and `run` of a sweep file."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from wtb.config.credentials import is_credential
from wtb.config.field_types import Name, Positive, Seconds, Size, Slots, Strict, durability_of, name_of
from wtb.config.validation_messages import expected, problem

Dollars = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]


class NodeLimits(Strict):
    """Where a sweep stops for one of its nodes; None is no limit."""

    usd: Dollars | None = None
    tokens: Positive | None = None
    node_runs: Positive | None = None


class Limits(Strict):
    """Where a sweep stops; None is no limit. Durations in seconds. nodes: limits of single nodes."""

    cell_timeout: Seconds | None = None
    node_runs: Positive | None = None
    usd: Dollars | None = None
    tokens: Positive | None = None
    wall: Seconds | None = None
    nodes: dict[Name, NodeLimits] = {}


class Rlimits(Strict):
    """What a node process may take; None is no limit. Sizes in bytes. They are limits, not a sandbox.

    memory: of each of its processes. files: open at a time. file_size: of each file that it writes.
    processes: in its whole tree.
    """

    memory: Size | None = None
    files: Positive | None = None
    file_size: Size | None = None
    processes: Positive | None = 500


class Workspace(Strict):
    """How large the files may be that an attempt leaves; None is no limit. Sizes in bytes.

    size: of all of them as they seem, holes included. stored: of what is new, without holes. entries: files and
    directories.
    """

    size: Size | None = 10_000_000_000
    stored: Size | None = 10_000_000_000
    entries: Positive | None = 1_000_000


class Recycle(Strict):
    """When a node process is replaced by a fresh one: after so many node runs, or once it has grown by so much."""

    runs: Positive = 10_000
    memory: Size = 1_000_000_000


class After(Strict):
    """Ask a person to go on after this node."""

    after: Name


def _approval(value: object) -> object:
    """A mode by its name, `{after: NODE}`, or `after NODE`, as commands write that."""
    if value is None or isinstance(value, After):
        return value
    if isinstance(value, str) and (after := re.fullmatch(r"after[ :=]+(.+)", value)):
        value = {"after": after[1]}
    if isinstance(value, dict) and list(value) == ["after"]:
        return {"after": name_of(value["after"])}
    mode = value.replace("-", "_") if isinstance(value, str) else value
    if mode not in ("none", "manual", "before", "on_error"):
        raise expected("none, manual, before, on_error or {after: NODE}")
    return mode


Approval = Annotated[Literal["none", "manual", "before", "on_error"] | After | None, BeforeValidator(_approval)]


def _variable(value: object) -> object:
    if isinstance(value, str) and is_credential(value):
        raise problem(f"{value}; nodes never see a credential of WTB's: give them one of their own")
    return value


Variable = Annotated[Name, AfterValidator(_variable)]


class Run(Strict):
    """How a sweep runs. Durations in seconds; `env` None hands on the whole environment.

    per_process: so many runs of async nodes share a node process.
    pool: None is `process` where the code can be imported there, else `thread`.
    set_aside_after: so many ends of its node process, and a cell is not tried again. priority: workers take sweeps of
    a higher one first. approval: when people are asked to let it go on; None is as the workflow says. mode: who
    answers the prompts of action nodes, a model or a person; None is as each of them says. checkpoints: fine takes one
    after each tool call of a node. stall: seconds of silence after which a node counts as stalled; None is never.
    """

    concurrency: Slots = 8
    per_process: Positive = 64
    priority: Annotated[int, Field(strict=True, ge=-1000, le=1000)] = 0
    pool: Literal["process", "thread"] | None = None
    rlimits: Rlimits = Rlimits()
    recycle: Recycle = Recycle()
    workspace: Workspace = Workspace()
    set_aside_after: Positive = 3
    durability: Annotated[float | Literal["sync"], BeforeValidator(durability_of)] = 0.02
    share: Annotated[bool, Field(strict=True)] = True
    env: tuple[Variable, ...] | None = None
    grace: Seconds = 10.0
    approval: Approval = None
    mode: Literal["autonomous", "interactive"] | None = None
    checkpoints: Literal["coarse", "fine"] = "coarse"
    stall: Seconds | None = None
