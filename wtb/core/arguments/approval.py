"""Approval modes: when people are asked although no node asks. Pure.

A mode is `none`, `manual`, `before`, `on_error` or `{"after": NODE}`; several are a list of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from wtb.core.errors import describe, did_you_mean

Mode = str | Mapping[str, str]
Approval = Mode | Sequence[Mode]

ALONE = {  # modes that no other can stand beside, with the reason
    "none": "'none' (nobody is there to answer)",
    "manual": "'manual' (only nodes ask)",
}
MODES = ("none", "manual", "before", "on_error")
EXPECTED = "none, manual, before, on_error or {after: NODE}"


def read_mode(value: object) -> object:
    """Return a mode as files write it, of a text such as `on-error` or `after NODE` as commands write it."""
    if not isinstance(value, str):
        return value
    after = re.fullmatch(r"after[ :=]+(.+)", value)
    return {"after": after[1]} if after else value.replace("-", "_")


def is_mode(value: object) -> bool:
    """Return whether a value is a mode; the node that it names may not exist."""
    if isinstance(value, Mapping):
        return list(value) == ["after"] and isinstance(value["after"], str)
    return isinstance(value, str) and value in MODES


def modes_of(approval: Approval) -> tuple[Mode, ...]:
    """Return the modes of a single one or a list of them."""
    return (approval,) if isinstance(approval, str | Mapping) else tuple(approval)


def node_after(mode: Mode) -> str | None:
    """Return the node after which a mode asks; None for the others."""
    return None if isinstance(mode, str) else mode["after"]


def mode_text(mode: str | Mapping[str, object]) -> str:
    """Return a mode as commands write it."""
    return mode if isinstance(mode, str) else f"after {mode['after']}"


def contradiction(modes: Sequence[Mode]) -> tuple[int, str] | None:
    """Return the place and the reason of the first mode that cannot stand beside the others; None if all can.

    Example:
        >>> contradiction(["before", "before"])
        (1, "'before' twice; expected each mode once")
        >>> contradiction(["on_error", "none"])
        (1, "'none' (nobody is there to answer) beside 'on_error'; expected it alone")
    """
    for place, mode in enumerate(modes):
        if mode in modes[:place]:
            return place, f"'{mode_text(mode)}' twice; expected each mode once"
        if isinstance(mode, str) and mode in ALONE and len(modes) > 1:
            other = mode_text(modes[1 if place == 0 else 0])
            return place, f"{ALONE[mode]} beside '{other}'; expected it alone"
    return None


def approval_problems(approval: object, workflow: str, nodes: Collection[str]) -> list[str]:
    """Return what is wrong with the approval modes of a workflow of this name, in words."""
    several = isinstance(approval, list | tuple)
    modes: list[Any] = list(approval) if isinstance(approval, list | tuple) else [approval]
    if not modes:
        return [f"approval is an empty list; expected {EXPECTED}"]
    problems = []
    for place, mode in enumerate(modes):
        name = f"approval[{place}]" if several else "approval"
        if not is_mode(mode):
            near = did_you_mean(mode, MODES) if isinstance(mode, str) else ""
            problems.append(f"{name} is {describe(mode)}{near}; expected {EXPECTED}")
        elif (node := node_after(mode)) is not None and node not in nodes:
            problems.append(f"{name}: {no_such_node(workflow, nodes, node)}")
    if not problems and (wrong := contradiction(modes)):
        problems.append(f"approval[{wrong[0]}] has {wrong[1]}")
    return problems


def no_such_node(workflow: str, nodes: Collection[str], node: str) -> str:
    """Return the message for a mode that names a node which a workflow does not have."""
    return f"workflow {workflow!r} has no node {node!r}{did_you_mean(node, nodes)}"
