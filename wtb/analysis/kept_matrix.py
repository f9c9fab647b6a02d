"""The matrix of a sweep as it is read: the one that was kept when the sweep ended, else a new one.

Reading a kept matrix imports nothing that figures are made with, which takes longer than reading it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from wtb.core.documents.matrix import VERSION
from wtb.planning.metric_names import margins_of
from wtb.store.control.labels import has_labels
from wtb.store.database import Database
from wtb.store.read import tallies
from wtb.store.read.baselines import fire_of_sweep
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.matrix import GateDocument, JudgedMatrixDocument, MatrixDocument
    from wtb.core.scoring.scores import OnFailure

_KEYS = {"edited_left_out", "failures", "provider", "clusters", "figures", "slices", "noise", "primary", "decision"}


def read_matrix(
    database: Database,
    sweep: SweepRow,
    *,
    edited: bool = False,
    on_failure: OnFailure | None = None,
    baseline: int | None = None,
) -> MatrixDocument:
    """Return the matrix of a sweep, whatever its status.

    Args:
        database: Where the sweep is.
        sweep: Its row.
        edited: Include cells whose state a person edited.
        on_failure: What a failed cell counts as, in place of the sweep's own setting.
        baseline: The number of the row that others are compared with, in place of the sweep's own.

    Returns:
        The matrix. n of a row is its cells that have an outcome, n of a metric cases with a score. cost_usd and
        latency_s are per cell as if alone, over those that succeeded. Undefined statistics are None.

    Raises:
        InputError: No scale has the score of failures, or there is no such row.
    """
    # Only the matrix of the sweep's own settings is stored when it ends.
    is_own = not edited and on_failure is None and baseline is None
    stored = kept_matrix(database, sweep) if is_own else None
    if stored is not None:
        return stored
    from wtb.analysis.matrix.build import build

    return build(database, sweep, edited=edited, on_failure=on_failure, baseline=baseline)


def judged(
    database: Database,
    sweep: SweepRow,
    *,
    edited: bool = False,
    on_failure: OnFailure | None = None,
    baseline: int | None = None,
) -> JudgedMatrixDocument:
    """Return the matrix of a sweep with its `gates`, its night's verdict and the estimates from human labels.

    edited, on_failure, baseline: as for `read_matrix`. Gates hold by the sweep's own baseline.
    """
    matrix = read_matrix(database, sweep, edited=edited, on_failure=on_failure, baseline=baseline)
    own = matrix
    if baseline is not None and sweep.spec.get("gates"):
        own = read_matrix(database, sweep, edited=edited, on_failure=on_failure)
    document = cast("JudgedMatrixDocument", {**matrix, "gates": gates_of(database, sweep, own)})
    fire = fire_of_sweep(database, sweep.id)
    if fire is not None and fire.verdict is not None:
        document["night"] = {
            "verdict": fire.verdict,
            "because": [str(sentence) for sentence in fire.why or ()],
            "baseline": fire.baseline_id,
        }
    if has_labels(database, sweep.id):
        from wtb.analysis.human_labels import people

        document["people"] = people(database, sweep, matrix)
    return document


def gates_of(database: Database, sweep: SweepRow, matrix: MatrixDocument | None = None) -> list[GateDocument]:
    """Return the verdicts on the gates of a sweep. Pass `matrix` if you have read it already."""
    if not sweep.spec.get("gates"):
        return []
    from wtb.analysis.gates import judge

    return judge(database, sweep, matrix or read_matrix(database, sweep))


def kept_matrix(database: Database, sweep: SweepRow) -> MatrixDocument | None:
    """Return the matrix that was stored when a sweep ended; None if there is none or it is out of date."""
    stored = tallies.kept_matrix(database, sweep.id)
    # A sweep that was retried or resumed has another status or end than the stored matrix.
    return stored if stored is not None and _is_current(stored, sweep) and stored["sweep"] == sweep.heading else None


def _is_current(matrix: MatrixDocument, sweep: SweepRow) -> bool:
    """Return whether a stored matrix has every key of the current version."""
    is_measured = all("low" in metric for metric in matrix.get("metrics", {}).values())
    best = matrix.get("best", {})
    # Metrics without a best combination have no scores, and so no classes to count.
    scored = [metric for name, metric in matrix.get("metrics", {}).items() if best[name]["combination"] is not None]
    is_counted = all("classes" in metric for metric in scored if metric.get("figure"))
    is_ranked = all(leader.keys() >= {"looks", "differ_at_most", "hangs_on"} for leader in best.values())
    has_lag = all("lag_s" in runs for runs in matrix.get("node_runs", {}).get("by_node", {}).values())
    margins = margins_of(sweep.spec, matrix.get("metrics", {})).keys() & matrix.get("metrics", {}).keys()
    has_margins = all("within" in row["metrics"][name] for name in margins for row in matrix["rows"][:1])
    has_all = matrix.keys() >= _KEYS
    is_current = all((has_all, is_measured, is_counted, is_ranked, has_margins, has_lag))
    return matrix["version"] == VERSION and is_current and "unknown" in matrix["cost"]
