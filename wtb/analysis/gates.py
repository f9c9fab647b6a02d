"""Gates: the conditions on the figures of a sweep, and their verdicts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from wtb.analysis.comparison.verdicts import CANNOT_TELL, UNCLEAR, WORSE, passes
from wtb.core.documents.matrix import is_ranked
from wtb.core.errors import InputError
from wtb.core.expressions import Condition, Name, UnknownValue
from wtb.core.scoring.failure_scores import hangs_on
from wtb.core.tree.combinations import in_words
from wtb.planning.metric_names import SWEEP_WIDE, row_figure, sweep_figure
from wtb.planning.variant_forms import parse_gate
from wtb.store.access.sessions import named_session
from wtb.store.database import Database
from wtb.store.read.baselines import find_baseline, named_baseline
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.matrix import GateDocument, GateVerdict, MatrixDocument, RowDocument
    from wtb.planning.sweep_spec import SweepSpec

_MOST_NAMED = 3  # rows that a sentence names


def judge(database: Database, sweep: SweepRow, matrix: MatrixDocument) -> list[GateDocument]:
    """Return the verdict on each gate of a sweep.

    Returns:
        Documents with the keys gate (its text), holds, values (name -> number) and because. `holds` is None if the gate
        cannot be decided, and `because` gives the reason. Gates on a baseline have the `verdict`, too.
    """
    gates: list[GateDocument] = []
    trust = _trust(database, sweep)
    cells = matrix["cells"]
    for text in sweep.spec.get("gates", ()):
        written = parse_gate(text)
        if written.condition is None:
            gate = _no_worse(database, sweep, written.baseline or "")
        elif written.rows:
            gate = _of_rows(matrix, written.condition, written.rows)
        else:
            gate = _condition(matrix, written.condition)
        still_open = cells["pending"] + cells["running"] + cells["waiting"]
        # A gate must not pass or fail while open cells could still change it.
        if still_open:
            those = "1 cell has" if still_open == 1 else f"{still_open:,} cells have"
            gate = {"holds": None, "values": gate["values"], "because": f"{those} no outcome yet"}
        gates.append({"gate": text, **_as_trusted(gate, text, trust, matrix)})
    return gates


_Trust = Callable[[str], tuple[bool, str]]


def _trust(database: Database, sweep: SweepRow) -> Mapping[str, _Trust]:
    """Return a check for each metric whose agreement with people the sweep requires before gates may rely on it."""
    stated = sweep.spec.get("agreement") or {}
    if not stated:
        return {}
    from wtb.analysis.human_labels import why_not  # with numpy

    # Several gates may use one metric, and each check reads all labels of the sweep.
    @cache
    def explain_trust(metric: str) -> tuple[bool, str]:
        return why_not(database, sweep, metric)

    return dict.fromkeys(stated, explain_trust)


def _as_trusted(gate: GateVerdict, text: str, trust: Mapping[str, _Trust], matrix: MatrixDocument) -> GateVerdict:
    """Return a gate, undecided if it relies on a metric whose agreement with people is not shown."""
    condition = parse_gate(text).condition
    if condition is None:
        metrics = set(matrix["metrics"])  # any of them may be what got worse
    else:
        metrics = {_metric_of(name, matrix["metrics"]) for name in condition.names}
    answers = [trust[metric](metric) for metric in sorted(metrics & trust.keys())]
    if not answers:
        return gate
    because = "; ".join(why for _, why in answers)
    if all(is_shown for is_shown, _ in answers):
        return {**gate, "because": f"{gate['because']}; {because}" if gate["because"] else because}
    return {"holds": None, "values": gate["values"], "because": because}


def _metric_of(name: Name, metrics: Collection[str]) -> str:
    """Return the metric that a name is a figure of; the name itself if it belongs to no metric."""
    parts = name.parts[1:] if name.parts[0] == "baseline" else name.parts
    path = ".".join(parts)
    # Metric names may contain dots (`judge` and `judge.tone`), so the longest match wins.
    return max((metric for metric in metrics if path == metric or path.startswith(f"{metric}.")), key=len, default=path)


def all_hold(gates: Iterable[GateDocument], *, strict: bool = False) -> bool:
    """Return whether every gate of a judged matrix lets it pass."""
    return all(passes(gate, strict=strict) for gate in gates)


def check_gates(database: Database, spec: SweepSpec) -> None:
    """Reject gates that name a baseline that does not exist.

    Raises:
        InputError: A gate names an unknown baseline."""
    problems = []
    for number, text in enumerate(spec.gates):
        if (name := parse_gate(text).baseline) is None:
            continue
        try:
            named_baseline(database, named_session(database, spec.session), name)
        except InputError as error:
            problems += [spec.located.problem(("gates", number), problem) for problem in error.problems]
    if problems:
        raise InputError(*problems)


def _condition(matrix: MatrixDocument, condition: Condition) -> GateVerdict:
    """Judge a condition on the sweep, or on the row that is chosen."""
    return _verdict(matrix, condition, _figure, _row_of(matrix))


def _verdict(
    matrix: MatrixDocument,
    condition: Condition,
    figure: Callable[[MatrixDocument, Name], float],
    row: RowDocument | None,
) -> GateVerdict:
    """Evaluate a condition on the measured figures, and on those that missing cells could still lead to."""
    answer = condition.answer(lambda name: figure(matrix, name))
    gate: GateVerdict = {"holds": answer.holds, "values": dict(answer.values), "because": answer.because}
    # Only a condition that holds is tried at worst: missing cells may not rescue one that fails.
    if not answer.holds or not any(
        "missing" in estimate for row in matrix["rows"] for estimate in row["metrics"].values()
    ):
        return gate
    from wtb.analysis.matrix.selection import count_missing, fails_at_worst, moved

    ends = [partial(figure, moved(matrix, 0)), partial(figure, moved(matrix, 1))]
    if fails_at_worst(condition, ends):
        count = count_missing(matrix, condition.names, row)
        gate = {**gate, "holds": None, "because": f"it {hangs_on(count)}"}
    return gate


def _of_rows(matrix: MatrixDocument, condition: Condition, choices: Mapping[str, str]) -> GateVerdict:
    """Judge a condition that must hold for every row with the given variants or levels."""
    from wtb.planning.prepare import matching  # with all that plans a sweep

    # Rows that were stopped or added later are not ranked, so a gate on "every row" leaves them out as well.
    rows = {number: row for number, row in enumerate(matrix["rows"]) if is_ranked(row)}
    try:
        places = matching([row["combination"] for row in rows.values()], choices, where="") if rows else []
    except InputError:  # a part of the sweep ran, or what has them was stopped
        places = []
    if not places:
        return {"holds": None, "values": {}, "because": "no row that was planned and runs to its end is meant by it"}
    numbers = [list(rows)[place] for place in places]
    verdicts = {number: _verdict_of_row(matrix, condition, number) for number in numbers}
    if len(numbers) == 1:
        return verdicts[numbers[0]]
    # One failing row decides the gate, so failures are reported before rows that cannot be decided.
    for holds, words in ((False, "does not hold for"), (None, "cannot be decided for")):
        if wrong := [number for number in numbers if verdicts[number]["holds"] is holds]:
            first = verdicts[wrong[0]]
            names = _named([in_words(rows[number]["combination"]) for number in wrong])
            because = f"{words} {names}, of {len(numbers):,} rows"
            if first["because"]:
                because += f": {first['because']}"
            return {"holds": holds, "values": first["values"], "because": because}
    return {"holds": True, "values": {}, "because": f"for all {len(numbers):,} rows: {_ranges(verdicts.values())}"}


def _verdict_of_row(matrix: MatrixDocument, condition: Condition, number: int) -> GateVerdict:
    def figure(judged_matrix: MatrixDocument, name: Name) -> float:
        return row_figure(judged_matrix, judged_matrix["rows"][number], name)

    return _verdict(matrix, condition, figure, matrix["rows"][number])


def _named(rows: Sequence[str]) -> str:
    more = len(rows) - _MOST_NAMED
    return "; ".join(rows[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _ranges(verdicts: Iterable[GateVerdict]) -> str:
    """Return the lowest and highest value of each figure over rows, as text."""
    by_name: dict[str, list[float]] = {}
    for verdict in verdicts:
        for name, number in verdict["values"].items():
            by_name.setdefault(name, []).extend([] if number is None else [number])
    return ", ".join(
        f"{name} = {min(values):.4g}" + (f" to {max(values):.4g}" if max(values) != min(values) else "")
        for name, values in by_name.items()
        if values
    )


def _row_of(matrix: MatrixDocument) -> RowDocument | None:
    try:
        return _choose_row(matrix)
    except UnknownValue:
        return None


def _figure(matrix: MatrixDocument, name: Name) -> float:
    """Return a figure of the whole sweep, else of the chosen combination, else the minimum or maximum over all rows."""
    if not name.extreme and ".".join(name.parts) in SWEEP_WIDE:
        return sweep_figure(matrix, name)
    needs_row = not name.extreme and name.parts[0] != "baseline"
    return row_figure(matrix, _choose_row(matrix) if needs_row else None, name)


def _choose_row(matrix: MatrixDocument) -> RowDocument:
    """Return the row that the sweep would ship: its choice, else the only row, else the best by the primary metric."""
    choice, rows, primary = matrix["choice"], matrix["rows"], matrix["primary"]
    if choice is None and len(rows) == 1:
        return rows[0]
    if choice is not None:
        combination, because = choice["combination"], choice["because"] or "no combination fits `best`"
    else:
        first = None if primary is None else matrix["best"].get(primary)
        combination = None if first is None else first["combination"]
        because = "nothing is scored, so no combination is the best"
        if first and combination is None:
            because = f"no combination is the best by {primary}: {first['because']}"
    for row in rows:
        if row["combination"] == combination:
            return row
    raise UnknownValue(because)


def _no_worse(database: Database, sweep: SweepRow, name: str) -> GateVerdict:
    baseline = find_baseline(database, sweep.session, name)
    if baseline is None:
        return {"holds": None, "values": {}, "because": f"there is no baseline {name!r} any more"}
    if baseline.id == sweep.id:
        return {"holds": True, "values": {}, "because": "it is this sweep itself"}
    from wtb.analysis.comparison.compare import compare_sweeps

    # A gate needs the verdict only; looking into changed cases would read their outputs for nothing.
    comparison = compare_sweeps(database, baseline, sweep, looked_into=0)
    verdict = comparison["verdict"]
    holds = None if verdict in (CANNOT_TELL, UNCLEAR) else verdict != WORSE
    return {"holds": holds, "values": {}, "because": "; ".join(comparison["because"]), "verdict": verdict}
