"""Why something failed, in words that can be stored: errors of user code, of limits and of disks."""

from __future__ import annotations

import errno
import os
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

from wtb.core.errors import BudgetReached, NodeTimeout, OutOfReach, Rejected, RoutingError, StateError
from wtb.core.providers.classification import provider_fault
from wtb.core.providers.faults import ProviderFault
from wtb.core.providers.secrets import without_secrets
from wtb.core.serialization.plain_json import storable

MESSAGE = 10_000  # characters of what an error says
RUNNING = "running"  # the event of an attempt that begins, and the kind of failure of one that has not ended


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
    """The fault of a provider, of an error that is of no other kind."""
    try:
        return provider_fault(error)
    except Exception:  # noqa: BLE001 - an error whose attributes are user code, too
        return None


_READ = 1_000_000  # characters of a text that are searched for secrets; far more than are stored


def text_of(error: BaseException) -> str:
    """The text of an error, whose `str` is user code and may fail, too."""
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
    """The name of an error's type, past whatever its metaclass makes of that."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return storable(name, 200)


def check_interrupt(error: BaseException, *, own_process: bool = False) -> None:
    """Raise an error that user code seems to have raised and has not: Ctrl-C, which reaches the main thread.

    own_process: user code has a process of its own, whose terminal is nobody's.
    """
    main = threading.current_thread() is threading.main_thread()
    if isinstance(error, KeyboardInterrupt) and main and not own_process:
        raise error


def is_disk_fault(error: BaseException) -> bool:
    """Return whether a disk is full, or the shared directory of files is gone: no code is to blame."""
    full = issubclass(type(error), OSError) and getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    return full or isinstance(error, OutOfReach)


def disk_words(error: BaseException | Failure) -> str:
    """What to do about such a fault, as the reason why a sweep waits."""
    if OutOfReach.__name__ in (type(error).__name__, getattr(error, "type", None)):
        return f"files are out of reach ({error}): it continues by itself when they are reachable again"
    return f"a disk is full ({error}): make room, and it continues by itself"


def disk_fault(failure: Failure) -> OSError:
    """The error that such a failure was in another process."""
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
    """Why something failed, in words that can be stored. `trace` holds the frames of the user's own code.

    asked: of one that waits, the keys of all questions of the attempt, in their order.

    kind: error, timeout, state, routing, budget, rejected (by a person), killed (its process ended), lost (a process
    that it shared ended), disk (which was full), provider (an outside service failed), or waiting (for a person).
    provider: the fault of that service, of a failure of this kind.
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
        """As it is stored: plain JSON."""
        stored = StoredFailure(
            kind=self.kind,
            type=self.type,
            message=self.message,
            trace=self.trace,
            final=self.final,
            node=self.node,
            asked=self.asked,
        )
        if self.provider is not None:
            stored["provider"] = self.provider
        return stored

    def __str__(self) -> str:
        text = f"{self.type}: {self.message}" if self.message else self.type
        return f"node {self.node!r}: {text}" if self.node else text


UNFINISHED = Failure(RUNNING, "Lost", "it has not ended, or was lost with its runner")


def user_trace(error: BaseException) -> str:
    """The traceback without the frames of WTB, of LangGraph and of what waits for other threads: the user's own."""
    own_folder = str(Path(__file__).parents[1]) + os.sep
    loaded = (sys.modules.get(name) for name in ("asyncio", "concurrent.futures", "langgraph", "langchain_core"))
    library_folders = tuple(folder + os.sep for module in loaded if module is not None for folder in module.__path__)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((own_folder, *library_folders))]
    return "".join(traceback.format_list(own))
