"""The evidence of a sweep: its matrix and what stands behind it, as one document that every form of the report shows.

docs/json.md lists the keys. A figure that the data do not give is None, with the reason in words.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import yaml

from wtb.analysis.comparison.changes import changed_code
from wtb.analysis.comparison.series import series_of
from wtb.analysis.failure_causes import alike, causes
from wtb.analysis.gates import judge
from wtb.analysis.human_labels import people
from wtb.analysis.kept_matrix import kept_matrix, read_matrix
from wtb.analysis.matrix.attribution import attribute, pairwise, unattributed
from wtb.analysis.matrix.build import build
from wtb.analysis.scores import Scores
from wtb.config.field_types import is_import_path
from wtb.core.documents.shared_types import CELL_STATUSES
from wtb.core.errors import InputError
from wtb.core.serialization.plain_json import iso
from wtb.core.tree.stored_spec import StoredSpec
from wtb.display.report.open_cases import opened, worst
from wtb.display.views.listed import reference_document
from wtb.planning.prepare import as_written, stored_spec
from wtb.store.database import Database
from wtb.store.read import evidence, queries, tallies
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents import report as documents
    from wtb.core.documents.matrix import MatrixDocument
    from wtb.core.documents.shared_types import Combination

MAX_NUMBERS = 100_000  # numbers of a grid


def cell_grid(database: Database, sweep: SweepRow, matrix: MatrixDocument) -> documents.CellGrid | None:
    """Return the status of every cell and its scores, the deciding metric first; None of too many cells.

    Metrics for which there is no room are left out.
    """
    cases, repeats = evidence.case_numbers(database, sweep.id), sweep.spec["repeats"]
    size = len(matrix["rows"]) * len(cases) * repeats
    # There has to be room for the statuses and at least one metric.
    if not 0 < size <= MAX_NUMBERS // 2:
        return None
    columns = {number: column for column, number in enumerate(cases.values())}

    def place(combination: int, case: int, repeat: int) -> int:
        return (combination * len(cases) + columns[case]) * repeats + repeat

    places: dict[str, int] = {name: number for number, name in enumerate(CELL_STATUSES)}
    status: list[int | None] = [None] * size
    for combination, case, repeat, name in evidence.cell_statuses(database, sweep.id):
        if case in columns:
            status[place(combination, case, repeat)] = places[name]
    grid: documents.CellGrid = {
        "cases": list(cases),
        "repeats": repeats,
        "statuses": [*CELL_STATUSES],
        "status": status,
        "scores": {},
    }
    # The statuses take one part of the room, hence the -1.
    for metric in sorted(matrix["metrics"], key=lambda name: name != matrix["primary"])[: MAX_NUMBERS // size - 1]:
        scores: list[float | None] = [None] * size
        for combination, case, repeat, score in evidence.cell_scores(database, sweep.id, metric):
            if case in columns and math.isfinite(score):
                # Four figures suffice for a colour and keep the report small.
                scores[place(combination, case, repeat)] = float(f"{score:.4g}")
        grid["scores"][metric] = scores
    return grid


MAX_CAUSES = 20  # causes that are listed, the most frequent first


def failures(database: Database, sweep: SweepRow) -> documents.FailuresDocument:
    """Causes of failed cells, as `causes` gives them, and of failed scores."""
    cells, more = causes(database, sweep, MAX_CAUSES)
    failed = evidence.failed_scores(database, sweep.id)
    scores = _scores(failed)
    return {
        "cells": cells,
        "scores": scores[:MAX_CAUSES],
        "unscored": _unscored(failed),
        "left_out": more + max(0, len(scores) - MAX_CAUSES),
    }


def _scores(failed: evidence.Rows) -> list[documents.ScoreFailure]:
    groups: dict[tuple[str, str], documents.ScoreFailure] = {}
    for metric, message, combination, count in failed:
        group = groups.setdefault(
            (metric, alike(message)), {"scores": 0, "metric": metric, "message": message, "combinations": []}
        )
        group["scores"] += count
        group["combinations"] = sorted({*group["combinations"], combination})
    return sorted(groups.values(), key=lambda group: -group["scores"])


def _unscored(failed: evidence.Rows) -> list[documents.Unscored]:
    """Count the scores that failed, by combination and metric, with one of the reasons."""
    groups: dict[tuple[int, str], documents.Unscored] = {}
    for metric, message, combination, count in failed:
        group: documents.Unscored = {"combination": combination, "metric": metric, "scores": 0, "message": message}
        groups.setdefault((combination, metric), group)["scores"] += count
    return [groups[key] for key in sorted(groups)]


def provenance(database: Database, sweep: SweepRow, matrix: MatrixDocument) -> documents.ProvenanceDocument:
    """Only what the sweep itself recorded: nothing is taken from the machine that reads it."""
    spec = sweep.spec
    repeats = spec.get("repeats", 1)
    recorded = spec.get("environment")
    return {
        "sweep": {
            **matrix["sweep"],
            "project": sweep.project,
            "session": sweep.session,
            "created_at": iso(sweep.created_at),
            "reason": sweep.reason,
        },
        "workflow": spec.get("workflow"),
        "graph": queries.workflow_graph(database, sweep.workflow_id),
        "fingerprints": sweep.fingerprints,
        "size": {
            "combinations": len(matrix["rows"]),
            "cases": evidence.case_count(database, sweep.id),
            "repeats": repeats,
            "cells": sweep.cells,
        },
        "environment": recorded,
        "because": None if recorded else "the sweep recorded no versions of Python, WTB or packages",
        "folder": spec.get("folder"),
        "settings": _settings(sweep),
        **_how_to_repeat(spec),
    }


def _settings(sweep: SweepRow) -> str:
    """The equivalent sweep file: YAML without defaults."""
    try:
        settings = stored_spec(sweep).model_dump(mode="json", exclude_defaults=True)
    except InputError:
        # The sweep was stored by a version with other keys.
        settings = as_written(sweep.spec)
    return yaml.safe_dump({"sweep": sweep.name, **settings}, sort_keys=False, allow_unicode=True, width=100)


def _how_to_repeat(spec: StoredSpec) -> documents.HowToRepeat:
    """The command that runs it again; None, and why, where a part of it is in no file to import."""
    evaluators = [name for evaluator in spec.get("evaluate", ()) for name in evaluator]
    for path in (str(spec.get("workflow")), *evaluators):
        if path.startswith("__main__:") or (":" in path and not is_import_path(path)):
            return {"command": None, "command_because": f"{path} is in a script or notebook that it was started from"}
    if spec.get("cases") == "inline":
        return {"command": None, "command_because": "its cases stood in the sweep file itself, which is not kept"}
    return {"command": "wtb run sweep.yaml", "command_because": None}


MAX_SWEEPS = 30  # sweeps, the newest
SMALL = 5_000  # cells of a sweep whose matrix is made for this where none is kept


def history(database: Database, sweep: SweepRow, matrix: MatrixDocument) -> documents.SweepHistory:
    """Return, by metric, figures of the recommended combination and the baseline, in this sweep and earlier ones.

    Those before it are what the same schedule fired, or the sweeps of the same name where none fired it. Left out are
    those of another number of cases, such as runs of a few: their means do not compare. The reference is
    the sweep of the schedule, or of the baseline, that does not move.
    """
    every = evidence.earlier(database, sweep, MAX_SWEEPS)
    # The last one is the sweep itself.
    rows = [row for row in every if row.case_count == every[-1].case_count]
    left_out = len(every) - len(rows)
    matrices = {row.id: matrix if row.id == sweep.id else _matrix(database, row) for row in rows}
    series = series_of(database, sweep)
    reference = None if series is None else series.reference
    sweeps: list[documents.HistoricSweep] = []
    before: SweepRow | None = None
    for row in rows:
        sweeps.append(
            {
                "sweep": row.id,
                "at": iso(row.fire_at or row.started_at or row.created_at),
                "verdict": row.verdict or ("worse" if series and row.id in series.worse else None),
                "code_changed": [] if before is None else changed_code(before, row),
            }
        )
        before = row
    if reference is not None and reference.id not in matrices:
        matrices[reference.id] = _matrix(database, reference)
    metrics: dict[str, documents.HistoricMetric] = {}
    for metric, about in matrix["metrics"].items():
        followed = _followed(matrix, metric)
        metrics[metric] = {
            "better": about["better"],
            "series": [
                {"combination": combination, "points": [_point(matrices[row.id], metric, combination) for row in rows]}
                for combination in followed
            ],
            "reference": None
            if reference is None or not followed
            else reference_document(reference, _point(matrices[reference.id], metric, followed[0])),
        }
    because = None
    if len(rows) == 1:
        because = "there is no earlier sweep of this schedule or name"
        because += " over as many cases" if left_out else ""
    return {"sweeps": sweeps, "metrics": metrics, "left_out": left_out, "because": because}


def _matrix(database: Database, row: SweepRow) -> MatrixDocument | None:
    if (stored := tallies.kept_matrix(database, row.id)) is not None:
        return stored
    return read_matrix(database, row) if row.cells <= SMALL else None


def _followed(matrix: MatrixDocument, metric: str) -> list[Combination]:
    """The combination to look at through time: the one chosen, or the best; and the baseline."""
    choice, best = matrix["choice"], matrix["best"].get(metric)
    leader = (choice and choice["combination"]) or (best and best["combination"])
    candidates = [leader, matrix["baseline"]]
    return [
        combination
        for i, combination in enumerate(candidates)
        if combination is not None and combination not in candidates[:i]
    ]


def _point(matrix: MatrixDocument | None, metric: str, combination: Combination) -> documents.HistoricPoint | None:
    """The figures of a combination in one sweep; None where that sweep has none."""
    for row in () if matrix is None else matrix["rows"]:
        estimate = row["metrics"].get(metric)
        if row["combination"] == combination and estimate and estimate["mean"] is not None:
            return {"n": estimate["n"], "mean": estimate["mean"], "ci": estimate["ci"]}
    return None


MAX_PREFIXES = 10_000  # prefixes that are listed: whole levels, from the root on

# (node, variant, the combinations of the group that ran it, what it came to)
Run = tuple[str, str, tuple[int, ...], "documents.SharedRuns"]


def tree(database: Database, sweep: SweepRow, matrix: MatrixDocument) -> documents.SharingTree:
    """Node runs by node and variant, and by prefix: the choices up to a node, which are what runs are shared by.

    Runs are counted where they happened, so that what was not shared shows as not shared. Where nodes ran beside each
    other, a run is shared across variants of its neighbours: `levels` is then None, and `because` is the reason.
    """
    runs = [
        (node, variant, tuple(json.loads(group)), _counted(*counts))
        for node, variant, group, *counts in evidence.shared_runs(database, sweep.id)
    ]
    nodes: dict[str, documents.SharedNode] = {}
    variants: dict[tuple[str, str], documents.SharedVariant] = {}
    for node, variant, _, counts in runs:
        shared_node = nodes.setdefault(node, {"node": node, "variants": [], **_counted()})
        if (node, variant) not in variants:
            variants[node, variant] = {"variant": variant, **_counted()}
            shared_node["variants"].append(variants[node, variant])
        _add(shared_node, counts)
        _add(variants[node, variant], counts)
    levels, folded, because = _levels(list(nodes), runs, [row["combination"] for row in matrix["rows"]])
    if sweep.collected_node_runs:
        because = because or "node runs that retention has collected since are not counted"
    return {"nodes": list(nodes.values()), "levels": levels, "folded": folded, "because": because}


def _counted(
    executed: int = 0, unshared: int = 0, failed: int = 0, seconds: float = 0.0, usd: float = 0.0
) -> documents.SharedRuns:
    return {
        "executed": int(executed),
        "unshared": int(unshared),
        "failed": int(failed),
        "seconds": float(seconds),
        "usd": float(usd),
    }


def _add(total: documents.SharedRuns, runs: documents.SharedRuns) -> None:
    total["executed"] += runs["executed"]
    total["unshared"] += runs["unshared"]
    total["failed"] += runs["failed"]
    total["seconds"] += runs["seconds"]
    total["usd"] += runs["usd"]


def _levels(
    nodes: Sequence[str], runs: Sequence[Run], choices: Sequence[Mapping[str, str]]
) -> tuple[list[documents.Level] | None, list[documents.FoldedLevel], str | None]:
    """(levels with their prefixes in the order of the tree, the levels that would be too many, why there is none)."""
    if not runs:
        return None, [], "no node has run yet"
    path: list[str] = []  # the varied nodes up to a level
    levels: list[documents.Level] = []
    folded: list[documents.FoldedLevel] = []
    listed = 0
    for node in nodes:
        # A node that does not vary has the same prefixes as the level above it.
        path += [node] if any(node in choice for choice in choices) else []
        prefixes: dict[tuple[str, ...], documents.Prefix] = {}
        for number, choice in enumerate(choices):
            key = tuple(choice.get(name, "") for name in path)
            prefix = prefixes.setdefault(key, {"combinations": [], "variant": None, **_counted()})
            prefix["combinations"].append(number)
        for ran, variant, group, counts in runs:
            if ran != node:
                continue
            # An execution may stand at several nodes at once, for combinations that choose other variants of this one.
            its = [choices[number] for number in group if choices[number].get(node, variant) == variant]
            keys = {tuple(choice.get(name, "") for name in path) for choice in its}
            if len(keys) > 1:
                return None, [], f"runs of {node} are shared across variants of nodes that ran beside it"
            for key in keys:
                prefix = prefixes[key]
                prefix["variant"] = variant
                _add(prefix, counts)
        sorted_prefixes = [
            prefix for _, prefix in sorted(prefixes.items(), key=lambda pair: pair[1]["combinations"][0])
        ]
        # No level below a folded one is listed, because its prefixes would have no parents.
        if folded or listed + len(sorted_prefixes) > MAX_PREFIXES:
            folded.append({"node": node, "prefixes": len(sorted_prefixes)})
            continue
        listed += len(sorted_prefixes)
        levels.append({"node": node, "prefixes": sorted_prefixes})
    return _nested(levels), folded, None


def _nested(levels: list[documents.Level]) -> list[documents.Level]:
    """The levels with the prefixes in an order in which those of the same parent lie side by side."""
    place: dict[int, tuple[int, ...]] = {}
    for level in levels:
        for position, prefix in enumerate(level["prefixes"]):
            for number in prefix["combinations"]:
                place[number] = (*place.get(number, ()), position)
    for level in levels:
        level["prefixes"].sort(key=lambda prefix: min(place[number] for number in prefix["combinations"]))
    return levels


VERSION: Final = 1


def gather(database: Database, sweep: SweepRow, *, full: bool = False) -> documents.EvidenceDocument:
    """Everything that a report shows of a sweep, whatever its status.

    Args:
        database: Where the sweep is.
        sweep: Its row, as `find_sweep` gives it.
        full: Open every case, and cut no value of it.

    Returns:
        The evidence as plain JSON; docs/json.md lists its keys.
    """
    scored = Scores(database, sweep)
    # The matrix of an ended sweep is stored, and is not computed again unless it is out of date.
    matrix = kept_matrix(database, sweep) or build(database, sweep, scored)
    hardest, failed = worst(database, sweep, matrix), failures(database, sweep)
    tested = _tested(database, sweep, scored, matrix)
    document: documents.EvidenceDocument = {
        "version": VERSION,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "matrix": matrix,
        "gates": judge(database, sweep, matrix),
        "attribution": tested["attribution"],
        "pairs": tested["pairs"],
        "tree": tree(database, sweep, matrix),
        "worst": hardest,
        "opened": opened(database, sweep, matrix, hardest, failed, full=full),
        "failures": failed,
        "provenance": provenance(database, sweep, matrix),
        "history": history(database, sweep, matrix),
    }
    if "people" in tested:
        document["people"] = tested["people"]
    if cells := cell_grid(database, sweep, matrix):
        document["cells"] = cells
    return document


def _tested(database: Database, sweep: SweepRow, scored: Scores, matrix: MatrixDocument) -> documents.Tested:
    """Return results of tests of the whole sweep, which are run only at its end, and what people would say by then."""
    metrics = list(matrix["metrics"])
    # Tests that are repeated at each look before the end would find differences by chance too often.
    if matrix["figures"] == "final":
        tested: documents.Tested = {
            "attribution": {metric: attribute(scored, metric) for metric in metrics},
            "pairs": {metric: pairwise(scored, metric) for metric in metrics},
        }
        if people_estimates := people(database, sweep, matrix):
            tested["people"] = people_estimates
        return tested
    why = matrix["as_of"]["because"] if matrix["as_of"] else "the sweep has not ended"
    return {
        "attribution": {metric: unattributed(metric, why) for metric in metrics},
        "pairs": {metric: {"rows": [], "pairs": []} for metric in metrics},
    }
