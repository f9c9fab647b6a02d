"""Calling user code, sync or async, with a deadline: one event loop for everything async in the process."""

from __future__ import annotations

import contextvars
import inspect
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from wtb.authoring.code.event_loop import GRACE_S, LoopThread
from wtb.core.errors import NodeTimeout
from wtb.core.mappings import Arguments


class Caller:
    """Calls functions on the thread that asks. What has a deadline runs where it can be left behind.

    A coroutine is cancelled at its deadline. A thread cannot be: it is abandoned, and counted in `abandoned`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: LoopThread | None = None
        self.abandoned = 0

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        """Returns what `fn` returns, awaited where it is a coroutine. Raises NodeTimeout at the deadline."""
        if timeout is None or inspect.iscoroutinefunction(fn):
            returned = fn(*args, **kwargs)
        else:
            returned = self._on_thread(fn, args, kwargs, timeout)
        return self._await(returned, timeout) if inspect.iscoroutine(returned) else returned

    def _await(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None) -> Any:
        future = self.loop_thread().begin(coroutine, timeout).future
        try:
            return future.result(None if timeout is None else timeout + GRACE_S)
        except TimeoutError as error:
            if future.done():  # the coroutine itself raised a TimeoutError
                raise
            self._count_abandoned()
            raise NodeTimeout(
                f"still running after its deadline of {timeout:g} s, and it ignored its cancellation"
            ) from error

    def _on_thread(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Arguments, timeout: float) -> Any:
        future: Future[Any] = Future()
        variables = contextvars.copy_context()

        def work() -> None:
            try:
                future.set_result(variables.run(fn, *args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
                future.set_exception(error)

        threading.Thread(target=work, name="wtb-deadline", daemon=True).start()
        try:
            return future.result(timeout)
        except TimeoutError as error:
            if future.done():
                return future.result()
            self._count_abandoned()
            raise NodeTimeout(
                f"still running after its deadline of {timeout:g} s; a thread cannot be stopped, "
                f"so it was left behind and its result will be ignored"
            ) from error

    def _count_abandoned(self) -> None:
        with self._lock:
            self.abandoned += 1

    def loop_thread(self) -> LoopThread:
        """Return the event loop of all that is async; the first call starts its thread."""
        with self._lock:
            if self._loop is None:
                self._loop = LoopThread(self._drop_loop)
            return self._loop

    def _drop_loop(self, error: BaseException) -> None:
        """Forget a loop that can run no more, and what still runs on it."""
        self._count_abandoned()
        with self._lock:
            self._loop = None

    def close(self) -> None:
        """Cancel what still runs on the loop, stop it and close it."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()


class Debugged(Caller):
    """Opens the debugger where a function fails; deadlines do not count meanwhile."""

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        try:
            return super().call(fn, *args, timeout=None, **kwargs)
        except Exception as error:
            import pdb

            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            pdb.post_mortem(error.__traceback__)
            raise
