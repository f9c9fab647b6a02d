"""Sync and async functions are called alike, and abandoned at their deadlines."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.prose import sentence
from wtb.authoring.code.calling import Caller
from wtb.core.errors import NodeTimeout

SOON = 0.05


@pytest.fixture
def caller() -> Iterator[Caller]:
    instance = Caller()
    yield instance
    instance.close()


async def plus_one(n: int) -> int:
    await asyncio.sleep(0)
    return n + 1


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_a_function_is_called_with_its_arguments_and_a_coroutine_is_awaited(
    timeout: float | None, caller: Caller
) -> None:
    assert caller.call(lambda a, *, b: (a, b), 1, b=2, timeout=timeout) == (1, 2)
    assert caller.call(plus_one, 1, timeout=timeout) == 2
    assert caller.call(lambda: plus_one(1), timeout=timeout) == 2
    assert caller.call(functools.partial(plus_one, 2), timeout=timeout) == 3


def test_without_a_deadline_a_function_runs_on_the_thread_that_asks(caller: Caller) -> None:
    assert caller.call(threading.current_thread, timeout=None) is threading.current_thread()


def test_async_functions_share_one_loop_and_wait_side_by_side(caller: Caller) -> None:
    both = threading.Barrier(2, timeout=10)
    meeting: list[asyncio.Event] = []
    lock = threading.Lock()

    async def meet() -> int:
        with lock:
            if not meeting:
                meeting.append(asyncio.Event())
                first = True
            else:
                meeting[0].set()
                first = False
        if first:
            await asyncio.wait_for(meeting[0].wait(), 10)
        return id(asyncio.get_running_loop())

    counts: list[int] = []

    def ask() -> None:
        both.wait()
        counts.append(caller.call(meet, timeout=None))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert len(counts) == 2
    assert len(set(counts)) == 1


@pytest.mark.parametrize("timeout", [None, 30.0])
@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("the server's own"), SystemExit(3)])
def test_errors_are_raised_as_they_are_and_do_not_end_the_loop_for_the_others(
    error: BaseException, timeout: float | None, caller: Caller
) -> None:
    def fail() -> None:
        raise error

    async def fail_later() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        caller.call(fail, timeout=timeout)
    assert raised.value is error
    with pytest.raises(type(error)) as raised:
        caller.call(fail_later, timeout=timeout)
    assert str(raised.value) == str(error)
    assert caller.call(plus_one, 1, timeout=5.0) == 2


def test_a_coroutine_is_cancelled_at_its_deadline(caller: Caller) -> None:
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(NodeTimeout, match=r"cancelled at its deadline of 0\.05 s"):
        caller.call(wait, timeout=SOON)

    assert cancelled.is_set()
    assert caller.abandoned == 0


def test_a_function_past_its_deadline_is_left_behind_and_counted(caller: Caller) -> None:
    released, ended = threading.Event(), threading.Event()

    def wait() -> None:
        released.wait(20)
        ended.set()

    with pytest.raises(NodeTimeout, match=sentence("a thread cannot be stopped")):
        caller.call(wait, timeout=SOON)

    assert caller.abandoned == 1
    released.set()
    assert ended.wait(10)


def test_a_coroutine_that_ignores_its_cancellation_is_counted_as_left_behind(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wtb.authoring.code.calling.GRACE_S", 0.05)
    released = threading.Event()

    async def stubborn() -> None:
        while not released.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    with pytest.raises(NodeTimeout, match=sentence("it ignored its cancellation")):
        caller.call(stubborn, timeout=SOON)
    assert caller.abandoned == 1
    released.set()


def test_closing_cancels_what_still_runs() -> None:
    caller = Caller()
    started, cancelled = threading.Event(), threading.Event()
    ended: list[BaseException] = []

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def ask() -> None:
        try:
            caller.call(wait, timeout=None)
        except BaseException as error:  # noqa: BLE001 - looked at below
            ended.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert started.wait(10)

    caller.close()
    thread.join(10)

    assert cancelled.is_set()
    assert [type(error).__name__ for error in ended] == ["CancelledError"]


def test_a_caller_can_be_used_again_after_closing() -> None:
    caller = Caller()
    first: Any = caller.call(plus_one, 1, timeout=None)
    caller.close()

    assert caller.call(plus_one, first, timeout=None) == 3
    caller.close()
