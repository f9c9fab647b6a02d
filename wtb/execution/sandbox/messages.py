"""Messages between the runner and a node process: the heads of frames, and how each side reads them.

Values travel as the bytes that are stored, everything else as JSON. Messages of the runner are trusted. Those of a
node process are not, since user code can write into the connection: the runner checks them field by field, and raises
Malformed for any other shape.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any, TypeVar

from wtb.authoring import boundary
from wtb.authoring.boundary import Malformed
from wtb.authoring.context.ask import TEXT as QUESTION
from wtb.authoring.context.attempt_record import Allowance, CaseView, Previous, Record, Undecoded
from wtb.authoring.evaluation.evaluators import EvaluationTask
from wtb.authoring.graph import Decision, Tried
from wtb.core.failures import MESSAGE, Failure
from wtb.core.provider_faults import REASONS, ProviderFault
from wtb.core.questions import Answer, Question
from wtb.core.scoring.measure import FIGURES, OBSERVED, Measure, Score, read_observed, read_passes
from wtb.core.scoring.scores import LEFT_OUT, stored_reason
from wtb.core.serialization.codec import digest, encode
from wtb.core.tree.checkpoints import Position, StoredPosition, Totals
from wtb.core.units import LONGEST_S
from wtb.core.values import Params, Value, Values
from wtb.execution.engine.protocol import Joined, Result, Root, Settings, Task, Writes
from wtb.execution.sandbox.framing import (
    Beginning,
    Frame,
    ReadCase,
    ReadFailure,
    ReadPrevious,
    ReadQuestion,
    ReadResult,
    ReadValues,
    Scoring,
    SentCase,
    SentValues,
    StepToJoin,
)

T = TypeVar("T")
MOST_TASKS = 100_000  # of a node in one step
MOST_SCORE = sys.float_info.max


def _case(case: CaseView) -> SentCase:
    return case.id, case.tags, case.encoded


def _as_case(listed: ReadCase, blobs: Sequence[bytes]) -> CaseView:
    case, tags, encoded = listed
    return CaseView(case, tuple(tags), {name: blobs[number] for name, number in encoded.items()})


def _root(root: Root) -> Sequence[object]:
    return [_case(root.case), root.repeat, root.seed]


def _as_root(listed: Sequence[Any], blobs: Sequence[bytes], params: Params) -> Root:
    case, repeat, seed = listed
    return Root(_as_case(case, blobs), repeat, params, seed)


def _values(values: Values) -> SentValues:
    return {name: (value.digest, value.data) for name, value in values.items()}


def _as_values(sent: ReadValues, blobs: Sequence[bytes]) -> dict[str, Value]:
    return {name: Value(digest, blobs[number]) for name, (digest, number) in sent.items()}


def _sent_fields(record: type[Any], *omitted: str) -> Sequence[tuple[str, object]]:
    """Return the fields of a dataclass that travel, with their defaults: a field with its default is left out."""
    return [
        (field.name, field.default if field.default_factory is MISSING else field.default_factory())
        for field in fields(record)
        if field.name not in omitted
    ]


# The root goes without its parameters, which a node process has; neither the claim nor who listens concerns it.
_TASK = _sent_fields(Task, "root", "execution", "token", "on_event")
# The record was reported as it happened, and the runner captures the output itself.
_RESULT = _sent_fields(Result, "record", "stdout", "stderr")


def task(task: Task) -> dict[str, object]:
    """Make the head of a frame for an attempt."""
    head = {name: field for name, default in _TASK if (field := getattr(task, name)) != default}
    head["root"], head["state"] = _root(task.root), _values(task.state)
    if task.saved:
        head["saved"] = _values(task.saved)
    if task.previous is not None:
        output = task.previous.output
        encoded = output.data if isinstance(output, Undecoded) else encode(output)
        head["previous"] = {**vars(task.previous), "output": encoded}
    return head


def as_task(frame: Frame, params: Params) -> Task:
    """Read an attempt; `params` are those of the sweep."""
    return Task(**_as_fields(frame.head, frame.blobs, params))


def _as_fields(head: Mapping[str, Any], blobs: Sequence[bytes], params: Params) -> dict[str, Any]:
    # The names of fields, not the equal keys of the head: Python finds parameters faster by the same string object.
    sent = {name: head[name] for name, _ in _TASK if name in head}
    for name, read in _READ_TASK.items():
        if name in sent:
            sent[name] = read(sent[name], blobs)
    if "root" in head:
        sent["root"] = _as_root(head["root"], blobs, params)
    return sent


def tasks(batch: Sequence[Task], until: float) -> object:
    """Make the head of a frame for several attempts, made in order. Common parts are in it once.

    Args:
        batch: The attempts.
        until: The time of the monotonic clock, shared by all processes of a machine, after which none of them begins.
    """
    heads = list(map(task, batch))
    first, rest = heads[0], heads[1:]
    common = {
        name: field for name, field in first.items() if all(name in head and head[name] == field for head in rest)
    }
    return [until, common, [{name: head[name] for name in head if name not in common} for head in heads]]


def as_tasks(frame: Frame, params: Params) -> tuple[float, list[Task]]:
    """Read several attempts, as `tasks` wrote them. Common parts are read once, because they are immutable."""
    until, common, heads = frame.head
    shared = _as_fields(common, frame.blobs, params)
    return until, [Task(**shared, **_as_fields(head, frame.blobs, params)) for head in heads]


def _as_previous(sent: ReadPrevious, blobs: Sequence[bytes]) -> Previous:
    output, suggestions = Undecoded(blobs[sent["output"]]), tuple(sent["suggestions"])
    return Previous(sent["attempt"], sent["limit"], sent["error"], output, suggestions, sent["feedback"])


def _as_question(sent: ReadQuestion, blobs: Sequence[bytes]) -> Question:
    return Question(
        sent["kind"],
        sent["node"],
        sent["text"],
        sent["number"],
        tuple(sent["options"]),
        None if sent["context"] is None else blobs[sent["context"]],
        sent["timeout"],
        sent["default"],
    )


_READ_TASK: Mapping[str, Callable[[Any, Sequence[bytes]], Any]] = {
    "state": _as_values,
    "saved": _as_values,
    "position": lambda data, blobs: Position.read(data),
    "settings": lambda data, blobs: Settings(**data),
    "previous": _as_previous,
    "allowance": lambda data, blobs: Allowance(data["usd"], data["tokens"], tuple(data["declared"])),
    "answers": lambda data, blobs: {key: Answer(**answer) for key, answer in data.items()},
    "asked": lambda data, blobs: tuple(_as_question(question, blobs) for question in data),
}


def result(outcome: Result) -> object:
    """Make the head of a frame for the result of an attempt."""
    head = {name: field for name, default in _RESULT if (field := getattr(outcome, name)) != default}
    if outcome.writes is not None:
        head["writes"] = _data(outcome.writes)
    if outcome.joined is not None:
        head["joined"] = joined(outcome.joined)
    return head


def joined(step: Joined | Failure) -> Any:
    """Make the head of a frame for a joined step, or for its failure."""
    if isinstance(step, Failure):
        return step
    position, changed = step.position.document(), _data(step.changed)
    return {"changed": changed, "position": position, "decisions": step.decisions, "dropped": step.dropped}


def _data(values: Values) -> dict[str, bytes]:
    """Return values as a node process sends them, without digests: the runner hashes them itself."""
    return {name: value.data for name, value in values.items()}


def as_result(frame: Frame, record: Record) -> Result:
    """Read the result of an attempt. Raises Malformed."""
    return read_frame(frame, "result", lambda head, blobs: _as_result(head, blobs, record))


def _as_result(head: ReadResult, blobs: Sequence[bytes], record: Record) -> Result:
    outcome = Result(
        boundary.number(head["started_at"]),
        boundary.number(head["duration_s"]),
        record,
        boundary.optional(lambda writes: written_values(writes, blobs), head.get("writes")),
        boundary.optional(_as_failure, head.get("failure")),
        boundary.optional(lambda question: _node_question(question, blobs), head.get("question")),
        tuple(boundary.text(key) for key in head.get("asked", ())),
        boundary.optional(boundary.digest_of_file, head.get("workspace")),
        boundary.optional(lambda joined: _as_joined(joined, blobs), head.get("joined")),
        boundary.files(head.get("files", ())),
        lag_s=boundary.optional(boundary.number, head.get("lag_s")),
    )
    if [outcome.writes, outcome.failure, outcome.question].count(None) != 2:
        raise Malformed("an attempt came to none of writes, a failure and a question, or to several")
    return outcome


def read_frame(frame: Frame, kind: str, read: Callable[[Any, Sequence[bytes]], T]) -> T:
    """Read a frame that a node process sent. Raises Malformed."""
    if frame.kind != kind:
        raise Malformed(f"found {frame.kind!r:.50}, expected {kind!r}")
    return boundary.shaped(lambda: read(frame.head, frame.blobs))


def written_values(sent: Mapping[str, int], blobs: Sequence[bytes]) -> dict[str, Value]:
    """Read values of a node process, whose hashes are computed here instead of trusted."""
    values = {}
    for name, number in sent.items():
        content = boundary.typed_json(blobs[boundary.count(number)])
        values[boundary.check_key(name, "a node process")] = Value(digest(content), content)
    return values


_FAILURES = ("error", "timeout", "state", "routing", "budget", "rejected", "disk", "provider")


def _as_failure(sent: ReadFailure) -> Failure:
    # Kinds that the runner itself decides, such as "killed" or "lost", cost no retry, so a process cannot claim them.
    if sent["kind"] not in _FAILURES or (sent["kind"] == "provider") != (sent["provider"] is not None):
        raise Malformed(f"a failure of kind {sent['kind']!r:.20}")
    return Failure(
        sent["kind"],
        boundary.text(sent["type"], 200),
        boundary.text(sent["message"], MESSAGE),
        boundary.text(sent["trace"], MESSAGE),
        sent["final"] is True,
        boundary.optional(boundary.name, sent["node"]),
        tuple(boundary.text(key) for key in sent["asked"]),
        boundary.optional(_as_fault, sent["provider"]),
    )


def _as_fault(sent: ProviderFault) -> ProviderFault:
    if sent["reason"] not in REASONS:
        raise Malformed(f"a fault of a provider with the reason {sent['reason']!r:.20}")
    return {
        "provider": boundary.text(sent["provider"], 200),
        "reason": sent["reason"],
        "status": boundary.optional(lambda status: boundary.count(status, 999), sent["status"]),
        "retry_after_s": boundary.optional(
            lambda seconds: boundary.number(seconds, maximum=LONGEST_S), sent["retry_after_s"]
        ),
    }


def _node_question(sent: ReadQuestion, blobs: Sequence[bytes]) -> Question:
    """Read a question from a node process."""
    if sent["kind"] not in ("ask", "action"):
        raise Malformed(f"a question of kind {sent['kind']!r:.20}")
    return Question(
        sent["kind"],
        boundary.text(sent["node"], 300),
        boundary.text(sent["text"], QUESTION),
        boundary.count(sent["number"], 2**31 - 1),
        tuple(boundary.name(option) for option in sent["options"]),
        None if sent["context"] is None else boundary.typed_json(blobs[boundary.count(sent["context"])]),
        boundary.optional(lambda seconds: boundary.number(seconds, maximum=LONGEST_S), sent["timeout"]),
        boundary.optional(boundary.name, sent["default"]),
    )


def _as_joined(sent: Any, blobs: Sequence[bytes]) -> Joined | Failure:
    if "kind" in sent:
        return _as_failure(sent)
    return Joined(
        written_values(sent["changed"], blobs),
        _position(sent["position"]),
        tuple(_decision(**decision) for decision in sent["decisions"]),
        tuple(boundary.check_key(key, "a node process") for key in sent["dropped"]),
    )


def _position(sent: StoredPosition) -> Position:
    """Read the position that a step leads to. Callers check that the workflow has the next nodes."""
    names = [boundary.name(node) for node in sent["next"]]
    fan_out = {node: boundary.count(sent.get("fan_out", {})[node], MOST_TASKS) for node in sent.get("fan_out", {})}
    if len(set(names)) < len(names) or not fan_out.keys() <= set(names) or 0 in fan_out.values():
        raise Malformed("a position whose next nodes cannot be")
    return Position(
        boundary.count(sent["step"], 2**31 - 1),
        tuple(names),
        {boundary.text(join): tuple(map(boundary.name, sources)) for join, sources in sent["arrived"].items()},
        {boundary.name(node): boundary.count(times, 2**31 - 1) for node, times in sent["visits"].items()},
        fan_out,
        boundary.document(sent.get("engine")),
    )


def _decision(node: Any, to: Any, key: Any, why: Any, tried: Any) -> Decision:
    edges = tuple(_tried_edge(**edge) for edge in tried)
    key = boundary.optional(boundary.text, key)
    return Decision(boundary.name(node), boundary.name(to), key, boundary.text(why), edges)


def _tried_edge(to: Any, when: Any, is_taken: Any) -> Tried:
    return Tried(boundary.name(to), boundary.optional(boundary.text, when), is_taken is True)


def beginning(state: Values, root: Root) -> Beginning:
    """Make the head of a frame for a case to begin."""
    return {"state": _values(state), "root": _root(root)}


def as_beginning(frame: Frame, params: Params) -> tuple[Values, Root]:
    head, blobs = frame.head, frame.blobs
    return _as_values(head["state"], blobs), _as_root(head["root"], blobs, params)


def step(state: Values, position: Position, writes: Writes, root: Root) -> StepToJoin:
    """Make the head of a frame for a step to join."""
    updates = [(task, _values(update)) for task, update in writes]
    return {"state": _values(state), "position": position.document(), "writes": updates, "root": _root(root)}


def as_step(frame: Frame, params: Params) -> tuple[Values, Position, Writes, Root]:
    head, blobs = frame.head, frame.blobs
    writes: list[tuple[str, Values]] = [(task, _as_values(update, blobs)) for task, update in head["writes"]]
    root = _as_root(head["root"], blobs, params)
    return _as_values(head["state"], blobs), Position.read(head["position"]), writes, root


def as_joined(frame: Frame) -> Joined | Failure:
    """Read a joined step, or its failure. Raises Malformed."""
    return read_frame(frame, "joined", _as_joined)


def evaluation(task: EvaluationTask, first: int) -> Scoring:
    """Make the head of a frame for a cell to score with the evaluators from number `first` on."""
    sent = {name: getattr(task, name) for name in EvaluationTask.__slots__}
    head = sent | {"input": _values(task.input), "state": _values(task.state)}
    return {"first": first, "task": head}


def as_evaluation(frame: Frame) -> EvaluationTask:
    head, blobs = frame.head["task"], frame.blobs
    values = {
        "tags": tuple(head["tags"]),
        "path": tuple(head["path"]),
        "totals": Totals(**head["totals"]),
        "input": _as_values(head["input"], blobs),
        "state": _as_values(head["state"], blobs),
        "expected": None if head["expected"] is None else blobs[head["expected"]],
    }
    return EvaluationTask(**(head | values))


def as_scores(frame: Frame) -> list[Score]:
    """Read the scores of the last evaluator. Raises Malformed."""
    return read_frame(frame, "scores", lambda head, _: [_score(**score) for score in head])


def as_full(frame: Frame) -> Failure:
    """Read the disk failure for which a cell cannot be scored now. Raises Malformed."""
    failure = read_frame(frame, "full", lambda head, _: _as_failure(head))
    if failure.kind != "disk":
        raise Malformed(f"a disk that is not full ({failure.kind})")
    return failure


def reported_scores(what: str, sent: Any) -> list[Score]:
    """Read the scores of an evaluator that is not the last. Raises Malformed."""
    if what != "scored":
        raise Malformed(f"found a report {what!r:.50}, expected scores")
    return boundary.shaped(lambda: [_score(**score) for score in sent])


def _score(
    metric: Any,
    value: Any,
    measure: Any,
    error: Any,
    observed: Any,
    version: Any,
    spent: Any = 0.0,
    reason: Any = None,
) -> Score:
    """Read one score: a value, an error or neither, with how its metric is read. Raises Malformed."""
    sent = Measure(**measure)
    is_measure = sent.better in ("higher", "lower") and sent.compare in ("mean", "median")
    if not is_measure or not isinstance(sent.declared, bool) or None not in (value, error):
        raise Malformed("an invalid score")
    if (sent.figure is not None and sent.figure not in FIGURES) or (observed is None) != (
        sent.figure is None or value is None
    ):
        raise Malformed("an invalid figure")
    if sent.passes is not None and (not isinstance(sent.passes, str) or read_passes(sent.passes) is None):
        raise Malformed("an invalid figure over repeats")
    low, high = boundary.optional(_score_number, sent.low), boundary.optional(_score_number, sent.high)
    if low is not high and (low is None or high is None or not low < high):
        raise Malformed("an invalid scale")
    on_failure = sent.on_failure
    if on_failure != LEFT_OUT:
        on_failure = boundary.optional(_score_number, on_failure)
    checked = replace(sent, low=low, high=high, on_failure=on_failure)
    number, why = boundary.optional(_score_number, value), boundary.optional(boundary.text, error)
    return Score(
        boundary.name(metric),
        number,
        checked,
        why,
        boundary.optional(_observed, observed),
        boundary.optional(boundary.name, version),
        boundary.optional(_spent, spent),
        boundary.optional(_reason, reason),
    )


def _reason(sent: Any) -> str | None:
    return stored_reason(boundary.text(sent))


def _spent(sent: Any) -> float:
    amount = _score_number(sent)
    if amount < 0:
        raise Malformed("less than nothing was spent")
    return amount


def _observed(sent: Any) -> str:
    text = boundary.text(sent)
    if len(text) > OBSERVED:
        raise Malformed(f"the cell value of a figure, of {len(text):,} characters")
    read_observed(text)
    return text


def _score_number(sent: Any) -> float:
    return boundary.number(sent, -MOST_SCORE, MOST_SCORE)


def as_returned(frame: Frame) -> str | Failure:
    """Read the result of a tool, as typed JSON. Raises Malformed."""
    return read_frame(frame, "tool", lambda head, _: _returned(head))


def _returned(head: Any) -> str | Failure:
    if not isinstance(head, str):
        return _as_failure(head)
    text: str = boundary.typed_json(head)
    return text
