"""References to runs: by the registered name of their workflow, and runs that are created and begun later."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import wtb
from tests.operations.test_runs import workflow
from tests.support.prose import sentence
from wtb import Bench
from wtb.authoring.code.import_paths import registered
from wtb.cli.main import main as command
from wtb.core.errors import InputError
from wtb.operations.context import Context
from wtb.operations.inspection.log import count_events, log
from wtb.operations.running.continuing import resume
from wtb.operations.running.preparing import prepare_single
from wtb.operations.running.submitting import submit
from wtb.store.database import Database
from wtb.store.read import activity
from wtb.store.read.details import find, find_one

MODULE = """
from wtb import Workflow

echo = Workflow("echo", metadata={"owner": "ann", "ticket": 7})

@echo.node
def say(state, ctx):
    return {"said": ctx.ask("Really?", options=["yes", "no"]) if state.get("asks") else state.get("text", "")}

echo.entry(say)
"""
GRAPH = """
from typing import TypedDict
from langgraph.graph import END, START, StateGraph

class State(TypedDict, total=False):
    text: str

builder = StateGraph(State)
builder.add_node("say", lambda state: {"text": "said"})
builder.add_edge(START, "say")
builder.add_edge("say", END)
graph = builder.compile()
"""


def main(*arguments: str) -> int:
    """Run a command, and return its exit code."""
    before, sys.argv = sys.argv, ["wtb", *arguments]
    try:
        command()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


@pytest.fixture
def bench(database: Database) -> Iterator[Bench]:
    with wtb.open(database) as opened:
        yield opened


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two workflows that are registered under other names than their own."""
    (tmp_path / "named_flows.py").write_text(MODULE)
    (tmp_path / "named_graph.py").write_text(GRAPH)
    (tmp_path / "wtb.toml").write_text('[workflows]\nalpha = "named_flows:echo"\nbot = "named_graph:graph"\n')
    for module in ("named_flows", "named_graph"):  # of another folder
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("WTB_DATABASE_URL", f"sqlite:///{tmp_path / 'wtb.db'}")
    return tmp_path


def test_a_registered_name_is_what_a_workflow_is_called_everywhere(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("start", "alpha", "--set", "text=first") == 0
    assert main("start", "named_flows:echo", "--set", "asks=true") == 1  # waits
    assert main("start", "bot") == 0
    capsys.readouterr()
    with wtb.open() as bench:
        runs = bench.executions()
        assert [(run.workflow, run.status) for run in runs] == [
            ("bot", "completed"),
            ("alpha", "waiting"),
            ("alpha", "completed"),
        ]
        assert dict(runs[1].metadata) == {"owner": "ann", "ticket": 7}
        assert len(bench.executions(workflow="alpha")) == 2
        assert bench.executions(workflow="echo") == []
    assert main("status", "alpha") == 0
    assert f"execution alpha ({runs[1].id}): waiting" in capsys.readouterr().out
    assert main("answer", "alpha", "yes") == 0
    capsys.readouterr()
    assert main("history", "alpha") == 0
    assert "say" in capsys.readouterr().out
    assert main("show", "alpha") == 0
    assert 'owner: "ann", ticket: 7' in capsys.readouterr().out
    assert main("log", "bot", "--format", "json") == 0
    assert main("workflow", "show", "alpha") == 0
    text = capsys.readouterr().out
    assert "alpha" in text
    assert 'owner: "ann", ticket: 7' in text


def test_names_that_are_registered_twice_are_rejected(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.wtb.workflows]\nalpha = "others:echo"\nbot = "named_graph:graph"\n')
    with pytest.raises(InputError, match=sentence("workflow {} is registered twice", "'alpha'")) as error:
        registered()
    assert "named_flows:echo" in str(error.value)
    (project / "pyproject.toml").unlink()
    (project / "wtb.toml").write_text('[workflows]\nalpha = "named_flows:echo"\nalpha = "others:echo"\n')
    with pytest.raises(InputError, match=r"wtb\.toml"):
        registered()


def test_an_id_comes_first_then_sweeps_then_runs_of_a_workflow(bench: Bench) -> None:
    runs = [bench.start(workflow("alpha"), {"name": "A"}, run={"pool": "thread"}).wait(60).id for _ in range(2)]
    database = bench.database
    assert find(database, "alpha").id == runs[1]
    assert find_one(database, "alpha").id == runs[1]
    cases = [{"id": "one", "input": {"name": "Bo"}}]
    keys: dict[str, Any] = {"cases": cases, "vary": {"greet": "all"}, "run": {"pool": "thread"}}
    nightly = bench.run(wtb.Sweep(workflow=workflow("beta"), name="nightly", **keys)).id
    assert find(database, "beta").id == nightly  # there is no run of it
    named = bench.run(wtb.Sweep(workflow=workflow("beta"), name="alpha", **keys)).id
    assert find(database, "alpha").id == named
    assert find(database, runs[0]).id == runs[0]
    with pytest.raises(
        InputError, match=sentence("there is no sweep {}", "'alhpa'") + sentence("; did you mean '{}'", "alpha")
    ):
        find(database, "alhpa")


def test_a_name_in_several_projects_is_an_error_with_the_candidates(bench: Bench) -> None:
    run = {"pool": "thread"}
    for project, session in (("web", "w"), ("search", "s")):
        bench.create_project(project)
        bench.create_session(session, project=project)
    ids = [
        bench.start(workflow("alpha"), {"name": "A"}, session=session, run=run).wait(60).id for session in ("w", "s")
    ]
    with pytest.raises(InputError, match=sentence("{} is a name in several projects", "'alpha'")) as error:
        find(bench.database, "alpha")
    assert f"{ids[1]} (search), {ids[0]} (web)" in str(error.value)
    assert find(bench.database, ids[0]).id == ids[0]


def test_an_execution_of_a_sweep_has_a_log_and_a_sweep_of_one_cell_an_archive(bench: Bench, tmp_path: Path) -> None:
    cases = [{"id": id, "input": {"name": id}} for id in ("one", "two")]
    keys: dict[str, Any] = {"workflow": workflow(), "vary": {"greet": "all"}, "run": {"pool": "thread"}}
    sweep = bench.run(wtb.Sweep(cases=cases, **keys))
    first = sweep.execution("one").record.id
    context = Context(bench.database)
    events = list(log(context, first))
    assert {event["execution"] for event in events} == {first}
    assert events == list(log(context, sweep.id, execution=first))
    assert sum(row["count"] for row in count_events(context, first)) == len(events)
    second = sweep.execution("two").record.id
    with pytest.raises(InputError, match=sentence("is an execution, and so is")):
        log(context, first, execution=second)
    single = bench.run(wtb.Sweep(cases=cases[:1], name="small", **keys))
    exported = bench.execution("small").export(tmp_path / "small.wtb")
    assert exported["execution"] == single.execution("one").record.id
    with pytest.raises(InputError, match=sentence("which has many executions")):
        bench.execution(sweep.id)


def test_a_run_that_is_only_created_begins_when_it_is_resumed(bench: Bench) -> None:
    run = bench.start(workflow(), {"name": "Ana"}, create_only=True, run={"pool": "thread"})
    assert (run.status, run.record.reason) == ("paused", sentence("created, and not begun"))
    assert [record.status for record in bench.executions(status="paused")] == ["paused"]
    assert len(run.history()) == 0
    run.resume()
    assert run.wait(60).state["text"] == "Hello, Ana"
    cancelled = bench.start(workflow(), {"name": "Ana"}, create_only=True, run={"pool": "thread"})
    cancelled.cancel("never mind")
    assert [record.id for record in bench.executions(status="cancelled")] == [cancelled.id]


def test_the_command_creates_a_run_and_rejects_a_sweep_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("execution", "create", "alpha", "--set", "text=later") == 0
    captured = capsys.readouterr()
    assert sentence("begin it with: wtb resume {}", captured.out.strip()) in captured.err
    assert main("resume", captured.out.strip()) == 0
    assert "later" in capsys.readouterr().out
    (project / "sweep.yaml").write_text(textwrap.dedent("sweep: s\nworkflow: alpha\ncases: []\nvary: {}\n"))
    assert main("execution", "create", "sweep.yaml") == 2
    assert sentence("{} is a file; expected a workflow", "'sweep.yaml'") in capsys.readouterr().err


def test_metadata_must_be_json() -> None:
    with pytest.raises(InputError, match=r"workflow 'x': metadata: .*; expected what JSON can write"):
        wtb.Workflow("x", metadata={"key": object()})


def test_workers_get_a_created_run_once_it_is_resumed(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[Database] = []
    publisher = SimpleNamespace(
        url="redis://", check=lambda: None, problem=lambda: None, close=lambda: None, publish_pending=published.append
    )
    monkeypatch.setattr(
        "wtb.operations.context.entry_points", lambda **_: [SimpleNamespace(load=lambda: lambda _: publisher)]
    )
    prepared = prepare_single(workflow(), {"name": "Ana"})
    monkeypatch.setattr("wtb.operations.running.continuing.rebind", lambda *_: prepared.bound)
    with wtb.open(postgres_url) as bench:
        context = Context(bench.database)
        created = submit(context, prepared, anyway=True, create_only=True)
        assert not created.started
        assert published == []
        run = bench.execution(created.sweep)
        assert (run.status, activity.waiting(bench.database)) == ("paused", {})
        resume(context, created.sweep)
        assert (run.status, len(published)) == ("pending", 1)
        sweep = wtb.Sweep(workflow=workflow(), cases=[{"id": "one", "input": {"name": "A"}}], vary={"greet": "all"})
        with pytest.raises(InputError, match=sentence("only a single input can be created")):
            submit(context, sweep.prepare(), anyway=True, create_only=True)
