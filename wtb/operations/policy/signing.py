"""What a sweep records of its submission: who submits it, and the policies that hold for its nodes."""

from __future__ import annotations

from dataclasses import replace

from wtb.operations.context import Context
from wtb.operations.policy.engine import find_policies
from wtb.planning.prepare import Prepared


def signed(context: Context, prepared: Prepared) -> Prepared:
    """Return a sweep with who submits it, and with the policies that its nodes are held against.

    Args:
        context: Who submits it.
        prepared: The sweep.

    Raises:
        InputError: If the policies here are wrong.
    """
    policies = find_policies()
    for_nodes = None if policies is None else policies.recorded(context.principal)
    return replace(prepared, submitted_by=context.by, policies=for_nodes)
