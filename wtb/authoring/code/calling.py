"""Calling user code, sync or async, with a deadline: one event loop for everything async in the process."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from wtb.core.errors import NodeTimeout

GRACE_S = 1.0


class Caller:
    """Calls functions on the thread that asks. What has a deadline runs where it can be left behind.

    A coroutine is cancelled at its deadline. A thread cannot be: it is abandoned, and counted in `abandoned`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.abandoned = 0

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        """Returns what `fn` returns, awaited where it is a coroutine. Raises NodeTimeout at the deadline."""
        if timeout is None or inspect.iscoroutinefunction(fn):
            returned = fn(*args, **kwargs)
        else:
            returned = self._on_thread(fn, args, kwargs, timeout)
        return self._await(returned, timeout) if inspect.iscoroutine(returned) else returned

    def _await(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None) -> Any:
        future = asyncio.run_coroutine_threadsafe(bounded(coroutine, timeout), self.running_loop())
        try:
            returned = future.result(None if timeout is None else timeout + GRACE_S)
        except TimeoutError as error:
            if future.done():  # the coroutine itself raised a TimeoutError
                raise
            self._count_abandoned()
            raise NodeTimeout(
                f"still running after its deadline of {timeout:g} s, and it ignored its cancellation"
            ) from error
        if isinstance(returned, Exit):
            raise returned.error
        return returned

    def _on_thread(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], timeout: float) -> Any:
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

    def running_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of all that is async; the first call starts its thread."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="wtb-async", daemon=True)
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """Cancel what still runs on the loop, stop it and close it."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is None:
            return
        asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result(GRACE_S * 2)
        loop.call_soon_threadsafe(loop.stop)
        if self._thread is not None:
            self._thread.join(GRACE_S)
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


async def bounded(coroutine: Coroutine[Any, Any, Any], timeout: float | None) -> Any:
    """Await a coroutine, which is cancelled after `timeout` seconds. An exit is returned: it would end the loop."""
    if timeout is None:
        return await _contained(coroutine)
    deadline = asyncio.timeout(timeout)
    try:
        async with deadline:
            return await _contained(coroutine)
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise NodeTimeout(f"cancelled at its deadline of {timeout:g} s") from error


@dataclass(frozen=True)
class Exit:
    """An exit that user code asked for. Raised on the loop it would end the loop, and with it every other node."""

    error: SystemExit | KeyboardInterrupt


async def _contained(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        return Exit(error)


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=GRACE_S)
