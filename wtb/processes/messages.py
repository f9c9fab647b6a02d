"""What runner and node process say to each other, as frames and back.

Values travel as the bytes that are stored; everything else is plain JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from wtb.allowances import Allowance
from wtb.approvals import Answer, Question
from wtb.codec import decode, encode
from wtb.context import CaseView, Previous, Record
from wtb.engine import Failure, Joined, Result, Root, Task, Value, Values, Writes
from wtb.evaluation import EvaluationTask, Score
from wtb.graph import Decision
from wtb.history import Position, Totals
from wtb.processes.frames import Frame


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


def _as_allowance(said: Mapping[str, Any] | None) -> Allowance | None:
    return None if said is None else Allowance(said["usd"], said["tokens"], tuple(said["declared"]))


def result(given: Result) -> tuple[dict[str, Any], list[bytes]]:
    """Everything but the record, which was told as it came about."""
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
    head = frame.head
    return Result(
        head["started_at"],
        head["duration_s"],
        record,
        None if head["writes"] is None else _values(head["writes"], frame.blobs),
        None if head["failure"] is None else Failure(**head["failure"]),
        None if head["question"] is None else _to_question(head["question"], frame.blobs),
        tuple(head["asked"]),
        head["workspace"],
        _as_joined(head["joined"], frame.blobs),
        tuple((digest, size) for digest, size in head["files"]),
    )


def _question(given: Question, blobs: Blobs) -> dict[str, Any]:
    return {**asdict(given), "context": None if given.context is None else blobs.raw(given.context)}


def _to_question(said: Mapping[str, Any], blobs: Sequence[bytes]) -> Question:
    context = None if said["context"] is None else blobs[said["context"]]
    return Question(**{**said, "options": tuple(said["options"]), "context": context})


def _joined(given: Joined | Failure | None, blobs: Blobs) -> Any:
    if given is None or isinstance(given, Failure):
        return _failure(given)
    decisions = [[d.node, d.to, d.key, d.why] for d in given.decisions]
    return [blobs.values(given.changed), given.position.document(), decisions, given.dropped]


def _as_joined(listed: Any, blobs: Sequence[bytes]) -> Joined | Failure | None:
    if listed is None or isinstance(listed, dict):
        return None if listed is None else Failure(**listed)
    changed, position, decisions, dropped = listed
    return Joined(
        _values(changed, blobs),
        Position.read(position),
        tuple(Decision(*one) for one in decisions),
        tuple(dropped),
    )


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
    found = _as_joined(frame.head, frame.blobs)
    assert found is not None, "a step that was asked for is joined, or has failed"
    return found


def evaluation(given: EvaluationTask) -> tuple[dict[str, Any], list[bytes]]:
    blobs = Blobs()
    head = {
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
    return [[score.metric, score.value, score.better, score.error] for score in given]


def as_scores(frame: Frame) -> list[Score]:
    return [Score(*one) for one in frame.head]
