"""Keeps user code that is imported in a command from ending it at once, with an exit code that reports success."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

_ENDING = ("_exit", "execv", "execve")  # those of `os` that the others call
_lock = threading.RLock()  # what is replaced is of the whole process


class Exited(SystemExit):
    """User code would have ended this process where Python cannot notice it."""


# No function of contextlib, whose frames would show among those of the user's code.
class exits_as_errors:
    """Have calls that end the process raise Exited, also if user code catches that, or makes them on a thread.

    Processes that user code forks may end as they like.
    """

    def __enter__(self) -> None:
        _lock.acquire()
        self._process = os.getpid()
        self._calls: list[str] = []
        self._before = {name: getattr(os, name) for name in _ENDING}
        for name, call in self._before.items():
            setattr(os, name, self._refusing(name, call))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for name, call in self._before.items():
            setattr(os, name, call)
        _lock.release()
        if self._calls and error is None:  # it was caught, or is of another thread
            raise Exited(f"{self._calls[0]} would have ended the command")

    def _refusing(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(*arguments: Any) -> Any:
            if os.getpid() != self._process:
                return call(*arguments)
            self._calls.append(f"os.{name}({', '.join(map(repr, arguments[:1]))})")
            raise Exited(f"{self._calls[-1]} would have ended the command")

        return refuse
