"""The approval mode of a workflow: whether people are asked without a node asking for it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from wtb.core.errors import did_you_mean

Approval = str | Mapping[str, str]

_MODES = ("none", "manual", "before", "on_error")


def approval_mode(approval: Approval) -> tuple[str, str | None]:
    """(mode, node) of what a workflow says. node: of the mode `after` alone."""
    return (approval, None) if isinstance(approval, str) else ("after", approval.get("after"))


def approval_problems(approval: Approval, workflow: str, nodes: Collection[str]) -> list[str]:
    """What is wrong with the approval mode of a workflow of this name, in words."""
    mode, node = approval_mode(approval)
    if mode == "after":
        return [] if node in nodes else [f"approval: {no_such_node(workflow, nodes, node)}"]
    expected = f"expected one of {', '.join(_MODES)} or {{'after': NODE}}"
    return [] if mode in _MODES else [f"approval is {mode!r}{did_you_mean(mode, _MODES)}; {expected}"]


def no_such_node(workflow: str, nodes: Collection[str], node: str | None) -> str:
    return f"workflow {workflow!r} has no node {node!r}{did_you_mean(str(node), nodes)}"
