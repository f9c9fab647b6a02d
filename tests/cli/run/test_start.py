"""Single executions from the command line and from Python: started, paused, changed and continued."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.project import Outcome, Project
from tests.support.prose import sentence
from wtb import END, Workflow
from wtb.core.errors import ConflictError, InputError
from wtb.handles.bench import open as open_bench
from wtb.handles.start import start

FLOW = """
import os
import time
from pathlib import Path
from typing import TypedDict

from wtb import END, Workflow


class State(TypedDict, total=False):
    x: int
    docs: list
    note: str


class Input(TypedDict):
    x: int


wf = Workflow("flow", state=State, input=Input)


@wf.node
def look(state, *, found: int = 0):
    return {"docs": [{"score": 0.5}] * found}


@wf.node
def add(state, *, by: int = 1):
    with Path(os.environ.get("LOG", os.devnull)).open("a") as log:
        log.write("add\\n")
    while os.environ.get("HOLD") and not Path(os.environ["HOLD"]).exists():
        time.sleep(0.01)
    return {"x": state["x"] + by}


@wf.node
def check(state):
    if state["x"] > 100:
        raise ValueError("too large")
    return {}


look.variant("two", found=2)
add.variant("ten", by=10)
wf.entry(look)
wf.edge(look, add)
wf.edge(add, check)
wf.edge(check, END)
"""


@pytest.fixture
def flow(empty_project: Project) -> Project:
    empty_project.write({"flow.py": FLOW, "case.json": '{"x": 5}'})
    return empty_project


def started(outcome: Outcome) -> str:
    """Return the id in the first message."""
    return outcome.stderr.split()[1]


def test_one_input_runs_to_its_end_and_its_state_is_the_result(flow: Project) -> None:
    done = flow.inside("start", "flow:wf", "--input", "case.json", "--set", "x=7", "--variant", "add=ten", check=0)

    assert done.json == {"x": 17, "docs": []}
    for node in ("look=default", "add=ten", "check=default"):
        assert f"{node} done in" in done.stderr
    # Singles are no sweeps: `wtb list` is for comparing.
    assert flow.json("list") == {"sweeps": []}
    (listed,) = flow.json("list", "--all")["sweeps"]
    assert (listed["id"], listed["status"]) == (started(done), "completed")
    # A value is what the type of its key makes of what was typed.
    typed = flow.inside("start", "flow:wf", "--set", "x='7'", "--set", "note=42", check=0)
    assert typed.json == {"x": 8, "docs": [], "note": "42"}


def test_it_pauses_at_a_breakpoint_and_continues_with_another_state(flow: Project) -> None:
    place = "add if len(docs) == 2 and docs[0].score == 0.5"
    done = flow.inside(
        *("start", "flow:wf", "--input", "case.json", "--variant", "look=two", "--break", place), check=1
    )
    id = started(done)
    assert f"paused: breakpoint before {place} continue with: wtb resume {id}" in done.output

    standing = flow.json("status", id)
    assert (standing["execution"]["status"], standing["next"]) == ("paused", ["add"])
    assert standing["commands"][0] == f"wtb resume {id}"
    assert f"breakpoint  before {place}" in flow.text("status", id)

    refused = flow.inside("resume", id, "--set", "y=1", "--set", "x=much", check=2)
    assert sentence("key {} is not in the state", "'y'") in refused.output
    assert sentence("key {}: found {}; expected {}", "'x'", "'much'", "int") in refused.output
    assert sentence("has no such node") in flow.refusal("resume", id, "--limits", "nodes.nope.usd=1")
    assert flow.query("SELECT status FROM executions") == [("paused",)]
    assert flow.inside("resume", id, "--set", "x=90", check=0).json["x"] == 91
    document = flow.json("show", id, "--calls")
    assert [(run["node"], run["calls"]) for run in document["path"]] == [("look", []), ("add", []), ("check", [])]
    boundaries = flow.json("history", id)["boundaries"]
    assert [boundary["status"] for boundary in boundaries] == ["succeeded"] * 3
    assert sentence("is completed") + sentence(": it cannot be {}; possible: ", "resumed") + sentence(
        "fork it, or roll it back"
    ) in flow.refusal("resume", id)


@pytest.mark.parametrize("failing", [False, True], ids=["as it began", "tried again"])
def test_a_single_execution_has_one_id_in_all_messages(flow: Project, database_url: str, failing: bool) -> None:
    flow.url = database_url
    x = "x=200" if failing else "x=1"
    id = started(flow.inside("start", "flow:wf", "--set", x, "--break", "add", check=1))
    if failing:
        flow.inside("resume", id, check=1)
        retried = flow.inside("retry", id, check=1)
        assert sentence("execution {} continues with the cells of {}", f"{id}-2", id) in retried.output
    name = f"{id}-2" if failing else id
    assert {row[0] for row in flow.query("SELECT id FROM executions")} == {id, name}
    assert flow.text("status", name).startswith(f"execution flow ({name}): ")
    assert flow.text("status", id).startswith(f"execution flow ({name}): ")
    for command in (["show", id], ["history", id]):
        assert flow.text(*command).startswith(f"execution {name}: ")
    assert f"1 cell, {name}" in flow.text("tree", id)
    outcomes = [flow.inside("pause", id), flow.inside("rollback", id, "--to", "nope")]
    assert [f"execution {name} " in outcome.output for outcome in outcomes] == [True] * 2
    for command in (["rollback", id, "--to", "look"], ["rollback", id, "--undo"]):
        text = flow.text(*command)
        assert text.startswith(f"execution {name} ")
        assert f"continue with: wtb resume {name}\n" in text


def test_a_fork_of_a_single_execution_is_told_by_its_own_id(flow: Project) -> None:
    id = started(flow.inside("start", "flow:wf", "--set", "x=1", check=0))
    fork = flow.text("fork", id, "--at", "add", "--no-run").strip()
    assert fork != id
    assert f"wtb cancel {fork}" in flow.text("status", fork)
    assert json.loads(flow.text("resume", fork)) == {"x": 2, "docs": []}


def test_until_pauses_after_a_node_and_from_begins_at_one(flow: Project) -> None:
    upto = flow.inside("start", "flow:wf", "--input", "case.json", "--until", "look", check=1)
    assert upto.json == {"x": 5, "docs": []}

    rest = flow.inside("start", "flow:wf", "--set", "x=1", "--from", "add", "--format", "json", check=0)
    assert [run["node"] for run in rest.json["path"]] == ["add", "check"]
    assert rest.json["state"] == {"x": 2}


def test_at_a_limit_it_says_how_to_continue(flow: Project) -> None:
    paused = flow.inside("start", "flow:wf", "--set", "x=1", "--limits", "node_runs=1", check=1)
    id = started(paused)
    command = f"wtb resume {id} --limits node_runs=MORE"
    assert command in paused.output

    assert flow.json("status", id)["commands"][0] == command
    assert sentence("limit reached: {} = {}", "node_runs", 1) in " ".join(flow.text("status", id).split())
    assert "possible: resume, pause or cancel it" in flow.refusal("retry", id)
    assert flow.inside("resume", id, "--limits", "node_runs=9", check=0).json["x"] == 2


def test_one_execution_of_a_sweep_continues_alone(flow: Project) -> None:
    cases = [{"id": str(x), "input": {"x": x}} for x in (1, 2)]
    sweep = {"sweep": "two", "workflow": "flow:wf", "cases": cases, "vary": {"add": ["default"]}}
    flow.write({"two.json": json.dumps(sweep)})
    flow.inside("run", "two.json", "--break", "add", check=1)
    assert flow.json("status", "two")["sweep"]["reason"] == "paused executions: 2"
    first, second = (id for (id,) in flow.query("SELECT id FROM executions ORDER BY id"))
    with closing(sqlite3.connect(flow.file)) as connection:  # as if what ran it had been killed
        connection.execute("UPDATE executions SET status = 'pending' WHERE id = ?", (first,))
        connection.commit()

    assert flow.inside("resume", second, check=0).json["x"] in (2, 3)

    assert flow.query(f"SELECT status FROM executions WHERE id = '{first}'") == [("pending",)]
    assert flow.query("SELECT status, reason FROM sweeps") == [
        ("paused", sentence("executions that can continue: {}", 1))
    ]
    # The reason of a paused sweep is the current one, not that of the moment when it was paused.
    flow.inside("pause", first, check=0)
    assert flow.json("status", "two")["sweep"]["reason"] == "paused executions: 1"
    assert flow.json("status", "two")["next"]["command"].startswith("wtb resume ")


def test_the_database_of_a_stack_that_is_down_is_not_called_missing(flow: Project) -> None:
    flow.write({".wtb/postgres/PG_VERSION": "16"})
    for command in (["status", "x"], ["list"], ["admin", "db", "version"]):
        assert sentence("the stack of this folder is down") in flow.refusal(*command)


def test_a_failed_one_is_tried_again_with_fixed_code(flow: Project) -> None:
    failed = flow.inside("start", "flow:wf", "--set", "x=100", check=1)
    id = started(failed)
    assert "failed: node 'check': ValueError: too large trying again gives the same" in failed.output
    assert sentence("once its cause is corrected") + sentence(": wtb retry {}", id) in failed.output
    flow.write({"flow.py": FLOW.replace("> 100", "> 1000")})

    retried = flow.inside("retry", id, check=0)

    assert retried.json["x"] == 101
    assert sentence("the code of {}={} has changed", "check", "default") in retried.output
    assert sentence("cannot be {}", "retried") + sentence(": none of its cells has failed") in flow.refusal("retry", id)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--input", "none.json"], "--input none.json: cannot be read (No such file or directory); expected a file"),
        (["--input", "flow.py"], "--input flow.py: not JSON"),
        (
            ["--input", "list.json"],
            "list.json: "
            + sentence("'input' is {}; expected a mapping from keys of the state to values", "a list of 1"),
        ),
        (["--set", "z=1"], sentence("key {} is not in the state", "'z'")),
        (["--set", "x=much"], sentence("key {}: found {}; expected {}", "'x'", "'much'", "int")),
        (["--set", "docs=[]"], sentence("key '{}' is missing", "x")),
        (
            ["--set", "x=1", "--variant", "add=tne"],
            sentence("node {} has no variant {}", "'add'", "'tne'") + sentence("; did you mean '{}'?", "ten"),
        ),
        (["--set", "x=1", "--variant", "add"], sentence("{} {}: expected NODE=VARIANT", "--variant", "'add'")),
        (
            ["--set", "x=1", "--from", "chekc"],
            sentence("has no node {} to start from", "'chekc'") + sentence("; did you mean '{}'?", "check"),
        ),
        (
            ["--set", "x=1", "--until", "chekc"],
            sentence("the workflow has no node {}", "'chekc'") + sentence("; did you mean '{}'?", "check"),
        ),
        (["--set", "x=1", "--break", "add if y > 1"], sentence("the state has no key {}", "'y'")),
        (
            ["--set", "x=1", "--break", "add if x > "],
            sentence("{}, which cannot be read; expected {}", "'x >'", "a condition such as"),
        ),
        (["--set", "x=1", "--break", "add if open('x')"], sentence("{} is not allowed here", "\"open('x')\"")),
        (["--set", "x=1", "--break", "add if x.__class__.__name__()"], sentence("is not allowed here")),
        (["--set", "x=1", "--mode", "manul"], "'run.mode' is 'manul'; expected 'autonomous' or 'interactive'"),
        (["--set", "x=1", "--limits", "usd"], "expected KEY=VALUE"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(shared_flow: Project, options: list[str], message: str) -> None:
    refused = shared_flow.inside("start", "flow:wf", *options, check=2)

    assert message in refused.output
    assert "Traceback" not in refused.stderr
    assert shared_flow.query("SELECT count(*) FROM sweeps") in ([], [(0,)])


@pytest.fixture(scope="module")
def shared_flow(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("start") / "project")
    project.write({"flow.py": FLOW, "list.json": "[1]"})
    return project


def test_a_node_that_runs_is_ended_by_pause_now_and_runs_again_on_resume(flow: Project) -> None:
    hold = {"HOLD": str(flow.folder / "go"), "LOG": str(flow.folder / "log")}
    with flow.start("start", "flow:wf", "--input", "case.json", env=hold) as running:
        flow.until(lambda: flow.log() == ["add"], "its node runs")
        id = started(Outcome(0, "", running.stderr))
        flow.until(lambda: "add=default for" in flow.text("status", id), "it to be told")
        assert "resume" not in flow.text("status", id)

        paused = flow.inside("pause", id, "--now", "--reason", "wrong index", check=0)
        ended = running.wait(check=1)

    assert sentence("continue with: wtb resume") in paused.output
    assert "wrong index" in ended.output
    assert flow.node_processes() == []
    assert flow.query("SELECT * FROM attempts WHERE status = 'failed'") == []
    query = "SELECT count(*) FROM node_runs WHERE status <> 'succeeded' AND begun_at IS NOT NULL"
    assert flow.query(query) == [(1,)]  # the attempt that was taken away had begun, and did not fail
    flow.write({"go": ""})
    assert flow.inside("resume", id, env=hold, check=0).json["x"] == 6
    assert flow.log() == ["add", "add"]


def test_an_execution_of_a_sweep_that_runs_is_paused_from_elsewhere_and_resumed_there(flow: Project) -> None:
    cases = "".join(json.dumps({"id": f"c{n}", "input": {"x": n}}) + "\n" for n in range(2))
    sweep = "sweep: two\nworkflow: flow:wf\ncases: cases.jsonl\nvary: {add: [default]}\nrun: {pool: process}\n"
    flow.write({"sweep.yaml": sweep, "cases.jsonl": cases})
    hold = {"HOLD": str(flow.folder / "go"), "LOG": str(flow.folder / "log")}
    with flow.start("run", "sweep.yaml", "--format", "json", env=hold) as running:
        flow.until(lambda: len(flow.log()) == 2, "both are in their nodes")
        flow.until(lambda: len(flow.query("SELECT id FROM executions WHERE head_id IS NOT NULL")) == 2, "committed")
        (first,), (second,) = flow.query("SELECT id FROM executions ORDER BY case_number")
        flow.inside("pause", first, "--now", check=0)
        flow.inside("cancel", second, "--yes", "--reason", "no longer wanted", check=0)
        refused = flow.inside("pause", second, check=2)
        assert "is cancelled (by " in refused.output
        assert "possible: retry it" in refused.output
        done = running.wait(check=1)
    assert "paused (paused executions: 1)" in done.output
    assert done.json["cells"]["cancelled"] == 1

    flow.write({"go": ""})
    assert flow.inside("resume", first, env=hold, check=0).json["x"] == 1
    text = flow.text("log", "two")
    assert "no longer wanted" in text
    assert "resumed by" in text


def test_breakpoints_of_a_sweep_are_listed_and_changed(flow: Project) -> None:
    sweep = "workflow: flow:wf\ncases: [{id: one, input: {x: 1}}]\nvary: {add: all}\nrun: {pool: thread}\n"
    flow.write({"sweep.yaml": sweep})
    flow.inside("run", "sweep.yaml", "--break", "add", "--break", "after add", check=1)

    assert flow.text("breakpoint", "list", "sweep") == "before add\nafter add\n"
    changed = ["--remove", "after add", "--add", "check if x > 100", "--format", "json"]
    listed = flow.inside("breakpoint", "set", "sweep", *changed, check=0).json["breakpoints"]
    assert listed == ["before add", "before check if x > 100"]
    assert sentence("did you mean '{}'?", "check") in flow.refusal("breakpoint", "set", "sweep", "--add", "chekc")
    assert "no breakpoint" in flow.refusal("breakpoint", "set", "sweep", "--remove", "look")
    # All its paused executions go on.
    assert flow.json("resume", "sweep")["cells"]["succeeded"] == 2


def steps() -> Workflow:
    wf = Workflow("steps")

    @wf.node
    def double(state: dict[str, int]) -> dict[str, int]:
        return {"x": state["x"] * 2}

    @wf.node
    def halve(state: dict[str, int]) -> dict[str, int]:
        return {"x": state["x"] // state.get("by", 2)}

    wf.entry(double)
    wf.edge(double, halve)
    wf.edge(halve, END)
    return wf


def test_python_starts_holds_changes_and_retries_one(tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path / 'wtb.db'}"
    wf = steps()

    run = start(wf, {"x": 4, "by": 0}, until="double", db=db).wait(60)
    assert (run.status, run.reason, run.state["x"]) == ("paused", "breakpoint after double", 8)
    assert run.resume().wait(60).status == "failed"
    with pytest.raises(
        ConflictError, match=sentence("is {}: it cannot be {}; possible: {}", "failed", "resumed", "retry it")
    ):
        run.resume()
    with pytest.raises(InputError, match=sentence("there is no execution")):
        open_bench(run.database).execution("nothing")

    continued = start(wf, {"x": 4, "by": 0}, breakpoints=["halve if by == 0"], db=db).wait(60)
    assert continued.resume(set={"by": 4}).wait(60).state == {"x": 2, "by": 4}
    assert open_bench(continued.database).execution(continued.id).id == continued.id
    assert continued.history().path[-1] == "halve"
    continued.database.close()
    run.database.close()
