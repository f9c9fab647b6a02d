"""Failures in words that can be stored, without the secrets in them, and retries of calls that a provider failed."""

from __future__ import annotations

import errno
import math
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NotRequired, TypedDict, TypeVar, cast

from wtb.core.errors import BudgetReached, FinalError, NodeTimeout, OutOfReach, Rejected, RoutingError, StateError
from wtb.core.provider_errors import provider_fault
from wtb.core.provider_faults import ProviderFault, is_lasting
from wtb.core.serialization.plain_json import storable

SECRETS: Mapping[str, re.Pattern[str]] = {
    "aws_key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "github_token": re.compile(r"\bgh[pousr]_[0-9A-Za-z]{36,255}\b|\bgithub_pat_[0-9A-Za-z_]{22,255}\b"),
    "model_key": re.compile(r"\bsk-(?:ant-|proj-)?[0-9A-Za-z_-]{20,200}"),
    "slack_token": re.compile(r"\bxox[abeoprs]-[0-9A-Za-z-]{10,200}"),
    "google_key": re.compile(r"\bAIza[0-9A-Za-z_-]{35}"),
    "private_key": re.compile(r"-----BEGIN (?:[A-Z]{1,20} ){0,2}PRIVATE KEY-----"),
    "json_web_token": re.compile(r"\beyJ[0-9A-Za-z_-]{10,2000}\.eyJ[0-9A-Za-z_-]{10,4000}\.[0-9A-Za-z_-]{10,1000}"),
}
MASK = "[secret]"
# Keys of any length, and values that follow the name of a key. The name is kept.
_SHORT = re.compile(r"\bsk-[0-9A-Za-z_*-]{4,200}")
_NAMED = re.compile(
    r"((?:api|access|secret|private)[ _-]?(?:key|token)(?:\s+provided)?[\"']?\s*[:=]\s*[\"']?"
    r"|[?&](?:key|token|api_key|access_token)="
    r"|\b(?:authorization[\"']?\s*[:=]\s*[\"']?(?:bearer |basic )?|bearer ))"
    r"([^\s\"'&,;}@]{4,2000})",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"(://[^/\s:@]{0,200}:)([^/\s@]{1,2000})(?=@)")


def without_secrets(text: str, *secrets: str) -> str:
    """Return a text with everything masked that looks like a secret.

    Args:
        text: A text, for example the message of an error.
        secrets: Secrets that are known to have been sent.
    """
    for secret in secrets:
        text = text.replace(secret, MASK) if secret else text
    for pattern in (*SECRETS.values(), _SHORT):
        text = pattern.sub(MASK, text)
    for pattern in (_IN_URL, _NAMED):
        text = pattern.sub(lambda match: match[0] if MASK in match[2] else f"{match[1]}{MASK}", text)
    return text


MESSAGE = 10_000  # characters of an error's text
RUNNING = "running"  # the event of an attempt's start, and the kind of failure of an attempt that has not ended


_KINDS: Mapping[type[BaseException], str] = {
    NodeTimeout: "timeout",
    StateError: "state",
    RoutingError: "routing",
    Rejected: "rejected",
    BudgetReached: "budget",
}


def _kind(error: BaseException) -> str:
    try:
        if is_disk_fault(error):
            return "disk"
    except Exception:  # noqa: BLE001 - an error whose attributes are user code, too
        return "error"
    return next((word for kind, word in _KINDS.items() if issubclass(type(error), kind)), "error")


def _fault(error: BaseException) -> ProviderFault | None:
    """Return the fault of a provider, for an error that is of no other kind."""
    try:
        return provider_fault(error)
    except Exception:  # noqa: BLE001 - an error whose attributes are user code, too
        return None


_READ = 1_000_000  # characters of a text that are searched for secrets, far more than are stored


def text_of(error: BaseException) -> str:
    """Return the text of an error, whose `str` is user code and may fail, too."""
    try:
        return storable(without_secrets(str(error)[:_READ]), MESSAGE)
    except BaseException as second:  # noqa: BLE001 - user code, too
        check_interrupt(second)
        return f"(its text cannot be made: {_name(second)})"


def _trace(error: BaseException) -> str:
    try:
        return storable(without_secrets(user_trace(error)[:_READ]), MESSAGE)
    except Exception as second:  # noqa: BLE001 - what it reads is what user code may have replaced
        return f"(its frames cannot be shown: {_name(second)})"


def _name(error: BaseException) -> str:
    """Return the name of an error's type, regardless of its metaclass."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return storable(name, 200)


def check_interrupt(error: BaseException, *, own_process: bool = False) -> None:
    """Raise an interrupt of the user (Ctrl-C), which reaches the main thread and only seems to be user code's error.

    If user code has a process of its own (`own_process`), nobody presses Ctrl-C there.
    """
    main = threading.current_thread() is threading.main_thread()
    # Python raises it in the main thread only; in other threads user code itself must have raised it.
    if isinstance(error, KeyboardInterrupt) and main and not own_process:
        raise error


def is_disk_fault(error: BaseException) -> bool:
    """Return whether a disk is full, or the shared directory of files is gone: no code is to blame."""
    full = issubclass(type(error), OSError) and getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    return full or isinstance(error, OutOfReach)


def disk_words(error: BaseException | Failure) -> str:
    """Return the advice about a disk fault, as the reason why a sweep waits."""
    if OutOfReach.__name__ in (type(error).__name__, getattr(error, "type", None)):
        return f"files are out of reach ({error}): it continues by itself when they are reachable again"
    return f"a disk is full ({error}): make room, and it continues by itself"


def disk_fault(failure: Failure) -> OSError:
    """Return the error of which another process stored this failure."""
    if failure.type == OutOfReach.__name__:
        return OutOfReach(failure.message)
    return OSError(errno.ENOSPC, failure.message)


class StoredFailure(TypedDict):
    """A `Failure` as it is stored."""

    kind: str
    type: str
    message: str
    trace: NotRequired[str]
    final: NotRequired[bool]
    node: NotRequired[str | None]
    asked: NotRequired[tuple[str, ...]]
    provider: NotRequired[ProviderFault | None]


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure in words that can be stored.

    Attributes:
        kind: error, timeout, state, routing, budget, rejected (by a person), killed (its process ended), lost (a
            process that it shared ended), disk (which was full), provider (an outside service failed), or waiting (for
            a person).
        trace: The frames of the user's own code.
        asked: If it waits, the keys of all questions of the attempt, in their order.
        provider: The fault of the service, if one failed.
    """

    kind: str
    type: str
    message: str
    trace: str = ""
    final: bool = False
    node: str | None = None
    asked: tuple[str, ...] = ()
    provider: ProviderFault | None = None

    @classmethod
    def of(cls, error: BaseException, *, final: bool = False, node: str | None = None) -> Failure:
        kind = _kind(error)
        fault = _fault(error) if kind == "error" else None
        kind = kind if fault is None else "provider"
        return cls(kind, _name(error), text_of(error), _trace(error), final, node, provider=fault)

    def stored(self) -> StoredFailure:
        """Return the failure as plain JSON."""
        stored = cast("StoredFailure", asdict(self))
        if self.provider is None:
            del stored["provider"]
        return stored

    def __str__(self) -> str:
        text = f"{self.type}: {self.message}" if self.message else self.type
        return f"node {self.node!r}: {text}" if self.node else text


UNFINISHED = Failure(RUNNING, "Lost", "it has not ended, or was lost with its runner")


def user_trace(error: BaseException) -> str:
    """Return the traceback of the user's own code, without frames of WTB, of LangGraph and of libraries for threads."""
    own_folder = str(Path(__file__).parents[1]) + os.sep
    loaded = (sys.modules.get(name) for name in ("asyncio", "concurrent.futures", "langgraph", "langchain_core"))
    library_folders = tuple(folder + os.sep for module in loaded if module is not None for folder in module.__path__)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((own_folder, *library_folders))]
    return "".join(traceback.format_list(own))


PAUSES_S = (1.0, 4.0)  # before another try, unless the provider states a longer time
Returned = TypeVar("Returned")


def call_again(call: Callable[[float], Returned], longest_s: float) -> Returned:
    """Make a call, again if a provider fails it, and return its result.

    Args:
        call: Takes the seconds that have passed since the first try.
        longest_s: Seconds after which no other try begins.

    Returns:
        What the call returned.

    Raises:
        Exception: The error of the last try.
    """
    began_at, used_s = time.monotonic(), 0.0
    for pause_s in (*PAUSES_S, math.inf):
        try:
            return call(used_s)
        except Exception as error:
            fault = None if isinstance(error, FinalError) else Failure.of(error).provider
            if fault is None or is_lasting(fault):
                raise
            wait_s = max(pause_s, fault["retry_after_s"] or 0.0)
            if wait_s >= longest_s - (time.monotonic() - began_at):
                raise
        time.sleep(wait_s)
        used_s = time.monotonic() - began_at
    raise AssertionError("the last pause never ends")
