"""Cases opened for a reader: what went in, what was expected, and what came out of two combinations, side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wtb.analysis.scores import Scores
from wtb.core.classes.frozen import frozen
from wtb.core.errors import WTBError
from wtb.core.serialization.plain_json import readable
from wtb.display.views.executions import execution_document
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.files.workspaces import Workspaces
from wtb.store.read import details, evidence, queries
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from pydantic import JsonValue

    from wtb.core.documents.executions import CallDocument, ExecutionDocument, InvocationDocument, ShownStep
    from wtb.core.documents.matrix import MatrixDocument
    from wtb.core.documents.report import (
        CutText,
        FailuresDocument,
        OpenedCall,
        OpenedCase,
        OpenedCases,
        OpenedFile,
        OpenedFiles,
        OpenedSide,
        OpenedStep,
        TellingCases,
    )


VALUE = 4_000  # characters of a value
LINE = 80  # characters of a value that stand on one line
TOTAL = 600_000  # characters of all values
FILES, STEPS, CALLS = 50, 100, 50  # of an execution that are listed
FAILURES = 5  # causes of failures of which a case is opened
Pair = tuple[int, str, tuple[int, str] | None, tuple[int, str] | None]  # case, why, two of (combination, execution)


@dataclass
class _Room:
    """How much text is left; None where there is no bound."""

    each: int | None
    left: int | None
    cut: int = 0
    shown: int = field(default=0)

    def text(self, value: Any) -> CutText:
        """A value as text, and how many characters of it were cut off."""
        whole = value if isinstance(value, str) else _json(value)
        most = len(whole)
        if self.each is not None and self.left is not None:
            most = min(most, self.each, max(self.left, 0))
            self.left -= most
        self.shown += most
        self.cut += len(whole) - most
        return {"text": whole[:most], "cut": len(whole) - most}


def _json(value: Any) -> str:
    """JSON with a line for each key of a mapping, and for each item of a list of mappings or lists."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) <= LINE or not isinstance(value, dict | list):
        return text
    if isinstance(value, dict):
        lines = [f"{json.dumps(str(key), ensure_ascii=False)}: {_json(inner)}" for key, inner in value.items()]
        return "{\n" + ",\n".join(lines) + "\n}"
    if not any(isinstance(one, dict | list) for one in value):
        return text
    return "[\n" + ",\n".join(json.dumps(one, ensure_ascii=False, default=str) for one in value) + "\n]"


def opened(
    database: Database,
    sweep: SweepRow,
    matrix: MatrixDocument,
    worst: TellingCases,
    failures: FailuresDocument,
    *,
    full: bool = False,
) -> OpenedCases:
    """The cases of `worst`, and one for each cause of `failures`, each with two executions; `full`: all cases.

    Of each case its input and what was expected, and of both executions their combination, status, scores, steps,
    calls, files, errors and output, which is what they changed of the input. Values are text of at most VALUE
    characters, TOTAL in all, and say what was cut; with `full` there is no bound. Cases for which nothing is left are
    counted in `left_out`.
    """
    pairs = list(_every(database, sweep, worst) if full else _most_telling(database, sweep.id, worst, failures))
    room = _Room(None, None) if full else _Room(VALUE, TOTAL)
    source = _Source(database, sweep.id, matrix, _files_of(database, sweep.project), room)
    found: list[OpenedCase] = []
    for number, (case, why, *sides) in enumerate(pairs):
        if room.left is not None and room.left <= 0:
            return {"cases": found, "left_out": len(pairs) - number, "cut": room.cut}
        found.append(_case(source, case, why, [one for one in sides if one]))
    return {"cases": found, "left_out": 0, "cut": room.cut}


def _most_telling(database: Database, sweep_id: str, worst: TellingCases, failures: FailuresDocument) -> Iterator[Pair]:
    """The cases that tell most: those of `worst`, then one of each cause of failure beside one that did well."""
    names = [one["case"] for one in worst["cases"]] + [one["example"]["case"] for one in failures["cells"][:FAILURES]]
    numbers = evidence.case_numbers(database, sweep_id, names)
    seen = set()
    for one in worst["cases"]:
        number = numbers.get(one["case"])
        if number is None or number in seen:
            continue
        seen.add(number)
        best, least = one["best"], one["worst"]
        if best and least and best["execution"] and least["execution"]:
            sides = (best["combination"], best["execution"]), (least["combination"], least["execution"])
            yield number, one["why"], *sides
        else:
            yield number, one["why"], *_two(evidence.outcomes_of(database, sweep_id, number), ())
    for cause in failures["cells"][:FAILURES]:
        number = numbers.get(cause["example"]["case"])
        if number is None or not cause["example"]["execution"]:
            continue
        outcomes = evidence.outcomes_of(database, sweep_id, number)
        failed = next(((c, id) for c, _, id in outcomes if id == cause["example"]["execution"]), None)
        well = next(((c, id) for c, status, id in outcomes if status == "succeeded" and id), None)
        yield number, "failed", well or failed, failed if well else None


def _every(database: Database, sweep: SweepRow, worst: TellingCases) -> Iterator[Pair]:
    """All cases in their order: of each the best and the worst combination by the primary metric."""
    sweep_id, sign = sweep.id, -1.0 if worst["better"] == "lower" else 1.0
    scores: dict[int, list[tuple[int, float]]] = {}
    rows = Scores(database, sweep).case_rows(worst["metric"]).tolist() if worst["metric"] else []
    for combination, case, value, _ in rows:
        scores.setdefault(int(case), []).append((int(combination), value))
    for number in evidence.case_numbers(database, sweep_id).values():
        ranked = sorted(scores.get(number, ()), key=lambda one: -sign * one[1])
        order = [ranked[0][0], ranked[-1][0]] if ranked else []
        yield number, "all", *_two(evidence.outcomes_of(database, sweep_id, number), order)


def _two(
    outcomes: Sequence[tuple[int, str, str | None]], order: Sequence[int]
) -> tuple[tuple[int, str] | None, tuple[int, str] | None]:
    """Two combinations with an execution, those of `order` first; None where there are fewer."""
    there = {combination: id for combination, _, id in outcomes if id}
    chosen = list(dict.fromkeys([*(one for one in order if one in there), *there]))[:2]
    one, other = [(combination, there[combination]) for combination in chosen] + [None] * (2 - len(chosen))
    return one, other


def _files_of(database: Database, project: str) -> Workspaces | None:
    try:
        return workspaces_of(database).of_project(project)
    except WTBError:  # a shared directory that is not there: a report says what it can
        return None


@frozen
class _Source:
    """Where cases are read from, and the room that is left for them."""

    database: Database
    sweep_id: str
    matrix: MatrixDocument
    workspaces: Workspaces | None
    room: _Room


def _case(source: _Source, number: int, why: str, sides: Sequence[tuple[int, str]]) -> OpenedCase:
    room = source.room
    row = queries.case_rows(source.database, source.sweep_id, [number])[number]
    stored = queries.load_values(source.database, row.input.values())
    given = {key: readable(stored[digest].data) for key, digest in row.input.items()}
    expected = None if row.expected is None else readable(row.expected.encode())
    return {
        "case": row.id,
        "why": why,
        "tags": list(row.tags or ()),
        "input": {key: room.text(value) for key, value in given.items()},
        "expected": None if expected is None else room.text(expected),
        "sides": [_side(source, combination, id, given, row.workspace) for combination, id in sides],
    }


def _side(
    source: _Source, combination: int, execution_id: str, given: Mapping[str, JsonValue], workspace: str | None
) -> OpenedSide:
    database, room = source.database, source.room
    row = queries.find_execution(database, execution_id)
    document = execution_document(database, row, calls=True)
    choices = source.matrix["rows"][combination]["combination"]
    cell = next((one for one in document["cells"] if one["combination"] == choices), None)
    steps = document["path"]
    calls = [(step["node"], call) for step in steps for call in step["calls"]]
    tools = [(step["node"], one) for step in steps for one in step["invocations"]]
    changed = {key: value for key, value in document["state"].items() if key not in given or given[key] != value}
    return {
        "combination": combination,
        "execution": execution_id,
        "status": cell["status"] if cell else document["execution"]["status"],
        "scores": cell["scores"] if cell else {},
        "totals": document["totals"],
        "error": _error(document, room),
        "output": {key: room.text(value) for key, value in changed.items()},
        "steps": [_step(step) for step in steps[:STEPS]],
        "calls": [_call(node, call, room) for node, call in calls[:CALLS]]
        + [_tool(node, one, room) for node, one in tools[:CALLS]],
        "files": _files(database, row, workspace, source.workspaces),
        "more": {
            "steps": max(0, len(steps) - STEPS),
            "calls": max(0, len(calls) - CALLS) + max(0, len(tools) - CALLS),
        },
    }


def _error(document: ExecutionDocument, room: _Room) -> CutText | None:
    about = document["execution"]
    if not about["error"]:
        return None
    return room.text("\n".join(filter(None, [about["error"], about["trace"].rstrip()])))


def _step(step: ShownStep) -> OpenedStep:
    failed = [one["error"] for one in step["tried"] if one["error"]]
    return {
        "step": step["step"],
        "node": step["node"],
        "variant": step["variant"],
        "status": step["status"],
        "attempts": step["attempts"],
        "duration_s": step["duration_s"],
        "usd": step["usd"],
        "error": failed[-1][:VALUE] if failed else None,
    }


def _call(node: str, call: CallDocument, room: _Room) -> OpenedCall:
    return {
        "node": node,
        "model": call["model"],
        "tool": call["tool"],
        "tokens_in": call["tokens_in"],
        "tokens_out": call["tokens_out"],
        "usd": call["usd"],
        "duration_s": call["duration_s"],
        "prompt": None if call["prompt"] is None else room.text(call["prompt"]),
        "response": None if call["response"] is None else room.text(call["response"]),
    }


def _tool(node: str, one: InvocationDocument, room: _Room) -> OpenedCall:
    """A call of a tool, in the shape of a call of a model."""
    came = one["error"] if one["error"] is not None else one["result"]
    return {
        "node": node,
        "model": None,
        "tool": one["tool"],
        "tokens_in": None,
        "tokens_out": None,
        "usd": None,
        "duration_s": one["duration_s"],
        "prompt": room.text(one["arguments"]),
        "response": None if came is None else room.text(came),
    }


def _files(
    database: Database, row: ExecutionRow, before: str | None, workspaces: Workspaces | None
) -> OpenedFiles | None:
    """What the execution changed of the files of its case; None where they cannot be read."""
    if workspaces is None or row.head_id is None:
        return None
    try:
        after = details.find_checkpoint(database, row.head_id)[0].workspace
        changes = workspaces.compare(before, after)
        there = workspaces.files.manifest(after)
    except WTBError:  # collected, or on another machine
        return None
    listed: list[OpenedFile] = [
        {
            "path": one.path,
            "kind": one.kind,
            "bytes": one.after,
            "sha256": there[one.path].digest if one.after is not None else None,
        }
        for one in changes[:FILES]
    ]
    return {"changes": listed, "more": max(0, len(changes) - FILES)}
