"""How a sweep runs, where it stops, and which servers its nodes use: `run`, `limits` and `mcp` of a sweep file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, Tag, model_validator

from wtb.config.credentials import VARIABLE, is_credential
from wtb.config.field_types import (
    MAPPING,
    WORD,
    Name,
    NotEmpty,
    Positive,
    Seconds,
    Size,
    Slots,
    Strict,
    Text,
    bounded,
    durability_of,
    form_of,
    name_of,
)
from wtb.config.validation_messages import expected, problem
from wtb.core.arguments import approval
from wtb.core.arguments.approval import is_mode, read_mode
from wtb.core.errors import describe

Dollars = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]


SYNC_SLOTS = 8  # node runs at a time, and the most node processes for sync nodes and evaluators
ASYNC_SLOTS = 64  # node runs at a time if it is calls that a sweep waits for


class NodeLimits(Strict):
    """Where a sweep stops for one of its nodes; None is no limit."""

    usd: Dollars | None = None
    tokens: Positive | None = None
    node_runs: Positive | None = None


class JudgingLimits(Strict):
    """Where a sweep stops for what its judges cost, which counts in no other limit; None is no limit."""

    usd: Dollars | None = None


class Limits(Strict):
    """Where a sweep stops; None is no limit. Durations in seconds. nodes: limits of single ones. judging: of judges."""

    cell_timeout: Seconds | None = None
    node_runs: Positive | None = None
    usd: Dollars | None = None
    tokens: Positive | None = None
    wall: Seconds | None = None
    nodes: dict[Name, NodeLimits] = {}
    judging: JudgingLimits = JudgingLimits()


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


class TimedCheckpoints(Strict):
    """Checkpoints of running nodes every so many seconds; with `tools` after each tool call, too."""

    every: Seconds
    tools: Annotated[bool, Field(strict=True)] = False


_Checkpoints = Annotated[
    Annotated[Literal["coarse", "fine"], Tag(WORD)] | Annotated[TimedCheckpoints, Tag(MAPPING)],
    form_of("coarse, fine or a mapping such as {every: 10m}", "coarse", "fine"),
]


class After(Strict):
    """Ask a person to go on after this node."""

    after: Name


_Mode = Literal["none", "manual", "before", "on_error"] | After


def _approval(value: object) -> object:
    """Read a mode by its name, `{after: NODE}` or `after NODE`, as commands write that, or a list of these."""
    if isinstance(value, list | tuple):
        bounded(value)
        return _several(list(value))
    if value is None or isinstance(value, After):
        return value
    mode = read_mode(value)
    if not is_mode(mode):
        raise expected(f"{approval.EXPECTED}, or a list of these")
    return {"after": name_of(mode["after"])} if isinstance(mode, dict) else mode


def _several(values: list[object]) -> object:
    """Read a list of modes; a list of one is that mode."""
    if not values:
        raise expected(f"{approval.EXPECTED}, or a list of these")
    modes: list[Any] = [{"after": mode.after} if isinstance(mode, After) else read_mode(mode) for mode in values]
    for place, mode in enumerate(modes):
        if not is_mode(mode):
            raise problem(f"{describe(values[place])}; expected {approval.EXPECTED}", at=(place,))
    if wrong := approval.contradiction(modes):
        place, text = wrong
        raise problem(text, at=(place,))
    return _approval(modes[0]) if len(modes) == 1 else tuple(map(_approval, modes))


Approval = Annotated[_Mode | tuple[_Mode, ...] | None, BeforeValidator(_approval)]


def _variable(value: object) -> object:
    if isinstance(value, str) and is_credential(value):
        raise problem(f"{value}; nodes never see a credential of WTB's: give them one of their own")
    return value


Variable = Annotated[Name, AfterValidator(_variable)]


class Run(Strict):
    """How a sweep runs. Durations in seconds; `env` None hands on the whole environment.

    concurrency: so many node runs at a time; None is `ASYNC_SLOTS` for async nodes, else `SYNC_SLOTS`.
    per_process: so many runs of async nodes share a node process; None spreads them over the processors.
    pool: None is `process` where the code can be imported there, else `thread`.
    set_aside_after: so many ends of its node process, and a cell is not tried again. priority: workers take sweeps of
    a higher one first. approval: when people are asked to let it go on, a mode or several; None is as the workflow
    says. mode: who answers the prompts of action nodes, a model or a person; None is as each of them says.
    checkpoints: fine takes one after each tool call of a node, `{every: 10m}` one of running nodes every so often.
    stall: seconds of silence after which a node counts as stalled; None is never.
    provider_wait: how long a node run waits for a provider that fails, before the sweep pauses.
    free_hosts: connections to these cost nothing: `HOST`, `HOST:PORT` or patterns with `*`.
    """

    concurrency: Slots | None = None
    per_process: Positive | None = None
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
    checkpoints: _Checkpoints = "coarse"
    stall: Seconds | None = None
    provider_wait: Seconds = 900.0
    free_hosts: Annotated[tuple[Name, ...], BeforeValidator(bounded)] = ()

    @property
    def takes_tool_checkpoints(self) -> bool:
        """Whether there is a checkpoint after each tool call."""
        return self.checkpoints == "fine" or (isinstance(self.checkpoints, TimedCheckpoints) and self.checkpoints.tools)

    @property
    def checkpoint_every(self) -> float | None:
        """Seconds between checkpoints of running nodes; None for none."""
        return self.checkpoints.every if isinstance(self.checkpoints, TimedCheckpoints) else None


_SECRET = re.compile("authorization|cookie|credential|key|password|secret|token", re.IGNORECASE)


def variables_of(texts: Mapping[str, str]) -> list[str]:
    """The variables that texts name, as `${NAME}`."""
    return [name for text in texts.values() for name in VARIABLE.findall(text)]


def _tools(value: object) -> object:
    """The tools of a server: a list, or a mapping with the tool that takes a call back."""
    if isinstance(value, list | tuple) and all(isinstance(tool, str) for tool in value):
        bounded(value)
        return dict.fromkeys(value)
    if not isinstance(value, dict):
        raise expected("a list of tools, or a mapping from tools to those that take a call back")
    return value


def _check_variables(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Refuse what is to stay out of the database, and what a server is not to know."""
    for name, text in texts.items():
        if "${" in VARIABLE.sub("", text):
            raise problem("'${' without a name; expected a variable, as ${NAME}", at=(name,))
        if wrong := [variable for variable in VARIABLE.findall(text) if is_credential(variable)]:
            raise problem(f"{wrong[0]}, which is a credential of WTB; expected another variable", at=(name,))
        if _SECRET.search(name) and not VARIABLE.search(text):
            raise problem("a text that would be kept with the sweep; expected a variable, as ${NAME}", at=(name,))
    return texts


def _web(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
    except ValueError:
        good = False
    if not good:
        raise expected("an http or https URL without a user's name")
    return url


_Texts = Annotated[dict[Name, Text], AfterValidator(_check_variables)]


class ToolServer(Strict):
    """An MCP server whose tools nodes call: a command that is started, or an address.

    tools: those that nodes may call, each with the one that takes a call back, or None. In `env` and `headers`,
    `${NAME}` is a variable of the environment that nodes have.
    """

    tools: Annotated[dict[Name, Name | None], NotEmpty, BeforeValidator(_tools)] = Field(
        description="the tools that nodes may call"
    )
    command: Annotated[tuple[Text, ...], BeforeValidator(bounded)] = ()
    url: Annotated[Text, AfterValidator(_web)] | None = None
    env: _Texts = {}
    headers: _Texts = {}
    timeout: Seconds = 60.0

    @model_validator(mode="after")
    def _one_way(self) -> ToolServer:
        if bool(self.command) == (self.url is not None):
            raise problem(f"{'both' if self.command else 'neither'} of 'command' and 'url'; expected one of them")
        if self.command and self.headers:
            raise problem("'headers' with a command; expected 'env'")
        if self.url is not None and self.env:
            raise problem("'env' with a url; expected 'headers'")
        return self


def _without_dot(name: str) -> str:
    if "." in name:
        raise expected("a name without a dot")
    return name


ServerName = Annotated[Name, AfterValidator(_without_dot)]
