"""The cases of a report in detail: the hardest ones, and what opens under a case."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from wtb.analysis.comparison.pairing import partings
from wtb.analysis.scores import Scores
from wtb.core.errors import WTBError
from wtb.core.frozen import frozen
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

    from wtb.core.documents import report as documents
    from wtb.core.documents.executions import CallDocument, ExecutionDocument, InvocationDocument, ShownStep
    from wtb.core.documents.matrix import MatrixDocument

EACH = 5  # cases of either kind


def worst(database: Database, sweep: SweepRow, matrix: MatrixDocument) -> documents.TellingCases:
    """Return the cases that are hard for all by the primary metric, and those in which combinations differ most.

    Hard is a case whose best score is worse than the mean of all scores; the hardest is that with the worst such score.
    Differing is measured by the variance between combinations. A case's figures are over the combinations that have a
    score for it. Each has the best and the worst combination, and where the paths of the two part first.
    """
    metric = matrix["primary"]
    if metric is None:
        why = "nothing was evaluated" if matrix["cells"]["succeeded"] else "no cell has succeeded"
        return {"metric": None, "better": None, "cases": [], "because": why}
    better = matrix["metrics"][metric]["better"]
    score_rows = Scores(database, sweep).case_rows(metric)
    document: documents.TellingCases = {"metric": metric, "better": better, "cases": [], "because": None}
    if not len(score_rows):
        return {**document, "because": f"no cell has a score by {metric}"}
    # lexsort sorts by the last key first: by case, then by score.
    order = np.lexsort((score_rows[:, 2] if better == "higher" else -score_rows[:, 2], score_rows[:, 1]))
    score_rows = score_rows[order]  # by case, worst first
    numbers, starts, counts = np.unique(score_rows[:, 1], return_index=True, return_counts=True)
    ends = starts + counts - 1
    low, high = score_rows[starts, 2], score_rows[ends, 2]
    means = np.add.reduceat(score_rows[:, 2], starts) / counts
    spreads = np.abs(high - low)
    variances = np.add.reduceat((score_rows[:, 2] - np.repeat(means, counts)) ** 2, starts) / counts
    sign = 1.0 if better == "higher" else -1.0
    middle = float(np.mean(score_rows[:, 2]))
    slack = 1e-9 * float(np.abs(score_rows[:, 2]).max())  # by which a mean of equals may be off
    order = np.lexsort((sign * means, sign * high))
    hardest = [i for i in order if sign * (middle - high[i]) > slack][:EACH]
    # Rounding can give equal scores a variance above 0, while their spread is exactly 0.
    varied = [i for i in np.argsort(-variances, kind="stable") if spreads[i] > 0 and i not in hardest][:EACH]
    telling: list[tuple[Literal["differ", "hard"], int]] = [("differ", int(i)) for i in varied]
    telling += [("hard", int(i)) for i in hardest]
    if not telling:
        return {**document, "because": f"every score by {metric} is the same"}
    names = queries.case_rows(database, sweep.id, [int(numbers[i]) for _, i in telling])
    for why, i in telling:
        number = int(numbers[i])
        ends_of = [(int(score_rows[at, 0]), float(score_rows[at, 2])) for at in (ends[i], starts[i])]
        document["cases"].append(
            {
                "case": names[number].id,
                "why": why,
                "n": int(counts[i]),
                "mean": float(means[i]),
                "spread": float(spreads[i]),
                **_ends(database, sweep.id, number, ends_of),
            }
        )
    _part(database, document["cases"])
    return document


def _ends(database: Database, sweep_id: str, case: int, ends: list[tuple[int, float]]) -> documents.TellingEnds:
    """The best and the worst combination of a case, with an execution of each."""
    (best, best_score), (worst, worst_score) = ends
    if best_score == worst_score:
        return {"best": None, "worst": None, "parted": None, "because": "all combinations score the same"}
    executions = evidence.executions_of(database, sweep_id, case, [best, worst])
    return {
        "best": {"combination": best, "score": best_score, "execution": executions.get(best)},
        "worst": {"combination": worst, "score": worst_score, "execution": executions.get(worst)},
        "parted": None,
        "because": None if executions else "no repeat has an outcome for both",
    }


def _part(database: Database, cases: list[documents.TellingCase]) -> None:
    """Add to each case the node at which its two executions part."""
    pairs = [(case, case["best"], case["worst"]) for case in cases]
    compared = [(case, (a["execution"], b["execution"])) for case, a, b in pairs if a and b and a["execution"]]
    for (case, _), node in zip(compared, partings(database, [pair for _, pair in compared]), strict=True):
        case["parted"] = node
        case["because"] = None if node else "no node's result differs, or they were collected"


VALUE = 4_000  # characters of a value
LINE = 80  # characters of a value that stand on one line
TOTAL = 600_000  # characters of all values
FILES, STEPS, CALLS = 50, 100, 50  # of an execution that are listed
FAILURES = 5  # causes of failures of which a case is opened
Pair = tuple[int, str, tuple[int, str] | None, tuple[int, str] | None]  # case, why, two of (combination, execution)


@dataclass
class _Room:
    """The amount of text that may still be shown; None if there is no bound."""

    each: int | None
    remaining: int | None
    cut: int = 0
    shown_length: int = field(default=0)

    def text(self, content: Any) -> documents.CutText:
        """A value as text, and how many characters of it were cut off."""
        whole = content if isinstance(content, str) else _json(content)
        length = len(whole)
        if self.each is not None and self.remaining is not None:
            length = min(length, self.each, max(self.remaining, 0))
            self.remaining -= length
        self.shown_length += length
        self.cut += len(whole) - length
        return {"text": whole[:length], "cut": len(whole) - length}


def _json(content: Any) -> str:
    """JSON with a line for each key of a mapping, and for each item of a list of mappings or lists."""
    text = json.dumps(content, ensure_ascii=False, default=str)
    if len(text) <= LINE or not isinstance(content, dict | list):
        return text
    if isinstance(content, dict):
        lines = [f"{json.dumps(str(key), ensure_ascii=False)}: {_json(inner)}" for key, inner in content.items()]
        return "{\n" + ",\n".join(lines) + "\n}"
    if not any(isinstance(inner, dict | list) for inner in content):
        return text
    return "[\n" + ",\n".join(json.dumps(inner, ensure_ascii=False, default=str) for inner in content) + "\n]"


def opened(
    database: Database,
    sweep: SweepRow,
    matrix: MatrixDocument,
    worst: documents.TellingCases,
    failures: documents.FailuresDocument,
    *,
    full: bool = False,
) -> documents.OpenedCases:
    """The cases of `worst`, and one for each cause of `failures`, each with two executions; `full`: all cases.

    Of each case its input and what was expected, and of both executions their combination, status, scores, steps,
    calls, files, errors and output, which is what they changed of the input. Values are text of at most VALUE
    characters, TOTAL in all, and say what was cut; with `full` there is no bound. Cases for which nothing is left are
    counted in `left_out`.
    """
    pairs = list(_every(database, sweep, worst) if full else _most_telling(database, sweep.id, worst, failures))
    room = _Room(None, None) if full else _Room(VALUE, TOTAL)
    source = _Source(database, sweep.id, matrix, _files_of(database, sweep.project), room)
    opened_cases: list[documents.OpenedCase] = []
    for number, (case, why, *sides) in enumerate(pairs):
        if room.remaining is not None and room.remaining <= 0:
            return {"cases": opened_cases, "left_out": len(pairs) - number, "cut": room.cut}
        opened_cases.append(_case(source, case, why, [side for side in sides if side]))
    return {"cases": opened_cases, "left_out": 0, "cut": room.cut}


def _most_telling(
    database: Database, sweep_id: str, worst: documents.TellingCases, failures: documents.FailuresDocument
) -> Iterator[Pair]:
    """The most informative cases: those of `worst`, then one of each cause of failure beside one that did well."""
    names = [case["case"] for case in worst["cases"]] + [
        cause["example"]["case"] for cause in failures["cells"][:FAILURES]
    ]
    numbers = evidence.case_numbers(database, sweep_id, names)
    seen = set()
    for case in worst["cases"]:
        number = numbers.get(case["case"])
        if number is None or number in seen:
            continue
        seen.add(number)
        best, least = case["best"], case["worst"]
        if best and least and best["execution"] and least["execution"]:
            sides = (best["combination"], best["execution"]), (least["combination"], least["execution"])
            yield number, case["why"], *sides
        else:
            yield number, case["why"], *_two(evidence.outcomes_of(database, sweep_id, number), ())
    for cause in failures["cells"][:FAILURES]:
        number = numbers.get(cause["example"]["case"])
        if number is None or not cause["example"]["execution"]:
            continue
        outcomes = evidence.outcomes_of(database, sweep_id, number)
        failed = next(((c, id) for c, _, id in outcomes if id == cause["example"]["execution"]), None)
        well = next(((c, id) for c, status, id in outcomes if status == "succeeded" and id), None)
        # The side that did well comes first, as the best does in the other cases.
        yield number, "failed", well or failed, failed if well else None


def _every(database: Database, sweep: SweepRow, worst: documents.TellingCases) -> Iterator[Pair]:
    """All cases in their order: of each the best and the worst combination by the primary metric."""
    sweep_id, sign = sweep.id, -1.0 if worst["better"] == "lower" else 1.0
    scores: dict[int, list[tuple[int, float]]] = {}
    rows = Scores(database, sweep).case_rows(worst["metric"]).tolist() if worst["metric"] else []
    for combination, case, score, _ in rows:
        scores.setdefault(int(case), []).append((int(combination), score))
    for number in evidence.case_numbers(database, sweep_id).values():
        ranked = sorted(scores.get(number, ()), key=lambda pair: -sign * pair[1])
        order = [ranked[0][0], ranked[-1][0]] if ranked else []
        yield number, "all", *_two(evidence.outcomes_of(database, sweep_id, number), order)


def _two(
    outcomes: Sequence[tuple[int, str, str | None]], order: Sequence[int]
) -> tuple[tuple[int, str] | None, tuple[int, str] | None]:
    """Two combinations with an execution, those of `order` first; None where there are fewer."""
    executions = {combination: id for combination, _, id in outcomes if id}
    combinations = list(dict.fromkeys([*(number for number in order if number in executions), *executions]))[:2]
    first, second = [(combination, executions[combination]) for combination in combinations] + [None] * (
        2 - len(combinations)
    )
    return first, second


def _files_of(database: Database, project: str) -> Workspaces | None:
    try:
        return workspaces_of(database).of_project(project)
    except WTBError:
        # The shared directory is not on this machine. The report then has everything except files.
        return None


@frozen
class _Source:
    """The source of cases, and the room that is left for them."""

    database: Database
    sweep_id: str
    matrix: MatrixDocument
    workspaces: Workspaces | None
    room: _Room


def _case(source: _Source, number: int, why: str, sides: Sequence[tuple[int, str]]) -> documents.OpenedCase:
    room = source.room
    row = queries.case_rows(source.database, source.sweep_id, [number])[number]
    stored = queries.load_values(source.database, row.input.values())
    inputs = {key: readable(stored[digest].data) for key, digest in row.input.items()}
    expected = None if row.expected is None else readable(row.expected.encode())
    return {
        "case": row.id,
        "why": why,
        "tags": list(row.tags or ()),
        "input": {key: room.text(content) for key, content in inputs.items()},
        "expected": None if expected is None else room.text(expected),
        "sides": [_side(source, combination, id, inputs, row.workspace) for combination, id in sides],
    }


def _side(
    source: _Source, combination: int, execution_id: str, inputs: Mapping[str, JsonValue], workspace: str | None
) -> documents.OpenedSide:
    database, room = source.database, source.room
    row = queries.find_execution(database, execution_id)
    document = execution_document(database, row, calls=True)
    choices = source.matrix["rows"][combination]["combination"]
    cell = next((candidate for candidate in document["cells"] if candidate["combination"] == choices), None)
    steps = document["path"]
    calls = [(step["node"], call) for step in steps for call in step["calls"]]
    tools = [(step["node"], invocation) for step in steps for invocation in step["invocations"]]
    # Inputs that are still the same are shown once, above both sides.
    changed = {
        key: content for key, content in document["state"].items() if key not in inputs or inputs[key] != content
    }
    return {
        "combination": combination,
        "execution": execution_id,
        "status": cell["status"] if cell else document["execution"]["status"],
        "scores": cell["scores"] if cell else {},
        "totals": document["totals"],
        "error": _error(document, room),
        "output": {key: room.text(content) for key, content in changed.items()},
        "steps": [_step(step) for step in steps[:STEPS]],
        "calls": [_call(node, call, room) for node, call in calls[:CALLS]]
        + [_tool(node, invocation, room) for node, invocation in tools[:CALLS]],
        "files": _files(database, row, workspace, source.workspaces),
        "more": {"steps": max(0, len(steps) - STEPS), "calls": max(0, len(calls) - CALLS) + max(0, len(tools) - CALLS)},
    }


def _error(document: ExecutionDocument, room: _Room) -> documents.CutText | None:
    about = document["execution"]
    if not about["error"]:
        return None
    return room.text("\n".join(filter(None, [about["error"], about["trace"].rstrip()])))


def _step(step: ShownStep) -> documents.OpenedStep:
    failed = [attempt["error"] for attempt in step["tried"] if attempt["error"]]
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


def _call(node: str, call: CallDocument, room: _Room) -> documents.OpenedCall:
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


def _tool(node: str, invocation: InvocationDocument, room: _Room) -> documents.OpenedCall:
    """A call of a tool, in the shape of a call of a model."""
    came = invocation["error"] if invocation["error"] is not None else invocation["result"]
    return {
        "node": node,
        "model": None,
        "tool": invocation["tool"],
        "tokens_in": None,
        "tokens_out": None,
        "usd": None,
        "duration_s": invocation["duration_s"],
        "prompt": room.text(invocation["arguments"]),
        "response": None if came is None else room.text(came),
    }


def _files(
    database: Database, row: ExecutionRow, before: str | None, workspaces: Workspaces | None
) -> documents.OpenedFiles | None:
    """Return the changes of an execution to the files of its case; None if they cannot be read."""
    if workspaces is None or row.head_id is None:
        return None
    try:
        after = details.find_checkpoint(database, row.head_id)[0].workspace
        changes = workspaces.compare(before, after)
        manifest = workspaces.files.manifest(after)
    except WTBError:
        # Retention has removed the files, or they are on another machine.
        return None
    listed: list[documents.OpenedFile] = [
        {
            "path": change.path,
            "kind": change.kind,
            "bytes": change.after,
            "sha256": manifest[change.path].digest if change.after is not None else None,
        }
        for change in changes[:FILES]
    ]
    return {"changes": listed, "more": max(0, len(changes) - FILES)}
