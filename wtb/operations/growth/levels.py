"""Binding a sweep to its code with further variants of its nodes, as it would be if it had been submitted with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import structs

from wtb.authoring.graph import queue_of, reachable, successors
from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError, InputError
from wtb.core.tree.stored_code import why, with_added
from wtb.core.tree.stored_spec import StoredSpec
from wtb.planning.binding import Bound
from wtb.planning.checks import check_pool
from wtb.planning.prepare import stored_spec
from wtb.planning.sweep_spec import SweepSpec, Variant
from wtb.store.database import Database
from wtb.store.growth.deferred import AT_START
from wtb.store.runs import leases
from wtb.store.tables.sweeps import SweepRow

Choices = Mapping[str, str]
Code = Callable[[SweepSpec], Bound]


@frozen
class Levels:
    """A sweep bound to its code with further variants.

    Attributes:
        bound: The code.
        defaults: Variants of nodes that were not varied before, which all rows have that are there.
        names: Node -> the names of the variants that were asked for, in their order.
    """

    bound: Bound
    defaults: Mapping[str, str]
    names: Mapping[str, Sequence[str]]

    def queue_for(self, nodes: Sequence[str] | None) -> str | None:
        """Return the queue of a step with these nodes; with None, of the first step."""
        workflow = self.bound.workflow
        return queue_of(workflow, workflow.entries if nodes is None else nodes)

    @property
    def queues(self) -> dict[str, str]:
        """The queues of nodes that name one, and that of the first step."""
        named = {node.name: self.queue_for([node.name]) for node in self.bound.workflow.nodes.values()}
        named[AT_START] = self.queue_for(None)
        return {node: queue for node, queue in named.items() if queue is not None}

    def spec(self, sweep: SweepRow) -> StoredSpec:
        """Return the stored spec of the sweep with the variants."""
        spec = sweep.spec.copy()
        spec["vary"] = self.bound.spec.model_dump(mode="json", include={"vary"})["vary"]
        if (baseline := spec.get("baseline_row")) is not None:
            spec["baseline_row"] = {**self.defaults, **baseline}
        if self.bound.spec.texts:
            spec["texts"] = dict(self.bound.spec.texts)
        spec["code"] = with_added(spec.get("code"), self.bound.code)
        return spec

    def fingerprints(self, sweep: SweepRow) -> Mapping[str, Mapping[str, str]]:
        """Return the fingerprints of the sweep with those of the variants; those that it has stay."""
        recorded = sweep.fingerprints
        present = self.bound.fingerprints
        return recorded | {node: {**digests, **recorded.get(node, {})} for node, digests in present.items()}


def with_levels(sweep: SweepRow, present: Bound, code: Code, levels: Mapping[str, Sequence[Variant]]) -> Levels:
    """Bind a sweep with further variants.

    Args:
        sweep: Its row.
        present: The code of the sweep as it is now, without them.
        code: Binds a sweep to its code.
        levels: Node -> variants; names of those that the sweep has are among them.

    Returns:
        The code.

    Raises:
        InputError: If a variant does not fit, or what runs as one node would change.
    """
    vary = _submitted_vary(sweep, present)
    defaults: dict[str, str] = {}
    for node, forms in levels.items():
        own = present.workflow.nodes[node]
        if node not in vary:
            defaults[node] = own.default
            vary[node] = [{"name": own.default}]
        for form in forms:
            if form not in [variant["name"] for variant in vary[node]]:
                vary[node] = [*vary[node], {"name": form} if form in list(own.variants) else form]
    varied: StoredSpec = {**sweep.spec, "vary": vary}
    if present.spec.texts:
        varied["texts"] = dict(present.spec.texts)
    bound = code(stored_spec(structs.replace(sweep, spec=varied)))
    check_pool(bound)
    if bound.workflow.nodes.keys() != present.workflow.nodes.keys():
        raise InputError(f"{', '.join(levels)}: what runs as one node cannot change in a sweep that has run")
    names = {node: _names(bound.vary[node], forms) for node, forms in levels.items()}
    return Levels(bound, defaults, names)


def with_texts(code: Code, texts: Mapping[str, str]) -> Code:
    """Return what binds a sweep to its code together with the texts of further files, by SHA-256."""
    return (lambda spec: code(spec.with_texts(texts))) if texts else code


def _submitted_vary(sweep: SweepRow, present: Bound) -> dict[str, list[Any]]:
    """`vary` of the sweep; `all` becomes what it was when it was submitted: what was written since is no part of it."""
    vary: dict[str, list[Any]] = {}
    for node, listed in sweep.spec["vary"].items():
        recorded = sweep.fingerprints.get(node, {})
        vary[node] = [{"name": name} for name in present.vary[node] if name in recorded] if listed == "all" else listed
    return vary


def _names(bound: Sequence[str], forms: Sequence[Variant]) -> list[str]:
    """Return the names of variants; those that are not named by their form are the last of the node, in order."""
    named = [form for form in forms if isinstance(form, str) and form in bound]
    derived_names = iter(bound[len(bound) - (len(forms) - len(named)) :])
    return [form if isinstance(form, str) and form in named else next(derived_names) for form in forms]


def changed_code(
    database: Database, sweep: SweepRow, bound: Bound, nodes: Collection[str] | None
) -> list[tuple[str, str]]:
    """Return the variants that the sweep has whose code is not what it records, as (node, variant).

    Args:
        database: Where the sweep is.
        sweep: Its row.
        bound: Its code as it is now.
        nodes: Those from which on something runs; None if all do. Workers compare the code of all.
    """
    after = reachable(successors(bound.workflow), nodes) if nodes is not None else set(bound.workflow.nodes)
    recorded, present = leases.recorded_code(database, sweep), bound.present_code
    return [
        (node, variant)
        for node, variant in sorted(set(recorded.variants()).intersection(present.variants()))
        if (sweep.queued or node in after) and not recorded.has_same(present, node, variant)
    ]


def code_error(
    database: Database, sweep: SweepRow, bound: Bound, changed: Sequence[tuple[str, str]], advice: str
) -> ConflictError:
    """Return the error for code that has changed. advice: what that means, and what to do."""
    names = ", ".join(f"{node}={variant}" for node, variant in changed)
    causes = why(leases.recorded_code(database, sweep).code, bound.code, changed)
    return ConflictError(f"sweep {sweep.id}: the code of {names} has changed since it was submitted {causes}, {advice}")
