"""Watches the event loop of a shared node process for node runs that block it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

from wtb.execution.sandbox.framing import Channel
from wtb.execution.sandbox.shared.shared_run import SharedRun, current_run, place_of

NOTED_S = 0.25  # that the event loop may be blocked until a timeout of another run is no fault of that run
BLOCKED_S = 1.0  # that the event loop may be blocked until a warning names the run
LOOK_S = 0.25  # between two looks at the event loop
LATE_S = 0.02  # after which a look notes what the event loop is doing
LAGGED_S = 0.05  # of lag on average until a warning names the node that takes most of the time
WINDOW_S = 3.0  # that the average is over at least
_LOOKS = 20  # that it is over at most
_KEPT = 64  # blocks that are remembered


@dataclass
class Block:
    """A time during which the event loop did not turn. run: that blocked it, if it is known."""

    run: SharedRun | None
    ended: float | None = None


class Lag:
    """How late the event loop has been lately, and which nodes it was running then."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_LOOKS)
        self._nodes: deque[str] = deque(maxlen=_LOOKS)
        self._warned: set[str] = set()

    def note(self, seconds: float) -> None:
        """Note how late the loop was at a look."""
        self._seconds.append(seconds)

    def note_run(self, run: SharedRun, where: str) -> None:
        """Note what the loop is running while it is late. Warn of its node, once, if that is what the loop is late for.

        The run still runs, so that its warning is heard.
        """
        self._nodes.append(run.node)
        total, looks = sum(self._seconds), len(self._seconds)
        if total + looks * LOOK_S < WINDOW_S or total < LAGGED_S * looks or run.node in self._warned:
            return
        mean = total / looks
        if self._nodes.count(run.node) * 2 >= len(self._nodes):
            self._warned.add(run.node)
            run.warn(
                f"node {run.node!r} holds up the event loop that it shares, at {where}: node runs wait "
                f"{mean * 1000:.0f} ms for it on average, which counts as their latency. Do less in async nodes, or "
                f"lower run.concurrency",
                where,
                lag_s=mean,
            )


class LoopWatch:
    """Finds the node run that blocks the event loop, and where in its code. Its own thread looks."""

    def __init__(self, channel: Channel, loop: asyncio.AbstractEventLoop, is_idle: Callable[[], bool]) -> None:
        self._channel = channel
        self._loop = loop
        self._is_idle = is_idle
        self._blocks: deque[Block] = deque(maxlen=_KEPT)
        self.wanted = threading.Event()
        self._thread_id = 0
        self._turned_at = 0.0
        self._lag = Lag()
        turned = threading.Event()
        loop.call_soon_threadsafe(self._turn, turned)
        turned.wait()
        threading.Thread(target=self._look, name="wtb-watch", daemon=True).start()

    def block_during(self, run: SharedRun) -> Block | None:
        """Return the last time that something else blocked the loop while a run ran, if there was one."""
        for block in reversed(list(self._blocks)):
            if block.run is not run and (block.ended is None or block.ended > run.began):
                return block
        return None

    def _look(self) -> None:
        turned = threading.Event()
        while True:
            self.wanted.wait()
            turned.clear()
            asked_at = time.monotonic()
            self._loop.call_soon_threadsafe(self._turn, turned)
            if not turned.wait(LATE_S):
                self._note_late()
                if not turned.wait(NOTED_S - LATE_S):
                    self._follow(turned)
            self._lag.note(self._turned_at - asked_at)
            if self._is_idle():
                self.wanted.clear()
            turned.clear()
            turned.wait(LOOK_S)

    def _note_late(self) -> None:
        """Note what the loop is doing, since it is late."""
        frame = sys._current_frames().get(self._thread_id)
        if (run := _run_of(frame)) is not None:
            self._lag.note_run(run, place_of(frame))

    def _follow(self, turned: threading.Event) -> None:
        """Follow a block to its end, and report one that takes long."""
        frame = sys._current_frames().get(self._thread_id)
        block = Block(_run_of(frame))
        self._blocks.append(block)
        if not turned.wait(BLOCKED_S - NOTED_S):
            frame = sys._current_frames().get(self._thread_id)
            block.run = _run_of(frame) or block.run
            if block.run is not None:
                _warn(block.run, place_of(frame))
            self._channel.send("blocked", None if block.run is None else block.run.number)
            turned.wait()
            self._channel.send("blocked", None)
        block.ended = time.monotonic()

    def _turn(self, turned: threading.Event) -> None:
        self._thread_id = threading.get_ident()
        self._turned_at = time.monotonic()
        turned.set()


def _warn(run: SharedRun, where: str) -> None:
    run.warn(
        f"node {run.node!r} holds up the event loop that it shares, for more than {BLOCKED_S:g} s, "
        f"at {where}: await what takes long, or make it a sync node",
        where,
    )


def _run_of(frame: FrameType | None) -> SharedRun | None:
    """Return the node run in whose context a callback of the loop runs: asyncio keeps that in the calling frame."""
    while frame is not None:
        if frame.f_code.co_name == "_run" and isinstance(frame.f_locals.get("self"), asyncio.Handle):
            run: SharedRun | None = frame.f_locals["self"]._context.get(current_run)
            return run
        frame = frame.f_back
    return None
