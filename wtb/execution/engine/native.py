"""The engine for workflows that are written with `wtb.Workflow`."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from wtb.authoring.context.node_context import Context
from wtb.authoring.context.surroundings import Surroundings
from wtb.authoring.graph import Routes
from wtb.authoring.nodes import Node, Variant
from wtb.authoring.state_schema import MISSING
from wtb.authoring.workflow import Workflow
from wtb.core.errors import RoutingError, StateError
from wtb.core.serialization.codec import decode
from wtb.core.serialization.plain_json import storable
from wtb.core.tree.checkpoints import Position
from wtb.core.values import LazyState, Value, Values, differing, stored
from wtb.execution.engine.attempt import AwaitedAttempt, OpenAttempt, attempted, clocked
from wtb.execution.engine.protocol import Joined, Result, Root, Task, Writes


class _Short(reprlib.Repr):
    """A repr whose cost is bounded by its length."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 2000
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdeque = 100

    def repr_bytes(self, value: bytes, level: int) -> str:
        return repr(value[: self.maxstring])

    repr_bytearray = repr_bytes


_short = _Short()


class NativeEngine:
    """Runs workflows that are written with `wtb.Workflow`."""

    begins_here = True

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = facts = workflow.facts()
        self._routes = Routes(facts)
        self._looks_at_state = {b.source for b in facts.branches} | {
            source for edge in facts.edges if edge.when is not None for source in edge.sources
        }
        self._has_reducers = any(key.reducer is not None for key in facts.schema.keys.values())

    def is_async(self, node: str, variant: str) -> bool:
        return inspect.iscoroutinefunction(self.workflow.nodes[node].variants[variant].fn)

    def begin(self, state: Values, root: Root) -> Joined:
        return Joined({}, Position(0, self._routes.entry.next))

    def run(self, task: Task, surroundings: Surroundings) -> Result:
        node = self.workflow.nodes[task.node]

        def perform(context: Context) -> Values:
            call = self._call_of(task, node.variants[task.variant], context)
            return self._write(task, surroundings.call(call, timeout=task.timeout), context)

        return attempted(self, task, surroundings, self.workflow.tools, perform, _is_final(node))

    def awaited(self, task: Task, surroundings: Surroundings) -> AwaitedAttempt | None:
        node = self.workflow.nodes[task.node]
        variant = node.variants[task.variant]
        if not inspect.iscoroutinefunction(variant.fn):
            return None
        return AwaitedAttempt(
            OpenAttempt(self, task, surroundings, self.workflow.tools, _is_final(node)),
            partial(self._call_of, task, variant),
            partial(self._write, task),
            joins_by_user_code=task.join and (self._has_reducers or task.node in self._looks_at_state),
        )

    def _call_of(self, task: Task, variant: Variant, context: Context) -> Callable[[], Any]:
        """Return the call of a variant on a freshly decoded copy of the state."""
        state = self.workflow.schema.view(LazyState(task.state))
        arguments = (state, context) if variant.takes_context else (state,)
        call = partial(variant.fn, *arguments, **variant.params)
        return partial(clocked, context, call) if inspect.iscoroutinefunction(variant.fn) else call

    def _write(self, task: Task, update: Any, context: Context) -> Values:
        """Return what a variant wrote, checked against the schema and encoded."""
        if update is None:
            return {}
        who = f"node {task.node!r}"
        if not isinstance(update, Mapping):
            raise StateError(
                f"{who} returned {type(update).__name__}; expected a dict of the keys that it writes, or None"
            )
        try:
            return self._encoded(update, who)
        except StateError:
            if context.record.output is None:
                context.leave(output=storable(_short.repr(update)[:2000]))
            raise

    def _encoded(self, update: Mapping[Any, Any], who: str) -> Values:
        """Encode the writes of a node. Values of its state that it returns unread are not encoded again."""
        schema = self.workflow.schema
        writes: dict[str, Value] = {}
        if isinstance(update, LazyState):
            writes = {schema.check_key(key, who): value for key, value in update.unread().items()}
            update = {key: update[key] for key in update if key not in writes}
        for key, value in update.items():
            name = schema.check_key(key, who)
            schema.check_value(name, value, who)
            writes[name] = stored(f"{who} key", name, value)
        return writes

    def join(self, state: Values, position: Position, writes: Writes, root: Root) -> Joined:
        """Join the writes of one step, in the order in which the nodes were declared, and find the next nodes.

        Raises:
            StateError: Two nodes wrote a key that has no reducer.
            RoutingError: No edge leads on, or the workflow has too many steps.
            Exception: Any error of a reducer or branch function.
        """
        changed: dict[str, Value] = {}
        wrote: dict[str, str] = {}
        for node, update in writes:
            for name, value in update.items():
                key = self.workflow.schema.keys.get(name)
                if key is not None and key.reducer is not None:
                    current = changed.get(name) or state.get(name)
                    start = decode(current.data) if current else key.empty()
                    new = decode(value.data)
                    merged = key.reduce(start, new) if start is not MISSING else new
                    changed[name] = stored(f"the reducer, on the write of node {node!r}, of key", name, merged)
                elif name in wrote:
                    raise StateError(
                        f"nodes {wrote[name]!r} and {node!r} both wrote key {name!r} in one step: give the key a "
                        f"reducer, such as Annotated[list, operator.add], or let only one of them write it"
                    )
                else:
                    changed[name] = value
                wrote[name] = node
        changed = differing(changed, state)
        ran, visits = [], dict(position.visits)
        for node, _ in writes:
            ran.append(node)
            visits[node] = position.visits.get(node, 0) + 1
        followed = self._routes.after(ran, position.arrived, self._routing_view(ran, state, changed))
        # A workflow may end with its last step; only another one would be too many.
        if followed.next and position.step + 1 >= self.workflow.max_steps:
            raise RoutingError(
                f"still going after {position.step + 1} steps, next {', '.join(map(repr, followed.next))}: "
                f"a loop that does not end? Workflow(max_steps=...) raises the limit"
            )
        return Joined(changed, Position(position.step + 1, followed.next, followed.arrived, visits), followed.decisions)

    def _routing_view(self, ran: Sequence[str], state: Values, changed: Values) -> Any:
        # Most steps need no view, which decodes values.
        if self._looks_at_state.isdisjoint(ran):
            return None
        return self.workflow.schema.view(LazyState({**state, **changed}))


def _is_final(node: Node) -> Callable[[BaseException], bool]:
    """Return the test for errors after which a node is not repeated."""
    return lambda error: isinstance(error, node.rules.final)
