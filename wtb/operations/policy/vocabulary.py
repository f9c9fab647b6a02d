"""What policies can speak of: the actions, which are the operations, and what is known when one is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from wtb.operations.registry import OPERATIONS, Operation

CALL_TOOL = "call tool"  # an action that is no operation: a workflow that has a tool is submitted

# What is called by itself although it is no operation, and the operation that it stands for.
_STANDS_FOR = {
    "running.local:begin": "running.local:run",  # in Python
    "inspection.columns:cell_columns": "inspection.sweeps:cells",  # in pages
}

Resource = Literal["Database", "Sweep", "Workflow", "Tool"]
Fact = str | int

# What a context may have, with Cedar's type of it; the first three it always has.
FACTS: Mapping[str, str] = {
    "by": "String",
    "needs": "String",
    "effect": "String",
    "project?": "String",
    "session?": "String",
    "workflow?": "String",
    "sweep?": "String",
    "submitted_by?": "String",
    "cells?": "Long",
    "limit_cents?": "Long",
    "node?": "String",
    "answer?": "String",
    "name?": "String",
}


@dataclass(frozen=True)
class Asked:
    """What a policy decides about.

    Attributes:
        action: The name of an operation, or `CALL_TOOL`.
        by: Who acts.
        kind: Of the resource.
        id: Of the resource.
        facts: The context: what is known of it.
    """

    action: str
    by: str
    kind: Resource = "Database"
    id: str = "here"
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def context(self) -> dict[str, Fact]:
        """All that its context has."""
        operation = OPERATIONS.get(self.action)
        needs, effect = ("submit", "spends") if operation is None else (operation.needs.value, operation.effect.value)
        return {"by": self.by, "needs": needs, "effect": effect, **self.facts}


@cache
def actions() -> Mapping[str, str]:
    """The path of an operation's function -> its name as an action: the first that has it."""
    found: dict[str, str] = {}
    for name, operation in OPERATIONS.items():
        found.setdefault(operation.path, name)
    return found | {path: found[operation] for path, operation in _STANDS_FOR.items()}


def action_of(module: str, function: str) -> tuple[str, Operation] | None:
    """Return the operation that a function is, if it is one, with its name."""
    name = actions().get(f"{module.removeprefix('wtb.operations.')}:{function}")
    return None if name is None else (name, OPERATIONS[name])


@cache
def schema() -> str:
    """The schema that policies are held against, in Cedar's language."""
    facts = ", ".join(f"{name}: {kind}" for name, kind in FACTS.items())
    named = ", ".join(f'"{name}"' for name in (*dict.fromkeys(actions().values()), CALL_TOOL))
    return (
        "entity User; entity Database; entity Sweep; entity Workflow; entity Tool;\n"
        f"action {named} appliesTo {{ principal: User, resource: [Database, Sweep, Workflow, Tool], "
        f"context: {{ {facts} }} }};\n"
    )
