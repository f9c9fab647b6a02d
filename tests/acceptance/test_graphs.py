"""A LangGraph graph through every command: a loop, tasks that are sent, a graph within, a model and a question."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import corrective
from tests.support.cluster import Cluster
from tests.support.project import Outcome, Project, run_program
from tests.support.prose import sentence
from wtb import Sweep
from wtb.core.errors import InputError
from wtb.integrations.langgraph import variants
from wtb.testing import run_cell, run_node

pytestmark = pytest.mark.nodes("langgraph")

SOURCE = Path(corrective.__file__).read_text("utf-8")
SWEEP = """
sweep: docs
workflow: corrective:graph
cases:
  - {id: x, input: {q: x}}
  - {id: y, input: {q: y}}
vary:
  retrieve: [default, {name: wide, with: "corrective:retrieve", k: 3}]
  draft.write: [default, {name: shout, with: "corrective:shout", mark: "?"}]
baseline: {retrieve: default, draft.write: default}
evaluate: ["corrective:length"]
"""
VARIED = """
from wtb.integrations.langgraph import variants

import corrective

varied = variants(corrective.build).add("retrieve", "wide", k=3).add("draft.write", "shout", corrective.shout, mark="?")
"""
WHOLE = """
sweep: whole
workflow: corrective:graph
cases: [{id: x, input: {q: x}}]
vary:
  graph: [default, {name: short, with: "corrective:short"}]
  default.draft.write: [default, {name: shout, with: "corrective:shout"}]
"""
SCRIPT = """
from typing import TypedDict

from langgraph.graph import START, StateGraph

from wtb import Sweep
from wtb.integrations.langgraph import variants

class State(TypedDict, total=False):
    q: str
    answer: str

def say(state: State):
    return {"answer": f"1: {state['q']}"}

graph = StateGraph(State)
graph.add_node(say)
graph.add_edge(START, "say")
beside = variants(graph).add("say", "loud", lambda state: {"answer": f"1: {state['q'].upper()}"})
sweep = Sweep(workflow=beside, name="script", cases=[{"id": "a", "input": {"q": "hi"}}], vary={"say": "all"})
found = sweep.run()
print(sweep.prepare().bound.pool, sorted(cell["state"]["answer"] for cell in found.cells()))
"""
RENAMED = """
from typing import TypedDict

from langgraph.graph import START, StateGraph

from wtb import END, Workflow

class State(TypedDict, total=False):
    x: int

def a(state: State):
    return {"x": 1}

def second(state: State):
    return {"x": 2}

graph = StateGraph(State)
graph.add_node(a)
graph.add_node(second)
graph.add_edge(START, "a")
graph.add_edge("a", "second")

wf = Workflow("renamed")
wf.node(a)
wf.node(second)
wf.entry("a")
wf.edge("a", "second")
wf.edge("second", END)
"""
# A case: retrieve, two tasks of grade and check, twice, then count; for each of both variants write and review. Of the
# wide variant of retrieve a task more in each round.
EXECUTED, ALONE = (2 * 4 + 1 + 2 * 2) + (2 * 5 + 1 + 2 * 2), 2 * (2 * 4 + 3) + 2 * (2 * 5 + 3)


def folder(path: Path) -> Project:
    project = Project(path)
    project.write({"corrective.py": SOURCE, "sweep.yaml": SWEEP, "more.py": VARIED})
    return project


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A sweep that was run to its end in node processes; tests only look at it."""
    project = folder(tmp_path_factory.mktemp("graphs") / "project")
    project.inside("run", "sweep.yaml", "--quiet", check=0)
    yield project
    project.close()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = folder(tmp_path / "project")
    yield project
    project.close()


def alone(q: str, **nodes: Any) -> dict[str, Any]:
    """Return the final state of LangGraph alone for a question, with these nodes."""
    return dict(corrective.build(**nodes).compile().invoke({"q": q}))


def cells(project: Project, sweep: str = "docs") -> list[dict[str, Any]]:
    return project.cells(sweep)


def execution(project: Project, case: str = "x", **choices: str) -> str:
    combination = {"retrieve": "default", "draft.write": "default", **choices}
    (execution_id,) = (c["execution"] for c in cells(project) if (c["case"], c["combination"]) == (case, combination))
    return str(execution_id)


def start(project: Project, *args: str, workflow: str = "more:varied", check: int = 0) -> Outcome:
    return project.inside("start", workflow, "--set", "q=z", *args, check=check)


def ran(project: Project, ref: str) -> list[str]:
    path = project.json("show", ref)["path"]
    return [run.get("task", run["node"]) for run in path]


def answers(cells: Iterable[Any]) -> dict[str, str]:
    """Return the answer of each combination."""
    return {" ".join(cell["combination"].values()): cell["state"]["answer"] for cell in cells}


# Where the whole graph within has the variant `none`.
_NONE = dict.fromkeys(("default none", "wide none"), "none")
WITH_NONE = {"default default": "4 documents", "wide default": "6 documents", **_NONE}


class TestASweep:
    def test_gives_each_cell_what_the_graph_gives_alone(self, swept: Project) -> None:
        retrieve = {"default": corrective.retrieve, "wide": partial(corrective.retrieve, k=3)}
        write = {"default": corrective.write, "shout": partial(corrective.shout, mark="?")}
        states = {(c["case"], *c["combination"].values()): c["state"] for c in cells(swept)}
        cells_alone = product(("x", "y"), retrieve, write)
        assert states == {(q, r, w): alone(q, retrieve=retrieve[r], write=write[w]) for q, r, w in cells_alone}

    def test_runs_what_combinations_share_once_and_pays_for_it_once(self, swept: Project) -> None:
        document = swept.json("matrix", "docs")
        assert (document["node_runs"]["executed"], document["node_runs"]["unshared"]) == (2 * EXECUTED, 2 * ALONE)
        assert (document["cost"]["usd"], document["cost"]["tokens_in"]) == (pytest.approx(8 * 0.15), 8_000_000)
        costs = swept.json("costs", "docs", "--by", "node,model")["rows"]
        paid = [(row["node"], row["model"], row["calls"]) for row in costs if row["usd"]]
        assert paid == [("draft.write", "gpt-4o-mini", 8)]

    def test_is_planned_with_what_is_certain_and_no_bound_that_nobody_set(self, swept: Project) -> None:
        text = swept.inside("plan", "sweep.yaml", check=0).stdout
        assert [line.split() for line in text.splitlines() if line.startswith(("retrieve", "draft.write"))] == [
            ["retrieve", "2", "4", "or", "more", "8", "or", "more"],
            ["draft.write", "2", "0", "or", "more", "0", "or", "more"],
        ]
        planned = swept.json("plan", "sweep.yaml")
        assert planned["node_runs"]["executed"] == [4, None]

    def test_has_its_graph_its_nodes_and_their_effects_in_the_report(self, swept: Project) -> None:
        swept.inside("report", "docs", "-o", "report.html", check=0)
        page = (swept.folder / "report.html").read_text("utf-8")
        assert "draft.write" in page
        assert "~" not in page.split("<body", 1)[1].split("<script", 1)[0]
        effects = swept.json("report", "docs")["attribution"]["length"]["nodes"]
        shares = {effect["node"]: round(effect["share"], 6) for effect in effects}
        assert shares == {"draft.write": 1.0, "retrieve": 0.0}

    def test_tells_tasks_of_one_node_apart(self, swept: Project) -> None:
        id = execution(swept, retrieve="wide")
        text = swept.inside("show", id, check=0).stdout
        assert [line.split()[1:4] for line in text.splitlines() if "grade" in line][:2] == [
            ["grade=default", "(1", "of"],
            ["grade=default", "(2", "of"],
        ]
        assert text.count("of 3)") == 6
        assert "grade x3" in swept.inside("tree", id, "--format", "table", check=0, env={"COLUMNS": "200"}).stdout
        history = swept.inside("history", id, check=0, env={"COLUMNS": "200"}).stdout
        assert "retrieve → grade: each x3" in history
        assert "grade=default (3 of 3)" in history
        other = execution(swept)
        assert "grade=default x3" in swept.inside("diff", id, other, check=0).stdout
        assert "grade=default (3) done" in swept.inside("log", "docs", check=0).stdout

    def test_is_scored_again_and_compared_with_itself(self, swept: Project) -> None:
        swept.write({"scores.py": "def rounds(case, result):\n    return result.state['rounds']\n"})
        rescored = swept.json("score", "docs", "--evaluate", "scores:rounds")
        assert {row["metrics"]["rounds"]["mean"] for row in rescored["rows"]} == {2.0}
        compared = swept.json("compare", "docs", "docs")
        assert {row["verdict"] for row in compared["rows"]} == {"same"}

    def test_is_held_against_itself_as_a_baseline(self, swept: Project) -> None:
        swept.write({"less.yaml": SWEEP.replace('mark: "?"', "mark: ''").replace("sweep: docs", "sweep: less")})
        swept.inside("baseline", "repeat", "kept", "docs", "--times", "4", check=0)  # which agree: any fall is one
        worse = swept.inside("regress", "less.yaml", "--baseline", "kept", "--format", "json", check=1).json
        verdicts = {row["combination"]["draft.write"]: row["verdict"] for row in worse["rows"]}
        assert verdicts == {"default": "same", "shout": "worse"}
        assert {change["node"] for change in worse["changed"]["code"]} == {"draft.write"}

    def test_of_an_execution_goes_through_a_file_and_back(self, swept: Project) -> None:
        id = execution(swept, **{"draft.write": "shout"})
        swept.inside("admin", "export", id, "-o", "one.wtb", check=0)
        swept.inside("admin", "import", "one.wtb", "--name", "again", check=0)
        assert ran(swept, "again") == ran(swept, id)
        assert "draft.write=shout" in swept.inside("show", "again", check=0).stdout


class TestParts:
    def test_limits_exclusions_and_a_whole_subgraph_are_named_as_nodes_are(self, project: Project) -> None:
        limits = "exclude: [{retrieve: wide, draft.write: shout}]\nlimits: {nodes: {draft.write: {usd: 0.31}}}\n"
        limits += "run: {pool: thread, concurrency: 1}\n"
        project.write({"tight.yaml": SWEEP.replace("docs", "tight") + limits})
        project.inside("run", "tight.yaml", "--quiet")
        paused = project.json("show", "tight")
        assert paused["sweep"]["status"] == "paused"
        assert "nodes.draft.write.usd = 0.31" in paused["sweep"]["reason"]
        project.inside("resume", "tight", "--limits", "nodes.draft.write.usd=5", "--quiet", check=0)
        assert len(cells(project, "tight")) == 2 * 3

    def test_a_sweep_pauses_after_a_node_within_and_continues(self, project: Project) -> None:
        project.write({"held.yaml": SWEEP.replace("docs", "held") + "run: {pool: thread}\n"})
        project.inside("run", "held.yaml", "--break", "after draft.count if draft.words == 6", "--quiet")
        stood = {c["combination"]["retrieve"]: c["status"] for c in cells(project, "held")}
        assert stood == {"default": "succeeded", "wide": "pending"}
        project.inside("breakpoint", "set", "held", "--clear", check=0)
        project.inside("resume", "held", "--quiet", check=0)
        assert {c["status"] for c in cells(project, "held")} == {"succeeded"}
        ((executed,),) = project.query("SELECT count(*) FROM node_runs WHERE status = 'succeeded'")
        assert executed == 2 * EXECUTED

    def test_whole_graphs_are_variants(self, project: Project) -> None:
        project.write({"whole.yaml": WHOLE})
        project.inside("run", "whole.yaml", "--quiet", check=0)
        rows = cells(project, "whole")
        assert [c["state"]["rounds"] for c in rows] == [1 + (c["combination"]["graph"] == "default") for c in rows]
        of_default = {"default default": "4 documents", "default shout": "4 DOCUMENTS!"}
        assert answers(rows) == of_default | dict.fromkeys(("short default", "short shout"), "2 documents")
        id = next(c["execution"] for c in rows if c["combination"]["graph"] == "short")
        assert ran(project, id) == [
            "graph", "short.retrieve", "short.grade|0", "short.grade|1", "short.check", "short.draft.count",
            "short.draft.write", "short.review",
        ]  # fmt: skip

    def test_a_graph_within_is_varied_whole(self, project: Project) -> None:
        write = 'draft.write: [default, {name: shout, with: "corrective:shout", mark: "?"}]'
        sub = SWEEP.replace(write, 'draft: [default, {name: none, with: "other:none"}]').replace("docs", "sub")
        sub = sub.replace(", draft.write: default", ", draft: default") + "run: {pool: thread}\n"
        project.write({"sub.yaml": sub, "other.py": "def none(state):\n    return {'answer': 'none'}\n"})
        project.inside("run", "sub.yaml", "--quiet", check=0)
        assert answers(cells(project, "sub")) == WITH_NONE


class TestOneInput:
    def test_runs_under_variants_until_a_node_in_a_graph_within_and_continues_with_other_values(
        self, project: Project
    ) -> None:
        variants = ("--variant", "retrieve=wide", "--variant", "draft.write=shout")
        started = start(project, *variants, "--break", "before draft.write if draft.words > 5", check=1)
        assert started.json["draft.words"] == 6
        assert not any(key.startswith("~") for key in started.json)
        assert "paused: breakpoint before draft.write if draft.words > 5" in started.output
        id = started.stderr.split()[1]
        near = sentence("; did you mean '{}'?", "draft.words")
        elsewhere = sentence("key {} is of a graph that is not under way here", "'draft|1.words'")
        for key, words in (
            ("draft.wrds", sentence("key {} is not in the state", "'draft.wrds'") + near),
            ("~send/0", sentence("key {} is the engine's own", "'~send/0'")),
            ("draft|1.words", elsewhere),
            ("draft|1.words", "there is: draft.graded, draft.words"),
        ):
            assert words in project.inside("resume", id, "--set", f"{key}=9", check=2).output
        assert project.inside("resume", id, "--set", "draft.words=9", check=0).json["answer"] == "9 DOCUMENTS?"

    def test_pauses_before_tasks_that_were_sent_and_hides_how_they_are_kept(self, project: Project) -> None:
        started = start(project, "--until", "retrieve", check=1)
        id = started.stderr.split()[1]
        assert project.query("SELECT state FROM checkpoints ORDER BY id DESC LIMIT 1")[0][0].count('"~') == 2
        ways = [("show", id), ("history", id), ("tree", id), ("status", id), ("log", id), ("diff", id, id)]
        for way in [*ways, *((*way, "--format", "json") for way in ways), ("costs", id, "--format", "json")]:
            assert "~" not in project.inside(*way, check=0).stdout, way
        project.inside("breakpoint", "set", id, "--clear", check=0)
        assert project.inside("resume", id, check=0).json == alone("z")

    def test_starts_at_a_node_with_the_state_that_is_given(self, project: Project) -> None:
        document = start(project, "--from", "check", "--set", "rounds=2", "--set", "graded=[A, B, C]").json
        assert document["answer"] == "3 documents"
        refused = start(project, "--from", "draft.write", check=2)
        assert sentence("cannot start at {}", "'draft.write'") in refused.output

    def test_asks_and_continues_with_the_value_of_the_answer(self, project: Project) -> None:
        outcome = start(project, "--set", "asks=true", check=1)
        question = outcome.output.split("wtb answer ")[1].split()[0]
        assert "send it?" in project.inside("approvals", question, check=0).stdout
        answered = project.inside("answer", question, "approve", "--value", '{"sure": true}', check=0)
        assert answered.stdout.count("4 documents: {'sure': True}") == 1

    def test_is_rolled_back_undone_and_forked_with_another_variant(self, project: Project) -> None:
        id = start(project).stderr.split()[1]
        path = ran(project, id)
        back = project.inside("rollback", id, "--to", "draft.count", check=0)
        assert "next draft.write" in " ".join(back.stdout.split())
        assert ran(project, id) == path[:-2]
        project.inside("rollback", id, "--undo", check=0)
        assert ran(project, id) == path
        early = project.inside("fork", id, "--at", "retrieve", "--set", "draft.words=1", check=2)
        assert sentence("key {} is of a graph that is not under way here", "'draft.words'") in early.output
        for change, answer in (
            (("--variant", "draft.write=shout"), "4 DOCUMENTS?"),
            (("--set", "draft.words=1"), "1 documents"),
        ):
            forked = project.inside("fork", id, "--at", "draft.count", *change, check=0).stdout.split()[-1]
            assert project.json("show", forked)["state"]["answer"] == answer

    def test_with_a_node_that_fails_is_retried_once_it_is_fixed(self, project: Project) -> None:
        failed = start(project, "--variant", "draft.write=shout", "--set", "broken=fixed", check=1)
        id = failed.stderr.split()[1]
        before = ran(project, id)
        project.write({"fixed": ""})
        project.inside("retry", id, check=0)
        runs = project.query("SELECT node, count(*) FROM node_runs WHERE status = 'succeeded' GROUP BY node")
        assert dict(runs) == {"retrieve": 2, "grade": 4, "check": 2, "draft.count": 1, "draft.write": 1, "review": 1}
        assert before[-1] == "draft.write"


class TestElsewhere:
    def test_workers_run_it_and_a_registered_name_stands_for_it(self, crew: Cluster) -> None:
        registered = '[workflows]\ndocs = "corrective:build"\n'
        docs = SWEEP.replace("corrective:graph", "docs")
        crew.project.write({"corrective.py": SOURCE, "wtb.toml": registered, "docs.yaml": docs})
        crew.wait_completed(crew.wtb("submit", "docs.yaml", check=0).stdout.strip())
        document = crew.wtb("matrix", "docs", "--format", "json", check=0).json
        assert (document["node_runs"]["executed"], document["node_runs"]["unshared"]) == (2 * EXECUTED, 2 * ALONE)

    def test_a_sweep_in_python_takes_a_builder_with_variants_beside_it(self, tmp_path: Path) -> None:
        beside = variants(corrective.build()).add("retrieve", "wide", k=3)
        beside.add("draft.write", "none", lambda state: {"answer": "none"})
        vary: Any = {"retrieve": "all", "draft.write": "all"}
        cases = [{"id": "x", "input": {"q": "x"}}]
        sweep = Sweep(workflow=beside, name="beside", cases=cases, vary=vary)
        result = sweep.run(db="sqlite:///:memory:", files=tmp_path)
        assert answers(result.cells()) == WITH_NONE

    def test_a_node_is_tested_alone_and_a_cell_to_its_end(self) -> None:
        assert run_node(corrective.graph, "retrieve", {"q": "x"}) == {"found": ["x1a", "x1b"], "rounds": 1}
        with pytest.raises(InputError, match=sentence("is of a graph within")):
            run_node(corrective.graph, "draft.write", {"q": "x"})
        beside = variants(corrective.graph).add("draft.write", "shout", corrective.shout, mark="?")
        assert run_cell(corrective.graph, {"q": "x"}).state["answer"] == "4 documents"
        assert run_cell(beside, {"q": "x"}, **{"draft.write": "shout"}).state["answer"] == "4 DOCUMENTS?"
        beside.add("draft.write", "none", lambda state: {"answer": "none"})
        assert run_cell(beside, {"q": "x"}, **{"draft.write": "none"}).state["answer"] == "none"

    @pytest.mark.parametrize("kind", ["graph", "wf"])
    def test_a_node_that_comes_next_and_was_renamed_is_named_and_nothing_continues(
        self, project: Project, kind: str
    ) -> None:
        sweep = f"sweep: {kind}\nworkflow: renamed:{kind}\nlimits: {{node_runs: 1}}\nvary: {{a: [default]}}\n"
        project.write({"renamed.py": RENAMED, "renamed.yaml": f"{sweep}cases: [{{id: one, input: {{x: 0}}}}]\n"})
        project.inside("run", "renamed.yaml")
        project.write({"renamed.py": RENAMED.replace("second", "other")})
        for more in ((), ("--allow-code-change",)):
            refused = project.inside("resume", kind, "--limits", "node_runs=9", *more, check=2)
            assert sentence("continue with {}, which the workflow no longer has", "'second'") in refused.stderr
            assert "Traceback" not in refused.stderr
        project.write({"renamed.py": RENAMED})
        project.inside("resume", kind, "--limits", "node_runs=9", check=0)

    @pytest.mark.slow
    def test_a_graph_of_a_script_runs_on_threads(self, project: Project) -> None:
        project.write({"script.py": SCRIPT})
        command = [sys.executable, "script.py"]
        done = run_program(command, cwd=project.folder, env=project.environment(), code=0)
        assert done.stdout.split("\n")[0] == "thread ['1: HI', '1: hi']"
