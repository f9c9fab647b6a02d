"""Run options, limits, tool servers and redaction: `run`, `limits`, `mcp` and `redact` of a sweep file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, Tag, ValidationError, model_validator

from wtb.config.credentials import VARIABLE, is_credential
from wtb.config.distribution import pip_install
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
    expected,
    form_of,
    lines,
    name_of,
    problem,
)
from wtb.config.project_settings import find_setting, table_of
from wtb.config.yaml_reader import Located
from wtb.core import questions
from wtb.core.errors import InputError, describe
from wtb.core.questions import is_mode, read_mode
from wtb.core.serialization.redaction import Pattern, Redactor

Dollars = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]


SYNC_SLOTS = 8  # node runs at a time, and the most node processes for sync nodes and evaluators
ASYNC_SLOTS = 64  # node runs at a time if a sweep mostly waits for calls


class NodeLimits(Strict):
    """The limits of a sweep for one of its nodes; None is no limit."""

    usd: Dollars | None = None
    tokens: Positive | None = None
    node_runs: Positive | None = None


class JudgingLimits(Strict):
    """The limit of the cost of judges, which counts in no other limit; None is no limit."""

    usd: Dollars | None = None


class Limits(Strict):
    """The limits of a sweep; None is no limit. Durations are in seconds.

    Attributes:
        nodes: Limits of single nodes.
        judging: The limit of judges.
    """

    cell_timeout: Seconds | None = None
    node_runs: Positive | None = None
    usd: Dollars | None = None
    tokens: Positive | None = None
    wall: Seconds | None = None
    nodes: dict[Name, NodeLimits] = {}
    judging: JudgingLimits = JudgingLimits()


class Rlimits(Strict):
    """The limits of a node process; None is no limit. Sizes are in bytes. They are limits, not a sandbox.

    Attributes:
        memory: The memory of each of its processes.
        files: Open files at a time.
        file_size: The size of each file that it writes.
        processes: Processes in its whole tree.
    """

    memory: Size | None = None
    files: Positive | None = None
    file_size: Size | None = None
    processes: Positive | None = 500


class Workspace(Strict):
    """The limits of the files that an attempt leaves; None is no limit. Sizes are in bytes.

    Attributes:
        size: The apparent size of all files, including holes.
        stored: The size of new contents, without holes.
        entries: Files and directories.
    """

    size: Size | None = 10_000_000_000
    stored: Size | None = 10_000_000_000
    entries: Positive | None = 1_000_000


class Recycle(Strict):
    """The limits at which a node process is replaced by a new one: node runs, and growth in bytes."""

    runs: Positive = 10_000
    memory: Size = 1_000_000_000


class TimedCheckpoints(Strict):
    """Checkpoints of running nodes at an interval in seconds; with `tools` after each tool call, too."""

    every: Seconds
    tools: Annotated[bool, Field(strict=True)] = False


_Checkpoints = Annotated[
    Annotated[Literal["coarse", "fine"], Tag(WORD)] | Annotated[TimedCheckpoints, Tag(MAPPING)],
    form_of("coarse, fine or a mapping such as {every: 10m}", "coarse", "fine"),
]


class After(Strict):
    """Require the approval of a person after this node."""

    after: Name


_Mode = Literal["none", "manual", "before", "on_error"] | After


def _approval(approval: object) -> object:
    """Read a mode by its name, as `{after: NODE}` or `after NODE` (the form of commands), or a list of these."""
    if isinstance(approval, list | tuple):
        bounded(approval)
        return _several(list(approval))
    if approval is None or isinstance(approval, After):
        return approval
    mode = read_mode(approval)
    if not is_mode(mode):
        raise expected(f"{questions.EXPECTED}, or a list of these")
    return {"after": name_of(mode["after"])} if isinstance(mode, dict) else mode


def _several(values: list[object]) -> object:
    """Read a list of modes; a list of one is that mode."""
    if not values:
        raise expected(f"{questions.EXPECTED}, or a list of these")
    modes: list[Any] = [{"after": mode.after} if isinstance(mode, After) else read_mode(mode) for mode in values]
    for place, mode in enumerate(modes):
        if not is_mode(mode):
            raise problem(f"{describe(values[place])}; expected {questions.EXPECTED}", at=(place,))
    if wrong := questions.contradiction(modes):
        place, text = wrong
        raise problem(text, at=(place,))
    return _approval(modes[0]) if len(modes) == 1 else tuple(map(_approval, modes))


Approval = Annotated[_Mode | tuple[_Mode, ...] | None, BeforeValidator(_approval)]


def _variable(variable: object) -> object:
    if isinstance(variable, str) and is_credential(variable):
        raise problem(f"{variable}; nodes never see a credential of WTB's: give them one of their own")
    return variable


Variable = Annotated[Name, AfterValidator(_variable)]


class Run(Strict):
    """Run options of a sweep. Durations are in seconds.

    Attributes:
        concurrency: Node runs at a time; None is `ASYNC_SLOTS` for async nodes, else `SYNC_SLOTS`.
        per_process: Runs of async nodes that share a node process; None spreads them over the processors.
        priority: Workers run sweeps of a higher priority first.
        pool: None is `process` if the code can be imported there, else `thread`.
        set_aside_after: The number of ends of its node process after which a cell is not tried again.
        env: The variables that nodes see; None passes on the whole environment.
        approval: When people are asked for approval, a mode or several; None leaves it to the workflow.
        mode: Who responds to prompts of action nodes, a model or a person; None leaves it to each node.
        checkpoints: `fine` takes one after each tool call of a node, `{every: 10m}` one of running nodes at that
            interval.
        stall: Seconds without a report after which a node counts as stalled; None is never.
        provider_wait: How long a node run waits for a failing provider before the sweep pauses.
        free_hosts: Hosts to which connections cost nothing: `HOST`, `HOST:PORT` or patterns with `*`.
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
        """True if there is a checkpoint after each tool call."""
        return self.checkpoints == "fine" or (isinstance(self.checkpoints, TimedCheckpoints) and self.checkpoints.tools)

    @property
    def checkpoint_every(self) -> float | None:
        """Seconds between checkpoints of running nodes; None for none."""
        return self.checkpoints.every if isinstance(self.checkpoints, TimedCheckpoints) else None


_SECRET = re.compile("authorization|cookie|credential|key|password|secret|token", re.IGNORECASE)


def variables_of(texts: Mapping[str, str]) -> list[str]:
    """Return the names of the variables in texts, written as `${NAME}`."""
    return [name for text in texts.values() for name in VARIABLE.findall(text)]


def _tools(tools: object) -> object:
    """Return the tools of a server, from a list, or from a mapping with the tool that reverses a call."""
    if isinstance(tools, list | tuple) and all(isinstance(tool, str) for tool in tools):
        bounded(tools)
        return dict.fromkeys(tools)
    if not isinstance(tools, dict):
        raise expected("a list of tools, or a mapping from tools to those that take a call back")
    return tools


def _check_variables(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Reject texts that must not be in the database, and variables that a server must not see."""
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
    """An MCP server whose tools nodes call: a command to start, or an address.

    Attributes:
        tools: The tools that nodes may call, each with the tool that reverses it, or None.
        env: The environment of a command, in which `${NAME}` is a variable of the environment of nodes.
        headers: The headers of requests, with the same variables.
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


MOST_PATTERNS = 100
LONGEST_PATTERN = 1_000
_MAX_MEMORY = 4 << 20  # bytes of a compiled pattern
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@lru_cache(maxsize=500)
def _compiled(pattern: str) -> Pattern:
    """Compile a pattern. Raises ValueError with the problem in words."""
    try:
        re2: Any = import_module("re2")
    except ModuleNotFoundError:
        raise ValueError(f"patterns need RE2, which is not installed: {pip_install('redact')}") from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        compiled: Pattern = re2.compile(pattern, options)
    except re2.error as error:
        message = error.args[0]
        why = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        raise ValueError(f"{pattern!r:.100}, which is no regular expression of RE2 ({why})") from None
    # A match of the empty text would put a marker between all characters.
    if compiled.search("") is not None:
        raise ValueError(f"{pattern!r:.100}, which matches the empty text and so everywhere")
    return compiled


def _pattern(pattern: object) -> object:
    if not isinstance(pattern, str) or not 0 < len(pattern) <= LONGEST_PATTERN:
        raise expected(f"a regular expression of 1 to {LONGEST_PATTERN:,} characters")
    try:
        _compiled(pattern)
    except ValueError as error:
        raise problem(str(error)) from None
    return pattern


def _pattern_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise expected("a name of letters, digits, '_', '-' and '.', of at most 64 characters")
    return name


_PatternName = Annotated[str, AfterValidator(_pattern_name)]
_Pattern = Annotated[str, BeforeValidator(_pattern)]


def _key(key: str) -> str:
    if re.search(r"[\[\]\s]", key):
        raise expected("the name of a key, without blanks and square brackets")
    return key


class Redact(Strict):
    """Contents that are replaced by a marker before anything is stored.

    Attributes:
        patterns: Regular expressions by name.
        keys: Names of keys, at any depth of states, arguments and events.
    """

    patterns: Annotated[dict[_PatternName, _Pattern], Field(max_length=MOST_PATTERNS)] = {}
    keys: tuple[Annotated[Name, AfterValidator(_key)], ...] = ()

    @cached_property
    def redactor(self) -> Redactor:
        """The redactor of these settings."""
        return Redactor({name: _compiled(text) for name, text in self.patterns.items()}, frozenset(self.keys))

    def with_project(self, project: Redact) -> Redact:
        """Return the settings with those of a project. Raises InputError if a pattern differs between the two."""
        for name, text in self.patterns.items():
            # Markers show the name of a pattern, so a name must not stand for two.
            if project.patterns.get(name, text) != text:
                raise InputError(
                    f"redact.patterns.{name} is another pattern in the settings of the project: give it another name"
                )
        keys = dict.fromkeys((*project.keys, *self.keys))
        return Redact(patterns={**project.patterns, **self.patterns}, keys=tuple(keys))


NOTHING = Redact()


def read_project_redaction(start: Path | None = None) -> Redact:
    """Read a project's redaction: `[redact]` of the nearest wtb.toml, or `[tool.wtb.redact]` of pyproject.toml.

    Args:
        start: The folder from which to search upwards; by default the working directory.

    Returns:
        The settings; empty ones if there are none.

    Raises:
        InputError: With all problems of the settings.
    """
    setting = find_setting("redact", start)
    if setting is None:
        return NOTHING
    try:
        return Redact.model_validate(dict(table_of(setting, tuple(Redact.model_fields))))
    except ValidationError as error:
        located = Located(where=f"{setting.file}: {setting.title}")
        raise InputError(*lines(error, located, {(): Redact})) from None


def redactor_of(stored: object) -> Redactor:
    """Return the redactor of a sweep, from its stored section `redact`."""
    return NOTHING.redactor if not stored else Redact.model_validate(stored).redactor
