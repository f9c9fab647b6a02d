"""A sweep is scored again through a server, which imports no code: workers do it, and others where one dies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import wtb
from tests.hosting.api.serving import TOKEN
from tests.hosting.client.sending import CELLS, SWEEP, Sending, publishing
from tests.support.cluster import Cluster, Worker
from tests.support.prose import sentence
from wtb.core.errors import ConflictError
from wtb.hosting.api.routes import PREFIX
from wtb.operations.running.published import Scoring

GRADING = """
import os
import time

from wtb import evaluator

HERE = os.path.dirname(os.path.abspath(__file__)) + "/"


@evaluator(better="higher")
def double(case, result):
    return 2 * result.state["x"]


@evaluator(better="higher")
def held(case, result):
    with open(HERE + "held", "a") as log:
        log.write(f"{case.id}\\n")
    while not os.path.exists(HERE + "gate"):
        time.sleep(0.01)
    return result.state["x"]


def unpublished(case, result):
    return 1.0
"""
PUBLISHED = ["flow:total", "grading:double", "grading:held"]
ROWS = "SELECT metric, count(*), sum(value)::float FROM scores WHERE sweep_id = :sweep GROUP BY 1 ORDER BY 1"


@pytest.fixture(scope="module")
def sending(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sending]:
    with publishing(module_cluster, tmp_path_factory.mktemp("laptop")) as sending:
        project = module_cluster.project
        project.write({"grading.py": GRADING})
        workflows = "[workflows]\nshop = 'flow:wf'\nreviewed = 'reviewed:wf'\n"
        project.write({"wtb.toml": f"{workflows}[publish]\nevaluators = {PUBLISHED}\n"})
        query = "SELECT count(*) FROM publications WHERE kind = 'evaluator' AND description IS NOT NULL"
        module_cluster.until(lambda: module_cluster.scalar(query) == len(PUBLISHED), "evaluators to be published")
        yield sending


@pytest.fixture(scope="module")
def sweep(sending: Sending) -> str:
    return finished(sending, "scored")


def finished(sending: Sending, name: str) -> str:
    cases = [{**case, "expected": {"x": 3}} for case in SWEEP["cases"]]  # type: ignore[attr-defined]
    id: str = sending.post("/sweeps", {"keys": {**SWEEP, "sweep": name, "cases": cases}})[2]["sweep"]
    sending.cluster.wait_completed(id)
    return id


def scores(sending: Sending, sweep: str) -> dict[str, tuple[int, float]]:
    return {metric: (count, total) for metric, count, total in sending.cluster.query(ROWS, sweep=sweep)}


def ask(sending: Sending, sweep: str, *evaluators: str, **more: Any) -> tuple[int, Any]:
    status, _, document = sending.post(f"/sweeps/{sweep}/score", {"evaluate": evaluators, **more})
    return status, document


def until_scored(sending: Sending, id: str) -> Any:
    row = "SELECT status, scores, token, reason FROM scorings WHERE id = :id"
    ended = ("succeeded", "failed", "cancelled")
    sending.cluster.until(lambda: sending.cluster.query(row, id=id)[0][0] in ended, "it to be scored")
    return sending.cluster.query(row, id=id)[0]


def test_workers_score_by_what_is_built_in_and_by_what_they_publish(sending: Sending, sweep: str) -> None:
    before = scores(sending, sweep)
    assert before.keys() == {"total"}
    output = sending.wtb("score", sweep, "-e", "exact_match: {field: x}", "-e", "grading:double", "-f", "json")
    assert output.json == sending.wtb("matrix", sweep, "-f", "json").json
    assert f"{2 * CELLS} scores written" in output.output
    scoring = sending.cluster.scalar("SELECT id FROM scorings ORDER BY asked_at DESC LIMIT 1")
    assert f"scoring {scoring}: 1 worker to do it" in output.output
    assert f"{2 * CELLS} scores written" in sending.wtb("admin", "scoring", "show", sweep, scoring).output
    after = scores(sending, sweep)
    assert after["total"] == before["total"]
    assert after["double"] == (CELLS, 2 * before["total"][1])
    xs = sending.cluster.query("SELECT value FROM scores WHERE sweep_id = :id AND metric = 'total'", id=sweep)
    assert after["exact_match"] == (CELLS, sum(x == 3 for (x,) in xs))
    assert 0 < after["exact_match"][1] < CELLS
    sending.cluster.no_slot_is_busy()


def test_a_file_names_the_evaluators(sending: Sending, sweep: str) -> None:
    file = {**SWEEP, "cases": "cases.jsonl", "evaluate": [{"grading:double": {"name": "twice"}}]}
    sending.laptop.write({"again.yaml": json.dumps(file)})
    sending.wtb("score", sweep, "--file", "again.yaml")
    assert scores(sending, sweep)["twice"][0] == CELLS


def test_clients_ask_and_are_told_how_it_stands(sending: Sending, sweep: str) -> None:
    url = f"http://127.0.0.1:{sending.server.port}"
    with wtb.open(url, token=TOKEN) as bench:
        handle = bench.sweep(sweep)
        scoring = handle.score_published(["grading:double"])
        assert (scoring.sweep, scoring.workers) == (sweep, 1)
        until_scored(sending, scoring.id)
        assert handle.scoring(scoring.id) == Scoring(scoring.id, sweep, "succeeded", CELLS, 1)


def test_a_request_that_is_repeated_asks_once(sending: Sending, sweep: str) -> None:
    path, body = f"/sweeps/{sweep}/score", {"evaluate": ["grading:double"]}
    first, repeat = (sending.post(path, body, key="score-once") for _ in range(2))
    assert first == repeat
    status, location, document = first
    assert (status, location) == (201, f"{PREFIX}/sweeps/{sweep}/scorings/{document['id']}")
    assert until_scored(sending, document["id"])[0] == "succeeded"


@pytest.mark.parametrize(
    ("evaluate", "detail"),
    [
        (["os:system"], sentence("nothing is imported here; expected what workers publish")),
        (["grading:unpublished"], sentence("nothing is imported here; expected what workers publish")),
        ([{"all_of": {"of": ["os:system"]}}], sentence("functions of your own are not combined")),
        (["judge"], sentence("nothing is imported here; expected what workers publish")),
        (["code_tests"], sentence("nothing is imported here; expected what workers publish")),
        (["assertions"], sentence("what cases assert was not checked")),
        (["exact_matsch"], sentence("did you mean '{}'", "exact_match")),
        ([], sentence("no evaluator is given")),
    ],
)
def test_what_workers_do_not_publish_is_refused(sending: Sending, sweep: str, evaluate: Any, detail: str) -> None:
    status, problem = ask(sending, sweep, *evaluate)
    assert (status, detail in problem["detail"]) == (400, True), problem
    assert ask(sending, "nothing", "exact_match")[0] == 404


def test_a_sweep_that_was_not_given_to_workers_is_refused(sending: Sending) -> None:
    project = sending.cluster.project
    project.write({"here.yaml": json.dumps({**SWEEP, "sweep": "here", "workflow": "flow:wf"})})
    project.inside("run", "here.yaml", check=0)
    status, problem = ask(sending, "here", "grading:double")
    assert (status, sentence("was not submitted to workers") in problem["detail"]) == (409, True), problem


def start_held_scoring(sending: Sending, sweep: str) -> str:
    """Begin a scoring that waits in an evaluator. Returns its id."""
    folder = sending.cluster.project.folder
    for name in ("gate", "held"):
        (folder / name).unlink(missing_ok=True)
    status, scoring = ask(sending, sweep, "grading:held")
    assert status == 201, scoring
    sending.cluster.until((folder / "held").exists, "it to be scored")
    return str(scoring["id"])


def the_worker(sending: Sending) -> Worker:
    (worker,) = (worker for worker in sending.cluster.workers if worker.lives)
    return worker


def test_another_worker_finishes_what_one_was_killed_in(sending: Sending) -> None:
    sweep = finished(sending, "killed")
    id = start_held_scoring(sending, sweep)
    the_worker(sending).end()  # SIGKILL, to all of it
    sending.cluster.start_worker(concurrency=2)
    (sending.cluster.project.folder / "gate").touch()
    assert until_scored(sending, id) == ("succeeded", CELLS, 2, None)
    counts = scores(sending, sweep)
    assert counts["held"] == (CELLS, counts["total"][1])


def test_a_worker_that_is_killed_between_two_parts_of_the_scores_loses_and_doubles_none(sending: Sending) -> None:
    sweep = finished(sending, "in parts")
    the_worker(sending).end()
    doomed = sending.cluster.start_worker(concurrency=2, env={"WTB_FAULT": "scoring.part:1"})
    status, scoring = ask(sending, sweep, "grading:double")
    assert status == 201, scoring
    sending.cluster.until(lambda: not doomed.lives, "the fault to strike")
    sending.cluster.start_worker(concurrency=2)
    assert until_scored(sending, scoring["id"]) == ("succeeded", CELLS, 2, None)
    assert scores(sending, sweep)["double"][0] == CELLS


def test_a_worker_that_stops_lets_go_of_it_and_one_that_comes_finishes_it(sending: Sending) -> None:
    """Without a worker it is refused, and with `anyway` it waits."""
    sweep = finished(sending, "stopped")
    id = start_held_scoring(sending, sweep)
    worker = the_worker(sending)
    worker.signal(15)
    row = "SELECT status, owner_id FROM scorings WHERE id = :id"
    sending.cluster.until(lambda: sending.cluster.query(row, id=id) == [("pending", None)], "it to be let go")
    (sending.cluster.project.folder / "gate").touch()
    worker.running.wait(check=0)
    assert "held" not in scores(sending, sweep)
    status, problem = ask(sending, sweep, "grading:double")
    detail = "no worker takes from the queue 'default', so nothing was scored: start one with `wtb worker`"
    assert (status, detail in problem["detail"]) == (503, True), problem
    status, waiting = ask(sending, sweep, "grading:double", anyway=True)
    assert (status, waiting["status"], waiting["workers"]) == (201, "pending", 0)
    sending.cluster.start_worker(concurrency=2)
    assert until_scored(sending, id)[:3] == ("succeeded", CELLS, 2)
    assert until_scored(sending, waiting["id"])[:3] == ("succeeded", CELLS, 1)
    sending.cluster.until(lambda: not sending.cluster.query("SELECT * FROM working"), "slots to be free")


def test_a_sweep_that_is_deleted_takes_it_along(sending: Sending) -> None:
    sweep = finished(sending, "deleted")
    id = start_held_scoring(sending, sweep)
    sending.wtb("delete", sweep, "--yes")
    (sending.cluster.project.folder / "gate").touch()
    sending.cluster.until(lambda: not sending.cluster.query("SELECT * FROM working"), "its slot to be free")
    assert sending.cluster.query("SELECT id FROM scorings WHERE id = :id", id=id) == []
    assert scores(sending, sweep) == {}
    assert the_worker(sending).lives


def test_what_was_asked_can_be_cancelled_and_what_it_has_written_stays(sending: Sending) -> None:
    sweep = finished(sending, "cancelled")
    id, waiting = start_held_scoring(sending, sweep), ask(sending, sweep, "grading:double")[1]["id"]
    for scoring in (id, waiting, waiting):
        assert (
            sentence("scoring {} is cancelled; {} scores", scoring, 0)
            in sending.wtb("admin", "scoring", "cancel", sweep, scoring).output
        )
    (sending.cluster.project.folder / "gate").touch()
    sending.cluster.until(lambda: not sending.cluster.query("SELECT * FROM working"), "its slot to be free")
    assert scores(sending, sweep).keys() == {"total"}
    status, _, problem = sending.post(f"/sweeps/{sweep}/scorings/{waiting}/cancel", {})
    assert (status, problem["status"]) == (200, "cancelled")
    done = ask(sending, sweep, "grading:double")[1]["id"]
    assert until_scored(sending, done)[0] == "succeeded"
    with (
        wtb.open(f"http://127.0.0.1:{sending.server.port}", token=TOKEN) as bench,
        pytest.raises(ConflictError) as error,
    ):
        bench.sweep(sweep).cancel_scoring(done)
    assert sentence("is {}: there is nothing to cancel", "succeeded") in str(error.value)
