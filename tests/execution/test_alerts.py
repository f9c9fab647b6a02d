"""Notifications during a sweep: silent nodes, and the end of the sweep."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.bench import Bench
from tests.support.prose import sentence
from tests.support.waiting import until
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.errors import InputError
from wtb.execution.runtime.alerts import Alerts
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store import alerts as store
from wtb.store.tables.schema import alerts, executions, sweeps

Make = Callable[..., Bench]
PATIENCE_S = 60.0


@pytest.fixture
def teller(tmp_path: Path) -> Path:
    """A program that writes each message that it gets to a line."""
    script = tmp_path / "tell.sh"
    script.write_text(f"#!/bin/sh\ncat >> {tmp_path}/told; echo >> {tmp_path}/told\n")
    script.chmod(0o755)
    return script


def read_messages(teller: Path) -> list[dict[str, Any]]:
    path = teller.parent / "told"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def simple(fn: Callable[..., Any]) -> Workflow:
    wf = Workflow("long")
    wf.entry(wf.node(fn, name="a"))
    wf.edge("a", END)
    return wf


def test_a_node_that_falls_silent_is_told_of_until_it_speaks_again(bench: Make, teller: Path) -> None:
    speak, end = threading.Event(), threading.Event()

    def a(state: Any, ctx: Any) -> None:
        assert speak.wait(PATIENCE_S)
        ctx.progress(1, 2)
        assert end.wait(PATIENCE_S)

    sweep = bench(simple(a), run={"stall": "200ms"}, notify=[{"to": str(teller), "on": ["stalled"]}])
    run = sweep.start()

    def since() -> Any:
        return sweep.rows(executions)[0]["stalled_at"]

    until(since)
    (message,) = until(lambda: read_messages(teller))
    speak.set()
    until(lambda: since() is None or len(read_messages(teller)) > 1)
    end.set()
    assert run.wait(PATIENCE_S)
    run.finish()

    assert (message["event"], message["data"]["node"]) == ("execution.stalled", "a")
    assert message["sweep"]["id"] == sweep.sweep_id
    kinds = [row["kind"] for row in sweep.events if "stalled" in row["kind"]]
    assert kinds[:2] == ["execution.stalled", "execution.unstalled"]
    assert kinds.count("execution.stalled") == kinds.count("execution.unstalled") == len(read_messages(teller))
    assert since() is None


def test_each_target_is_told_of_what_it_asked_for_and_once(run_sweep: Make, teller: Path) -> None:
    sweep = run_sweep(simple(lambda state: None), notify=[{"to": str(teller), "on": ["failed"]}, str(teller)])

    assert [(message["event"], message["key"].rpartition("-")[2]) for message in read_messages(teller)] == [
        ("sweep.completed", "1")
    ]
    Alerts(sweep.database, sweep.sweep_id).finish(PATIENCE_S)
    assert len(read_messages(teller)) == 1
    assert store.undelivered(sweep.database, sweep.sweep_id) == []


def test_one_that_cannot_be_told_is_tried_again_later(run_sweep: Make, tmp_path: Path) -> None:
    broken = tmp_path / "broken.sh"
    broken.write_text("#!/bin/sh\necho no such channel\nexit 3\n")
    broken.chmod(0o755)

    sweep = run_sweep(simple(lambda state: None), notify=[str(broken)])

    (undelivered,) = store.undelivered(sweep.database, sweep.sweep_id)
    assert (undelivered.tries, "exit code 3: no such channel" in undelivered.error) == (1, True)
    assert sweep.status == "completed"
    with sweep.database.write() as connection:
        connection.execute(sa.update(alerts).values(lease_until=0))
    Alerts(sweep.database).finish(PATIENCE_S)
    assert store.undelivered(sweep.database, sweep.sweep_id)[0].tries == 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_whoever_stumbled_while_telling_is_followed_by_another(run_sweep: Make, teller: Path) -> None:
    sweep = run_sweep(simple(lambda state: None))
    looks = Alerts(sweep.database)

    def notify(targets: list[dict[str, Any]]) -> None:
        with sweep.database.write() as connection:
            connection.execute(sa.update(sweeps).values(notify=targets))
        looks.finish(PATIENCE_S)

    notify([{"command": [str(teller)]}])  # it does not say what of
    assert read_messages(teller) == []
    notify([{"command": [str(teller)], "on": ["completed"]}])
    assert [message["event"] for message in read_messages(teller)] == ["sweep.completed"]


@pytest.mark.parametrize(
    ("notify", "words"),
    [
        (
            ["http://127.0.0.1:1/x"],
            sentence("not a public address") + "; 'allow_private" + sentence(": true' allows it"),
        ),
        (["ftp://example.com"], sentence("expected an http or https URL, or a command")),
        (["./no-such-program"], sentence("there is no program")),
        ([{"to": "true", "on": ["everything"]}], "notify[0].on[0]"),
        ([{"on": ["failed"]}], sentence("no 'to'; expected a URL or a command")),
        ([{"to": "true", "when": 1}], "unknown key 'when'; expected one of: to, on, allow_private"),
        ([3], "expected a URL, a command, or a mapping"),
        ([{"to": "true", "on": []}], "notify[0].on"),
    ],
)
def test_whom_nobody_can_tell_is_refused_before_anything_is_submitted(notify: Any, words: str) -> None:
    document = {"workflow": "tests:wf", "cases": [{"id": "c", "input": {}}], "vary": {"a": "all"}, "notify": notify}

    with pytest.raises(InputError) as refused:
        prepare(parse_spec(document), workflow=simple(lambda state: None))

    assert words in str(refused.value)
    assert "notify" in str(refused.value)


def test_a_url_is_not_kept_where_a_report_would_show_it(bench: Make) -> None:
    sweep = bench(simple(lambda state: None), notify=[{"to": "http://127.0.0.1:1/secret", "allow_private": True}])

    assert "secret" not in json.dumps(sweep.row.spec)
    assert sweep.row.notify[0]["url"] == "http://127.0.0.1:1/secret"
