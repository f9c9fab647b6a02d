"""`wtb judge rank`: rows ranked by comparisons, which these tests generate."""

from __future__ import annotations

import json
import threading
import time
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import wtb
from tests.support.model_server import ModelHandler
from tests.support.prose import sentence
from wtb.core.errors import InputError
from wtb.core.scoring.scores import Judgement
from wtb.features.judging.ranking import Asking

if TYPE_CHECKING:
    from tests.support.project import Project

FLOW = """
from wtb import END, Workflow

wf = Workflow("ranked")


@wf.node
def answer(state, *, words: int = 1):
    if words == 3 and state["x"] == 0:
        raise ValueError("no answer")
    return {"answer": "word " * words}


answer.variant("longer", words=2)
answer.variant("longest", words=3)
answer.variant("same", words=2)
wf.entry(answer)
wf.edge(answer, END)
"""
SWEEP = f"""
sweep: nightly
workflow: ranked:wf
cases: [{", ".join(f"{{id: c{number}, input: {{x: {number}}}}}" for number in range(40))}]
vary: {{answer: all}}
run: {{pool: thread}}
"""
NAMES = ("answer=default", "answer=longer", "answer=longest", "answer=same")
HEADER = "case,first,second,preferred,rater\n"


@pytest.fixture(scope="module")
def ranked(shared_project: Project) -> Project:
    shared_project.write({"ranked.py": FLOW, "sweep.yaml": SWEEP})
    shared_project.inside("run", "sweep.yaml", "-q")
    return shared_project


def prefer_longer(pair_text: str) -> Judgement:
    pair = json.loads(pair_text)
    first, other = len(pair["first"]), len(pair["second"])
    return Judgement(float((first > other) - (first < other)), usd=0.001)


def test_a_judge_is_asked_what_tells_most_until_the_best_is_known_and_nothing_twice(ranked: Project) -> None:
    bench = wtb.open(ranked.url or f"sqlite:///{ranked.file}")
    sweep, file = bench.sweep("nightly"), ranked.folder / "asked.jsonl"
    calls: list[str] = []

    def prefer(pair_text: str) -> Judgement:
        calls.append(pair_text)
        return prefer_longer(pair_text)

    asking = Asking(prefer, "answer", "length")
    ranking = sweep.rank(file, asking=asking)
    assert ranking.asked is not None
    assert (ranking.asked.ended, ranking.asked.calls, ranking.asked.failed) == ("known", len(calls), 0)
    assert ranking.asked.usd == pytest.approx(0.001 * len(calls))
    assert ranking.rows[0].combination == {"answer": "longest"}, "although it failed in a case, where any answer won"
    assert [row.could_be_best for row in ranking.rows] == [True, False, False, False]
    assert ranking.rows[0].rank[0] == 1
    assert ranking.shown_first.value == pytest.approx(0.5, abs=0.01)
    assert json.loads(calls[0])["input"]["x"] in range(40)
    assert all(
        len(set(map(json.dumps, (json.loads(call)["first"], json.loads(call)["second"])))) == 2 for call in calls
    )
    count = len(calls)
    repeated = sweep.rank(file, asking=asking)
    assert repeated.asked is not None
    assert (len(calls), repeated.asked.calls, repeated.rows) == (count, 0, ranking.rows)
    other = sweep.rank(file, asking=Asking(prefer, "answer", "length", "by other criteria", most=4))
    assert other.asked is not None
    assert (other.asked.ended, other.asked.calls <= 4) == ("most", True)
    bench.close()


def test_what_has_no_usable_reply_is_left_out_and_counted(ranked: Project) -> None:
    bench = wtb.open(ranked.url or f"sqlite:///{ranked.file}")

    def prefer(pair_text: str) -> Judgement:
        is_long = len(json.loads(pair_text)["first"]) > 10
        return Judgement(None, "refused", usd=None) if is_long else prefer_longer(pair_text)

    ranking = bench.sweep("nightly").rank(ranked.folder / "refused.jsonl", asking=Asking(prefer, "answer", "length"))
    assert ranking.asked is not None
    assert ranking.asked.failed > 0
    assert (ranking.asked.usd, ranking.asked.ended) == (None, "cases")
    bench.close()


def test_comparisons_of_people_are_ranked_from_a_file(ranked: Project) -> None:
    lines = [
        f"c{case},{first},{second},{preferred},{rater}\n"
        for case in range(30)
        for first, second, preferred in ((NAMES[1], NAMES[0], "first"), (NAMES[0], NAMES[1], "second"))
        for rater in ("ana", "ben")
    ]
    ranked.write({"people.csv": HEADER + "".join(lines) + f"c1,{NAMES[2]},{NAMES[3]},tie,\n"})
    text = ranked.text("judge", "rank", "nightly", "--comparisons", "people.csv")
    assert text.startswith("121 comparisons of 30 cases by ana, ben, rater")
    rows = json.loads(
        ranked.text(*("judge", "rank", "nightly", "--comparisons", "people.csv", "--rater", "ana", "-f", "json"))
    )["rows"]
    wins = {row["combination"]["answer"]: (row["comparisons"], row["wins"]) for row in rows}
    assert wins["longer"] == (60, 1.0)
    assert wins["default"] == (60, 0.0)
    assert wins["same"] == (0, None)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", sentence("no comparisons; expected at least one")),
        (
            f"c1,{NAMES[0]},{NAMES[1]},both,\n",
            "bad.csv:2: " + sentence("'preferred' is {}; expected first, second or tie", "'both'"),
        ),
        (f"c1,{NAMES[0]},,first,\n", "no 'second'"),
        (f"c1,{NAMES[0]},{NAMES[0]},first,\n", "expected two"),
        (f"c99,{NAMES[0]},{NAMES[1]},first,\n", sentence("the sweep has no case {}", "'c99'")),
        (f"c1,answer=defalt,{NAMES[1]},first,\n", "no row 'answer=defalt'; did you mean 'answer=default'?"),
    ],
)
def test_comparisons_that_cannot_be_are_refused(ranked: Project, lines: str, words: str) -> None:
    ranked.write({"bad.csv": HEADER + lines})
    assert words in ranked.refusal("judge", "rank", "nightly", "--comparisons", "bad.csv")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--model", "m"), sentence("expected --field with it")),
        (("--field", "answer"), sentence("--field is given without --model")),
        (
            ("--model", "m", "--field", "answr", "--url", "http://127.0.0.1:9/v1"),
            sentence("did you mean '{}'?", "answer"),
        ),
        (("--model", "m", "--field", "answer", "--url", "nowhere"), "expected the address of a server"),
        (("--model", "m", "--field", "answer", "--most", "0"), sentence("expected at least 1")),
    ],
)
def test_a_judge_that_cannot_be_asked_is_refused(ranked: Project, options: tuple[str, ...], words: str) -> None:
    refused = ranked.inside("judge", "rank", "nightly", "--comparisons", "new.jsonl", *options, check=2)
    assert words in refused.stderr


def test_a_judge_has_to_give_one_of_three_scores(ranked: Project) -> None:
    bench = wtb.open(ranked.url or f"sqlite:///{ranked.file}")
    with pytest.raises(InputError, match="expected 1, -1 or 0"):
        bench.sweep("nightly").rank(
            ranked.folder / "half.jsonl", asking=Asking(lambda _: Judgement(0.5), "answer", "half")
        )
    bench.close()


class Preferring(ModelHandler):
    """Prefer the longer answer in either order, and reject the fifth call. No model judges here."""

    bodies: ClassVar[list[dict[str, Any]]] = []
    at: ClassVar[list[float]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bodies.append(body)
        self.at.append(time.time())
        pair = json.loads(body["messages"][1]["content"])
        preferred = "first" if len(pair["first"]) > len(pair["second"]) else "second"
        content = json.dumps(
            {"reasoning": "It is longer.", "preferred": "both" if len(self.bodies) == 5 else preferred}
        )
        message = {"role": "assistant", "content": content}
        document = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"]}
        self.send(200, {**document, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


def test_a_model_is_asked_over_http_in_both_orders_and_its_replies_are_kept(ranked: Project) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Preferring)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    Preferring.bodies.clear()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        more = ("--model", "judge-1", "--field", "answer", "--criteria", "It is long.", "--url", url, "-f", "json")
        args = ("judge", "rank", "nightly", "--comparisons", "model.jsonl", "--per-minute", "1200", *more)
        began = time.time()
        document = json.loads(ranked.text(*args))
        bodies = list(Preferring.bodies)
        repeated = json.loads(ranked.text(*args))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert all(at >= began + number * 0.05 for number, at in enumerate(sorted(Preferring.at)[: len(bodies)]))
    assert document["rows"][0]["combination"] == {"answer": "longest"}
    assert (document["asked"]["ended"], document["asked"]["calls"], document["asked"]["failed"]) == (
        "known",
        len(bodies),
        1,
    )
    assert document["asked"]["usd"] is None, "another server has prices of its own"
    assert all("Criteria: It is long." in body["messages"][0]["content"] for body in bodies)
    orders = {(pair["input"]["x"], pair["first"], pair["second"]) for pair in map(_pair_of, bodies)}
    assert {(case, second, first) for case, first, second in orders} == orders
    lines = (ranked.folder / "model.jsonl").read_text("utf-8").splitlines()
    assert (len(lines), {json.loads(line)["rater"] for line in lines}) == (len(bodies) - 1, {"judge-1"})
    assert repeated["asked"]["calls"] == 1, "only what had no usable reply is asked again"


def _pair_of(body: dict[str, Any]) -> dict[str, Any]:
    pair: dict[str, Any] = json.loads(body["messages"][1]["content"])
    return pair
