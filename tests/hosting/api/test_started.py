"""One request starts an execution and returns its outcome, or all its events and its result; then it closes."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.hosting.api.serving import HEADERS
from tests.hosting.client.sending import Sending
from wtb.hosting.api.routes import PREFIX

STREAM = {"Accept": "text/event-stream"}


@contextmanager
def request(
    sending: Sending, method: str, path: str, body: Any = None, headers: Mapping[str, str] = STREAM
) -> Iterator[http.client.HTTPResponse]:
    with closing(http.client.HTTPConnection("127.0.0.1", sending.server.port, timeout=60)) as connection:
        content = None if body is None else json.dumps(body)
        connection.request(method, PREFIX + path, content, {**HEADERS, "Content-Type": "application/json", **headers})
        with connection.getresponse() as response:
            yield response


def events_of(response: http.client.HTTPResponse) -> Iterator[tuple[str, str, Any]]:
    """Yield server-sent events as ids, kinds and what they carry."""
    fields: dict[str, str] = {}
    for line in response:
        name, _, field = line.decode().rstrip("\n").partition(": ")
        if line.strip():
            fields[name] = field
        elif "data" in fields:
            yield fields["id"], fields["event"], json.loads(fields["data"])
            fields = {}


def status_of(sending: Sending, execution: str) -> str:
    return str(sending.cluster.scalar("SELECT status FROM executions WHERE id = :id", id=execution))


def test_a_request_that_waits_returns_the_outcome(sending: Sending) -> None:
    status, location, document = sending.post("/executions?wait=60", {"workflow": "reviewed", "input": {"x": 1}})
    assert (status, document["status"], document["failure"]) == (201, "completed", None)
    assert (document["state"], document["result"]) == ({"x": 1, "answer": "small"}, {"answer": "small"})
    assert location is not None
    with request(sending, "GET", f"{location.removeprefix(PREFIX)}/result?wait=60", headers={}) as response:
        outcome = json.load(response)
    assert (response.status, outcome) == (200, {key: document[key] for key in outcome})


def test_a_failure_is_part_of_the_outcome(sending: Sending) -> None:
    broken = sending.cluster.project.folder / "broken"
    broken.touch()
    try:
        status, _, document = sending.post("/executions?wait=60", {"workflow": "reviewed", "input": {"x": 1}})
    finally:
        broken.unlink()
    assert (status, document["status"], document["result"]) == (201, "failed", None)
    assert document["failure"] == {
        "kind": "error",
        "error": "ValueError",
        "message": "it is broken",
        "node": "draft",
    }


def test_an_execution_that_waits_for_a_person_is_accepted_with_its_question(sending: Sending) -> None:
    status, location, document = sending.post("/executions?wait=60", {"workflow": "reviewed", "input": {"x": 100}})
    assert (status, document["status"], document["state"]) == (202, "waiting", {"x": 100})
    (question,) = document["questions"]
    assert (question["question"], question["options"]) == ("Send 100?", ["yes", "no"])
    assert location == f"{PREFIX}/executions/{document['sweep']}"
    assert sending.post(f"/approvals/{question['id']}/answer", {"action": "yes"})[0] == 200
    with request(sending, "GET", f"/executions/{document['execution']}/result?wait=60", headers={}) as response:
        assert (response.status, json.load(response)["result"]) == (200, {"answer": "yes"})


def test_an_execution_that_is_only_created_begins_when_it_is_resumed_and_workers_run_it(sending: Sending) -> None:
    body = {"workflow": "reviewed", "input": {"x": 3}, "create_only": True}
    status, _, document = sending.post("/executions?wait=60", body)
    assert (status, document["status"], document["started"]) == (202, "paused", False)
    execution = document["execution"]
    status, _, continued = sending.post(f"/executions/{execution}/resume", {"set": {"x": 4}})
    assert (status, continued["run_by"]) == (200, "workers")
    with request(sending, "GET", f"/executions/{execution}/result?wait=60", headers={}) as response:
        assert json.load(response)["state"] == {"x": 4, "answer": "small"}


def test_an_execution_that_waits_for_a_person_is_watched_as_waiting(sending: Sending) -> None:
    _, _, document = sending.post("/executions?wait=60", {"workflow": "reviewed", "input": {"x": 100}})
    execution = document["execution"]
    with request(sending, "GET", f"/watch?ref={execution}", headers={}) as response:
        assert json.load(response)["sweep"]["status"] == "waiting"
    with request(sending, "GET", "/watch", headers={}) as response:
        assert [sweep["status"] for sweep in json.load(response)["sweeps"] if sweep["id"] == execution] == ["waiting"]
    assert "waiting" in sending.wtb("watch", execution, "--once").stdout
    with request(sending, "GET", f"/executions/{execution}", headers={}) as response:
        assert json.load(response)["execution"]["metadata"] == {"team": "search"}
    sending.post(f"/executions/{execution}/cancel", {})


def test_a_wait_over_its_limit_starts_nothing(sending: Sending) -> None:
    count = "SELECT count(*) FROM executions"
    before = sending.cluster.scalar(count)
    status, _, problem = sending.post("/executions?wait=61", {"workflow": "reviewed", "input": {"x": 1}})
    assert (status, problem["detail"]) == (400, "wait: Input should be less than or equal to 60")
    assert sending.cluster.scalar(count) == before


def test_the_same_request_streams_every_event_and_ends_with_the_result(sending: Sending) -> None:
    with request(sending, "POST", "/executions", {"workflow": "reviewed", "input": {"x": 2}}) as response:
        assert (response.status, response.headers["Content-Type"].partition(";")[0]) == (201, "text/event-stream")
        location = response.headers["Location"].removeprefix(PREFIX)
        live = list(events_of(response))
    *events, (_, kind, ending) = live
    assert (kind, ending["status"], ending["result"]) == ("result", "completed", {"answer": "small"})
    assert all(kind == document["kind"] for _, kind, document in events)
    with request(sending, "GET", f"/sweeps/{ending['sweep']}/log", headers={}) as response:
        log = [json.loads(line) for line in response]
    assert [event for _, _, event in events] == [row for row in log if row["execution"] == ending["execution"]]

    with request(sending, "GET", f"{location}/events") as response:
        assert (response.status, list(events_of(response))) == (200, live)
    seen = events[1][0]
    with request(sending, "GET", f"{location}/events", headers={**STREAM, "Last-Event-ID": seen}) as response:
        assert list(events_of(response)) == live[2:]
    with request(sending, "GET", f"{location}/events?kinds=cell&after={live[-1][0]}") as response:
        assert [kind for _, kind, _ in events_of(response)] == ["result"]
    with request(sending, "GET", f"{location}/events?kinds=cell") as response:
        assert [kind for _, kind, _ in events_of(response)] == ["cell.succeeded", "result"]


def test_a_stream_closes_where_a_person_is_asked_and_continues_after_the_answer(sending: Sending) -> None:
    with request(sending, "POST", "/executions", {"workflow": "reviewed", "input": {"x": 100}}) as response:
        *_, (last, kind, document) = events_of(response)
    assert (kind, document["status"]) == ("result", "waiting")
    assert sending.post(f"/approvals/{document['questions'][0]['id']}/answer", {"action": "no"})[0] == 200
    path = f"/executions/{document['execution']}/events"
    with request(sending, "GET", path, headers={**STREAM, "Last-Event-ID": last}) as response:
        *events, (_, kind, document) = events_of(response)
    assert [kind for _, kind, _ in events][:1] == ["approval.answered"]
    assert (kind, document["status"], document["result"]) == ("result", "completed", {"answer": "no"})


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/executions?cancel_on_disconnect=true", STREAM, "cancelled"),
        ("/executions?cancel_on_disconnect=true&wait=60", {}, "cancelled"),
        ("/executions", STREAM, "completed"),
    ],
)
def test_closing_the_connection_cancels_the_execution_only_if_it_should(
    sending: Sending, path: str, headers: Mapping[str, str], status: str
) -> None:
    gate = sending.cluster.project.folder / "held"
    gate.touch()
    count = "SELECT count(*) FROM executions WHERE status = 'running'"
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", sending.server.port, timeout=60)) as connection:
            body = json.dumps({"workflow": "reviewed", "input": {"x": 1}})
            connection.request("POST", PREFIX + path, body, {**HEADERS, "Content-Type": "application/json", **headers})
            sending.cluster.until(lambda: sending.cluster.scalar(count), "it to run")
        newest = "SELECT id, status, reason FROM executions ORDER BY created_at DESC LIMIT 1"
        if status == "cancelled":
            sending.cluster.until(lambda: sending.cluster.query(newest)[0][1] == "cancelled", "it to be cancelled")
            reason = "the connection of the request that started it was closed"
            assert reason in sending.cluster.query(newest)[0][2]
    finally:
        gate.unlink()
    sending.cluster.until(lambda: sending.cluster.query(newest)[0][1] == status, f"it to be {status}")


def test_who_may_not_cancel_starts_nothing_that_would_be_cancelled(sending: Sending) -> None:
    token = sending.cluster.project.inside(
        "admin", "token", "create", "starter", "--scope", "submit", env=sending.cluster.env
    )
    bearer = {"Authorization": f"Bearer {token.stdout.strip()}"}
    body, count = {"workflow": "reviewed", "input": {"x": 1}}, "SELECT count(*) FROM executions"
    before = sending.cluster.scalar(count)
    for path, headers in (("/executions?cancel_on_disconnect=true", {}), ("/executions", STREAM)):
        with request(sending, "POST", path, body, {**bearer, **headers}) as response:
            assert response.status == 403
    assert sending.cluster.scalar(count) == before
    with request(sending, "POST", "/executions?wait=60", body, bearer) as response:
        document = json.load(response)
    assert (response.status, document["status"], "state" in document) == (201, "completed", False)


def test_a_request_sets_several_approval_modes_and_its_questions_name_theirs(sending: Sending) -> None:
    body = {"workflow": "reviewed", "input": {"x": 1}, "approval": [{"after": "draft"}, "on_error"]}
    status, _, document = sending.post("/executions?wait=60", body)
    assert (status, document["status"]) == (202, "waiting")
    (question,) = document["questions"]
    assert question["mode"] == {"after": "draft"}
    with request(sending, "GET", f"/executions/{document['execution']}/status", headers={}) as response:
        assert json.load(response)["approval"] == [{"after": "draft"}, "on_error"]
    assert sending.post(f"/approvals/{question['id']}/answer", {"action": "approve"})[0] == 200
    body["approval"] = ["on_error", "none"]
    status, _, problem = sending.post("/executions?wait=60", body)
    assert status == 400
    assert "run.approval[1]" in problem["detail"]
