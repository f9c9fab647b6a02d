"""Budgets, costs and pilots from the command line."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from tests.support.project import SWEEP, Project
from tests.support.prose import sentence

CALLS = """
from wtb import END, Workflow

wf = Workflow("calls")


@wf.node
def ask(state, ctx):
    if state["x"] == 20_000 and ctx.attempt == 1:
        ctx.cost(usd=0.5)
        raise ValueError("once")
    ctx.call(model="small", prompt="p", response="r", tokens_in=10, tokens_out=5, usd=0.25)
    ctx.call(tool="search", prompt="q", response="s")
    return {"y": 1}


@ask.variant("large")
def _(state, ctx):
    ctx.call(model="large", tokens_in=100, tokens_out=50, usd=1.0)
    ctx.cost(usd=0.125)
    return {"y": 2}


wf.nodes["ask"].rules = __import__("dataclasses").replace(wf.nodes["ask"].rules, retries=1)
wf.entry(ask)
wf.edge(ask, END)
"""

SPEC = """
sweep: calls
project: search
workflow: calls:wf
cases: cases.jsonl
vary: {ask: all}
run: {pool: thread}
"""


@pytest.fixture(scope="module")
def spent(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A sweep of 3 cases: two variants with model calls, one attempt that failed."""
    project = Project(tmp_path_factory.mktemp("costs") / "project")
    project.write({"calls.py": CALLS, "calls.yaml": SPEC, "cases.jsonl": project.cases(3)})
    project.inside("run", "calls.yaml", "--quiet", check=0)
    yield project
    project.close()


class TestCosts:
    def test_by_node_and_variant_with_failed_attempts_shown_apart(self, spent: Project) -> None:
        costs = spent.json("costs", "calls")
        assert costs["by"] == ["node", "variant"]
        rows = {row["variant"]: row for row in costs["rows"]}
        assert rows["large"]["usd"] == 3 * 1.125
        assert (rows["large"]["attempts"], rows["large"]["calls"], rows["large"]["tokens_in"]) == (3, 3, 300)
        assert rows["default"]["usd"] == 3 * 0.25 + 0.5
        assert (rows["default"]["attempts"], rows["default"]["failed_attempts"]) == (4, 1)
        assert rows["default"]["failed_usd"] == 0.5
        assert costs["total"]["usd"] == 3 * 1.375 + 0.5
        assert costs["total"]["calls"] == 9

    def test_by_model_with_what_no_model_was_named_for(self, spent: Project) -> None:
        costs = spent.json("costs", "calls", "--by", "model")
        rows = {row["model"]: row for row in costs["rows"]}
        assert {name: row["usd"] for name, row in rows.items()} == {"large": 3.0, "small": 0.75, "(none)": 0.875}
        assert rows["(none)"]["calls"] == 3
        assert rows["(none)"]["failed_usd"] == 0.5
        assert sum(row["usd"] for row in costs["rows"]) == costs["total"]["usd"]

    def test_by_everything_as_a_table_as_csv_and_of_one_execution(self, spent: Project) -> None:
        wide = spent.inside("costs", "--by", "project,session,workflow", env={"COLUMNS": "80"}, check=0)
        assert max(map(len, wide.stdout.splitlines())) <= 80
        assert "search" in wide.stdout
        assert "$4.62" in wide.stdout
        lines = spent.text("costs", "--by", "sweep,model", "--format", "csv")
        rows = list(csv.DictReader(io.StringIO(lines)))
        assert {row["sweep_name"] for row in rows} == {"calls"}
        assert sum(float(row["usd"]) for row in rows) == 4.625
        cells = spent.json("show", "calls", "--cells")["cells"]
        costs = spent.json("costs", cells[0]["execution"])
        assert costs["total"]["usd"] > 0

    def test_since_and_project_choose(self, spent: Project) -> None:
        assert spent.json("costs", "--since", "1d", "--project", "search")["rows"]
        assert sentence("nothing was spent") in spent.inside("costs", "--since", "2999-01-01", check=0).output

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (("--by", "modle"), sentence("did you mean '{}'", "model")),
            (("--by", ","), sentence("--by is empty")),
            (("--project", "serch"), sentence("did you mean '{}'", "search")),
            (("nothing",), sentence("there is no sweep")),
            (("--since", "soon"), "expected 30m, 12h"),
        ],
    )
    def test_what_is_not_there_is_refused(self, spent: Project, args: tuple[str, ...], message: str) -> None:
        assert message in spent.refusal("costs", *args)

    def test_what_was_deleted_still_counts_for_its_session(self, project: Project) -> None:
        project.inside("run", "sweep.yaml", "--limit", "1", "--quiet", check=0)
        before = project.json("costs", "--by", "session")["total"]["usd"]
        project.inside("delete", "first", "--yes", check=0)
        after = project.json("costs", "--by", "session,node")
        assert after["total"]["usd"] == before > 0
        assert after["rows"][0]["node"] == "(deleted)"


class TestBudgets:
    def test_a_project_stops_its_sweeps_and_continues_with_more(self, project: Project) -> None:
        code = (project.folder / "flow.py").read_text().replace("@wf.node\n", "@wf.node(max_usd=1.0)\n")
        project.write({"flow.py": code, "sweep.yaml": SWEEP + "project: p\n"})
        outcome = project.inside("admin", "budget", "set", "--project", "p", "--usd", "3", "--tokens", "1000", check=0)
        assert outcome.stdout == "budget of project p: usd 3, tokens 1000\n"
        paused = project.inside("run", "sweep.yaml", "--limit", "2", check=1)
        assert "paused (budget of project 'p' reached: usd = 3 (spent " in paused.output
        assert (
            sentence("before that, raise the budget with: ")
            + sentence("wtb admin budget set --project {} {}", "p", "--usd MORE")
            in paused.output
        )
        listed = project.json("admin", "budget", "list", "first")["budgets"]
        money = next(budget for budget in listed if budget["kind"] == "usd")
        assert (money["scope"], money["name"], money["most"], money["reserved"]) == ("project", "p", 3, 0)
        assert 2 < money["spent"] <= 3
        assert "of $3.00" in project.text("status", "first")
        less = project.inside("admin", "budget", "set", "--project", "p", "--usd", "1", check=2)
        assert sentence("{} {} spent already", "US", "dollars are") in less.output
        project.inside("admin", "budget", "set", "--project", "p", "--usd", "500", check=0)
        project.inside("resume", "first", "--quiet", check=0)
        kinds = [kind for (kind,) in project.query("SELECT kind FROM events WHERE kind LIKE 'budget.%'")]
        assert "budget.reached" in kinds
        assert "budget.threshold" in kinds
        assert "budget" in project.text("log", "first", "--kind", "budget.reached")
        project.inside("admin", "budget", "clear", "--project", "p", check=0)
        assert sentence("there are no budgets") in project.inside("admin", "budget", "list", check=0).output

    def test_a_limit_of_a_sweep_below_what_is_spent_is_refused(self, project: Project) -> None:
        project.write({"sweep.yaml": SWEEP + "limits: {nodes: {A: {node_runs: 3}}}\nrun: {pool: thread}\n"})
        paused = project.inside("run", "sweep.yaml", "--limit", "2", check=1)
        assert "--limits nodes.A.node_runs=MORE" in paused.output
        assert "nodes.A.node_runs=3" in project.text("show", "first")
        less = project.inside("resume", "first", "--limits", "nodes.A.node_runs=2", check=2)
        assert "nodes.A.node_runs = 2: 3 are spent already" in less.output
        assert sentence("expected at least {}", 3) in less.output
        assert sentence("has no such node") in project.refusal("resume", "first", "--limits", "nodes.B2.usd=2")
        project.inside("resume", "first", "--limits", "nodes.A.node_runs=none", "--quiet", check=0)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{usd: 0}", "limits.usd"),
            ("{tokens: 1.5}", "limits.tokens"),
            ("{nodes: {a: {usd: 1}}}", sentence("has no such node")),
            ("{nodes: {A: {usdd: 1}}}", sentence("did you mean '{}'", "usd")),
            ("{nodes: {A: 5}}", "limits.nodes.A"),
            ("{nodes: 5}", "limits.nodes"),
        ],
    )
    def test_what_is_no_limit_is_refused(self, project: Project, text: str, message: str) -> None:
        project.write({"sweep.yaml": SWEEP + f"limits: {text}\n"})
        assert message in project.refusal("plan", "sweep.yaml")

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (("set", "--project", "p"), sentence("no budget is given")),
            (("set", "--usd", "1"), "expected one of"),
            (("set", "--project", "p", "--session", "default", "--usd", "1"), "expected one of"),
            (("set", "--session", "default", "--node-runs", "1"), "at a time"),
            (("set", "--session", "nobody", "--usd", "1"), sentence("there is no session")),
            (("set", "--project", "p", "--usd", "-1"), "expected a finite number above 0"),
            (("set", "--project", " ", "--usd", "1"), "expected a name"),
            (("list", "nothing"), sentence("there is no sweep")),
        ],
    )
    def test_what_is_no_budget_is_refused(self, spent: Project, args: tuple[str, ...], message: str) -> None:
        assert message in spent.refusal("admin", "budget", *args)


class TestPilot:
    def test_tells_what_the_whole_will_cost(self, project: Project) -> None:
        document = project.json("pilot", "sweep.yaml", "--cases", "3")
        pilot = document["pilot"]
        assert (pilot["cases"], pilot["of"], pilot["status"], pilot["failed_cells"]) == (3, 10, "completed", 0)
        assert pilot["estimate"]["usd"] == {"expected": 730.0, "low": 730.0, "high": 730.0}
        assert pilot["estimate"]["node_runs"]["expected"] == document["node_runs"]["executed"][0] == 840
        work = pilot["estimate"]["work_s"]
        assert 0 <= work["low"] <= work["expected"] <= work["high"]
        names = [name for (name,) in project.query("SELECT name FROM sweeps")]
        assert names == ["first-pilot"]

    def test_stops_at_the_limits_and_says_so(self, project: Project) -> None:
        project.write({"sweep.yaml": SWEEP + "limits: {node_runs: 20}\n"})
        done = project.inside("pilot", "sweep.yaml", "--cases", "2", check=1)
        assert sentence("so that the whole costs more") in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 100
