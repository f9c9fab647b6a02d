"""What `Saver` is given, checked before anything of it is sent to a database."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig

from wtb.core.errors import InputError
from wtb.integrations.langgraph.saver.write_buffer import Place
from wtb.store.threads.queries import Scalar

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_MOST = 2**63


def place_of(config: RunnableConfig) -> Place:
    """Raises InputError for an id that cannot be stored."""
    given = config["configurable"]
    return _checked_thread(given["thread_id"]), checked_name("checkpoint_ns", given.get("checkpoint_ns") or "")


def id_of(config: RunnableConfig | None) -> str | None:
    """The checkpoint that a config names. LangGraph passes None where it means none in particular."""
    given = (config or {}).get("configurable", {}).get("checkpoint_id")
    return checked_name("checkpoint_id", given) if given else None


def criteria_of(config: RunnableConfig | None) -> dict[str, str]:
    """The `thread_id`, `namespace` and `id` that a config asks for; what is None, or not in it, may be anything."""
    given = (config or {}).get("configurable", {})
    sought = {"id": id_of(config)}
    if "thread_id" in given:
        sought["thread_id"] = _checked_thread(given["thread_id"])
    if (namespace := given.get("checkpoint_ns")) is not None:
        sought["namespace"] = checked_name("checkpoint_ns", namespace)
    return {key: value for key, value in sought.items() if value is not None}


def _checked_thread(given: object) -> str:
    if given is None:
        raise InputError("thread_id: found None, expected the name of a thread")
    return checked_name("thread_id", given)


def checked_name(what: str, given: object) -> str:
    """An id or a name as text. Raises InputError where PostgreSQL, or any database, could not hold it."""
    text = str(given)
    if "\0" in text or (not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text)):
        raise InputError(f"{what}: found {text!r:.100}; expected a text without NUL and without half a character")
    return text


def checked_names(what: str, given: Sequence[str]) -> list[str]:
    if isinstance(given, str):
        raise InputError(f"{what}: found {given!r}, expected a list of them: [{given!r}]")
    return [checked_name(what, each) for each in given]


def check_channels(channels: Iterable[str]) -> None:
    for channel in channels:
        checked_name("channel", channel)


def checked_json(what: str, json: str) -> str:
    """JSON that is stored as such. Raises InputError where a text in it holds NUL."""
    if "\\u0000" in json and _NUL.search(json):
        raise InputError(f"{what}: a text of it holds NUL, which PostgreSQL cannot search; leave it out")
    return json


def checked_filter(filter: Mapping[str, Any] | None) -> Mapping[str, Scalar]:
    """What metadata must hold. Raises InputError for what is no text, number, bool or None."""
    for key, value in (filter or {}).items():
        checked_name("filter", key)
        if isinstance(value, str):
            checked_name(f"filter {key!r}", value)
        elif not (value is None or isinstance(value, bool) or _is_number(value)):
            raise InputError(
                f"filter {key!r}: found {value!r:.100}, expected a text, a number of 64 bits, a bool or None"
            )
    return filter or {}


def _is_number(value: Any) -> bool:
    return (isinstance(value, int) and -_MOST <= value < _MOST) or (isinstance(value, float) and math.isfinite(value))
