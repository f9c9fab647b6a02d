"""Gates: what a sweep's figures must come to, and whether they do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, cast

from wtb.analysis.comparison.verdicts import CANNOT_TELL, UNCLEAR, WORSE, passes
from wtb.core.errors import InputError
from wtb.core.expressions.figures import Name, parse_condition
from wtb.core.expressions.language import UnknownValue
from wtb.core.scoring.missing_words import hangs_on
from wtb.core.scoring.scales import OnFailure
from wtb.planning.metric_names import SWEEP_WIDE, row_figure, sweep_figure
from wtb.planning.sweep_spec import SweepSpec, baseline_of
from wtb.store.control.labels import has_labels
from wtb.store.database import Database
from wtb.store.limits.sessions import named_session
from wtb.store.read.baselines import find_baseline, named_baseline
from wtb.store.rows.sweeps import SweepRow
from wtb.store.schedules import fire_of_sweep

if TYPE_CHECKING:
    from wtb.core.documents.matrix import GateDocument, GateVerdict, JudgedMatrixDocument, MatrixDocument, RowDocument


def judged(
    database: Database,
    sweep: SweepRow,
    *,
    edited: bool = False,
    on_failure: OnFailure | None = None,
    baseline: int | None = None,
) -> JudgedMatrixDocument:
    """The matrix of a sweep, given its row of `find_sweep`, with its `gates` and what `people` would say.

    edited, on_failure, baseline: as for `build`. Gates hold by the sweep's own baseline.
    """
    from wtb.analysis.matrix.build import build  # with numpy, which checking gates does without

    matrix = build(database, sweep, edited=edited, on_failure=on_failure, baseline=baseline)
    own = matrix
    if baseline is not None and sweep.spec.get("gates"):
        own = build(database, sweep, edited=edited, on_failure=on_failure)
    document = cast("JudgedMatrixDocument", {**matrix, "gates": judge(database, sweep, own)})
    fire = fire_of_sweep(database, sweep.id)
    if fire is not None and fire.verdict is not None:
        document["night"] = {
            "verdict": fire.verdict,
            "because": [str(sentence) for sentence in fire.why or ()],
            "baseline": fire.baseline_id,
        }
    if has_labels(database, sweep.id):
        from wtb.analysis.judges.people import people

        document["people"] = people(database, sweep, matrix)
    return document


def judge(database: Database, sweep: SweepRow, matrix: MatrixDocument) -> list[GateDocument]:
    """Each gate of a sweep: {"gate": text, "holds": true, false or null, "values": {name: number}, "because": text}.

    holds is null where it cannot be told, and `because` says why. Gates on a baseline have the `verdict`, too.
    """
    gates: list[GateDocument] = []
    trust = _trust(database, sweep)
    cells = matrix["cells"]
    for text in sweep.spec.get("gates", ()):
        name = baseline_of(text)
        gate = _condition(matrix, text) if name is None else _no_worse(database, sweep, name)
        still_open = cells["pending"] + cells["running"] + cells["waiting"]
        if still_open:
            those = "1 cell has" if still_open == 1 else f"{still_open:,} cells have"
            gate = {"holds": None, "values": gate["values"], "because": f"{those} no outcome yet"}
        gates.append({"gate": text, **_as_trusted(gate, text, trust, matrix)})
    return gates


_Trust = Callable[[str], tuple[bool, str]]


def _trust(database: Database, sweep: SweepRow) -> Mapping[str, _Trust]:
    """What says, by metric, whether gates may rest on it: of those whose agreement with people the sweep states."""
    stated = sweep.spec.get("agreement") or {}
    if not stated:
        return {}
    from wtb.analysis.judges.trust import why_not  # with numpy

    @cache
    def told(metric: str) -> tuple[bool, str]:
        return why_not(database, sweep, metric)

    return dict.fromkeys(stated, told)


def _as_trusted(gate: GateVerdict, text: str, trust: Mapping[str, _Trust], matrix: MatrixDocument) -> GateVerdict:
    """A gate with whether what it rests on may decide it."""
    if baseline_of(text) is not None:
        metrics = set(matrix["metrics"])  # any of them may be what got worse
    else:
        metrics = {_metric_of(name, matrix["metrics"]) for name in parse_condition(text).names}
    told = [trust[metric](metric) for metric in sorted(metrics & trust.keys())]
    if not told:
        return gate
    because = "; ".join(why for _, why in told)
    if all(is_shown for is_shown, _ in told):
        return {**gate, "because": f"{gate['because']}; {because}" if gate["because"] else because}
    return {"holds": None, "values": gate["values"], "because": because}


def _metric_of(name: Name, known: Collection[str]) -> str:
    """The metric that a name is a figure of; the name itself where it is of none."""
    parts = name.parts[1:] if name.parts[0] == "baseline" else name.parts
    path = ".".join(parts)
    return max((one for one in known if path == one or path.startswith(f"{one}.")), key=len, default=path)


def all_hold(gates: Iterable[GateDocument], *, strict: bool = False) -> bool:
    """Return whether every gate of a judged matrix lets it pass."""
    return all(passes(gate, strict=strict) for gate in gates)


def check_gates(database: Database, spec: SweepSpec) -> None:
    """Refuse gates that name a baseline which is not there. Raises InputError."""
    problems = []
    for number, text in enumerate(spec.gates):
        name = baseline_of(text)
        if name is None:
            continue
        try:
            named_baseline(database, named_session(database, spec.session), name)
        except InputError as error:
            problems += [spec.located.problem(("gates", number), one) for one in error.problems]
    if problems:
        raise InputError(*problems)


def _condition(matrix: MatrixDocument, text: str) -> GateVerdict:
    condition = parse_condition(text)
    answer = condition.answer(lambda name: _figure(matrix, name))
    gate: GateVerdict = {"holds": answer.holds, "values": dict(answer.values), "because": answer.because}
    if not answer.holds or not any("missing" in one for row in matrix["rows"] for one in row["metrics"].values()):
        return gate
    from wtb.analysis.matrix.at_worst import count_missing, fails_at_worst, moved

    ends = [partial(_figure, one) for one in (moved(matrix, 0), moved(matrix, 1))]
    if fails_at_worst(condition, ends):
        count = count_missing(matrix, condition.names, _row_of(matrix))
        gate = {**gate, "holds": None, "because": f"it {hangs_on(count)}"}
    return gate


def _row_of(matrix: MatrixDocument) -> RowDocument | None:
    try:
        return _chosen(matrix)
    except UnknownValue:
        return None


def _figure(matrix: MatrixDocument, name: Name) -> float:
    """A figure of the whole sweep, else of the combination that is chosen, else the least or most of all."""
    if not name.over and ".".join(name.parts) in SWEEP_WIDE:
        return sweep_figure(matrix, name)
    needs_row = not name.over and name.parts[0] != "baseline"
    return row_figure(matrix, _chosen(matrix) if needs_row else None, name)


def _chosen(matrix: MatrixDocument) -> RowDocument:
    """The row that the sweep would ship: its choice, else the only one, else the best by the primary metric."""
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

    found = compare_sweeps(database, baseline, sweep, looked_into=0)
    verdict = found["verdict"]
    holds = None if verdict in (CANNOT_TELL, UNCLEAR) else verdict != WORSE
    return {"holds": holds, "values": {}, "because": "; ".join(found["because"]), "verdict": verdict}
