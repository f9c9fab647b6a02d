"""combination add: a row from a fork, with nodes in separate processes, on this machine and on workers."""

from __future__ import annotations

import csv
import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.crew import ran as held_by
from tests.support.crew import write_sweep
from tests.support.project import Project
from tests.support.prose import sentence

FLOW = """
from pathlib import Path
from typing import TypedDict

from wtb import END, Workflow, evaluator

LOG = Path(__file__).parent / "log"


class State(TypedDict, total=False):
    x: int
    way: list[str]


wf = Workflow("flow", state=State)


def note(text):
    with LOG.open("a") as file:
        file.write(text + "\\n")


@wf.node
def A(state):
    note("A")
    return {"way": ["A"]}


@wf.node
def B(state, *, suffix=""):
    note("B")
    return {"way": [*state["way"], "B" + suffix]}


@wf.node
def C(state):
    note("C")
    return {"way": [*state["way"], "C"]}


B.variant("loud", suffix="!")
wf.entry(A)
wf.edge(A, B)
wf.edge(B, C)
wf.edge(C, END)


@evaluator(better="higher")
def length(case, result):
    return len("".join(result.state["way"])) + result.state["x"]
"""
NEW = """
import flow


def written_later(state):
    flow.note("B")
    return {"way": [*state["way"], "B written later"]}
"""
CASES = ", ".join(f"{{id: c{number}, input: {{x: {number}}}}}" for number in range(8))
SWEEP = f"""
sweep: first
workflow: flow:wf
cases: [{CASES}]
vary: {{B: [default, loud]}}
baseline: {{B: default}}
evaluate: ["flow:length"]
"""


@pytest.fixture
def ran(tmp_path: Path) -> Iterator[Project]:
    """A sweep that was run to its end; its log is empty again."""
    project = Project(tmp_path / "project")
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP})
    project.inside("run", "sweep.yaml", check=0)
    (project.folder / "log").unlink()
    project.write({"later.py": NEW})
    yield project
    project.close()


def execution(project: Project, case: str, variant: str = "loud") -> str:
    cells = project.json("show", "first", "--cells")["cells"]
    return str(next(cell["execution"] for cell in cells if (cell["case"], cell["combination"]["B"]) == (case, variant)))


def matrix(project: Project) -> dict[str, object]:
    document: dict[str, object] = project.json("matrix", "first")
    return document


def test_a_function_that_was_just_written_runs_for_every_case_from_where_it_makes_a_difference(ran: Project) -> None:
    id = execution(ran, "c3")
    outcome = ran.inside("combination", "add", id, "--at", "A", "--variant", "B=later:written_later", check=0)
    assert "B=written_later is a row now, of 8 cells" in outcome.output
    assert sentence("(about {} node runs)", 16) in outcome.output
    assert sentence("it is exploratory, since case {} suggested it", "c3") in outcome.output
    assert Counter(ran.log()) == {"B": 8, "C": 8}
    table = [line.split()[1:] for line in outcome.stdout.splitlines()]
    assert ["exploratory", "written_later", "8"] in [line[:3] for line in table]
    assert ["★", "best", "loud", "8"] in [line[:4] for line in table]
    assert sentence("{}: wtb matrix", "1 warning") in outcome.stdout
    rows = csv.DictReader(ran.text("matrix", "first", "--format", "csv").splitlines())
    assert [row["exploratory"] for row in rows] == ["no", "no", "yes"]
    report = ran.inside("report", "first", "-o", "report.html", check=0)
    assert report.code == 0
    assert sentence("is exploratory: it was added after results were seen") in (ran.folder / "report.html").read_text()
    assert sentence("added a row of {}, which case {} suggested", "8 cells", "c3") in ran.text("log", "first")
    ran.inside("tree", "first", "--case", "c3", check=0)


def test_a_fork_that_was_looked_at_is_run_for_every_case_and_its_json_says_what_was_added(ran: Project) -> None:
    fork = ran.text("fork", execution(ran, "c1"), "--at", "A", "--variant", "B=default").strip()
    assert sentence("has the row {} already", "B=default") in ran.refusal("combination", "add", fork)
    louder = "B={name: louder, of: loud, suffix: '!!!'}"
    document = ran.json("combination", "add", fork, "--variant", louder)
    assert (document["choices"], document["suggested_by"], document["cells"]) == ({"B": "louder"}, "c1", 8)
    assert (document["status"], document["failed"], len(document["executions"])) == ("completed", 0, 8)
    assert matrix(ran)["cells"] | {"total": 24} == matrix(ran)["cells"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], sentence("the new row equals another one")),
        (["--at", "C", "--variant", "B=default"], sentence("node {} does not run after checkpoint", "'B'")),
        (["--variant", "D=default"], sentence("the workflow has no node {}", "'D'")),
    ],
)
def test_what_is_no_row_is_refused(ran: Project, arguments: list[str], words: str) -> None:
    assert words in ran.refusal("combination", "add", execution(ran, "c3"), *arguments)
    assert len(matrix(ran)["rows"]) == 2  # type: ignore[arg-type]


def test_values_typed_into_a_fork_are_not_those_of_every_case(ran: Project) -> None:
    forked = ran.inside("fork", execution(ran, "c3"), "--at", "A", "--set", "x=9", "--variant", "B=default", check=0)
    refused = ran.inside("combination", "add", forked.stdout.strip(), check=2)
    assert sentence("has values that a person typed: they hold for its own case only") in refused.output


@pytest.mark.parametrize("fault", ["submit.written", "journal.committed:2", "node.answered:9"])
def test_a_row_whose_runner_is_killed_is_whole_or_not_there_and_continues(ran: Project, fault: str) -> None:
    adding = ["combination", "add", execution(ran, "c3"), "--variant", "B=later:written_later"]
    killed = ran.wtb(*adding, env={"WTB_FAULT": fault})
    assert killed.code == -signal.SIGKILL
    if fault == "submit.written":
        assert len(matrix(ran)["rows"]) == 2  # type: ignore[arg-type]
        ran.inside(*adding, check=0)
    else:
        assert sentence("has the row {} already; `wtb resume", "B=written_later") in ran.refusal(*adding)
        ran.inside("resume", "first", check=0)
    document = matrix(ran)
    assert json.dumps(document["cells"]) == json.dumps(document["cells"] | {"total": 24, "succeeded": 24})  # type: ignore[operator]
    cells = ran.json("show", "first", "--cells")["cells"]
    ways = [cell["state"]["way"] for cell in cells if cell["combination"]["B"] == "written_later"]
    assert ways == [["A", "B written later", "C"]] * 8
    counted = document["node_runs"]["by_node"]  # type: ignore[index]
    assert [counted[node]["executed"] for node in "ABC"] == [8, 24, 24]
    assert "A" not in ran.log()


def test_a_fork_of_one_case_has_another_parameter_and_then_runs_for_every_case(ran: Project) -> None:
    louder = "B={name: louder, of: loud, suffix: '!!!'}"
    fork = ran.text("fork", execution(ran, "c1"), "--at", "A", "--variant", louder, "--no-run").strip()
    assert not (ran.folder / "log").exists()
    ran.inside("resume", fork, check=0)
    assert Counter(ran.log()) == {"B": 1, "C": 1}
    details = ran.json("show", fork)
    assert details["state"]["way"] == ["A", "B!!!", "C"]
    assert len(matrix(ran)["rows"]) == 2  # type: ignore[arg-type]
    written = ("--at", "A", "--variant", "B=later:written_later")
    details = ran.json("fork", execution(ran, "c1"), *written)
    assert details["state"]["way"] == ["A", "B written later", "C"]
    added = ran.json("combination", "add", fork)
    assert (added["choices"], added["suggested_by"], added["cells"]) == ({"B": "louder"}, "c1", 8)
    (ran.folder / "later.py").unlink()  # a trial is no part of the sweep
    ran.inside("resume", "first", check=0)


def test_a_process_that_runs_the_sweep_is_not_given_a_variant_that_it_does_not_know(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    project.write(
        {"waiting.py": WAITS, "waits.yaml": f"{WAITING}vary: {{last: [default, waits]}}\nrun: {{grace: 1}}\n"}
    )
    with project.start("run", "waits.yaml") as running:
        cells: list[dict[str, str]] = []
        while not any(cell["status"] == "succeeded" for cell in cells):
            outcome = project.inside("show", "waits", "--cells", "--format", "json")
            cells = outcome.json["cells"] if outcome.code == 0 else []
        origin = next(cell["execution"] for cell in cells if cell["status"] == "succeeded")
        command = ("fork", origin, "--at", "first", "--variant")
        refused = project.inside(*command, "last={name: new, of: plain}", check=2)
        assert sentence("another process runs sweep") in refused.output
        assert "`wtb pause" in refused.output
        accepted = project.inside(*command, "last=plain", check=0)
        assert sentence("is for the process that runs the sweep") in accepted.output
        project.write({"go": ""})
        running.wait(check=0)
    project.inside(*command, "last={name: new, of: plain}", check=0)
    project.close()


def test_workers_run_a_fork_of_one_case_with_another_parameter_at_once(crew: Cluster) -> None:
    sweep = crew.wtb("submit", write_sweep(crew.project, "forks", cases=2), check=0).stdout.strip()
    crew.wait_completed(sweep)
    cells = crew.wtb("show", sweep, "--cells", "--format", "json", check=0).json["cells"]
    origin = next(cell["execution"] for cell in cells if cell["case"] == "forks-1")
    forks = []
    for by in (9, 10):  # the second while workers still have the sweep as it was with the first
        form = f"held={{name: by {by}, of: two, by: {by}}}"
        options = ("--at", "first", "--variant", form, "--format", "json")
        forks.append(crew.wtb("fork", origin, *options, check=0).json["execution"]["id"])
    crew.wait_completed(sweep)
    ends = [crew.wtb("show", fork, "--format", "json", check=0).json for fork in forks]
    assert [(end["execution"]["status"], end["state"]["y"]) for end in ends] == [("completed", 9), ("completed", 10)]
    assert crew.cells(sweep) == {"succeeded": 4}
    assert held_by(crew.project, "first forks-") == 2


def test_workers_run_a_row_of_a_sweep_that_was_submitted(crew: Cluster) -> None:
    sweep = crew.wtb("submit", write_sweep(crew.project, "rows", cases=3), check=0).stdout.strip()
    crew.wait_completed(sweep)
    cells = crew.wtb("show", sweep, "--cells", "--format", "json", check=0).json["cells"]
    origin = next(cell["execution"] for cell in cells if cell["case"] == "rows-1")
    forms = "held={name: nine, of: two, by: 9}"
    added = crew.wtb("combination", "add", origin, "--variant", forms, "--format", "json", check=0).json
    assert (added["queued"], added["status"], added["cells"], added["node_runs"]) == (True, "running", 3, 3)
    crew.wait_completed(sweep)
    second = "held={name: ten, of: two, by: 10}"  # at once: workers may still have the sweep as it was before
    crew.wtb("combination", "add", origin, "--variant", second, check=0)
    crew.wait_completed(sweep)
    assert crew.cells(sweep) == {"succeeded": 12}
    assert [held_by(crew.project, f"{node} rows-") for node in ("first", "held")] == [3, 12]
    document = crew.wtb("matrix", sweep, "--format", "json", check=0).json
    assert [row["metrics"]["y"]["mean"] for row in document["rows"]] == [1, 2, 9, 10]
    assert [row["metrics"]["y"]["n"] for row in document["rows"]] == [3, 3, 2, 2]
    assert document["best"]["y"]["combination"] == {"held": "two"}
    assert crew.events("execution.failed", sweep) == []


WAITING = "workflow: waiting:wf\ncases: [{id: a, input: {}}]\n"
WAITS = """
import os
import time

from wtb import END, Workflow

HERE = os.path.dirname(os.path.abspath(__file__)) + "/"
wf = Workflow("waits")


@wf.node
def first(state):
    return {"x": 1}


@wf.node
def last(state, *, waits: bool = False):
    while waits and not os.path.exists(HERE + "go"):
        time.sleep(0.01)
    return {"y": 1}


last.variant("waits", waits=True)
last.variant("plain", waits=False)
wf.entry(first)
wf.edge(first, last)
wf.edge(last, END)
"""


def test_a_worker_that_runs_the_sweep_takes_a_row_that_was_added_meanwhile(crew: Cluster) -> None:
    crew.project.write(
        {"waiting.py": WAITS, "waits.yaml": f"{WAITING}vary: {{last: [default, waits]}}\nrun: {{grace: 1}}\n"}
    )
    sweep = crew.wtb("submit", "waits.yaml", check=0).stdout.strip()
    crew.until(lambda: crew.cells(sweep)["succeeded"] == 1, "the cell that does not wait")
    cells = crew.wtb("show", sweep, "--cells", "--format", "json", check=0).json["cells"]
    base = next(cell["execution"] for cell in cells if cell["status"] == "succeeded")
    waiting = next(cell["execution"] for cell in cells if cell["status"] != "succeeded")
    refused = crew.wtb("combination", "add", waiting, "--variant", "last=plain", check=2)
    assert "stands for" in refused.output or sentence("{} no outcome yet", "has") in refused.output
    crew.wtb("combination", "add", base, "--variant", "last=plain", check=0)
    crew.until(lambda: crew.cells(sweep)["succeeded"] == 2, "the row that was added")
    crew.project.write({"go": ""})
    crew.wait_completed(sweep)
    assert crew.cells(sweep) == {"succeeded": 3}
    assert crew.scalar("SELECT sum(losses) FROM executions WHERE sweep_id = :sweep", sweep=sweep) == 0


def test_a_row_that_is_left_for_later_is_run_by_resume(ran: Project) -> None:
    outcome = ran.inside(
        "combination", "add", execution(ran, "c3"), "--variant", "B=later:written_later", "--no-run", check=0
    )
    assert outcome.stdout.strip() == "2"
    assert sentence("run it with: wtb resume") in outcome.output
    assert not (ran.folder / "log").exists()
    ran.inside("resume", "first", check=0)
    assert Counter(ran.log()) == {"B": 8, "C": 8}
