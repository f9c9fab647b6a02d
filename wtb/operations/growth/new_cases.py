"""Cases to add to a sweep: which of them are there already, and what is new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic import ValidationError

from wtb.config.yaml_reader import Located
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError
from wtb.core.texts import plural
from wtb.core.tree.clusters import equal_inputs_cluster, is_of_equal_inputs
from wtb.operations.context import Context
from wtb.planning.binding import Bound
from wtb.planning.cases import case_row, read_cases
from wtb.planning.data.case_columns import CaseTable, names_files, read_columns
from wtb.planning.data.case_problems import MAX_PROBLEMS
from wtb.planning.data.checking import check_cases
from wtb.planning.data.picking import Only, pick_cases
from wtb.planning.prepare import Prepared, of_workflow
from wtb.store.runs.submission import NewCase
from wtb.store.tables.schema import cases
from wtb.store.tables.sweeps import CaseRow, SweepRow

MOST_NAMED = 3  # cases that a note names
_KINDS = ("equal_inputs", "equal_inputs_apart", "contradictory_expected", "similar_inputs", "without_expected")


@frozen
class NewCases:
    """Cases to add.

    Attributes:
        cases: Those that are new.
        present: How many are there already, with the same content.
        held_out: How many the sweep keeps for the end, or, if it runs those, does not.
        clusters: By the number of a case that is there, the cluster that it gets, since a new one has its input.
        notes: Sentences about them.
    """

    cases: Sequence[NewCase] = ()
    present: int = 0
    held_out: int = 0
    clusters: Mapping[int, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


def cases_to_send(cases: str | Path | Iterable[Any]) -> list[Any]:
    """Read cases as they are sent to where a sweep is extended.

    Args:
        cases: A file of cases, or the cases.

    Returns:
        The cases, each as a mapping; of a table, the table alone, since the sweep knows what its headings mean.

    Raises:
        InputError: If something is wrong with the file.
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
        context: Where the sweep is.
        sweep: Its row.
        bound: Its code.
        rows: The cases, or a table of them alone.
        columns: Which heading of a table is which key; by default as the sweep has it.

    Returns:
        Those that are new.

    Raises:
        InputError: If one does not fit, or is there already with another content.
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
    encoded = list(Prepared(bound, (), None, source, total, only).encode(home))
    problems = [text for case in encoded if case.id in present for text in _differences(case, present[case.id])]
    if problems:
        more = [f"and {len(problems) - MAX_PROBLEMS:,} more"] if len(problems) > MAX_PROBLEMS else []
        raise InputError(*problems[:MAX_PROBLEMS], *more, argument="cases")
    new = [case for case in encoded if case.id in fresh]
    if not new:
        return NewCases(present=len(encoded), held_out=held_out)
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
    """Return what is wrong with a case whose id is there already; nothing if it is the same."""
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
    value = case.input.get(key)
    return None if value is None else value.digest


def _renumbered(cluster: str | None, first: int) -> str | None:
    """Return the name of a cluster of equal inputs by the number that its first case gets."""
    if cluster is None or not is_of_equal_inputs(cluster):
        return cluster
    return equal_inputs_cluster(first + int(cluster.split()[-1]))


def _with_equal(new: Sequence[NewCase], rows: Iterable[CaseRow], *, joins: bool) -> NewCases:
    """Return new cases in the clusters of those that are there with an equal input.

    Args:
        new: The cases.
        rows: The rows of those that are there.
        joins: Whether equal inputs are one cluster.
    """
    by_input = {(frozenset(row.input.items()), row.workspace): row for row in rows if row.erased_at is None}
    clusters: dict[int, str] = {}
    renamed: dict[str, str] = {}  # clusters of new cases that are equal to one that is there
    pairs: list[tuple[str, str]] = []
    clustered: list[NewCase] = []
    for case in new:
        content = frozenset((key, value.digest) for key, value in case.input.items())
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
