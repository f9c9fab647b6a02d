"""Gates: what a sweep's figures must come to, and whether they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.analysis.comparison.compare import compare_sweeps
from wtb.analysis.comparison.verdicts import CANNOT_TELL, UNCLEAR, WORSE, passes
from wtb.analysis.matrix.build import build
from wtb.core.errors import InputError
from wtb.core.expressions.figures import Name, parse_condition
from wtb.core.expressions.language import UnknownValue
from wtb.core.scoring.scales import OnFailure
from wtb.core.status import CELL, FINAL_CELLS
from wtb.planning.metric_names import SWEEP_WIDE, row_figure, sweep_figure
from wtb.planning.sweep_spec import SweepSpec, baseline_of
from wtb.store.database import Database
from wtb.store.limits.sessions import session_name
from wtb.store.read.baselines import find_baseline, named_baseline

Document = dict[str, Any]
Sweep = Mapping[str, Any]


def judged(database: Database, sweep: Sweep, *, edited: bool = False, on_failure: OnFailure | None = None) -> Document:
    """The matrix of a sweep, given its row of `find_sweep`, with its `gates`. edited, on_failure: as for `build`."""
    matrix = build(database, sweep, edited=edited, on_failure=on_failure)
    return {**matrix, "gates": judge(database, sweep, matrix)}


def judge(database: Database, sweep: Sweep, matrix: Document) -> list[Document]:
    """Each gate of a sweep: {"gate": text, "holds": true, false or null, "values": {name: number}, "because": text}.

    holds is null where it cannot be told, and `because` says why. Gates on a baseline have the `verdict`, too.
    """
    gates = []
    for text in sweep["spec"].get("gates", ()):
        name = baseline_of(text)
        gate = _condition(matrix, text) if name is None else _no_worse(database, sweep, name)
        still_open = sum(matrix["cells"][status] for status in CELL if status not in FINAL_CELLS)
        if still_open:
            cells = "1 cell has" if still_open == 1 else f"{still_open:,} cells have"
            gate |= {"holds": None, "because": f"{cells} no outcome yet"}
            gate.pop("verdict", None)
        gates.append({"gate": text, **gate})
    return gates


def all_hold(document: Mapping[str, Any], *, strict: bool = False) -> bool:
    """Return whether every gate of a judged matrix lets it pass."""
    return all(passes(gate, strict=strict) for gate in document["gates"])


def check_gates(database: Database, spec: SweepSpec) -> None:
    """Refuse gates that name a baseline which is not there. Raises InputError."""
    problems = []
    for number, text in enumerate(spec.gates):
        name = baseline_of(text)
        if name is None:
            continue
        try:
            named_baseline(database, session_name(spec.session), name)
        except InputError as error:
            problems += [spec.located.problem(("gates", number), one) for one in error.problems]
    if problems:
        raise InputError(*problems)


def _condition(matrix: Document, text: str) -> Document:
    answer = parse_condition(text).answer(lambda name: _figure(matrix, name))
    return {"holds": answer.holds, "values": dict(answer.values), "because": answer.because}


def _figure(matrix: Document, name: Name) -> float:
    """A figure of the whole sweep, else of the combination that is chosen, else the least or most of all."""
    if not name.over and ".".join(name.parts) in SWEEP_WIDE:
        return sweep_figure(matrix, name)
    needs_row = not name.over and name.parts[0] != "baseline"
    return row_figure(matrix, _chosen(matrix) if needs_row else {}, name)


def _chosen(matrix: Document) -> Mapping[str, Any]:
    """The row that the sweep would ship: its choice, else the only one, else the best by the primary metric."""
    choice, rows = matrix.get("choice"), matrix["rows"]
    if choice is None and len(rows) == 1:
        only: Mapping[str, Any] = rows[0]
        return only
    if choice is not None:
        combination, because = choice["combination"], choice["because"] or "no combination fits `best`"
    else:
        first = matrix["best"].get(matrix["primary"])
        combination, because = first and first["combination"], "nothing is scored, so no combination is the best"
        if first and combination is None:
            because = f"no combination is the best by {matrix['primary']}: {first['because']}"
    for row in rows:
        if row["combination"] == combination:
            found: Mapping[str, Any] = row
            return found
    raise UnknownValue(because)


def _no_worse(database: Database, sweep: Sweep, name: str) -> Document:
    baseline = find_baseline(database, sweep["session"], name)
    if baseline is None:
        return {"holds": None, "values": {}, "because": f"there is no baseline {name!r} any more"}
    if baseline["id"] == sweep["id"]:
        return {"holds": True, "values": {}, "because": "it is this sweep itself"}
    found = compare_sweeps(database, baseline, sweep, looked_into=0)
    verdict = found["verdict"]
    holds = None if verdict in (CANNOT_TELL, UNCLEAR) else verdict != WORSE
    return {"holds": holds, "values": {}, "because": "; ".join(found["because"]), "verdict": verdict}
