"""The results of a sweep: its matrix and rows, its gates, and the evidence that a report shows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from wtb.analysis.kept_matrix import gates_of, judged
from wtb.core.arguments import FromZero, checked
from wtb.core.documents.matrix import GateDocument, JudgedMatrixDocument
from wtb.core.documents.report import EvidenceDocument
from wtb.core.errors import InputError
from wtb.core.scoring.scores import OnFailure
from wtb.core.tree.combinations import in_words
from wtb.display.row_view import ViewOptions, make_view
from wtb.operations.context import Context
from wtb.store.read.queries import choices, find_sweep

_BEFORE_PAIR = re.compile(r"[ ,]+(?=[^ ,=]+=)")
_MOST_ROWS = 5  # in a message


def row_number(every: Sequence[Mapping[str, str]], name: str, row: int | str) -> int:
    """Return the number of a row.

    Args:
        every: The combinations of the sweep.
        name: The argument that names the row, for messages.
        row: Its number, or its variants or levels, such as `answer.model=mini,answer.temperature=0`.

    Raises:
        InputError: If there is no such row, or several.
    """
    # A number needs no combinations: whether it is too high is checked where it is used.
    if isinstance(row, int) or row.isdecimal():
        return int(row)
    numbers = _matching(every, _pairs(every, name, row), f"{name}: ")
    if len(numbers) > 1:
        rows = "; ".join(f"{number} ({in_words(every[number])})" for number in numbers[:_MOST_ROWS])
        more = f" and {len(numbers) - _MOST_ROWS:,} more" if len(numbers) > _MOST_ROWS else ""
        raise InputError(f"{name} {row!r} is {len(numbers):,} rows: {rows}{more}; expected one", argument=name)
    return numbers[0]


def row_numbers(every: Sequence[Mapping[str, str]], name: str, rows: Sequence[int | str]) -> list[int]:
    """Return the numbers of rows, as `row_number` does."""
    return [row_number(every, name, row) for row in rows]


def filtered_rows(every: Sequence[Mapping[str, str]], where: Sequence[str]) -> set[int]:
    """Return the numbers of the rows that pass all filters.

    Args:
        every: The combinations of the sweep.
        where: Each has pairs, such as `answer.model=mini`, which must all hold. Of filters on the same factors one must
            hold.

    Raises:
        InputError: If a filter names no variant or level of the sweep.
    """
    by_factors: dict[frozenset[str], set[int]] = {}
    for text in where:
        pairs = _pairs(every, "where", text)
        by_factors.setdefault(frozenset(pairs), set()).update(_matching(every, pairs, "where: "))
    return set(range(len(every))).intersection(*by_factors.values())


def split_filter(text: str) -> list[tuple[str, str]]:
    """Split `answer.model=mini,answer.temperature=0` into pairs of factor and level. A level may be empty."""
    parts = (pair.partition("=") for pair in _BEFORE_PAIR.split(text.strip()))
    return [(key, label) for key, _, label in parts]


def _pairs(every: Sequence[Mapping[str, str]], name: str, text: str) -> dict[str, str]:
    """Read pairs such as `answer.model=mini,answer.temperature=0`. Raises InputError."""
    pairs = split_filter(text)
    if not all(key and label for key, label in pairs):
        example = in_words(every[-1]) if every else "answer=mini"
        what = "a filter" if name == "where" else "the number of a row, or its variants,"
        raise InputError(f"{name} {text!r}: expected {what} such as {example}", argument=name)
    return dict(pairs)


def _matching(every: Sequence[Mapping[str, str]], pairs: Mapping[str, str], where: str) -> list[int]:
    from wtb.planning.prepare import matching  # which imports much that `--help` does not need

    return matching(every, pairs, where)


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
        edited: Include cells whose state a person edited.
        on_failure: What a failed cell counts as, in place of what the sweep says.
        baseline: The row from which differences are taken, in place of what the sweep says: its number, or its
            variants, such as `answer.model=mini,answer.temperature=0`. Gates hold by the baseline of the sweep.
        where: Only rows that choose these variants or levels, such as `answer.model=mini`. Pairs in one text must all
            hold; of texts on the same factor one must hold.
        within: Only rows shown to be within the margin of the best.
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
    # Names are resolved before the matrix is made, so that a misspelt row is refused at once.
    number = None if baseline is None else row_number(every, "baseline", baseline)
    numbers = filtered_rows(every, where)
    document = judged(context.database, sweep, edited=edited, on_failure=on_failure, baseline=number)
    # A view is added to the whole matrix: its figures stay those of all rows.
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
        within: Only rows shown to be within the margin of the best.
        sort: What orders the rows, as for `matrix`.

    Returns:
        The evidence; docs/json.md lists its keys. It has all rows; `view` of its `matrix` names the shown ones.

    Raises:
        InputError: If there is no such sweep, level or metric.
    """
    from wtb.display.report import sweep_evidence  # with numpy, which a matrix that was kept is read without

    sweep = find_sweep(context.database, ref)
    numbers = filtered_rows(choices(context.database, sweep.id), where)
    document = sweep_evidence.gather(context.database, sweep, full=full)
    if options := ViewOptions(where, within, sort):
        document["matrix"]["view"] = make_view(document["matrix"], options, numbers)
    return document
