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
_KEPT = 64  # blocks that are remembered


@dataclass
class Block:
    """A time during which the event loop did not turn. run: that blocked it, if it is known."""

    run: SharedRun | None
    ended: float | None = None


class LoopWatch:
    """Finds the node run that blocks the event loop, and where in its code. Its own thread looks."""

    def __init__(self, channel: Channel, loop: asyncio.AbstractEventLoop, is_idle: Callable[[], bool]) -> None:
        self._channel = channel
        self._loop = loop
        self._is_idle = is_idle
        self._blocks: deque[Block] = deque(maxlen=_KEPT)
        self.wanted = threading.Event()
        self._thread_id = 0
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
            self._loop.call_soon_threadsafe(self._turn, turned)
            if not turned.wait(NOTED_S):
                self._follow(turned)
            if self._is_idle():
                self.wanted.clear()
            turned.clear()
            turned.wait(LOOK_S)

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
