"""An event loop on a thread of its own, which the calls of several attempts share.

A call can change its loop: stop it, replace its executor, cancel all tasks. Such a change affects this call only, as
if it had the loop for itself, so that no call fails because of a neighbour.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from functools import cache
from typing import Any, NamedTuple

from wtb.core.errors import NodeTimeout
from wtb.core.frozen import frozen
from wtb.core.values import Arguments

TICK_S = 0.02  # between two moments at which the loop should call back


class LagSum(NamedTuple):
    """Moments at which the loop should have called back, and by how many seconds it was late at them together."""

    moments: int
    seconds: float


class LagMeter:
    """Measures how late a loop is while something runs on it.

    The loop should call back at moments that are `TICK_S` apart. If it is blocked for longer than that, all moments of
    the block count, each with its own delay: the mean is over time, not over callbacks. Use it on the thread of the
    loop only.

    Args:
        loop: The loop.
        is_used: Returns whether anything runs on the loop. As long as nothing does, the meter rests.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, is_used: Callable[[], bool]) -> None:
        self._loop = loop
        self._is_used = is_used
        self._due: float | None = None  # the next moment
        self._moments, self._seconds = 0, 0.0

    def start(self) -> None:
        """Measure as long as something runs on the loop."""
        if self._due is None:
            self._due = self._loop.time() + TICK_S
            self._call_back()

    def read(self) -> LagSum:
        """Return the sum so far. Moments that are due count as if the loop called back now."""
        if self._due is not None and (late := self._loop.time() - self._due) >= 0:
            moments = int(late / TICK_S) + 1
            self._moments += moments
            # The delays are an arithmetic series: the first moment is `late`, and each further one is TICK_S less.
            self._seconds += moments * late - TICK_S * moments * (moments - 1) / 2
            self._due += moments * TICK_S
        return LagSum(self._moments, self._seconds)

    def mean_since(self, before: LagSum) -> float | None:
        """Return the mean lag in seconds; None if no moment was due."""
        now = self.read()
        moments = now.moments - before.moments
        return (now.seconds - before.seconds) / moments if moments else None

    def _call_back(self) -> None:
        assert self._due is not None, "the meter measures"
        # In an empty context: the callback belongs to no node run.
        self._loop.call_at(self._due, self._tick, context=Context())

    def _tick(self) -> None:
        self.read()
        if self._is_used():
            self._call_back()
        else:
            self._due = None


GRACE_S = 1.0  # for a coroutine to end after it was cancelled
_STOPPED = "Event loop stopped before Future completed: the node called stop() of the loop that it runs on"
_call: ContextVar[AsyncCall | None] = ContextVar("async_call", default=None)
_is_setup: ContextVar[bool] = ContextVar("is_setup", default=False)
_all_tasks = asyncio.all_tasks


@contextmanager
def set_up() -> Iterator[None]:
    """Let code in the block change the loop for all calls, because it makes the resources that attempts share."""
    token = _is_setup.set(True)
    try:
        yield
    finally:
        _is_setup.reset(token)


class AsyncCall:
    """A coroutine that runs on a shared loop, and the changes that it has made to the loop.

    Attributes:
        owner: The attempt that makes the call, if the caller named it.
        future: The result of the coroutine, for the thread that waits for it.
        is_cancelled: Whether WTB has cancelled it.
        intruder: The first other call that has cancelled a task of this one.
        has_intruded: Whether it has cancelled a task of another call.
    """

    def __init__(self, loop: LoopThread, coroutine: Coroutine[Any, Any, Any], owner: Any) -> None:
        self.owner = owner
        self.future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self.is_cancelled = False
        self.intruder: AsyncCall | None = None
        self.has_intruded = False
        self.executor: concurrent.futures.Executor | None = None
        self.is_executor_shut = False
        self.exception_handler: Callable[..., Any] | None = None
        self.task_factory: Callable[..., Any] | None = None
        self._loop = loop
        self._coroutine = coroutine
        self._task: asyncio.Task[Any] | None = None
        self._error: BaseException | None = None

    @property
    def lag(self) -> LagMeter:
        """The meter of the loop that it runs on."""
        return self._loop.lag

    def start(self, coroutine: Coroutine[Any, Any, Any], context: Context) -> None:
        """Start the task. Called on the thread of the loop."""
        self.lag.start()
        self._task = _owned_class(asyncio.Task)(coroutine, loop=self._loop.loop, context=context)
        self._task.add_done_callback(self._finish, context=context)
        if self.is_cancelled:
            self._task.cancel()

    def cancel(self) -> None:
        """Cancel the coroutine for WTB, from any thread."""
        self.is_cancelled = True
        self._loop.loop.call_soon_threadsafe(self._cancel)

    def fail(self, error: BaseException) -> None:
        """End the call with an error that none of its tasks raises. Called on the thread of the loop."""
        if self._error is None and not self.future.done():
            self._error = error
            self._cancel()
            self._loop.loop.call_later(GRACE_S, self.end, error)

    def end(self, error: BaseException) -> None:
        """Raise an error in the waiting thread, if it still waits."""
        if not self.future.done():
            self.future.set_exception(error)
            self._loop.forget(self)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _finish(self, task: asyncio.Task[Any]) -> None:
        # Python would report a coroutine that was cancelled before it began as never awaited.
        self._coroutine.close()
        if self.future.done():
            return
        try:
            returned = task.result()
        except asyncio.CancelledError as error:
            self.end(self._error or concurrent.futures.CancelledError(*error.args).with_traceback(error.__traceback__))
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self.end(self._error or error)
        else:
            error_instead = self._error or (returned.error if isinstance(returned, Exit) else None)
            if error_instead is not None:
                self.end(error_instead)
                return
            self.future.set_result(returned)
            self._loop.forget(self)


class LoopThread:
    """An event loop and its thread, which survive anything that a call does to the loop.

    `on_dead` is called with the error if the loop can no longer run, before all calls fail. `lag` measures how late
    the loop is while calls run.
    """

    def __init__(self, on_dead: Callable[[BaseException], None] = lambda error: None) -> None:
        see_own_tasks_only()
        self.loop = asyncio.new_event_loop()
        self.on_dead = on_dead
        self._calls: set[AsyncCall] = set()
        self.lag = LagMeter(self.loop, lambda: bool(self._calls))
        self._is_closing = False
        self._task_factory: Callable[..., Any] | None = None
        self._own = {name: getattr(self.loop, name) for name in _GUARDED}
        self.loop.set_task_factory(self._make_task)
        vars(self.loop).update({name: getattr(self, f"_{name}") for name in _GUARDED})
        _loops.add(self.loop)
        self._thread = threading.Thread(target=self._run, name="wtb-async", daemon=True)
        self._thread.start()

    def begin(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None, owner: Any = None) -> AsyncCall:
        """Start a coroutine, which is cancelled after `timeout` seconds.

        Raises:
            RuntimeError: The loop is closed.
        """
        call = AsyncCall(self, coroutine, owner)
        context = copy_context()
        context.run(_call.set, None if _is_setup.get() else call)
        self._calls.add(call)
        guarded = bounded(coroutine, timeout)
        is_here = threading.get_ident() == self._thread.ident
        schedule = self.loop.call_soon if is_here else self.loop.call_soon_threadsafe
        try:
            schedule(call.start, guarded, context, context=context)
        except RuntimeError:
            self.forget(call)
            guarded.close()
            coroutine.close()
            raise
        return call

    def forget(self, call: AsyncCall) -> None:
        """Forget a call that has ended."""
        self._calls.discard(call)

    def close(self) -> None:
        """Cancel all calls, stop the loop and close it."""
        self._is_closing = True
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(_cancel_others(), self.loop).result(GRACE_S * 2)
            self.loop.call_soon_threadsafe(self._own["stop"])
            self._thread.join(GRACE_S)
        if not self.loop.is_running():
            self.loop.close()
        _loops.discard(self.loop)

    def _run(self) -> None:
        """Run the loop until it is closed.

        An exit that a callback raises does not damage the loop: only the call that scheduled the callback fails.
        """
        while not self._is_closing:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                call = _call_that_raised(error)
                if call is not None:
                    call.fail(error)
            except BaseException as error:  # noqa: BLE001 - whatever it is, this loop runs no more
                self._die(error)
                return

    def _die(self, error: BaseException) -> None:
        ended = RuntimeError(f"the event loop of the node has ended: {type(error).__name__}: {error}")
        ended.__cause__ = error
        # Before the calls end, so that a thread that calls again gets a new loop.
        self.on_dead(error)
        for call in list(self._calls):
            call.end(ended)

    # Replacements of the loop's own methods. Outside of a call they do the same as the originals.

    def _stop(self) -> None:
        call = _call.get()
        if call is None:
            self._own["stop"]()
        else:
            call.fail(RuntimeError(_STOPPED))

    async def _shutdown_default_executor(self, *timeout: Any, **options: Any) -> None:
        call = _call.get()
        if call is None:
            await self._own["shutdown_default_executor"](*timeout, **options)
            return
        call.is_executor_shut = True
        if call.executor is not None:
            call.executor.shutdown(wait=False)

    async def _shutdown_asyncgens(self) -> None:
        # Within a call it would close the generators of all calls.
        if _call.get() is None:
            await self._own["shutdown_asyncgens"]()

    def _set_default_executor(self, executor: Any) -> None:
        call = _call.get()
        if call is None:
            self._own["set_default_executor"](executor)
        else:
            call.executor = executor

    def _run_in_executor(self, executor: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        call = _call.get()
        if executor is None and call is not None:
            if call.is_executor_shut:
                raise RuntimeError("Executor shutdown has been called")
            executor = call.executor
        return self._own["run_in_executor"](executor, function, *arguments)

    def _set_exception_handler(self, handler: Any) -> None:
        call = _call.get()
        if call is None:
            self._own["set_exception_handler"](handler)
        else:
            call.exception_handler = handler

    def _get_exception_handler(self) -> Any:
        call = _call.get()
        return self._own["get_exception_handler"]() if call is None else call.exception_handler

    def _call_exception_handler(self, context: dict[str, Any]) -> None:
        call = _call_of(context)
        if call is None or call.exception_handler is None:
            self._own["call_exception_handler"](context)
            return
        try:
            call.exception_handler(self.loop, context)
        except Exception:  # noqa: BLE001 - a handler of users, which must not end the loop
            traceback.print_exc()

    def _set_task_factory(self, factory: Any) -> None:
        call = _call.get()
        if call is None:
            self._task_factory = factory
        else:
            call.task_factory = factory

    def _get_task_factory(self) -> Any:
        call = _call.get()
        return self._task_factory if call is None else call.task_factory

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        call = _call.get()
        factory = (call and call.task_factory) or self._task_factory
        if factory is not None:
            return factory(loop, coroutine, **options)
        return _owned_class(asyncio.Task)(coroutine, loop=loop, **options)


_GUARDED = (
    *("stop", "shutdown_default_executor", "shutdown_asyncgens", "set_default_executor", "run_in_executor"),
    *("set_exception_handler", "get_exception_handler", "call_exception_handler"),
    *("set_task_factory", "get_task_factory"),
)
_loops: set[asyncio.AbstractEventLoop] = set()


# By class, because `asyncio.Task` can change: nest_asyncio replaces it.
@cache
def _owned_class(base: type[asyncio.Task[Any]]) -> type[asyncio.Task[Any]]:
    """Return a class of tasks with a reference to their call."""

    class OwnedTask(base):  # type: ignore[valid-type,misc]
        """A task that records which other call cancels it."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            context: Context | None = options.get("context")
            self.wtb_call = _call.get() if context is None else context.get(_call)

        def cancel(self, msg: Any = None) -> bool:
            call, caller = self.wtb_call, _call.get()
            # Calls of one attempt may cancel each other's tasks. Only those of another attempt intrude.
            if call is not None and caller is not None and call.owner is not caller.owner and not self.done():
                call.intruder = call.intruder or caller
                caller.has_intruded = True
            return bool(super().cancel(msg))

    return OwnedTask


def lag_of_loop() -> LagMeter | None:
    """Return the meter of the caller's shared loop; None if it runs on none."""
    call = _call.get()
    return None if call is None else call.lag


def see_own_tasks_only() -> None:
    """Let `asyncio.all_tasks` return only the tasks of the calling call on a shared loop."""
    if asyncio.all_tasks is _all_tasks:
        asyncio.all_tasks = asyncio.tasks.all_tasks = _own_tasks


def _own_tasks(loop: asyncio.AbstractEventLoop | None = None) -> set[asyncio.Task[Any]]:
    """Return a set of all tasks for the loop."""
    target = asyncio.get_running_loop() if loop is None else loop
    tasks = _all_tasks(target)
    call = _call.get()
    if call is None or target not in _loops:
        return tasks
    return {task for task in tasks if getattr(task, "wtb_call", call) is call}


def _call_of(context: dict[str, Any]) -> AsyncCall | None:
    """Return the call of an error in a callback or a task."""
    task: Any = context.get("task") or context.get("future")
    handle_context: Context | None = getattr(context.get("handle"), "_context", None)
    if hasattr(task, "wtb_call"):
        call: AsyncCall | None = task.wtb_call
        return call
    return _call.get() if handle_context is None else handle_context.get(_call)


def _call_that_raised(error: BaseException) -> AsyncCall | None:
    """Return the call whose callback raised an error: asyncio keeps its context in the frame that calls it."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    for frame in frames:
        handle = frame.f_locals.get("self")
        if isinstance(handle, asyncio.Handle):
            # asyncio has no public way from a callback to its context.
            context: Context = handle._context  # type: ignore[attr-defined]
            return context.get(_call)
    return None


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


@frozen
class Exit:
    """An exit by user code. Raised on the loop, it would end the loop and all other nodes."""

    error: SystemExit | KeyboardInterrupt


async def _contained(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        return Exit(error)


async def _cancel_others() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=GRACE_S)


class Caller:
    """Calls functions on the calling thread, or, with a deadline, on one that can be left behind.

    A coroutine is cancelled at its deadline. A thread cannot be: it is abandoned, and counted in `abandoned`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: LoopThread | None = None
        self.abandoned = 0

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        """Return the result of `fn`, awaited if it is a coroutine. Raises NodeTimeout at the deadline."""
        if timeout is None or inspect.iscoroutinefunction(fn):
            returned = fn(*args, **kwargs)
        else:
            returned = self._on_thread(fn, args, kwargs, timeout)
        return self._await(returned, timeout) if inspect.iscoroutine(returned) else returned

    def _await(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None) -> Any:
        future = self.loop_thread().begin(coroutine, timeout).future
        try:
            # Longer than the deadline, which `bounded` applies on the loop: a coroutine that can be cancelled ends by
            # that.
            return future.result(None if timeout is None else timeout + GRACE_S)
        except TimeoutError as error:
            # The coroutine itself has raised a TimeoutError, which is no deadline.
            if future.done():
                raise
            self._count_abandoned()
            raise NodeTimeout(
                f"still running after its deadline of {timeout:g} s, and it ignored its cancellation"
            ) from error

    def _on_thread(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Arguments, timeout: float) -> Any:
        future: Future[Any] = Future()
        # A thread starts with an empty context, but the node's context variables must hold in it.
        variables = contextvars.copy_context()

        def work() -> None:
            try:
                future.set_result(variables.run(fn, *args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
                future.set_exception(error)

        # A daemon, because an abandoned thread must not keep the process from ending.
        threading.Thread(target=work, name="wtb-deadline", daemon=True).start()
        try:
            return future.result(timeout)
        except TimeoutError as error:
            if future.done():
                # The function itself has raised a TimeoutError, or it has ended just now: then its result counts.
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
        """Return the event loop of all async calls; the first call starts its thread."""
        with self._lock:
            if self._loop is None:
                self._loop = LoopThread(self._drop_loop)
            return self._loop

    def _drop_loop(self, error: BaseException) -> None:
        """Drop a loop that can no longer run, with its calls."""
        self._count_abandoned()
        with self._lock:
            self._loop = None

    def close(self) -> None:
        """Cancel all calls on the loop, stop it and close it."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()


class Debugged(Caller):
    """A caller that opens the debugger when a function fails. Deadlines do not count."""

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        try:
            return super().call(fn, *args, timeout=None, **kwargs)
        except Exception as error:
            import pdb

            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            pdb.post_mortem(error.__traceback__)
            raise
