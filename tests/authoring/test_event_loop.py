"""Calls share an event loop, and no call can disturb another one."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from wtb.authoring.code.calling import AsyncCall, LoopThread, set_up

PATIENCE_S = 20.0
Act = Callable[[], Coroutine[Any, Any, Any]]


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


def outcome(call: AsyncCall) -> Any:
    """Wait for a call, and return its result, or its error as text."""
    try:
        return call.future.result(PATIENCE_S)
    except BaseException as error:  # noqa: BLE001 - compared by the tests
        return f"{type(error).__name__}: {error}"


async def neighbour() -> str:
    """Use everything that another call could break: tasks, timers, a group, an executor, an async generator."""

    async def numbers() -> Any:
        for number in range(3):
            await asyncio.sleep(0.05)
            yield number

    async def slowly(number: int) -> int:
        await asyncio.sleep(0.1)
        return number

    total = sum([number async for number in numbers()])
    results = await asyncio.gather(slowly(1), slowly(2), return_exceptions=True)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(slowly(3))
    value = await asyncio.to_thread(lambda: 4)
    handler = asyncio.get_running_loop().get_exception_handler()
    return f"{total} {results} {task.result()} {value} {handler}"


CALM = "3 [1, 2] 3 4 None"


async def cancel_all() -> str:
    await asyncio.sleep(0.05)
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()
    await asyncio.sleep(0.05)
    return "cancelled"


async def cancel_all_and_gather() -> str:
    await asyncio.sleep(0.05)
    tasks = [task for task in asyncio.tasks.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    return str(await asyncio.gather(*tasks, return_exceptions=True))


async def cancel_everything() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(1)


async def stop() -> str:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(1)
    return "went on"


async def stop_later() -> str:
    asyncio.get_running_loop().call_later(0.05, asyncio.get_running_loop().stop)
    await asyncio.sleep(10)
    return "went on"


async def exit_in_a_callback() -> str:
    asyncio.get_running_loop().call_soon(sys.exit, "no key")
    await asyncio.sleep(10)
    return "went on"


async def exit_in_a_task() -> str:
    async def leave() -> None:
        sys.exit(3)

    await asyncio.gather(asyncio.create_task(leave()), asyncio.sleep(10))
    return "went on"


async def interrupt_in_a_callback() -> str:
    def interrupt() -> None:
        raise KeyboardInterrupt

    asyncio.get_running_loop().call_later(0.02, interrupt)
    await asyncio.sleep(10)
    return "went on"


async def shut_down_executor() -> str:
    await asyncio.get_running_loop().shutdown_default_executor()
    await asyncio.to_thread(print)
    return "went on"


async def close() -> str:
    asyncio.get_running_loop().close()
    return "went on"


async def clean_up() -> str:
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
    return "cleaned"


async def own_executor() -> str:
    with ThreadPoolExecutor(1, "own") as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        name = await asyncio.to_thread(lambda: threading.current_thread().name)
    return name.partition("_")[0]


async def own_handler() -> str:
    loop = asyncio.get_running_loop()
    seen: list[str] = []
    loop.set_exception_handler(lambda loop, context: seen.append(str(context["exception"])))
    loop.call_soon(lambda: 1 // 0)
    await asyncio.sleep(0.05)
    assert loop.get_exception_handler() is not None
    return str(seen)


async def own_task_factory() -> str:
    loop = asyncio.get_running_loop()
    names: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        names.append(coroutine.__qualname__)
        return asyncio.Task(coroutine, loop=loop, **options)

    loop.set_task_factory(factory)
    await asyncio.create_task(asyncio.sleep(0))
    return str(names)


ACTS: list[tuple[Act, str]] = [
    (cancel_all, "cancelled"),
    (cancel_all_and_gather, "[]"),
    (cancel_everything, "CancelledError: "),
    (stop, "RuntimeError: Event loop stopped before Future completed"),
    (stop_later, "RuntimeError: Event loop stopped before Future completed"),
    (exit_in_a_callback, "SystemExit: no key"),
    (exit_in_a_task, "SystemExit: 3"),
    (interrupt_in_a_callback, "KeyboardInterrupt: "),
    (shut_down_executor, "RuntimeError: Executor shutdown has been called"),
    (close, "RuntimeError: Cannot close a running event loop"),
    (clean_up, "cleaned"),
    (own_executor, "own"),
    (own_handler, "['integer division or modulo by zero']"),
    (own_task_factory, "['sleep']"),
]


@pytest.mark.parametrize(("act", "expected"), ACTS, ids=[act.__name__ for act, _ in ACTS])
def test_a_call_harms_no_neighbour_and_ends_as_it_does_alone(loop: LoopThread, act: Act, expected: str) -> None:
    before = [loop.begin(neighbour(), PATIENCE_S, object()) for _ in range(4)]
    culprit = loop.begin(act(), PATIENCE_S, object())
    after = [loop.begin(neighbour(), PATIENCE_S, object()) for _ in range(3)]
    assert str(outcome(culprit)).startswith(expected)
    assert [outcome(call) for call in before + after] == [CALM] * 7
    assert [call.intruder for call in before + after] == [None] * 7

    later = loop.begin(neighbour(), PATIENCE_S, object())
    assert outcome(later) == CALM
    alone = LoopThread()
    try:
        assert outcome(alone.begin(act(), PATIENCE_S)) == outcome(culprit)
    finally:
        alone.close()


def test_a_call_that_cancels_a_task_of_another_one_is_noted(loop: LoopThread) -> None:
    tasks: list[asyncio.Task[Any]] = []
    started = threading.Event()

    async def wait() -> None:
        tasks.append(asyncio.create_task(asyncio.sleep(PATIENCE_S)))
        started.set()
        await tasks[0]

    async def cancel() -> None:
        tasks[0].cancel()

    victim = loop.begin(wait(), None, "victim")
    assert started.wait(PATIENCE_S)
    culprit = loop.begin(cancel(), None, "culprit")
    assert outcome(culprit) is None
    assert outcome(victim) == "CancelledError: "
    assert victim.intruder is culprit
    assert culprit.intruder is None


def test_what_wtb_or_the_call_itself_cancels_is_no_intrusion(loop: LoopThread) -> None:
    async def wait() -> None:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0.01))
            group.create_task(asyncio.sleep(PATIENCE_S)).cancel()
            await asyncio.sleep(PATIENCE_S)

    call = loop.begin(wait(), None, "owner")
    call.cancel()
    assert outcome(call) == "CancelledError: "
    assert (call.is_cancelled, call.intruder) == (True, None)


def test_what_sets_up_for_all_may_change_the_loop(loop: LoopThread) -> None:
    with ThreadPoolExecutor(1, "shared") as threads:

        async def connect() -> None:
            asyncio.get_running_loop().set_default_executor(threads)

        async def use() -> str:
            return await asyncio.to_thread(lambda: threading.current_thread().name)

        with set_up():
            connecting = loop.begin(connect(), None)
        assert outcome(connecting) is None
        assert outcome(loop.begin(use(), None)) == "shared_0"


def test_a_loop_that_can_run_no_more_fails_what_runs_on_it() -> None:
    errors: list[BaseException] = []
    loop = LoopThread(errors.append)

    async def wait() -> None:
        await asyncio.sleep(PATIENCE_S)

    async def break_selector() -> None:
        asyncio.get_running_loop()._selector.close()  # type: ignore[attr-defined]

    waiting = loop.begin(wait(), None)
    breaking = loop.begin(break_selector(), None)
    for call in (waiting, breaking):
        assert outcome(call).startswith("RuntimeError: the event loop of the node has ended: ")
    loop._thread.join(PATIENCE_S)
    assert len(errors) == 1
