"""Breakpoints, at which executions pause before or after a node, always or if a condition holds. Pure.

answer
after retrieve
before answer if len(docs) == 0
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from wtb.core.errors import InputError, meant_or_known
from wtb.core.expressions import StateCondition, UnknownValue, parse_state_condition
from wtb.core.frozen import frozen
from wtb.core.values import Json

if TYPE_CHECKING:
    from wtb.authoring.workflow_facts import WorkflowFacts

_IF = re.compile(r"\s+if\s+")
MAX_BREAKPOINTS = 100  # of a sweep: each is checked before every step


@frozen
class Breakpoint:
    """One place to pause. A breakpoint without a condition always holds."""

    when: Literal["before", "after"]
    node: str
    condition: StateCondition | None = None

    def __str__(self) -> str:
        where = f"{self.when} {self.node}"
        return where if self.condition is None else f"{where} if {self.condition.text}"

    def reached(self, following: Sequence[str], ran: Sequence[str], state: Mapping[str, Json]) -> str | None:
        """Return the reason why an execution pauses at this breakpoint, or None.

        Args:
            following: The next nodes.
            ran: The nodes of the last step.
            state: Plain values of the keys in the condition that the state has.
        """
        if self.node not in (following if self.when == "before" else ran):
            return None
        if self.condition is None:
            return f"breakpoint {self}"
        try:
            return f"breakpoint {self}" if self.condition.holds(state) else None
        except UnknownValue as error:
            # A condition that cannot be evaluated pauses: a person should see it, and the execution must not run past
            # it.
            return f"breakpoint {self}, whose condition is unknown: {error}"


def parse_breakpoint(text: str, nodes: Collection[str], keys: Collection[str] = ()) -> Breakpoint:
    """Parse a breakpoint. Raises InputError with the problem and a near match.

    Args:
        text: The breakpoint.
        nodes: The nodes of the workflow.
        keys: The keys of its state; empty if the state may have any key.
    """
    # A node may have a name such as "before x" or "a if b", so that known names are tried before the grammar.
    where, condition = " ".join(text.split("\n")).strip(), None
    if where not in nodes and (match := _IF.search(where)):
        where, text_of_condition = where[: match.start()], where[match.end() :]
        try:
            condition = parse_state_condition(text_of_condition, keys)
        except ValueError as error:
            raise InputError(f"breakpoint {text!r:.120}: {error}") from None
        for key in condition.keys:
            if keys and key not in keys:
                raise InputError(f"breakpoint {text!r:.120}: the state has no key {key!r}{meant_or_known(key, keys)}")
    for when in ("before", "after"):
        word, _, node = where.partition(" ")
        if word == when and where not in nodes:
            return Breakpoint(when, _check_node(text, node.strip(), nodes), condition)
    return Breakpoint("before", _check_node(text, where, nodes), condition)


def _check_node(text: str, node: str, nodes: Collection[str]) -> str:
    if node in nodes:
        return node
    if not node:
        raise InputError(f"breakpoint {text!r:.120}: expected NODE, 'before NODE' or 'after NODE', with 'if CONDITION'")
    raise InputError(f"breakpoint {text!r:.120}: the workflow has no node {node!r}{meant_or_known(node, nodes)}")


def parse_breakpoints(texts: Iterable[str], nodes: Collection[str], keys: Collection[str] = ()) -> list[Breakpoint]:
    """Parse several breakpoints, without duplicates. Raises InputError with all problems."""
    breakpoints: dict[str, Breakpoint] = {}
    problems: list[str] = []
    for text in texts:
        try:
            parsed = parse_breakpoint(text, nodes, keys)
            breakpoints[str(parsed)] = parsed
        except InputError as error:
            problems += error.problems
    if len(breakpoints) > MAX_BREAKPOINTS:
        problems.append(f"{len(breakpoints):,} breakpoints; expected at most {MAX_BREAKPOINTS}")
    if problems:
        raise InputError(*problems)
    return list(breakpoints.values())


def stops(workflow: WorkflowFacts, texts: Sequence[str], until: str | None = None) -> list[Breakpoint]:
    """Return the permanent breakpoints of a workflow, and these. With `until`, also one after that node.

    Raises InputError with all problems.
    """
    texts = [*workflow.breakpoints, *texts]
    if until is not None:
        _check_node(f"after {until}", until, workflow.nodes)
        texts = [*texts, f"after {until}"]
    return parse_breakpoints(texts, workflow.nodes, workflow.schema.keys)
