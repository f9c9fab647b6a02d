"""The boundary between user code and the runner, at which both sides check the shape of all values.

On the side of user code, a value of another shape is an error of its attempt. The runner checks it again, because user
code can write anything into the connection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypedDict, TypeVar, get_args

import orjson

from wtb.authoring.tools import ToolReport
from wtb.core.errors import StateError
from wtb.core.scoring.unknown_costs import Cause
from wtb.core.serialization.plain_json import storable
from wtb.core.tree.checkpoints import Trigger
from wtb.store.files.manifest import DIGEST

T = TypeVar("T")
KEY: Final = 1000  # characters of a key
NAME: Final = 200  # characters of a name
TEXT: Final = 100_000  # characters of a text in a report of an attempt
EVENT: Final = 4_000_000  # bytes of the data of an event
MOST_USD: Final = 1e9  # of a single cost: sums of many have to stay numbers
MOST_TOKENS: Final = 10**12
MALFORMED: Final = (
    *(TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError),
    StateError,
)
ANSWERED_AFTER_FAILURE: Final = "node.answered_after_failure"
EVENTS: Final = frozenset({"node.log", "node.progress", "node.metric", "node.stream", ANSWERED_AFTER_FAILURE})
_DEEPEST: Final = 50
_DIGITS: Final = 10_000  # bits; Python refuses to write out much longer numbers
_SUBJECT: Final = 2000  # characters of the object of a decision, and of an error of policies
_TRIGGERS: Final = ("step", "time", "manual", "durable", "error")


class CallReport(TypedDict):
    """A call of a model or tool that an attempt reports. `prompt` and `response` are typed JSON."""

    model: str | None
    tool: str | None
    prompt: str | None
    response: str | None
    tokens_in: int
    tokens_out: int
    usd: float
    duration_s: float | None
    at: float
    cached: int | None


class CostReport(TypedDict):
    """A reason why the cost of an attempt is unknown; `wtb.core.scoring.unknown_costs` explains the keys."""

    cause: Cause
    what: str


class CheckpointReport(TypedDict):
    """A checkpoint of an attempt. `saved` maps keys to typed JSON; `files` are (digest, bytes) of its snapshot."""

    name: str | None
    trigger: Trigger
    saved: dict[str, str]
    workspace: str | None
    files: tuple[tuple[str, int], ...]
    at: float


class DecisionReport(TypedDict):
    """A decision of policies about an act of a node, as its attempt reports it.

    Attributes:
        action: The kind of act, such as calling a tool.
        on: The object of the act, such as the tool.
        arguments: Typed JSON; None for allowed calls, which are recorded by themselves.
        asked: Whether a person has to answer now.
        answered_by: The person who approved or rejected it.
    """

    action: str
    on: str
    at: float
    allowed: bool
    rules: list[str]
    errors: list[str]
    arguments: str | None
    asked: bool
    answered_by: str | None


class Malformed(StateError):
    """A value at the boundary has another shape than it must have."""


def check_key(key: object, who: str) -> str:
    """Return a key that a node wrote, as plain `str`. Raises StateError with `who` and the key if it is invalid."""
    if type(key) is not str:
        if not isinstance(key, str):
            kind = type(key)
            raise StateError(f"{who} wrote key {_short(key)} of type {kind.__name__}; keys are text: use str(...)")
        # Not str(key), which would call the `__str__` of a subclass of the user's, such as an enum.
        key = str.__str__(key)
    if key.isascii() and "\0" not in key and len(key) <= KEY:
        return key
    if len(key) > KEY:
        raise StateError(f"{who} wrote a key of {len(key):,} characters ({key[:50]!r} ...); expected at most {KEY:,}")
    if "\0" in key:
        raise StateError(f"{who} wrote key {key!r}, which has a NUL character; databases cannot store that in a key")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise StateError(
            f"{who} wrote key {key!r}, which has a lone surrogate; decode it with errors='replace'"
        ) from None
    return key


def report(what: str, reported: Any) -> Any:
    """Check a report of a running attempt, and return it in the form to record. Raises Malformed."""
    check = _REPORTS.get(what) if isinstance(what, str) else None
    if check is None:
        raise Malformed(f"found a report {what!r:.50}; expected one of: {', '.join(_REPORTS)}")
    return shaped(lambda: check(reported))


def shaped(read: Callable[[], T]) -> T:
    """Call `read` on data that may have any shape. Raises Malformed if it fails."""
    try:
        return read()
    except Malformed:
        raise
    except MALFORMED as error:
        raise Malformed(f"{type(error).__name__}: {error}"[:500]) from None


def text(field: Any, limit: int = TEXT) -> str:
    if type(field) is not str:
        raise Malformed(f"found {type(field).__name__}, expected text")
    return storable(field, limit)


def name(field: Any) -> str:
    """Check a text for a column of names."""
    return text(field, NAME)


def number(field: Any, minimum: float = 0.0, maximum: float = 1e18) -> float:
    # By exact type, because a bool is an int and a subclass may run code of the user's.
    if type(field) not in (int, float) or not math.isfinite(field) or not minimum <= field <= maximum:
        raise Malformed(f"found {field!r:.50}, expected a number from {minimum:g} to {maximum:g}")
    return float(field)


def count(field: Any, maximum: int = 2**62) -> int:
    if type(field) is not int or not 0 <= field <= maximum:
        raise Malformed(f"found {field!r:.50}, expected a whole number from 0 to {maximum:,}")
    return field


def digest_of_file(field: Any) -> str:
    if type(field) is not str or not DIGEST.fullmatch(field):
        raise Malformed(f"found {field!r:.80}, expected the SHA-256 of a stored file")
    return field


def files(listed: Iterable[Any]) -> tuple[tuple[str, int], ...]:
    return tuple((digest_of_file(digest), count(size)) for digest, size in listed)


def optional(check: Callable[[Any], T], field: Any) -> T | None:
    return None if field is None else check(field)


def typed_json(json_text: Any) -> Any:
    """Check text or bytes of a stored value. Raises Malformed if it is no JSON."""
    try:
        orjson.loads(json_text)
    except (orjson.JSONDecodeError, TypeError):
        raise Malformed("a value is not JSON") from None
    return json_text


def document(content: Any) -> Any:
    """Check JSON that is stored unchanged. Raises Malformed if a database cannot store it."""
    # A backslash before `u0000` looks the same in JSON, so the values decide.
    if b"\\u0000" in orjson.dumps(content) and _has_nul(content):
        raise Malformed("a text with a NUL character, which databases do not store")
    return content


def _has_nul(content: Any) -> bool:
    if isinstance(content, dict):
        return any("\0" in key or _has_nul(member) for key, member in content.items())
    if isinstance(content, list):
        return any(map(_has_nul, content))
    return isinstance(content, str) and "\0" in content


def plain(value: Any) -> Any:
    """Convert anything to JSON that every database can store; other values become text."""
    try:
        encoded = orjson.dumps(value)
    except (orjson.JSONEncodeError, RecursionError):
        encoded = None
    if encoded is None or b"\\u0000" in encoded:
        encoded = orjson.dumps(_as_json(value, _DEEPEST))
    if len(encoded) > EVENT:
        return f"({len(encoded):,} bytes, more than the {EVENT:,} that an event may have)"
    return orjson.loads(encoded)


def _as_json(value: Any, deepest: int) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        if -(2**63) <= value < 2**63:
            return value
        return str(value) if value.bit_length() < _DIGITS else f"a whole number of {value.bit_length():,} bits"
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if kind is str:
        return storable(value)
    if deepest and isinstance(value, Mapping):
        keys = (key if type(key) is str else repr(key) for key in value)
        return {
            storable(key, KEY): _as_json(member, deepest - 1) for key, member in zip(keys, value.values(), strict=True)
        }
    if deepest and kind in (list, tuple, set, frozenset):
        return [_as_json(member, deepest - 1) for member in value]
    return storable(repr(value))


def _short(value: object) -> str:
    try:
        return f"{value!r:.100}"
    except Exception as error:  # noqa: BLE001 - user code, too
        return f"(its text cannot be made: {type(error).__name__})"


# The reports of attempts: `[usd, tokens in, tokens out]`, `[kind, time, data]`, and so on.


def _spent(reported: Any) -> list[Any]:
    usd, tokens_in, tokens_out = reported
    return [number(usd, 0.0, MOST_USD), count(tokens_in, MOST_TOKENS), count(tokens_out, MOST_TOKENS)]


def _event(reported: Any) -> list[Any]:
    kind, at, fields = reported
    if kind not in EVENTS or type(fields) is not dict:
        raise Malformed(f"found an event {kind!r:.50}, expected one of: {', '.join(sorted(EVENTS))}")
    fields = plain(fields)
    return [kind, number(at), fields if isinstance(fields, dict) else {"message": fields}]


def _call(reported: Any) -> CallReport:
    return {
        "model": optional(name, reported["model"]),
        "tool": optional(name, reported["tool"]),
        "prompt": optional(_stored, reported["prompt"]),
        "response": optional(_stored, reported["response"]),
        "tokens_in": count(reported["tokens_in"], MOST_TOKENS),
        "tokens_out": count(reported["tokens_out"], MOST_TOKENS),
        "usd": number(reported["usd"], 0.0, MOST_USD),
        "duration_s": optional(number, reported["duration_s"]),
        "at": number(reported["at"]),
        "cached": None if reported["cached"] is None else count(reported["cached"], MOST_TOKENS),
    }


def _unknown_cost(reported: Any) -> CostReport:
    if reported["cause"] not in get_args(Cause):
        raise Malformed(f"found the cause {reported['cause']!r:.50}, expected one of: {', '.join(get_args(Cause))}")
    return {"cause": reported["cause"], "what": name(reported["what"])}


def _decided(reported: Any) -> DecisionReport:
    return {
        "action": name(reported["action"]),
        "on": text(reported["on"], _SUBJECT),
        "at": number(reported["at"]),
        # User code may report any value, and nothing but True may count as allowed.
        "allowed": reported["allowed"] is True,
        "rules": [name(rule) for rule in reported["rules"]],
        "errors": [text(error, _SUBJECT) for error in reported["errors"]],
        "arguments": optional(_stored, reported["arguments"]),
        "asked": reported["asked"] is True,
        "answered_by": optional(name, reported["answered_by"]),
    }


def _written(reported: Any) -> tuple[str, str]:
    """Check a file among the code and the node that wrote it."""
    part, node = reported
    return text(part), name(node)


def _tool(reported: Any) -> ToolReport:
    if reported["status"] not in ("done", "failed"):
        raise Malformed(f"a call of a tool that is {reported['status']!r:.20}")
    return {
        "tool": name(reported["tool"]),
        "arguments": _stored(reported["arguments"]),
        "result": optional(_stored, reported["result"]),
        "error": optional(text, reported["error"]),
        "at": number(reported["at"]),
        "duration_s": number(reported["duration_s"]),
        "status": reported["status"],
        "version": optional(name, reported["version"]),
    }


def _checkpoint(reported: Any) -> CheckpointReport:
    if reported["trigger"] not in _TRIGGERS:
        raise Malformed(f"a checkpoint by {reported['trigger']!r:.20}")
    return {
        "name": optional(name, reported["name"]),
        "trigger": reported["trigger"],
        "saved": {check_key(key, "ctx.checkpoint"): _stored(encoded) for key, encoded in reported["saved"].items()},
        "workspace": optional(digest_of_file, reported["workspace"]),
        "files": files(reported["files"]),
        "at": number(reported["at"]),
    }


def _stored(field: Any) -> str:
    if type(field) is not str:
        raise Malformed(f"found {type(field).__name__}, expected a stored value")
    checked: str = typed_json(field)
    return checked


_REPORTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "spent": _spent,
    "event": _event,
    "call": _call,
    "unknown_cost": _unknown_cost,
    "connected": name,
    "written": _written,
    "decided": _decided,
    "tool": _tool,
    "checkpoint": _checkpoint,
    "suggestion": text,
    "output": _stored,
}
