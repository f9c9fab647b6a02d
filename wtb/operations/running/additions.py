"""Additions of an extension: further variants, bound as if submitted with the sweep, and new cases."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from msgspec import structs
from pydantic import ValidationError

from wtb.authoring.graph import queue_of, reachable, successors
from wtb.config.yaml_reader import Located
from wtb.core.errors import ConflictError, InputError
from wtb.core.frozen import frozen
from wtb.core.texts import plural
from wtb.core.tree.looks import equal_inputs_cluster, is_of_equal_inputs
from wtb.core.tree.stored_code import why, with_added
from wtb.core.tree.stored_spec import StoredSpec
from wtb.operations.context import Context
from wtb.planning.binding import Bound
from wtb.planning.case_checks import check_cases
from wtb.planning.case_columns import MAX_PROBLEMS, CaseTable, names_files, read_columns
from wtb.planning.cases import case_row, read_cases
from wtb.planning.checks import check_pool
from wtb.planning.picking import Only, pick_cases
from wtb.planning.prepare import Prepared, of_workflow, stored_spec
from wtb.planning.sweep_spec import SweepSpec, Variant
from wtb.store.control.row_cells import AT_START
from wtb.store.database import Database
from wtb.store.runs import leases
from wtb.store.runs.submission import NewCase
from wtb.store.tables.schema import cases
from wtb.store.tables.sweeps import CaseRow, SweepRow

Choices = Mapping[str, str]
Code = Callable[[SweepSpec], Bound]


@frozen
class Levels:
    """A sweep bound to its code with further variants.

    Attributes:
        bound: The code.
        defaults: Variants of nodes that were not varied before, which all existing rows have.
        names: Node -> the names of the requested variants, in their order.
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
        """Queues of nodes that name one, and that of the first step."""
        named = {node.name: self.queue_for([node.name]) for node in self.bound.workflow.nodes.values()}
        named[AT_START] = self.queue_for(None)
        return {node: queue for node, queue in named.items() if queue is not None}

    def spec(self, sweep: SweepRow) -> StoredSpec:
        """Return the stored spec of the sweep with the variants."""
        spec = sweep.spec.copy()
        spec["vary"] = self.bound.spec.model_dump(mode="json", include={"vary"})["vary"]
        # Rows have a variant of every varied node, so a newly varied node needs its default in the baseline, too.
        if (baseline := spec.get("baseline_row")) is not None:
            spec["baseline_row"] = {**self.defaults, **baseline}
        if self.bound.spec.texts:
            spec["texts"] = dict(self.bound.spec.texts)
        spec["code"] = with_added(spec.get("code"), self.bound.code)
        return spec

    def fingerprints(self, sweep: SweepRow) -> Mapping[str, Mapping[str, str]]:
        """Return the fingerprints of the sweep with those of the variants; recorded ones win."""
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
    # Bound from its stored form, exactly as workers will bind it.
    varied: StoredSpec = {**sweep.spec, "vary": vary}
    if present.spec.texts:
        varied["texts"] = dict(present.spec.texts)
    bound = code(stored_spec(structs.replace(sweep, spec=varied)))
    check_pool(bound)
    if bound.workflow.nodes.keys() != present.workflow.nodes.keys():
        raise InputError(f"{', '.join(levels)}: the split into nodes cannot change in a sweep that has run")
    names = {node: _names(bound.vary[node], forms) for node, forms in levels.items()}
    return Levels(bound, defaults, names)


def with_texts(code: Code, texts: Mapping[str, str]) -> Code:
    """Return a binding that adds the texts of further files, by SHA-256."""
    return (lambda spec: code(spec.with_texts(texts))) if texts else code


def _submitted_vary(sweep: SweepRow, present: Bound) -> dict[str, list[Any]]:
    """Return `vary` of the sweep, with `all` as it was at submission: variants written since are not part of it."""
    vary: dict[str, list[Any]] = {}
    for node, listed in sweep.spec["vary"].items():
        recorded = sweep.fingerprints.get(node, {})
        vary[node] = [{"name": name} for name in present.vary[node] if name in recorded] if listed == "all" else listed
    return vary


def _names(bound: Sequence[str], forms: Sequence[Variant]) -> list[str]:
    """Return the names of variants; those without a name in their form are the last of the node, in order."""
    named = [form for form in forms if isinstance(form, str) and form in bound]
    added_names = iter(bound[len(bound) - (len(forms) - len(named)) :])
    return [form if isinstance(form, str) and form in named else next(added_names) for form in forms]


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
    """Return the error for changed code. `advice` explains the consequence and the remedy."""
    names = ", ".join(f"{node}={variant}" for node, variant in changed)
    causes = why(leases.recorded_code(database, sweep).code, bound.code, changed)
    return ConflictError(f"sweep {sweep.id}: the code of {names} has changed since it was submitted {causes}, {advice}")


MOST_NAMED = 3  # cases that a note names
_KINDS = ("equal_inputs", "equal_inputs_apart", "contradictory_expected", "similar_inputs", "without_expected")


@frozen
class NewCases:
    """Cases to add.

    Attributes:
        cases: The new ones.
        present: How many exist already, with the same content.
        held_out: How many the sweep keeps for the end or, if it runs those, does not.
        clusters: Number of an existing case -> its new cluster, because a new case has its input.
        notes: Sentences about them.
    """

    cases: Sequence[NewCase] = ()
    present: int = 0
    held_out: int = 0
    clusters: Mapping[int, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


def cases_to_send(cases: str | Path | Iterable[Any]) -> list[Any]:
    """Read cases in the form in which they are sent to a server.

    Args:
        cases: A file of cases, or the cases.

    Returns:
        The cases, each as a mapping; for a table the table alone, since the sweep has the meaning of its headings.

    Raises:
        InputError: The file has problems.
    """
    if not isinstance(cases, str | Path):
        return list(cases)
    source = read_cases(Path(cases).absolute(), Path(), Located(where="cases"))
    if (table := source.table()) is not None:
        return [table]
    source.check()
    return [case_row(case) for case in source]


def read_new_cases(
    context: Context, sweep: SweepRow, bound: Bound, rows: Sequence[Any], columns: Mapping[str, Any] | None = None
) -> NewCases:
    """Check cases against a sweep.

    Args:
        context: The place of the sweep.
        sweep: Its row.
        bound: Its code.
        rows: The cases, or a table of them alone.
        columns: Headings of a table by key; by default those of the sweep.

    Returns:
        The new cases.

    Raises:
        InputError: A case does not fit, or exists already with another content.
    """
    table = _table_of(rows)
    if columns is not None and table is None:
        raise InputError("columns: it is for tables, and these cases are none", argument="columns")
    keys = bound.spec.columns if columns is None else read_columns(columns)
    has_files = (
        any(isinstance(row, Mapping) and row.get("files") for row in rows)
        if table is None
        else names_files(table, keys)
    )
    # A server must not read files of its own machine for a client.
    if not context.imports and has_files:
        raise InputError("files of cases are those of a machine; expected cases without 'files'", argument="cases")
    where = Located(where="cases")
    if table is None:
        source = read_cases(list(rows), Path(), where)
    else:
        source = read_cases(table, Path(), where, columns=keys)
    source = of_workflow(source, bound.workflow)
    total = source.check().cases
    only = Only(final=bool(sweep.spec.get("final")))
    query = sa.select(cases).where(cases.c.sweep_id == sweep.id)
    present = {row.id: row for row in context.database.records(CaseRow, query)}
    picked = {case.id for case in pick_cases(bound.spec, source, only)}
    held_out = total - len(picked)
    fresh = picked - present.keys()
    clusters: Sequence[str | None] = ()
    findings: list[str] = []
    if fresh:
        part = replace(source, _keeps=lambda case: case.id in fresh)
        checked = check_cases(bound.spec, bound, part, only, whole=True, total=total)
        clusters = checked.clusters
        findings = [finding["sentence"] for finding in checked.findings if finding["kind"] in _KINDS]
    home = context.workspaces.of_project(sweep.project)
    # All cases are encoded, the existing ones too, because content is compared in its stored form.
    encoded = list(Prepared(bound, (), None, source, total, only).encode(home))
    problems = [text for case in encoded if case.id in present for text in _differences(case, present[case.id])]
    if problems:
        more = [f"and {len(problems) - MAX_PROBLEMS:,} more"] if len(problems) > MAX_PROBLEMS else []
        raise InputError(*problems[:MAX_PROBLEMS], *more, argument="cases")
    new = [case for case in encoded if case.id in fresh]
    if not new:
        return NewCases(present=len(encoded), held_out=held_out)
    # Clusters of equal inputs are named by the number of a case, which depends on the cases before it.
    first = max((row.number for row in present.values()), default=-1) + 1
    new = [replace(case, cluster=_renumbered(name, first)) for case, name in zip(new, clusters, strict=True)]
    grouped = _with_equal(new, present.values(), joins=bound.spec.equal_inputs == "cluster")
    return replace(grouped, present=len(encoded) - len(new), held_out=held_out, notes=[*grouped.notes, *findings])


def _table_of(rows: Sequence[Any]) -> CaseTable | None:
    """Return the table that is sent as the only row, if it is one."""
    if len(rows) == 1 and isinstance(rows[0], Mapping) and rows[0].keys() == {"headings", "rows"}:
        try:
            return CaseTable.model_validate(rows[0])
        except ValidationError:
            raise InputError("cases: expected a table of texts, with 'headings' and 'rows'", argument="cases") from None
    return None


def _differences(case: NewCase, row: CaseRow) -> list[str]:
    """Return the problem of a case whose id exists already; empty if it is the same."""
    if row.erased_at is not None:
        return [f"case {case.id!r} was erased from the sweep: it cannot be added again under this id"]
    expected = None if case.expected is None else case.expected.decode()
    own = None if is_of_equal_inputs(row.cluster) else row.cluster
    different = [
        *(f"input {key!r}" for key in sorted({*row.input, *case.input}) if _digest(case, key) != row.input.get(key)),
        *(["expected value"] if expected != row.expected else []),
        *(["tags"] if list(case.tags) != list(row.tags) else []),
        *(["files"] if case.workspace != row.workspace else []),
        *(["cluster"] if case.cluster is not None and case.cluster != own else []),
    ]
    if not different:
        return []
    return [
        f"case {case.id!r} is in the sweep with another {', '.join(different)}; expected the same case, or a new id: "
        "cases of a sweep do not change"
    ]


def _digest(case: NewCase, key: str) -> str | None:
    stored = case.input.get(key)
    return None if stored is None else stored.digest


def _renumbered(cluster: str | None, first: int) -> str | None:
    """Return the name of a cluster of equal inputs by the number that its first case gets."""
    if cluster is None or not is_of_equal_inputs(cluster):
        return cluster
    return equal_inputs_cluster(first + int(cluster.split()[-1]))


def _with_equal(new: Sequence[NewCase], rows: Iterable[CaseRow], *, joins: bool) -> NewCases:
    """Return new cases in the clusters of existing ones with an equal input.

    Args:
        new: The cases.
        rows: The rows of existing cases.
        joins: True if equal inputs form a cluster.
    """
    by_input = {(frozenset(row.input.items()), row.workspace): row for row in rows if row.erased_at is None}
    clusters: dict[int, str] = {}
    renamed: dict[str, str] = {}  # clusters of new cases that are equal to one that is there
    pairs: list[tuple[str, str]] = []
    clustered: list[NewCase] = []
    for case in new:
        content = frozenset((key, stored.digest) for key, stored in case.input.items())
        row = by_input.get((content, case.workspace))
        if row is not None:
            pairs.append((case.id, row.id))
            if joins and (case.cluster is None or is_of_equal_inputs(case.cluster)):
                shared = row.cluster or equal_inputs_cluster(row.number)
                if row.cluster is None:
                    clusters[row.number] = shared
                if case.cluster is not None:
                    renamed[case.cluster] = shared
                case = replace(case, cluster=shared)
        clustered.append(case)
    clustered = [replace(case, cluster=renamed.get(case.cluster or "", case.cluster)) for case in clustered]
    return NewCases(clustered, clusters=clusters, notes=_equal_in_words(pairs))


def _equal_in_words(pairs: Sequence[tuple[str, str]]) -> list[str]:
    if not pairs:
        return []
    named = ", ".join(f"{new!r} that of {old!r}" for new, old in pairs[:MOST_NAMED])
    more = f" and {len(pairs) - MOST_NAMED:,} more" if len(pairs) > MOST_NAMED else ""
    has = "has" if len(pairs) == 1 else "have"
    return [f"{plural(len(pairs), 'new case')} {has} the input of a case that is in the sweep: {named}{more}"]
