"""What a process does before its first node runs, so that no cell's time has it in it.

What is loaded later after all, since nobody could foresee it, is left out of the attempt's time: see
`Context.load_prices`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import FunctionType, ModuleType

from wtb.authoring.code.walk import names_in
from wtb.authoring.context.attempt_record import CaseView, Record
from wtb.authoring.context.node_context import Context
from wtb.authoring.context.prices import load_prices
from wtb.authoring.context.surroundings import Surroundings
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.serialization.codec import decode
from wtb.core.tree.checkpoints import Position
from wtb.core.values import Value, Values
from wtb.execution.engine.attempt import attempted
from wtb.execution.engine.protocol import Engine, Root, Task

_PRICED = frozenset({"call", "cost", "record_calls", "complete"})  # what asks for prices


def warm_up(engine: Engine, surroundings: Surroundings) -> None:
    """Make resources, load what nodes of its workflow will ask for, and do once what every attempt does.

    Raises WTBError where the resources cannot be made.
    """
    surroundings.resources()
    functions = list(_functions(engine.workflow))
    if any(not _PRICED.isdisjoint(names_in(function.__code__)) for function in functions):
        load_prices()
    if any(inspect.iscoroutinefunction(function) for function in functions):
        surroundings.call(_nothing, timeout=None)  # starts the event loop
    _rehearse(engine, surroundings)


def _functions(workflow: WorkflowFacts) -> Iterator[FunctionType]:
    """The functions of its nodes, and those that stand in the same modules."""
    modules: dict[str, ModuleType] = {}
    for node in workflow.nodes.values():
        for variant in node.variants.values():
            function = inspect.unwrap(getattr(variant.fn, "func", variant.fn))
            if isinstance(function, FunctionType):
                yield function
            if (module := sys.modules.get(getattr(function, "__module__", ""))) is not None:
                modules[module.__name__] = module
    for module in modules.values():
        yield from (value for value in vars(module).values() if isinstance(value, FunctionType))


async def _nothing() -> None:
    pass


def _rehearse(engine: Engine, surroundings: Surroundings) -> None:
    """Make an attempt of no node. What fails in it, such as a full disk, is reported when the first node fails."""

    def perform(context: Context) -> Values:
        quiet = replace(context, record=Record())
        quiet.log("rehearsal", number=1)
        quiet.metric("rehearsal", 1.0)
        quiet.call(tool="rehearsal", prompt={"text": ["a", 1.5, None]}, response=b"bytes", usd=0.0)
        quiet.rng.random()
        stored = Value.of({"tuple": (1, 2), "set": {1}, "large": 1 << 70, "none": None})
        return {"rehearsal": Value.of(decode(stored.data))}

    task = Task("rehearsal", "default", {}, Position(0, ()), Root(CaseView("rehearsal")))
    attempted(engine, task, surroundings, {}, perform, lambda error: True)
