"""One suite for both backends: what handles return and refuse is the same with a database and through a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import wtb
from tests.hosting.api.serving import TOKEN, Server
from tests.hosting.client.test_server_option import ASKING, ASKS
from tests.support.project import FLOW, SWEEP, Project
from wtb import Bench, ExecutionHandle, SweepHandle
from wtb.core.errors import InputError, NotFound
from wtb.operations.registry import OPERATIONS

BACKENDS = ("database", "server")


@dataclass(frozen=True)
class Both:
    """A project with a sweep that has ended and one that asks, by each backend."""

    benches: dict[str, Bench]
    sweep: str
    asking: str
    execution: str

    def of(self, bench: Bench) -> tuple[Bench, SweepHandle, ExecutionHandle]:
        return bench, bench.sweep(self.sweep), bench.execution(self.execution)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    project = Project(tmp_path_factory.mktemp("both"))
    files = {"flow.py": FLOW, "sweep.yaml": SWEEP, "asks.py": ASKS, "asking.yaml": ASKING}
    project.write({**files, "cases.jsonl": Project.cases(3)})
    project.inside("run", "sweep.yaml", check=0)
    project.inside("run", "asking.yaml", check=1)
    server = Server(project)
    server.start()
    with (
        wtb.open(f"sqlite:///{project.file}") as database,
        wtb.open(f"http://127.0.0.1:{server.port}", token=TOKEN) as served,
    ):
        asking, sweep = (record.id for record in database.sweeps())
        execution = str(database.sweep(sweep).cells()[0]["execution"])
        yield Both({"database": database, "server": served}, sweep, asking, execution)
    server.kill()
    project.close()


@pytest.fixture(params=BACKENDS)
def bench(request: pytest.FixtureRequest, both: Both) -> Bench:
    return both.benches[request.param]


Look = Callable[[Bench, SweepHandle, ExecutionHandle], Any]
READING: dict[str, Look] = {
    "sweeps": lambda bench, sweep, execution: bench.sweeps(status="completed"),
    "executions": lambda bench, sweep, execution: bench.executions(limit=2),
    "sessions": lambda bench, sweep, execution: [session["name"] for session in bench.sessions()],
    "published": lambda bench, sweep, execution: bench.published(),
    "compare": lambda bench, sweep, execution: bench.compare(sweep.id, sweep.id),
    "audit": lambda bench, sweep, execution: len(bench.audit(limit=2)),
    "questions": lambda bench, sweep, execution: [question.record for question in bench.questions()],
    "record": lambda bench, sweep, execution: (sweep.record, execution.record),
    "status": lambda bench, sweep, execution: (sweep.status, sweep.reason, execution.status, execution.reason),
    "status_details": lambda bench, sweep, execution: sweep.status_details(cases=2),
    "details": lambda bench, sweep, execution: (sweep.details(), execution.details(calls=True)),
    "cells": lambda bench, sweep, execution: sweep.cells(case="c1"),
    "execution": lambda bench, sweep, execution: sweep.execution("c1", sweep.cells()[0]["combination"]).id,
    "matrix": lambda bench, sweep, execution: sweep.matrix(),
    "gates": lambda bench, sweep, execution: sweep.gates(),
    "outputs": lambda bench, sweep, execution: sweep.outputs(limit=2),
    "report": lambda bench, sweep, execution: sweep.report().keys(),
    "compare_rows": lambda bench, sweep, execution: sweep.compare_rows(0, 1),
    "text": lambda bench, sweep, execution: (str(sweep), repr(sweep), repr(execution), execution._repr_html_()),
    "read_value": lambda bench, sweep, execution: sweep.read_value("c1", "x"),
    "wait": lambda bench, sweep, execution: sweep.wait(5) is sweep,
    "follow": lambda bench, sweep, execution: list(sweep.follow(kinds=["cell"], interval_s=0.05)),
    "follow_execution": lambda bench, sweep, execution: list(execution.follow(interval_s=0.05)),
    "log": lambda bench, sweep, execution: (list(sweep.log(kinds=["sweep"])), list(execution.log())),
    "count_events": lambda bench, sweep, execution: (sweep.count_events(), execution.count_events()),
    "tree": lambda bench, sweep, execution: sweep.tree(),
    "costs": lambda bench, sweep, execution: (bench.costs(), sweep.costs(["node"]), execution.costs()),
    "series": lambda bench, sweep, execution: sweep.series(),
    "state": lambda bench, sweep, execution: execution.state,
    "history": lambda bench, sweep, execution: execution.history_details(state=True),
    "diff": lambda bench, sweep, execution: execution.diff(execution),
    "files": lambda bench, sweep, execution: execution.list_files(),
    "archive": lambda bench, sweep, execution: len(execution.read_archive()) > 100,
    "breakpoints": lambda bench, sweep, execution: sweep.breakpoints(),
}


@pytest.mark.parametrize("name", READING)
def test_both_return_the_same(both: Both, name: str) -> None:
    database, server = (READING[name](*both.of(both.benches[backend])) for backend in BACKENDS)
    assert server == database


def test_the_event_loop_continues_while_events_are_followed(both: Both, bench: Bench) -> None:
    _, sweep, _ = both.of(bench)

    async def follow() -> list[str]:
        return [event["kind"] async for event in sweep.follow_async(kinds=["sweep"], interval_s=0.05)]

    assert asyncio.run(follow())[-1] == "sweep.completed"


def test_what_changes_is_changed(both: Both, bench: Bench) -> None:
    _, sweep, execution = both.of(bench)
    assert sweep.pin().id == sweep.unpin().id
    comment = sweep.add_comment("c1", "see this")
    assert [comment["text"] for comment in sweep.comments()] == ["see this"]
    assert sweep.delete_comment(comment["number"])["text"] == "see this"
    assert execution.name_checkpoint("end").name == "end"
    assert sweep.set_baseline("main").sweep == sweep.id
    assert bench.baseline("main")["matrix"]["sweep"]["id"] == sweep.id
    assert bench.remove_baseline("main") == sweep.id


def test_what_administers_is_done(bench: Bench, request: pytest.FixtureRequest) -> None:
    assert bench.create_session("ann", usd=5.0, metadata={"team": "search"})["session"]["quota"]["usd"] == 5.0
    assert bench.change_session("ann", usd=6.0).usd == 6.0
    assert bench.archive_session("ann") is True
    assert bench.delete_session("ann").sweeps == 0
    assert bench.create_user("eve")["name"] == "eve"
    assert bench.remove_user("eve")["name"] == "eve"
    name = request.node.callspec.id  # a revoked token keeps its name
    assert bench.create_token(name, scopes=["read"])["token"].startswith("wtb_")
    assert bench.revoke_token(name)["name"] == name


def test_a_question_is_found(both: Both, bench: Bench) -> None:
    question = bench.sweep(both.asking).questions()[0]
    assert bench.question(question.id).record.options == ("yes", "no")


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda bench: bench.sweep("nothing"), NotFound),
        (lambda bench: bench.sweeps(status="done"), InputError),
        (lambda bench: bench.sweeps(limit=0), InputError),
    ],
)
def test_both_refuse_with_the_same_words(both: Both, call: Callable[[Bench], Any], kind: type[InputError]) -> None:
    texts = set()
    for backend in BACKENDS:
        with pytest.raises(kind) as refused:
            call(both.benches[backend])
        texts.add(str(refused.value))
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("sweeps.run", lambda bench: bench.run("sweep.yaml")),
        ("sweeps.regress", lambda bench: bench.regress("sweep.yaml", "main")),
        ("garbage.collect", lambda bench: bench.collect()),
        ("backups.create", lambda bench: bench.backup("there")),
        ("sweeps.copy", lambda bench: bench.sweep(bench.sweeps()[0].id).copy("sqlite:///other.db")),
    ],
)
def test_what_a_server_does_not_do_is_refused_with_the_reason(
    both: Both, name: str, call: Callable[[Bench], Any]
) -> None:
    from wtb.hosting.api.routes import WITHOUT_ROUTE

    with pytest.raises(InputError) as refused:
        call(both.benches["server"])
    assert f"`wtb {OPERATIONS[name].command}`" in str(refused.value)
    assert WITHOUT_ROUTE[name] in str(refused.value)


@pytest.mark.parametrize("name", ["database", "checkpoints"])
def test_a_server_has_no_database(both: Both, name: str) -> None:
    with pytest.raises(InputError):
        getattr(both.benches["server"], name)
