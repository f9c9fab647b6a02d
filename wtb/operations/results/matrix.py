"""What a sweep found: its matrix, and the evidence that a report shows."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.analysis.kept_matrix import gates_of, judged
from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import FromZero
from wtb.core.documents.matrix import GateDocument, JudgedMatrixDocument
from wtb.core.documents.report import EvidenceDocument
from wtb.core.scoring.scales import OnFailure
from wtb.display.pivot.row_view import ViewOptions, make_view
from wtb.operations.context import Context
from wtb.operations.row_names import filtered_rows, row_number
from wtb.store.read.queries import choices, find_sweep


@checked
def matrix(
    context: Context,
    ref: str,
    *,
    edited: bool = False,
    on_failure: OnFailure | None = None,
    baseline: FromZero | str | None = None,
    where: Sequence[str] = (),
    within: bool = False,
    sort: str | None = None,
    group_by: Sequence[str] = (),
    pivot: Sequence[str] = (),
    metric: str | None = None,
) -> JudgedMatrixDocument:
    """Return the comparison matrix of a sweep that is finished or not, with its gates.

    The arguments from `where` on choose a view. A view changes no figure: intervals, tests and corrections are those of
    all rows.

    Args:
        context: Where it is.
        ref: A sweep: its id, the beginning of it, or its name.
        edited: Count cells, too, whose state a person edited.
        on_failure: What a failed cell counts as, in place of what the sweep says.
        baseline: The row from which differences are taken, in place of what the sweep says: its number, or its
            variants, such as `answer.model=mini,answer.temperature=0`. Gates hold by the baseline of the sweep.
        where: Only rows that choose these variants or levels, such as `answer.model=mini`. Pairs in one text must all
            hold; of texts on the same factor one must hold.
        within: Only rows that are shown to be within the margin of the best.
        sort: A metric, `cost`, `latency`, `number` or a factor, and perhaps `:asc` or `:desc`. Without it the best row
            comes first, by each metric.
        group_by: Factors by whose levels rows stand together.
        pivot: One or two factors, for a table of means by their levels. Each cell is the mean over the means of the
            combinations that share both levels. There is no test in it.
        metric: The metric of `within` and `pivot`, for `pivot` also `cost` or `latency`; by default the one that
            decides.

    Returns:
        The JSON contract of `wtb matrix --format json`, version 1, with `gates`. It has all `rows`; `view` has the
        numbers of those that a view shows, in order, and the pivot table.

    Raises:
        InputError: If there is no such sweep, row, factor, level or metric.

    Example:
        >>> from wtb import Sweep, Workflow, evaluator
        >>> wf = Workflow("shop")
        >>> @wf.node
        ... def answer(state, *, model="mini", shots=0):
        ...     return {"y": len(model) + shots}
        >>> wf.entry(answer)
        >>> @evaluator(better="higher", scale=(0, 10))
        ... def length(case, result):
        ...     return result.state["y"]
        >>> levels = {"model": ["mini", "large"], "shots": [0, 2]}
        >>> sweep = Sweep(workflow=wf, cases=[{"id": "a", "input": {}}], vary={"answer": levels}, evaluate=[length])
        >>> result = sweep.run(db="sqlite:///:memory:")
        >>> view = result.matrix(where=["answer.shots=2"], sort="length")["view"]
        >>> [result.matrix()["rows"][number]["levels"] for number in view["rows"]]
        [{'answer.model': 'large', 'answer.shots': '2'}, {'answer.model': 'mini', 'answer.shots': '2'}]
        >>> pivot = result.matrix(pivot=["answer.model", "answer.shots"])["view"]["pivot"]
        >>> [[cell["mean"] for cell in line] for line in pivot["cells"]]
        [[4.0, 6.0], [5.0, 7.0]]
    """
    sweep = find_sweep(context.database, ref)
    every = choices(context.database, sweep.id)
    number = None if baseline is None else row_number(every, "baseline", baseline)
    numbers = filtered_rows(every, where)
    document = judged(context.database, sweep, edited=edited, on_failure=on_failure, baseline=number)
    if options := ViewOptions(where, within, sort, group_by, pivot, metric):
        document["view"] = make_view(document, options, numbers)
    return document


@checked
def gates(context: Context, ref: str) -> list[GateDocument]:
    """Return the gates of a sweep, with whether each holds; its matrix is made only if there are any.

    Args:
        context: Where it is.
        ref: A sweep: its id, the beginning of it, or its name.

    Returns:
        Of each, in their order: `gate`, `holds` (None if undecided), `values` and `because`.

    Raises:
        InputError: If there is no such sweep.
    """
    sweep = find_sweep(context.database, ref)
    return gates_of(context.database, sweep)


@checked
def report(
    context: Context,
    ref: str,
    *,
    full: bool = False,
    where: Sequence[str] = (),
    within: bool = False,
    sort: str | None = None,
) -> EvidenceDocument:
    """Return everything that a report shows of a sweep, whatever its status.

    Args:
        context: Where it is.
        ref: A sweep: its id, the beginning of it, or its name.
        full: Open every case, and cut no value of it.
        where: Only rows that choose these variants or levels, as for `matrix`. Only Markdown and CSV leave others out.
        within: Only rows that are shown to be within the margin of the best.
        sort: What orders the rows, as for `matrix`.

    Returns:
        The evidence; docs/report-json.md lists its keys. It has all rows; `view` of its `matrix` names the shown ones.

    Raises:
        InputError: If there is no such sweep, level or metric.
    """
    from wtb.display.report import evidence  # with numpy, which a matrix that was kept is read without

    sweep = find_sweep(context.database, ref)
    numbers = filtered_rows(choices(context.database, sweep.id), where)
    document = evidence.gather(context.database, sweep, full=full)
    if options := ViewOptions(where, within, sort):
        document["matrix"]["view"] = make_view(document["matrix"], options, numbers)
    return document
