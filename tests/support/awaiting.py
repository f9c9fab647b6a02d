"""Attempts of async nodes as a shared node process makes them: on its event loop, without a thread each."""

from __future__ import annotations

from contextvars import copy_context

from wtb.authoring.code.calling import Caller
from wtb.execution.engine.executor import Surroundings
from wtb.execution.engine.protocol import Engine, Result, Task


def run_on_loop(engine: Engine, task: Task, surroundings: Surroundings, caller: Caller) -> Result:
    """Make an attempt that the engine can await on the loop, and any other one on this thread."""
    attempt = engine.awaited(task, surroundings)
    if attempt is None:
        return engine.run(task, surroundings)
    context = copy_context()
    call = context.run(attempt.begin)
    future = context.run(caller.loop_thread().begin, call(), task.timeout).future
    return context.run(attempt.end, future.result)
