"""What policies can speak of: the actions, which are the operations, and what is known when one is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import Literal

from wtb.authoring.policies.recorded import CALL, CONNECT, NODE_ACTIONS, START, WRITE
from wtb.core.classes.frozen import frozen
from wtb.core.errors import meant_or_known
from wtb.operations.registry import OPERATIONS, Operation, id_of_command

CALL_TOOL = "call tool"  # an action that is no operation: a workflow that has a tool is submitted

# What is called by itself although it is no operation, and the operation that it stands for.
_STANDS_FOR = {
    "running.local:begin": "running.local:run",  # in Python
    "inspection.columns:cell_columns": "inspection.sweeps:cells",  # in pages
}

Resource = Literal["Database", "Sweep", "Workflow", "Tool", "File", "Host", "Program"]
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


# What else the context of an action of nodes always has, and that of a call of a tool.
NODE_FACTS: Mapping[str, str] = {"node": "String", "variant": "String", "case": "String"}
CALL_FACTS: Mapping[str, str] = {"arguments": "Arguments", "numbers": "Numbers"}
# What nodes do besides, with the kind of what they do it with, and what its context always has.
ACTS: Mapping[str, tuple[Resource, Mapping[str, str]]] = {
    WRITE: ("File", {"path": "String"}),
    CONNECT: ("Host", {"host": "String", "address": "String", "port": "Long"}),
    START: ("Program", {"command": "String"}),
}
_OF_NODES = {**{name: kind for name, kind in FACTS.items() if name != "node?"}, **NODE_FACTS}


@frozen
class Asked:
    """What a policy decides about.

    Attributes:
        action: The id of an operation, or `CALL_TOOL`.
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
    """The path of an operation's function -> its action: the first id that has it."""
    by_path: dict[str, str] = {}
    for name, operation in OPERATIONS.items():
        by_path.setdefault(operation.path, name)
    return by_path | {path: by_path[operation] for path, operation in _STANDS_FOR.items()}


def action_of(module: str, function: str) -> tuple[str, Operation] | None:
    """Return the operation that a function is, if it is one, with its action."""
    name = actions().get(f"{module.removeprefix('wtb.operations.')}:{function}")
    return None if name is None else (name, OPERATIONS[name])


@cache
def known_actions() -> tuple[str, ...]:
    """The actions that policies can name."""
    return (*dict.fromkeys(actions().values()), CALL_TOOL, *NODE_ACTIONS)


def why_unknown(action: str) -> str | None:
    """Return the reason why no policy can name an action, with the one to name instead; None for a known action."""
    if action in known_actions():
        return None
    id = id_of_command(action) or action
    if id not in OPERATIONS:
        return f"there is no action {action!r}{meant_or_known(action, known_actions())}"
    evaluated_as = actions()[OPERATIONS[id].path]
    return f"there is no action {action!r}; write {evaluated_as!r}"


@cache
def schema() -> str:
    """The schema that policies are held against, in Cedar's language."""
    named = ", ".join(f'"{name}"' for name in known_actions() if name not in NODE_ACTIONS)
    return (
        "entity User; entity Database; entity Sweep; entity Workflow; entity Tool;\n"
        "entity Arguments tags String; entity Numbers tags Long;\n"
        f"action {named} appliesTo {{ principal: User, resource: [Database, Sweep, Workflow, Tool], "
        f"context: {{ {_types(FACTS)} }} }};\n"
        f'action "{CALL}" appliesTo {{ principal: User, resource: [Tool], '
        f"context: {{ {_types({**_OF_NODES, **CALL_FACTS})} }} }};\n"
        "entity File; entity Host; entity Program;\n"
        + "".join(
            f'action "{action}" appliesTo {{ principal: User, resource: [{kind}], '
            f"context: {{ {_types({**_OF_NODES, **facts})} }} }};\n"
            for action, (kind, facts) in ACTS.items()
        )
    )


def _types(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in facts.items())
