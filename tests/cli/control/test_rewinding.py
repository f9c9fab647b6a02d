"""rollback, fork, tree and diff as commands, with nodes in processes of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.project import Project
from tests.support.prose import sentence

FLOW = """
from pathlib import Path
from typing import TypedDict

from wtb import END, Workflow

LOG = Path(__file__).parent / "log"


class State(TypedDict, total=False):
    x: int
    way: list[str]
    asks: bool


wf = Workflow("flow", state=State)


def note(text):
    with LOG.open("a") as file:
        file.write(text + "\\n")


@wf.tool
def post(*, text: str) -> str:
    note(f"post {text}")
    return f"number of {text}"


@post.reversed_by
def unpost(number, *, text):
    note(f"unpost {text}: {number}")


@wf.tool
def mail(*, to: str) -> None:
    note(f"mail {to}")


@wf.node
def A(state, ctx):
    (ctx.workspace / "a.txt").write_text("a")
    return {"way": ["A"]}


@wf.node
def B(state, ctx, *, suffix=""):
    ctx.tools.post(text="b")
    (ctx.workspace / "b.txt").write_text("b")
    return {"way": [*state["way"], "B" + suffix]}


@wf.node
def C(state, ctx):
    if state.get("asks"):
        ctx.ask("really?")
    ctx.cost(usd=0.01)
    ctx.tools.mail(to="all")
    return {"way": [*state["way"], "C"]}


B.variant("loud", suffix="!")
wf.entry(A)
wf.edge(A, B)
wf.edge(B, C)
wf.edge(C, END)


def length(case, result):
    return len(result.state["way"]) + result.state["x"]
"""
SWEEP = """
sweep: first
workflow: flow:wf
cases: [{id: c0, input: {x: 0}}, {id: c1, input: {x: 10}}]
vary: {B: all}
evaluate: ["flow:length"]
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A sweep that was run to its end."""
    project = Project(tmp_path_factory.mktemp("rewinding") / "project")
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP})
    project.inside("run", "sweep.yaml", check=0)
    yield project
    project.close()


def execution(project: Project, case: str, variant: str) -> str:
    cells = project.json("show", "first", "--cells")["cells"]
    return next(cell["execution"] for cell in cells if (cell["case"], cell["combination"]["B"]) == (case, variant))


def test_an_execution_is_rolled_back_taken_forth_and_run_on(ran: Project) -> None:
    id = execution(ran, "c0", "loud")
    (ran.folder / "log").unlink()
    back = ran.inside("rollback", id, "--to", "A", "--reason", "the wrong index", check=0)
    assert f"execution {id} rolled back to A (checkpoint" in back.stdout
    assert "rolled back  C, B" in back.stdout
    assert "no reverse   mail" in back.stdout
    assert ran.log() == ["unpost b: number of b"]
    text = ran.text("show", id)
    assert "paused" in text
    assert "the wrong index" in text
    drawn = ran.inside("tree", id, check=0, env={"COLUMNS": "80"}).stdout
    assert "╳ B=loud → C  left by" in drawn
    assert all(len(line) <= 80 for line in drawn.splitlines())
    undone = ran.json("rollback", id, "--undo")
    assert [call["tool"] for call in undone["redone"]] == ["post"]
    assert ran.log()[1:] == ["post b"]
    refused = ran.inside("rollback", id, "--undo", check=2)
    assert sentence("has no rollback to undo") in refused.stderr
    back = ran.inside("rollback", id, "--to", "B", "--format", "json", check=0)
    assert back.json["nodes"] == ["C"]
    ran.inside("resume", id, check=0)
    assert ran.json("matrix", "first")["cells"]["succeeded"] == 4
    history = ran.json("history", id)
    assert [branch["nodes"] for branch in history["left"]] == [["C"], ["C", "B"]]
    assert sentence("rolled back by") in ran.text("history", id)


def test_a_fork_runs_beside_its_origin_and_leaves_the_matrix_as_it_is(ran: Project) -> None:
    id = execution(ran, "c1", "default")
    before = ran.json("matrix", "first")
    fork = ran.json("fork", id, "--at", "A", "--set", "x=100", "--variant", "B=loud")
    assert fork["state"] == {"x": 100, "way": ["A", "B!", "C"]}
    assert fork["scores"] == {"length": 103}
    assert (fork["execution"]["origin"], fork["execution"]["parent"]) == ("manual", id)
    after = ran.json("matrix", "first")
    assert after == before
    difference = ran.json("diff", id, fork["execution"]["id"])
    assert difference["divergence"]["why"] in ("variant", "path", "result")
    assert difference["state"]["changed"]["x"] == {"a": 10, "b": 100}
    assert difference["files"] == []
    assert "fork, edited" in ran.text("tree", "first", "--case", "c1")
    first = ran.json("history", id)["checkpoints"][0]["id"]
    files = ran.text("diff", first, id)
    assert "added    a.txt" in files
    assert "added    b.txt" in files


def test_a_fork_takes_the_code_as_it_is_now_and_its_origin_keeps_what_it_had(ran: Project) -> None:
    id = execution(ran, "c1", "default")
    before = ran.json("matrix", "first")
    ran.write({"flow.py": FLOW.replace('"B" + suffix', '"new B" + suffix')})
    try:
        fork = ran.json("fork", id, "--at", "A")
    finally:
        ran.write({"flow.py": FLOW})
    assert fork["state"]["way"] == ["A", "new B", "C"]
    assert ran.json("show", id)["state"]["way"] == ["A", "B", "C"]
    assert ran.json("matrix", "first") == before


def test_an_edited_cell_is_left_out_of_the_matrix_unless_asked_for(ran: Project) -> None:
    id = execution(ran, "c1", "loud")
    ran.inside("rollback", id, "--to", "B", check=0)
    ran.inside("resume", id, "--set", "x=1000", check=0)
    document = ran.json("matrix", "first")
    assert document["edited_left_out"] == 1
    assert any("1 edited cell is left out" in text for text in document["warnings"])
    loud = next(row for row in document["rows"] if row["combination"] == {"B": "loud"})
    assert (loud["n"], loud["metrics"]["length"]["n"], loud["metrics"]["length"]["mean"]) == (1, 1, 3)
    counted = ran.json("matrix", "first", "--edited")
    loud = next(row for row in counted["rows"] if row["combination"] == {"B": "loud"})
    assert (counted["edited_left_out"], loud["n"], loud["metrics"]["length"]["mean"]) == (0, 2, (3 + 1003) / 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["rollback", "ID", "--to", "D"],
            sentence("has no checkpoint {} on its line", "'D'") + sentence("; expected one of: {}", "'A', 'B', 'C'"),
        ),
        (["rollback", "first", "--to", "A"], "'first' is the sweep first"),
        (["rollback", "zzz", "--to", "A"], sentence("there is no execution {}", "'zzz'")),
        (["rollback", "ID", "--undo"], sentence("has no rollback to undo")),
        (["fork", "ID", "--set", "way=3"], sentence("key {}: found {}; expected {}", "'way'", 3, "list[str]")),
        (
            ["fork", "ID", "--set", "wax=3"],
            sentence("key {} is not in the state", "'wax'") + sentence("; did you mean '{}'?", "way"),
        ),
        (["fork", "ID", "--set", "x"], sentence("set {}: expected key=value", "'x'")),
        (["fork", "ID", "--variant", "B"], sentence("{} {}: expected NODE=VARIANT", "--variant", "'B'")),
        (
            ["fork", "ID", "--at", "A", "--variant", "B=lout"],
            sentence("node {} has no variant {}", "'B'", "'lout'") + sentence("; did you mean '{}'?", "loud"),
        ),
        (["tree", "first", "--case", "c9"], sentence("the sweep has no case {}", "'c9'")),
        (["tree", "ID", "--case", "c0"], sentence("a case can be chosen for a sweep only")),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(ran: Project, arguments: list[str], words: str) -> None:
    id = execution(ran, "c0", "default")
    refused = ran.inside(*[id if argument == "ID" else argument for argument in arguments], check=2)
    assert refused.stdout == ""
    assert words in refused.output
    assert "Traceback" not in refused.stderr


def test_values_of_keys_come_from_text_and_files(ran: Project, tmp_path: Path) -> None:
    id = execution(ran, "c0", "default")
    (tmp_path / "way.json").write_text(json.dumps(["from", "a", "file"]))
    forked = ran.inside("fork", id, "--no-run", "--set", f"way=@{tmp_path / 'way.json'}", "--set", "x=16", check=0)
    document = ran.json("show", forked.stdout.strip())
    assert document["state"] == {"x": 16, "way": ["from", "a", "file"]}
    assert document["execution"]["status"] == "paused"


def test_a_fork_that_asks_says_how_to_answer_and_is_cancelled_as_a_fork(ran: Project) -> None:
    id = execution(ran, "c0", "loud")
    outcome = ran.inside("fork", id, "--at", "B", "--set", "asks=true", check=1)
    fork = outcome.stdout.strip()
    assert sentence("waits for a person: ") in outcome.output
    assert "really?" in outcome.output
    assert "wtb answer " in outcome.output
    cancelled = ran.inside("cancel", fork, "--yes", check=0)
    assert sentence("{} is cancelled, a fork without cells", f"execution {fork}") in cancelled.output
    assert "wtb retry" not in cancelled.output


def test_status_says_how_much_of_the_cost_is_of_forks(ran: Project) -> None:
    before = ran.json("status", "first")["cost"]
    ran.inside("fork", execution(ran, "c0", "loud"), "--at", "B", check=0)
    after = ran.json("status", "first")["cost"]
    assert after["by_forks_usd"] == pytest.approx(before["by_forks_usd"] + 0.01)
    assert after["usd"] == pytest.approx(before["usd"] + 0.01)
    assert sentence(" of it by forks") in ran.text("status", "first")
