"""What all runs of a node under a variant have in common, found once in a sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field

from wtb.authoring.code.fingerprint import fingerprints
from wtb.authoring.nodes import Rules
from wtb.core.classes.frozen import frozen
from wtb.planning.binding import Bound


@frozen(slots=True)
class NodePlan:
    """A node under a variant. about: the two of them, as fields of events. limited: whether slots or rates bind it.

    free_hosts: Hosts that cost nothing.
    replaces: The default variant of the node, if this is another one.
    unknown_costs: How often each reason was reported why its cost is not known.
    allowed: How often attempts reported that policies allow something, by what and by which policies.
    """

    node: str
    variant: str
    rules: Rules
    fingerprint: str
    about: Mapping[str, str]
    limited: bool
    free_hosts: Sequence[str] = ()
    replaces: str | None = None
    unknown_costs: Counter[tuple[str, str]] = field(default_factory=Counter, compare=False)
    allowed: Counter[tuple[str, ...]] = field(default_factory=Counter, compare=False)


class NodePlans:
    """The plans of a sweep, each made when it is first asked for."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._made: dict[tuple[str, str], NodePlan] = {}

    def of(self, node: str, variant: str) -> NodePlan:
        plan = self._made.get((node, variant))
        if plan is None:
            declared = self._bound.workflow.nodes[node]
            rules, about = declared.rules, {"node": node, "variant": variant}
            replaces = None if variant == declared.default else declared.default
            limited = rules.limit is not None or rules.rate is not None
            free = self._bound.spec.run.free_hosts
            plan = NodePlan(node, variant, rules, self._fingerprint(node, variant), about, limited, free, replaces)
            self._made[node, variant] = plan
        return plan

    def _fingerprint(self, node: str, variant: str) -> str:
        """Of the code of a variant. The sweep knows those that it varies; a fork by a person may take others."""
        known = self._bound.fingerprints.get(node, {}).get(variant)
        return known or fingerprints([self._bound.workflow.nodes[node]], {node: [variant]})[node][variant]
