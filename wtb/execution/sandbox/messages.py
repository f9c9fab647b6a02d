"""What runner and node process say to each other, as frames and back.

Values travel as the bytes that are stored; everything else is plain JSON. What a node process says is untrusted, since
user code can write into the connection: the runner holds it against its shape, and raises Malformed for what has none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple
from typing import Any

from wtb.authoring import boundary
from wtb.authoring.boundary import Malformed
from wtb.authoring.context.allowance import Allowance
from wtb.authoring.context.ask import LONGEST_S
from wtb.authoring.context.ask import TEXT as QUESTION
from wtb.authoring.context.attempt_record import CaseView, Previous, Record
from wtb.authoring.evaluation.evaluators import EvaluationTask
from wtb.authoring.graph import Decision
from wtb.core.failures import MESSAGE, Failure
from wtb.core.questions import Answer, Question
from wtb.core.scoring.measure import Measure, Score
from wtb.core.scoring.scales import LEFT_OUT
from wtb.core.serialization.codec import decode, digest, encode
from wtb.core.tree.checkpoints import Position, Totals
from wtb.core.values import Value, Values
from wtb.execution.engine.protocol import Joined, Result, Root, Task, Writes
from wtb.execution.sandbox.framing import Frame

MOST_TASKS = 100_000  # of a node in one step
MOST_SCORE = sys.float_info.max


class Blobs:
    """The bytes of a frame, each once; heads refer to them by number."""

    def __init__(self) -> None:
        self.all: list[bytes] = []
        self._numbers: dict[str, int] = {}

    def add(self, value: Value) -> int:
        number = self._numbers.get(value.digest)
        if number is None:
            number = self._numbers[value.digest] = self.raw(value.data)
        return number

    def raw(self, data: bytes) -> int:
        self.all.append(data)
        return len(self.all) - 1

    def values(self, values: Values) -> list[list[Any]]:
        return [[name, value.digest, self.add(value)] for name, value in values.items()]


def _values(listed: Iterable[Sequence[Any]], blobs: Sequence[bytes]) -> dict[str, Value]:
    return {name: Value(digest, blobs[number]) for name, digest, number in listed}


def _case(case: CaseView, blobs: Blobs) -> list[Any]:
    return [case.id, case.tags, [[name, blobs.raw(data)] for name, data in case.encoded.items()]]


def _as_case(listed: Sequence[Any], blobs: Sequence[bytes]) -> CaseView:
    case, tags, encoded = listed
    return CaseView(case, tuple(tags), {name: blobs[number] for name, number in encoded})


def _root(root: Root, blobs: Blobs) -> list[Any]:
    return [_case(root.case, blobs), root.repeat, root.seed]


def _as_root(listed: Sequence[Any], blobs: Sequence[bytes], params: Mapping[str, Any]) -> Root:
    case, repeat, seed = listed
    return Root(_as_case(case, blobs), repeat, params, seed)


def _failure(failure: Failure | None) -> dict[str, Any] | None:
    return None if failure is None else asdict(failure)


def task(given: Task) -> tuple[dict[str, Any], list[bytes]]:
    """Everything but the parameters of the sweep, which every node process has: of a root, too."""
    blobs = Blobs()
    head = {
        "node": given.node,
        "number": given.number,
        "key": given.key,
        "variant": given.variant,
        "state": blobs.values(given.state),
        "position": given.position.document(),
        "case": _case(given.case, blobs),
        "repeat": given.repeat,
        "attempt": given.attempt,
        "failed": given.failed,
        "draws": given.draws,
        "seed": given.seed,
        "previous": _previous(given.previous),
        "timeout": given.timeout,
        "workspace": given.workspace,
        "allowed": given.allowed,
        "join": given.join,
        "asked": [_question(one, blobs) for one in given.asked],
        "answers": {key: asdict(answer) for key, answer in given.answers.items()},
        "saved": blobs.values(given.saved),
        "done": given.done,
        "interactive": given.interactive,
        "mode": given.mode,
        "nobody": given.nobody,
        "fine": given.fine,
        "allowance": None if given.allowance is None else asdict(given.allowance),
    }
    return head, blobs.all


def _previous(given: Previous | None) -> list[Any] | None:
    if given is None:
        return None
    output = encode(given.output).decode()
    return [given.attempt, given.limit, given.error, output, given.suggestions, given.feedback]


def _as_previous(listed: Sequence[Any] | None) -> Previous | None:
    if listed is None:
        return None
    attempt, limit, error, output, suggestions, feedback = listed
    return Previous(attempt, limit, error, decode(output.encode()), tuple(suggestions), feedback)


def as_task(frame: Frame, params: Mapping[str, Any]) -> Task:
    head, blobs = frame.head, frame.blobs
    return Task(
        head["node"],
        head["variant"],
        _values(head["state"], blobs),
        Position.read(head["position"]),
        _as_case(head["case"], blobs),
        repeat=head["repeat"],
        attempt=head["attempt"],
        failed=head["failed"],
        draws=head["draws"],
        seed=head["seed"],
        params=params,
        previous=_as_previous(head["previous"]),
        timeout=head["timeout"],
        workspace=head["workspace"],
        allowed=head["allowed"],
        join=head["join"],
        asked=tuple(_to_question(one, blobs) for one in head["asked"]),
        answers={key: Answer(**answer) for key, answer in head["answers"].items()},
        saved=_values(head["saved"], blobs),
        done=head["done"],
        interactive=head["interactive"],
        mode=head["mode"],
        nobody=head["nobody"],
        fine=head["fine"],
        allowance=_as_allowance(head["allowance"]),
        number=head["number"],
        key=head["key"],
    )


def _as_allowance(data: Mapping[str, Any] | None) -> Allowance | None:
    return None if data is None else Allowance(data["usd"], data["tokens"], tuple(data["declared"]))


def result(given: Result) -> tuple[dict[str, Any], list[bytes]]:
    """Everything but the record, which was reported as it happened."""
    blobs = Blobs()
    head = {
        "started_at": given.started_at,
        "duration_s": given.duration_s,
        "writes": None if given.writes is None else blobs.values(given.writes),
        "failure": _failure(given.failure),
        "question": None if given.question is None else _question(given.question, blobs),
        "asked": given.asked,
        "workspace": given.workspace,
        "files": given.files,
        "joined": _joined(given.joined, blobs),
    }
    return head, blobs.all


def as_result(frame: Frame, record: Record) -> Result:
    """Raises Malformed."""
    found: Result = _of(frame, "result", lambda head, blobs: _as_result(head, blobs, record))
    return found


def _as_result(head: Mapping[str, Any], blobs: Sequence[bytes], record: Record) -> Result:
    made = Result(
        boundary.number(head["started_at"]),
        boundary.number(head["duration_s"]),
        record,
        boundary.optional(lambda writes: _written(writes, blobs), head["writes"]),
        boundary.optional(_as_failure, head["failure"]),
        boundary.optional(lambda question: _asked(question, blobs), head["question"]),
        tuple(boundary.text(key) for key in head["asked"]),
        boundary.optional(boundary.digest_of_file, head["workspace"]),
        _as_joined(head["joined"], blobs),
        boundary.files(head["files"]),
    )
    if [made.writes, made.failure, made.question].count(None) != 2:
        raise Malformed("an attempt came to none of writes, a failure and a question, or to several")
    return made


def _of(frame: Frame, kind: str, read: Callable[[Any, Sequence[bytes]], Any]) -> Any:
    """What a frame of a node process says. Raises Malformed."""
    if frame.kind != kind:
        raise Malformed(f"found {frame.kind!r:.50}, expected {kind!r}")
    return boundary.shaped(lambda: read(frame.head, frame.blobs))


def _written(listed: Iterable[Sequence[Any]], blobs: Sequence[bytes]) -> dict[str, Value]:
    """Values that a node process made: their hashes are not taken on trust."""
    found = {}
    for name, _, number in listed:
        data = boundary.typed_json(blobs[boundary.count(number)])
        found[boundary.check_key(name, "a node process")] = Value(digest(data), data)
    return found


_FAILURES = ("error", "timeout", "state", "routing", "budget", "rejected", "disk")


def _as_failure(data: Mapping[str, Any]) -> Failure:
    if data["kind"] not in _FAILURES:
        raise Malformed(f"a failure of kind {data['kind']!r:.20}")
    return Failure(
        data["kind"],
        boundary.text(data["type"], 200),
        boundary.text(data["message"], MESSAGE),
        boundary.text(data["trace"], MESSAGE),
        data["final"] is True,
        boundary.optional(boundary.name, data["node"]),
        tuple(boundary.text(key) for key in data["asked"]),
    )


def _question(given: Question, blobs: Blobs) -> dict[str, Any]:
    return {**asdict(given), "context": None if given.context is None else blobs.raw(given.context)}


def _to_question(data: Mapping[str, Any], blobs: Sequence[bytes]) -> Question:
    context = None if data["context"] is None else blobs[data["context"]]
    return Question(**{**data, "options": tuple(data["options"]), "context": context})


def _asked(data: Mapping[str, Any], blobs: Sequence[bytes]) -> Question:
    """A question that a node process asks."""
    if data["kind"] not in ("ask", "action"):
        raise Malformed(f"a question of kind {data['kind']!r:.20}")
    return Question(
        data["kind"],
        boundary.text(data["node"], 300),
        boundary.text(data["text"], QUESTION),
        boundary.count(data["number"], 2**31 - 1),
        tuple(boundary.name(option) for option in data["options"]),
        None if data["context"] is None else boundary.typed_json(blobs[boundary.count(data["context"])]),
        boundary.optional(lambda seconds: boundary.number(seconds, most=LONGEST_S), data["timeout"]),
        boundary.optional(boundary.name, data["default"]),
    )


def _joined(given: Joined | Failure | None, blobs: Blobs) -> Any:
    if given is None or isinstance(given, Failure):
        return _failure(given)
    decisions = [[d.node, d.to, d.key, d.why] for d in given.decisions]
    return [blobs.values(given.changed), given.position.document(), decisions, given.dropped]


def _as_joined(listed: Any, blobs: Sequence[bytes]) -> Joined | Failure | None:
    if listed is None or isinstance(listed, dict):
        return None if listed is None else _as_failure(listed)
    changed, position, decisions, dropped = listed
    return Joined(
        _written(changed, blobs),
        _position(position),
        tuple(_decision(*one) for one in decisions),
        tuple(boundary.check_key(key, "a node process") for key in dropped),
    )


def _position(data: Mapping[str, Any]) -> Position:
    """Where a step leads to. That the next nodes are there is for those who know the workflow."""
    names = [boundary.name(node) for node in data["next"]]
    fan_out = {node: boundary.count(data.get("fan_out", {})[node], MOST_TASKS) for node in data.get("fan_out", {})}
    if len(set(names)) < len(names) or not fan_out.keys() <= set(names) or 0 in fan_out.values():
        raise Malformed("a position whose next nodes cannot be")
    return Position(
        boundary.count(data["step"], 2**31 - 1),
        tuple(names),
        {boundary.text(join): tuple(map(boundary.name, sources)) for join, sources in data["arrived"].items()},
        {boundary.name(node): boundary.count(times, 2**31 - 1) for node, times in data["visits"].items()},
        fan_out,
        boundary.document(data.get("engine")),
    )


def _decision(node: Any, to: Any, key: Any, why: Any) -> Decision:
    return Decision(boundary.name(node), boundary.name(to), boundary.optional(boundary.text, key), boundary.text(why))


def beginning(state: Values, root: Root) -> tuple[dict[str, Any], list[bytes]]:
    """A case to begin with."""
    blobs = Blobs()
    return {"state": blobs.values(state), "root": _root(root, blobs)}, blobs.all


def as_beginning(frame: Frame, params: Mapping[str, Any]) -> tuple[Values, Root]:
    head, blobs = frame.head, frame.blobs
    return _values(head["state"], blobs), _as_root(head["root"], blobs, params)


def step(state: Values, position: Position, writes: Writes, root: Root) -> tuple[dict[str, Any], list[bytes]]:
    """A step to be joined."""
    blobs = Blobs()
    head = {
        "state": blobs.values(state),
        "position": position.document(),
        "writes": [[task, blobs.values(update)] for task, update in writes],
        "root": _root(root, blobs),
    }
    return head, blobs.all


def as_step(frame: Frame, params: Mapping[str, Any]) -> tuple[Values, Position, Writes, Root]:
    head, blobs = frame.head, frame.blobs
    writes: list[tuple[str, Values]] = [(task, _values(update, blobs)) for task, update in head["writes"]]
    root = _as_root(head["root"], blobs, params)
    return _values(head["state"], blobs), Position.read(head["position"]), writes, root


def joined(given: Joined | Failure) -> tuple[Any, list[bytes]]:
    blobs = Blobs()
    return _joined(given, blobs), blobs.all


def as_joined(frame: Frame) -> Joined | Failure:
    """Raises Malformed."""
    found: Joined | Failure | None = _of(frame, "joined", _as_joined)
    if found is None:
        raise Malformed("a step that was asked for is neither joined nor failed")
    return found


def evaluation(given: EvaluationTask, first: int) -> tuple[dict[str, Any], list[bytes]]:
    """A cell to be scored by the evaluators from this one on."""
    blobs = Blobs()
    head = {
        "first": first,
        "case": [given.case_id, given.tags],
        "input": blobs.values(given.input),
        "expected": None if given.expected is None else blobs.raw(given.expected),
        "state": blobs.values(given.state),
        "path": given.path,
        "totals": asdict(given.totals),
        "workspace": given.workspace,
    }
    return head, blobs.all


def as_evaluation(frame: Frame) -> EvaluationTask:
    head, blobs = frame.head, frame.blobs
    case, tags = head["case"]
    return EvaluationTask(
        case,
        tuple(tags),
        _values(head["input"], blobs),
        None if head["expected"] is None else blobs[head["expected"]],
        _values(head["state"], blobs),
        tuple(head["path"]),
        Totals(**head["totals"]),
        head["workspace"],
    )


def scores(given: Iterable[Score]) -> list[list[Any]]:
    return [[score.metric, score.value, astuple(score.measure), score.error] for score in given]


def as_scores(frame: Frame) -> list[Score]:
    """Raises Malformed."""
    found: list[Score] = _of(frame, "scores", lambda head, _: [_score(*one) for one in head])
    return found


def as_full(frame: Frame) -> Failure:
    """Why a cell cannot be scored just now. Raises Malformed."""
    found: Failure = _of(frame, "full", lambda head, _: _as_failure(head))
    if found.kind != "disk":
        raise Malformed(f"a disk that is not full ({found.kind})")
    return found


def reported_scores(what: str, data: Any) -> list[Score]:
    """The scores of an evaluator that others follow. Raises Malformed."""
    if what != "scored":
        raise Malformed(f"found a report {what!r:.50}, expected scores")
    found: list[Score] = boundary.shaped(lambda: [_score(*one) for one in data])
    return found


def _score(metric: Any, value: Any, measure: Any, error: Any) -> Score:
    better, declared, compare, *ends, on_failure = measure
    is_measure = better in ("higher", "lower") and isinstance(declared, bool) and compare in ("mean", "median")
    if not is_measure or (value is None) == (error is None):
        raise Malformed("a score that is none")
    number, low, high = (
        boundary.optional(lambda given: boundary.number(given, -MOST_SCORE, MOST_SCORE), one) for one in (value, *ends)
    )
    if low is not high and (low is None or high is None or not low < high):
        raise Malformed("a scale that is none")
    if on_failure != LEFT_OUT:
        on_failure = boundary.optional(lambda given: boundary.number(given, -MOST_SCORE, MOST_SCORE), on_failure)
    shaped = Measure(better, declared, compare, low, high, on_failure)
    return Score(boundary.name(metric), number, shaped, boundary.optional(boundary.text, error))


def as_returned(frame: Frame) -> str | Failure:
    """What a tool returned, as typed JSON. Raises Malformed."""
    found: str | Failure = _of(frame, "tool", lambda head, _: _returned(head))
    return found


def _returned(head: Any) -> str | Failure:
    if isinstance(head, dict):
        return _as_failure(head)
    text: str = boundary.typed_json(head)
    return text
