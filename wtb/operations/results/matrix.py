"""What a sweep found: its matrix, and the evidence that a report shows."""

from __future__ import annotations

from wtb.analysis.gates import judge, judged
from wtb.analysis.matrix.build import build
from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import FromZero
from wtb.core.documents.matrix import GateDocument, JudgedMatrixDocument
from wtb.core.documents.report import EvidenceDocument
from wtb.core.scoring.scales import OnFailure
from wtb.display.report import evidence
from wtb.operations.context import Context
from wtb.store.read.queries import find_sweep


@checked
def matrix(
    context: Context,
    ref: str,
    *,
    edited: bool = False,
    on_failure: OnFailure | None = None,
    baseline: FromZero | None = None,
) -> JudgedMatrixDocument:
    """Return the comparison matrix of a sweep that is finished or not, with its gates.

    Args:
        context: Where it is.
        ref: A sweep: its id, the beginning of it, or its name.
        edited: Count cells, too, whose state a person edited.
        on_failure: What a failed cell counts as, in place of what the sweep says.
        baseline: The number of the row from which differences are taken, in place of what the sweep says. Gates hold by
            the baseline of the sweep.

    Returns:
        The JSON contract of `wtb matrix --format json`, version 1, with `gates`.

    Raises:
        InputError: If there is no such sweep or row.
    """
    sweep = find_sweep(context.database, ref)
    return judged(context.database, sweep, edited=edited, on_failure=on_failure, baseline=baseline)


@checked
def gates(context: Context, ref: str) -> list[GateDocument]:
    """Return the gates of a sweep, with whether each holds; its matrix is made only if there are any.

    Args:
        context: Where it is.
        ref: A sweep: its id, the beginning of it, or its name.

    Raises:
        InputError: If there is no such sweep.
    """
    sweep = find_sweep(context.database, ref)
    return judge(context.database, sweep, build(context.database, sweep)) if sweep.spec.get("gates") else []


@checked
def report(context: Context, ref: str, *, full: bool = False) -> EvidenceDocument:
    """Return everything that a report shows of a sweep, whatever its status.

    Args:
        context: Where it is.
        ref: A sweep: its id, the beginning of it, or its name.
        full: Open every case, and cut no value of it.

    Returns:
        The evidence; docs/report.md names its keys.

    Raises:
        InputError: If there is no such sweep.
    """
    return evidence.gather(context.database, find_sweep(context.database, ref), full=full)
