"""The runner rejects every message of a node process that does not have the expected shape."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.support.prose import sentence
from wtb.authoring.boundary import Malformed, check_key, plain, report
from wtb.authoring.context.attempt_record import Record
from wtb.authoring.graph import Decision
from wtb.core.errors import StateError
from wtb.core.failures import Failure
from wtb.core.questions import Question
from wtb.core.scoring.measure import Measure, Score
from wtb.core.serialization.plain_json import storable
from wtb.core.tree.checkpoints import Position
from wtb.core.values import Value
from wtb.execution.engine.protocol import Joined, Result
from wtb.execution.sandbox import messages
from wtb.execution.sandbox.framing import Frame, Inbox, packed

DIGEST = "a" * 64
JOINED = Joined(
    {"y": Value.of([1, 2])},
    Position(3, ("a", "b"), {"a+b>c": ("a",)}, {"a": 2}, {"b": 4}, {"graph": ""}),
    (Decision("a", "b", "key", "why"),),
    ("z",),
)
RESULTS = [
    Result(1.0, 2.0, Record(), {"y": Value.of(1)}, workspace=DIGEST, joined=JOINED, files=((DIGEST, 5),)),
    Result(1.0, 2.0, Record(), failure=Failure("error", "ValueError", "no", "at", True, "a", ("b",))),
    Result(1.0, 2.0, Record(), question=Question("ask", "a", "why?", 0, ("x", "y"), b"1", 5.0, "x"), asked=("k",)),
]
SCORES = [Score("m", 1.0, Measure(low=0.0, high=1.0)), Score("n", None, Measure("lower"), "no")]
ODD: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, 2**64 - 1, 1e308, -0.5, "", "a", "a\0b", "x" * 5000, [], [[]], [1, 2, 3],
    {}, {"": None}, {"a\0": 1}, [None] * 4, {"kind": "killed"}, "../../etc/passwd",
]  # fmt: skip


def mutated(head: Any, rng: random.Random) -> Any:
    """A copy of a JSON value in which a few parts are changed, removed or duplicated."""
    mutant = copy.deepcopy(head)
    for _ in range(rng.randint(1, 3)):
        place, parents = mutant, []
        while isinstance(place, dict | list) and place and (not parents or rng.random() < 0.7):
            key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
            parents.append((place, key))
            place = place[key]
        if not parents:
            return rng.choice(ODD)
        holder, key = parents[-1]
        act = rng.random()
        if act < 0.7:
            holder[key] = copy.deepcopy(rng.choice(ODD))
        elif act < 0.9:
            del holder[key]
        elif isinstance(holder, list):
            holder.append(rng.choice(ODD))
        else:
            holder["more"] = rng.choice(ODD)
    return mutant


def sent(kind: str, head: Any) -> Frame:
    """A frame as it arrives."""
    (frame,) = Inbox().feed(packed(kind, head))
    return frame


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_with_anything_in_its_place_is_read_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    read: list[tuple[str, Any, Callable[[Frame], Any]]] = [
        *(
            ("result", messages.result(outcome), lambda frame: messages.as_result(frame, Record()))
            for outcome in RESULTS
        ),
        ("joined", messages.joined(JOINED), messages.as_joined),
        ("scores", SCORES, messages.as_scores),
        ("tool", "[1]", messages.as_returned),
    ]
    refused = 0
    for kind, content, reads in read:
        head, blobs = sent(kind, content).head, sent(kind, content).blobs
        reads(Frame(kind, head, blobs))
        for _ in range(300):
            try:
                reads(Frame(kind, mutated(head, rng), blobs))
            except Malformed:
                refused += 1
    assert refused > 1000


def test_hashes_of_values_that_a_node_process_sends_are_its_own_runner_s() -> None:
    head = sent("result", messages.result(RESULTS[0])).head
    node_result = messages.as_result(Frame("result", {**head, "joined": None}, [b"666"]), Record())
    assert node_result.writes == {"y": Value.of(666)}
    with pytest.raises(Malformed):
        messages.as_result(Frame("result", {**head, "joined": None}, [b"no JSON"]), Record())


@pytest.mark.parametrize(
    ("what", "content"),
    [
        ("spent", [0.5, 1, 2]),
        ("event", ["node.log", 1.0, {"message": "a"}]),
        ("suggestion", "a"),
        ("output", "[1]"),
        (
            "call",
            dict.fromkeys(("model", "tool", "prompt", "response", "duration_s", "cached"))
            | {"tokens_in": 1, "tokens_out": 1, "usd": 0.5, "at": 1.0},
        ),
        (
            "checkpoint",
            {
                "name": "a",
                "trigger": "time",
                "saved": {"k": "1"},
                "workspace": DIGEST,
                "files": [[DIGEST, 1]],
                "at": 1,
            },
        ),
        (
            "tool",
            {
                "tool": "t",
                "arguments": "{}",
                "result": "1",
                "error": None,
                "at": 1,
                "duration_s": 1,
                "status": "done",
                "version": None,
            },
        ),
    ],
)
def test_a_report_with_anything_in_its_place_can_be_stored_or_is_refused(what: str, content: Any) -> None:
    rng = random.Random(what)
    report(what, content)
    for _ in range(300):
        try:
            stored = report(what, mutated(content, rng))
        except Malformed:
            continue
        assert b"\\u0000" not in orjson.dumps(stored)


def test_events_that_only_wtb_writes_cannot_be_reported() -> None:
    with pytest.raises(Malformed, match=sentence("found an event")):
        report("event", ["cell.succeeded", 1.0, {}])
    with pytest.raises(Malformed, match="found a report"):
        report("outcome", [])


def test_anything_can_be_shown_in_an_event() -> None:
    for detail in [object(), {5: {"\0": "\udc80"}}, 10**5000, {1, 2}, float("nan"), [[[[{"a": b"b"}]]]]]:
        assert b"\\u0000" not in orjson.dumps(plain(detail))


@pytest.mark.parametrize("key", [5, None, b"a", ("a",), "a\0", "\ud800", "x" * 1001])
def test_a_key_that_cannot_be_stored_is_refused(key: object) -> None:
    with pytest.raises(StateError, match="node 'a' wrote"):
        check_key(key, "node 'a'")


@pytest.mark.parametrize("text", ["x" * 300, "\udc80" * 150, "\0" * 300, "é" * 201])
def test_a_text_for_a_column_of_so_many_characters_fits_into_it(text: str) -> None:
    assert len(storable(text, 200)) <= 200
