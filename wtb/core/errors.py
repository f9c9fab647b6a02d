"""Every error that WTB raises deliberately, as one small tree.

    WTBError
    ├── InputError            refused before any work starts (exit code 2)
    │   ├── WorkflowError     the graph itself is wrong
    │   └── NotFound          nothing has this id or name
    ├── StateError            a value cannot be stored or may not be written
    ├── NodeError             a node run failed
    │   ├── NodeTimeout       ... at its deadline
    │   │   └── Unanswered    ... of a question: nobody answered, and it has no default
    │   ├── FinalError        ... and must not be tried again (raise it in a node)
    │   │   ├── BudgetReached ... for it has spent what it may
    │   │   ├── ToolDenied    ... for a policy denies a call of a tool
    │   │   └── PolicyDenied  ... for a policy denies a file, a host or a program
    │   └── Rejected          ... a person refused: its cells are cancelled
    ├── RoutingError          no edge leads on from a node
    ├── ConflictError         an impossible transition, or somebody else owns it
    ├── StoreError            database out of reach or damaged (exit code 4)
    │   ├── DamagedError      ... and a stored value is not what it was
    │   └── OutOfReach        the shared directory of files is not there
    ├── BrokerError           broker out of reach, or no worker for a queue (exit code 4)
    └── ServerError           a server of WTB's is out of reach, or is not asked right (exit code 4)
        └── AccessDenied      ... and does not let this token do this

A message says what was found, what was expected and what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from itertools import islice


class WTBError(Exception):
    """Root of all errors that WTB raises deliberately.

    Args:
        args: What the error says.
        argument: The name of the argument that is wrong, or by which the caller can have it otherwise.

    Attributes:
        option: The option of a command that is this argument, if the error is of a command.

    Example:
        >>> import wtb
        >>> try:
        ...     wtb.Sweep(workflow="nowhere:wf", cases=[{"input": {}}], vary={"a": "all"}).prepare()
        ... except wtb.WTBError as error:
        ...     print(type(error).__name__)
        InputError
    """

    exit_code = 1

    def __init__(self, *args: object, argument: str | None = None) -> None:
        super().__init__(*args)
        self.argument = argument
        self.option: str | None = None


class InputError(WTBError):
    """Bad input, refused before any work starts.

    Args:
        *problems: What is wrong, one line each.
        argument: The name of the argument that it is about.

    Example:
        >>> import wtb
        >>> try:
        ...     wtb.Workflow("empty")["retrieve"]
        ... except wtb.InputError as error:
        ...     print(error.problems)
        ("workflow 'empty' has no node 'retrieve'",)
    """

    exit_code = 2

    def __init__(self, *problems: str, argument: str | None = None) -> None:
        super().__init__("\n".join(problems), argument=argument)
        self.problems = problems


class WorkflowError(InputError):
    """An invalid graph of a workflow; the error has all problems at once."""


class NotFound(InputError):
    """Nothing in the database has the id or the name that was given.

    Args:
        *problems: What is missing, one line each.
        argument: The name of the argument that it is about.
        kind: What was looked for, such as `sweep`, by which a page leads to the list of them.
    """

    def __init__(self, *problems: str, argument: str | None = None, kind: str | None = None) -> None:
        super().__init__(*problems, argument=argument)
        self.kind = kind


class StateError(WTBError):
    """A value cannot be stored, or a key may not be written.

    Example:
        >>> from wtb import NodeError, Workflow
        >>> from wtb.testing import run_node
        >>> wf = Workflow("odd")
        >>> node = wf.node(lambda state: {"socket": object()}, name="open")
        >>> try:
        ...     run_node(wf, "open", {})
        ... except NodeError as error:  # in a node, a StateError is the failure of the node run
        ...     print(str(error).partition(" key")[0])
        node 'open': StateError: node 'open'
    """


class NodeError(WTBError):
    """A node run failed.

    Example:
        >>> from wtb import NodeError, Workflow
        >>> from wtb.testing import run_node
        >>> wf = Workflow("division")
        >>> node = wf.node(lambda state: {"y": 1 / state["x"]}, name="divide")
        >>> try:
        ...     run_node(wf, "divide", {"x": 0})
        ... except NodeError as error:
        ...     print(str(error).splitlines()[0])
        node 'divide': ZeroDivisionError: division by zero
    """


class NodeTimeout(NodeError):
    """A node run, or its cell, that was still running at its deadline."""


class Unanswered(NodeTimeout):
    """A question of a node that nobody answered, and that has no default."""


class Rejected(NodeError):
    """A person rejected what a node asked; if the node does not handle that, its cells are cancelled.

    Example:
        >>> from wtb import Rejected, Workflow
        >>> from wtb.testing import Answer, run_node
        >>> wf = Workflow("letters")
        >>> @wf.node
        ... def review(state, ctx):
        ...     try:
        ...         ctx.ask("Send it?")
        ...     except Rejected:
        ...         return {"sent": False}
        ...     return {"sent": True}
        >>> run_node(wf, "review", {}, answers=[Answer("reject")])
        {'sent': False}
    """


class FinalError(NodeError):
    """Raised by a node to say that trying again cannot help.

    Example:
        >>> from wtb import FinalError, Workflow
        >>> wf = Workflow("lookup")
        >>> @wf.node(retries=3)
        ... def find(state):
        ...     if state["id"] < 0:
        ...         raise FinalError(f"there is no id {state['id']}")
        ...     return {"name": "..."}
        >>> find({"id": -1})
        Traceback (most recent call last):
        wtb.core.errors.FinalError: there is no id -1
    """


class BudgetReached(FinalError):
    """A node run has spent its own limit, or all that a budget has left."""


class ToolDenied(FinalError):
    """A policy denies a call of a tool, or the person whom it asks rejected the call.

    A node may handle it. Otherwise the node run fails, and is not tried again.

    Example:
        >>> from wtb import FinalError, ToolDenied
        >>> issubclass(ToolDenied, FinalError)
        True
    """


class PolicyDenied(FinalError, PermissionError):
    """A policy denies that a node writes a file, connects to a host or starts a program."""


class RoutingError(WTBError):
    """No edge leads on from a node, or a branch returned a key that it does not have."""


class ConflictError(WTBError):
    """An impossible transition, or work that somebody else owns."""

    exit_code = 2


class StoreError(WTBError):
    """The database is out of reach, damaged or of another version."""

    exit_code = 4


class StoreAway(StoreError):
    """The database does not respond now. It may be back in a moment."""


class DamagedError(StoreError):
    """A stored value is missing, or differs from the value that was stored."""


class OutOfReach(StoreError, OSError):
    """The shared directory does not exist or cannot be used, which is no attempt's fault."""


class BrokerError(WTBError):
    """The broker is out of reach, or no worker serves a queue."""

    exit_code = 4


class BrokerAway(BrokerError):
    """The broker does not respond now. It may be back in a moment."""


class ServerError(WTBError):
    """A server of WTB's is out of reach, has a fault, or speaks another version."""

    exit_code = 4


class AccessDenied(ServerError):
    """The server does not know the token, or the token lacks the permission."""


_LONGEST_NAME, _MOST_NAMES, _MOST_QUOTED = 200, 1000, 5


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the known name nearest to `word`, or an empty string."""
    if len(word) > _LONGEST_NAME:  # comparing takes the square of the length, for each known name
        return ""
    names = [name for name in islice(choices, _MOST_NAMES) if len(name) <= _LONGEST_NAME]
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""


def meant_or_known(word: str, choices: Iterable[str]) -> str:
    """Return the near match as `did_you_mean` does, or the known names if none is near."""
    names = list(choices)
    return did_you_mean(word, names) or f"; expected one of: {nearest_names(word, names)}"


def nearest_names(word: str, choices: Iterable[str]) -> str:
    """Return the first known names, those that contain `word` before others; in quotes if names contain commas."""
    names = list(choices)
    if not any("," in name for name in names):
        return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    folded = word.casefold()
    return quoted_names(sorted(names, key=lambda name: folded not in name.casefold()))


def quoted_names(names: Sequence[str]) -> str:
    """Return the first of some names, which may contain commas: `'a, b', 'c' and 3 more`."""
    more = len(names) - _MOST_QUOTED
    return ", ".join(map(repr, names[:_MOST_QUOTED])) + (f" and {more:,} more" if more > 0 else "")


def one_line(error: BaseException | None) -> str:
    """Return the first line of an error's message without its full stop, or the name of its type if there is none."""
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


def describe(value: object) -> str:
    """Return a short description of a value for the part of a message that names it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return repr(value if len(value) <= 40 else value[:37] + "...")
        case int() if value.bit_length() > 128:
            return "a very large number"
        case int() | float():
            return str(value)
        case dict():
            return "a mapping" if value else "an empty mapping"
        case list() | tuple():
            return f"a list of {len(value)}" if value else "an empty list"
        case _:
            return f"a {type(value).__name__}"
