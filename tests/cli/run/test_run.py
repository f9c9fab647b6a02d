"""`wtb run` and later commands, as a user meets them: the matrix, its JSON contract, limits, exit codes."""

from __future__ import annotations

import csv
import json
import math
import re
import statistics
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.attempts import ATTEMPTS
from tests.support.prose import sentence

if TYPE_CHECKING:
    from tests.support.project import Outcome, Project

VARIANTS = ("default", "v1", "v2", "v3")


CELLS = ("total", "pending", "running", "waiting", "succeeded", "failed", "cancelled", "skipped", "set_aside")
MEASURE = {"declared": True, "compare": "mean", "failed": 0} | dict.fromkeys(("low", "high", "on_failure", "interval"))


def contract(outcome: Outcome) -> dict[str, Any]:
    """Return the matrix on stdout, whose counts have to add up; `Project` checks its keys against the schema."""
    document: dict[str, Any] = outcome.json
    assert sum(count for status, count in document["cells"].items() if status != "total") == document["cells"]["total"]
    return document


def row_of(document: dict[str, Any], **combination: str) -> dict[str, Any]:
    (row,) = [row for row in document["rows"] if row["combination"] == combination]
    return row


@pytest.fixture(scope="module")
def first(shared_project: Project) -> Outcome:
    """A(4) -> B(4) -> C(4) over ten cases, run by the command."""
    return shared_project.wtb("run", "sweep.yaml", "--format", "json", check=0)


@pytest.fixture(scope="module")
def document(first: Outcome) -> dict[str, Any]:
    return contract(first)


class TestTheMatrixOfASweep:
    """The document of `run --format json` for four variants of each of three nodes, over ten cases."""

    def test_json_is_alone_on_stdout_and_the_rest_on_stderr(self, first: Outcome, document: dict[str, Any]) -> None:
        assert first.stdout.startswith("{")
        heading, check, *progress = first.stderr.splitlines()  # the latter every 10 s
        assert heading == sentence("sweep {} ({}): {} cells", "first", document["sweep"]["id"], 640)
        assert check.startswith("cells that fail are left out by ")
        assert all(re.fullmatch(r"\d+ of 640 cells, 0 failed, [\d,]+ node runs", line) for line in progress)

    def test_what_combinations_share_is_run_once(self, document: dict[str, Any]) -> None:
        runs = document["node_runs"]
        assert (runs["executed"], runs["unshared"], runs["attempts"]) == (840, 1920, 840)
        assert list(runs["by_node"]) == ["A", "B", "C"]
        for node, executed in (("A", 40), ("B", 160), ("C", 640)):
            counts = runs["by_node"][node]
            assert counts == {"executed": executed, "unshared": 640, "attempts": executed, "lag_s": counts["lag_s"]}
            assert {*counts["lag_s"].values()} == {None}, "sync nodes wait for no event loop"

    def test_every_cell_has_succeeded(self, document: dict[str, Any]) -> None:
        assert document["cells"] == dict.fromkeys(CELLS, 0) | {"total": 640, "succeeded": 640}
        assert document["sweep"]["status"] == "completed"
        assert document["sweep"]["started_at"] < document["sweep"]["finished_at"]
        assert document["warnings"] == []

    def test_money_is_what_was_really_spent(self, document: dict[str, Any]) -> None:
        assert document["cost"] == {
            "usd": 40 * 0.25 + 160 * 0.5 + 640 * 1.0,
            "unshared_usd": 640 * (0.25 + 0.5 + 1.0),
            "tokens_in": 40 * 3,
            "tokens_out": 40,
            "unknown": [],
        }

    def test_there_is_one_row_for_each_combination_and_it_names_all_varied_nodes(
        self, document: dict[str, Any]
    ) -> None:
        combinations = [row["combination"] for row in document["rows"]]
        assert combinations == [{"A": a, "B": b, "C": c} for a in VARIANTS for b in VARIANTS for c in VARIANTS]
        assert all((row["n"], row["failed"]) == (10, 0) for row in document["rows"])

    def test_a_row_costs_as_if_it_were_alone(self, document: dict[str, Any]) -> None:
        assert {row["cost_usd"] for row in document["rows"]} == {0.25 + 0.5 + 1.0}

    def test_differences_from_the_baseline_are_those_computed_by_hand(self, document: dict[str, Any]) -> None:
        assert document["baseline"] == {"A": "default", "B": "default", "C": "default"}
        base = row_of(document, A="default", B="default", C="default")["metrics"]["total"]
        assert (base["n"], base["mean"]) == (10, 45_000)
        assert (base["delta"], base["delta_ci"], base["p"], base["p_adjusted"]) == (None, None, None, None)
        other = row_of(document, A="v1", B="v2", C="v3")["metrics"]["total"]
        assert (other["n"], other["n_pairs"], other["mean"]) == (10, 10, 45_321)
        # Ten equal differences have no spread to make an interval of.
        assert (other["delta"], other["delta_ci"]) == (321, None)
        # All ten differences have one sign: 2 of the 1,024 ways to flip them go as far; Holm times 63 rows.
        assert other["p"] == 2 / 1024
        assert other["p_adjusted"] == pytest.approx(63 * 2 / 1024)
        assert other["ci"][0] < 45_321 < other["ci"][1]

    def test_the_best_is_named(self, document: dict[str, Any]) -> None:
        assert document["best"]["total"]["combination"] == {"A": "v3", "B": "v3", "C": "v3"}
        assert document["metrics"] == {"total": {**MEASURE, "better": "higher"}}

    @pytest.mark.parametrize("command", ["matrix", "resume", "retry"])
    @pytest.mark.usefixtures("first")
    def test_every_command_writes_the_same_document(
        self, shared_project: Project, document: dict[str, Any], command: str
    ) -> None:
        outcome = shared_project.inside(command, "first", "--format", "json", check=0)
        assert contract(outcome) == document

    @pytest.mark.parametrize("form", ["json", "csv", "md", "html"])
    def test_a_file_gets_what_stdout_would(self, shared_project: Project, document: dict[str, Any], form: str) -> None:
        path = shared_project.folder / "out" / f"matrix.{form}"
        written = shared_project.inside("matrix", "first", "--format", form, "--output", path, check=0)
        assert (written.stdout, written.stderr) == ("", f"written to {path}\n")
        content = path.read_text("utf-8")
        assert content == shared_project.text("matrix", document["sweep"]["id"], "--format", form)
        if form == "csv":
            rows = list(csv.DictReader(content.splitlines()))
            assert len(rows) == 64
            assert float(next(r["delta"] for r in rows if r["node.A"] == "v3" == r["node.C"] == r["node.B"])) == 333
        elif form != "json":
            assert "45,333" in content or "45333" in content

    @pytest.mark.usefixtures("first")
    def test_the_table_fits_eighty_columns(self, shared_project: Project) -> None:
        table = shared_project.text("matrix", "first", env={"COLUMNS": "80"})
        assert "first (completed)" in table
        assert sentence("{} executed, {} without sharing{}", 840, "1,920", " (56% saved)") in table
        assert max(map(len, table.splitlines())) <= 80

    def test_cells_can_be_listed(self, shared_project: Project, document: dict[str, Any]) -> None:
        cells = shared_project.json("show", "first", "--cells")["cells"]
        assert len(cells) == 640
        for cell in cells:
            names = "combination case repeat tags expected status state scores execution error latency_s cost_usd"
            assert list(cell) == [*names.split(), "tokens_in", "tokens_out"]
            by = [VARIANTS.index(cell["combination"][node]) for node in "ABC"]
            x = 10_000 * int(cell["case"].removeprefix("c")) + by[0] + 10 * by[1] + 100 * by[2]
            assert (cell["state"], cell["scores"], cell["error"]) == ({"x": x}, {"total": x}, None)
        assert len({(json.dumps(cell["combination"]), cell["case"]) for cell in cells}) == 640
        listed = shared_project.json("list")["sweeps"]
        assert document["sweep"]["id"] in [sweep["id"] for sweep in listed]


def test_on_postgresql_the_same_sweep_gives_the_same_matrix(
    shared_project: Project, document: dict[str, Any], fresh_postgres_url: str
) -> None:
    done = shared_project.wtb("run", "sweep.yaml", "--format", "json", "--db", fresh_postgres_url, check=0)
    actual = contract(done)
    for matrix in (actual, document):
        matrix.pop("sweep")
        matrix.pop("front")  # latency is one of its sides
        for timed in (matrix["decision"], *matrix["rows"]):
            timed.pop("latency_s")
    assert actual == document


def test_a_part_of_a_sweep_can_be_run(project: Project) -> None:
    for args, cells in (
        (["--limit", "3"], 64 * 3),
        (["--case", "c7"], 64),
        (["--combination", "A=v1", "--combination", "B=v2"], 4 * 10),
        (["--combination", "A=v1,B=v2,C=v3", "--case", "c7"], 1),
    ):
        matrix = contract(project.inside("run", "sweep.yaml", *args, "--format", "json", check=0))
        assert matrix["cells"]["total"] == matrix["cells"]["succeeded"] == cells
        assert matrix["baseline"] == (None if "--combination" in args else dict.fromkeys("ABC", "default"))
    (only,) = matrix["rows"]
    assert (only["combination"], only["metrics"]["total"]["mean"]) == ({"A": "v1", "B": "v2", "C": "v3"}, 70_321)
    assert len(project.query("SELECT id FROM sweeps")) == 4


def test_of_two_sweeps_of_one_name_the_newest_is_meant(project: Project) -> None:
    older = contract(project.inside("run", "sweep.yaml", "--limit", "1", "--format", "json", check=0))
    newer = contract(project.inside("run", "sweep.yaml", "--limit", "2", "--format", "json", check=0))
    assert contract(project.inside("matrix", "first", "--format", "json", check=0)) == newer
    assert contract(project.inside("matrix", older["sweep"]["id"], "--format", "json", check=0)) == older
    listed = project.json("list")["sweeps"]
    assert [sweep["id"] for sweep in listed] == [newer["sweep"]["id"], older["sweep"]["id"]]


def test_where_nothing_has_run_the_list_is_empty(project: Project) -> None:
    assert project.json("list") == {"sweeps": []}
    assert not project.file.exists()


SMALL = """
sweep: small
workflow: flow:wf
cases: cases.jsonl
vary: {A: [default, v1]}
"""


def test_statistics_are_those_computed_by_hand(project: Project) -> None:
    # The default is right on c0 and c1; v1, which adds 1, on c1, c2 and c3: differences 0, -1, 1, 1.
    cases = [(0, 0), (1, [1, 2]), (5, 6), (2, 3)]
    lines = [{"id": f"c{n}", "input": {"x": x}, "expected": {"any": expected}} for n, (x, expected) in enumerate(cases)]
    scores = """
def right(case, result):
    wanted = case.expected["any"]
    return result.state["x"] in (wanted if isinstance(wanted, list) else [wanted])
"""
    project.write(
        {
            "scores.py": scores,
            "cases.jsonl": "".join(json.dumps(line) + "\n" for line in lines),
            "sweep.yaml": SMALL + "evaluate: ['scores:right']\nbaseline: {A: default}\n",
        }
    )
    matrix = contract(project.inside("run", "sweep.yaml", "--format", "json", check=0))
    base, other = (row["metrics"]["right"] for row in matrix["rows"])
    assert (base["n"], base["mean"], other["n"], other["n_pairs"], other["mean"]) == (4, 0.5, 4, 4, 0.75)
    assert other["delta"] == 0.25
    # Of the eight ways to flip the signs of -1, 1 and 1 every one sums to 1 or more, up to sign.
    assert (other["p"], other["p_adjusted"]) == (1.0, 1.0)
    # Bonett and Price: (2 + 1) / (4 + 2) of the cases up and (1 + 1) / (4 + 2) down.
    half = 1.959964 * math.sqrt((3 / 6 + 2 / 6 - (1 / 6) ** 2) / 6)
    assert other["delta_ci"] == pytest.approx([1 / 6 - half, 1 / 6 + half])
    # Wilson's interval of 2 in 4.
    assert base["ci"] == pytest.approx([0.150039, 0.849961], abs=1e-5)
    best = matrix["best"]["right"]
    assert (best["combination"], best["clear"], best["rival"]) == ({"A": "v1"}, False, {"A": "default"})
    assert (best["lead"], best["p"], best["n_pairs"]) == (0.25, 1.0, 4)


def test_undefined_statistics_are_null(project: Project) -> None:
    project.write({"sweep.yaml": SMALL + "evaluate: [node_runs, 'flow:picky']\n", "cases.jsonl": '{"input": {"x": 3}}'})
    matrix = contract(project.inside("run", "sweep.yaml", "--format", "json", check=0))
    base, other = matrix["rows"]
    assert base["metrics"]["picky"] == dict.fromkeys(base["metrics"]["node_runs"]) | {
        "n": 0,
        "n_pairs": 0,
        "missing": 1,
    }
    assert base["metrics"]["node_runs"]["mean"] == 3
    assert base["metrics"]["node_runs"]["ci"] is None
    assert (other["metrics"]["picky"]["mean"], other["metrics"]["picky"]["delta"]) == (4, None)
    lower = {**MEASURE, "better": "lower"}
    assert matrix["metrics"] == {"node_runs": lower, "picky": lower}


def test_repeats_are_averaged_within_the_case_and_have_their_own_randomness(project: Project) -> None:
    code = """
from wtb import END, Workflow
wf = Workflow("dice")
@wf.node
def roll(state, ctx, *, plus: int = 0): return {"y": ctx.rng.random() + plus}
roll.variant("plus", plus=1)
wf.entry(roll)
wf.edge(roll, END)
def y(case, result): return result.state["y"]
"""
    spec = "workflow: dice:wf\ncases: cases.jsonl\nvary: {roll: all}\nrepeats: 3\nseed: 5\nevaluate: ['dice:y']\n"
    project.write({"dice.py": code, "sweep.yaml": spec, "cases.jsonl": project.cases(2)})
    matrix = contract(project.inside("run", "sweep.yaml", "--format", "json", check=0))
    assert matrix["cells"]["total"] == 2 * 2 * 3
    base, other = (row["metrics"]["y"] for row in matrix["rows"])
    assert (base["n"], other["n_pairs"], other["delta"]) == (2, 2, pytest.approx(1))
    cells = project.json("show", "sweep", "--cells")["cells"]
    rolled = {(cell["case"], cell["repeat"]): cell["state"]["y"] for cell in cells if cell["state"]["y"] < 1}
    assert len(set(rolled.values())) == 6
    assert base["mean"] == pytest.approx(sum(rolled.values()) / 6)


def test_latency_is_that_of_a_cell_alone(project: Project) -> None:
    """One slot, a shared first node, and two nodes side by side, of which the longer counts."""
    code = """
import time
from wtb import END, Workflow
wf = Workflow("slow")
@wf.node
def first(state): time.sleep(0.1)
@wf.node
def left(state): time.sleep(0.1)
@wf.node
def right(state, *, s: float = 0.05): time.sleep(s)
right.variant("long", s=0.2)
wf.entry(first)
for node in (left, right):
    wf.edge(first, node)
    wf.edge(node, END)
"""
    spec = "workflow: slow:wf\ncases: cases.jsonl\nvary: {right: all}\nrun: {concurrency: 1}\nevaluate: [latency]\n"
    project.write({"slow.py": code, "sweep.yaml": spec, "cases.jsonl": project.cases(2)})
    matrix = contract(project.inside("run", "sweep.yaml", "--format", "json", check=0))
    assert matrix["node_runs"]["executed"] == 2 * (1 + 1 + 2)
    durations = (
        "SELECT case_number, node, variant, duration_s FROM node_runs JOIN executions ON execution_id = executions.id"
    )
    took = {(case, node, variant): seconds for case, node, variant, seconds in project.query(durations)}
    for row, right in zip(matrix["rows"], ("default", "long"), strict=True):
        alone = [
            took[case, "first", "default"] + max(took[case, "left", "default"], took[case, "right", right])
            for case in range(2)
        ]
        assert row["latency_s"]["p50"] == pytest.approx(statistics.mean(alone))
        assert row["metrics"]["latency"]["mean"] == pytest.approx(statistics.mean(alone))
    assert matrix["best"]["latency"]["combination"] == {"right": "default"}


ODD = """
import subprocess
from wtb import END, Workflow

print("said at import")
wf = Workflow("odd")


@wf.node
def work(state):
    print("said by a node")
    subprocess.run(["echo", "said by a program"], check=True)
    if state["x"] >= 10_000:
        raise ValueError(f"too much: {state['x']}")
    return {"x": state["x"] + 1}


wf.entry(work)
wf.edge(work, END)


def rows():
    print("said by cases")
    for n in range(3):
        yield {"id": f"c{n}", "input": {"x": 10_000 * n}}


def told(case, result):
    print("said by an evaluator")
    return result.state["x"]
"""
ODD_SWEEP = "sweep: odd\nworkflow: odd:wf\ncases: odd:rows\nvary: {work: all}\nevaluate: ['odd:told']\n"


class TestOddWorkflows:
    """Nodes that print and fail."""

    @pytest.fixture
    def odd(self, project: Project) -> Project:
        project.write({"odd.py": ODD, "sweep.yaml": ODD_SWEEP})
        return project

    @pytest.mark.parametrize("pool", ["process", "thread"])
    def test_what_user_code_prints_goes_to_stderr_or_is_kept_with_its_attempt(self, odd: Project, pool: str) -> None:
        odd.write({"sweep.yaml": ODD_SWEEP + f"run: {{pool: {pool}}}\n"})
        done = odd.wtb("run", "sweep.yaml", "--case", "c0", "--format", "json", check=0)
        assert contract(done)["cells"]["succeeded"] == 1
        for who in ("at import", "by cases"):
            assert f"said {who}" in done.stderr
        printed = odd.query(f"SELECT stdout, stderr FROM {ATTEMPTS}")
        if pool == "process":
            assert "said by a node" not in done.stderr
            assert printed == [("said by a node\nsaid by a program\n", None)]
        else:
            for who in ("by a node", "by a program", "by an evaluator"):
                assert f"said {who}" in done.stderr
            assert printed == [(None, None)]

    def test_what_an_evaluator_prints_goes_to_stderr(self, odd: Project) -> None:
        done = odd.wtb("run", "sweep.yaml", "--case", "c0", "--format", "json", check=0)
        rescored = odd.wtb("score", "odd", "--evaluate", "odd:told", "--format", "json", check=0)
        for outcome in (done, rescored):
            assert contract(outcome)["cells"]["succeeded"] == 1
            assert "said by an evaluator" in outcome.stderr

    def test_failed_cells_are_counted_and_the_exit_code_is_1(self, odd: Project) -> None:
        matrix = contract(odd.wtb("run", "sweep.yaml", "--format", "json", check=1))
        assert matrix["sweep"]["status"] == "completed"
        assert (matrix["cells"]["succeeded"], matrix["cells"]["failed"]) == (1, 2)
        (row,) = matrix["rows"]
        assert (row["n"], row["failed"], row["metrics"]["told"]["n"], row["metrics"]["told"]["mean"]) == (3, 2, 1, 1)
        assert (matrix["node_runs"]["executed"], matrix["node_runs"]["attempts"]) == (1, 3)
        assert odd.json("matrix", "odd") == matrix
        cells = odd.json("show", "odd", "--cells")["cells"]
        assert cells[2]["error"] == "node 'work': ValueError: too much: 20000"

    def test_what_failures_count_as_is_said_and_may_be_looked_at_otherwise(self, odd: Project) -> None:
        odd.write({"sweep.yaml": ODD_SWEEP.replace("'odd:told'", "'odd:told': {scale: [0, 1]}")})
        done = odd.wtb("run", "sweep.yaml", check=1)
        assert "Warning: 2 failed cells count as 0 by told" in done.stdout
        show = ("matrix", "odd", "--format", "json", "--on-failure")
        means = [
            contract(odd.inside(*show, option, check=0))["rows"][0]["metrics"]["told"]["mean"]
            for option in ("0.5", "left_out")
        ]
        assert means == [pytest.approx(2 / 3), 1]
        assert "on_failure is 2; expected a score on the scale of told, 0 to 1" in odd.refusal(*show, "2")
        assert "on_failure is 'worst'; expected a finite number or left_out (--on-failure)" in odd.refusal(
            *show, "worst"
        )

    def test_a_matrix_in_which_nothing_succeeded_is_shown(self, odd: Project) -> None:
        done = odd.wtb("run", "sweep.yaml", "--case", "c1", "--format", "json", check=1)
        matrix = contract(done)
        assert matrix["best"] == matrix["metrics"] == {}
        assert (matrix["rows"][0]["cost_usd"], matrix["rows"][0]["latency_s"]["p50"]) == (None, None)
        for form in ("table", "csv", "md", "html"):
            assert "work" in odd.text("matrix", "odd", "--format", form)

    @pytest.mark.parametrize("typed", ["p state\nc\n", "p state\n"], ids=["continue", "end of input"])
    def test_the_debugger_stops_where_a_node_fails(self, odd: Project, typed: str) -> None:
        done = odd.wtb("run", "sweep.yaml", "--pdb", "--case", "c1", "--format", "json", stdin=typed, check=1)
        assert contract(done)["cells"]["failed"] == 1
        assert "ValueError: too much: 10000" in done.stderr
        assert "{'x': 10000}" in done.stderr

    def test_the_debugger_stays_away_where_nothing_fails(self, odd: Project) -> None:
        done = odd.wtb("run", "sweep.yaml", "--pdb", "--case", "c0", "--format", "json", check=0)
        assert contract(done)["cells"]["succeeded"] == 1
        assert "Pdb" not in done.stderr


class TestEvaluators:
    """Scores that fail, and scoring again."""

    @pytest.fixture
    def scored(self, project: Project) -> Project:
        cases = [{"id": f"c{n}", "input": {"x": n}, "expected": {"x": n + 1}} for n in range(4)]
        project.write(
            {
                "sweep.yaml": SMALL + "evaluate: ['flow:picky', 'flow:total']\n",
                "cases.jsonl": "".join(json.dumps(case) + "\n" for case in cases),
            }
        )
        return project

    def test_a_failing_evaluator_fails_its_score_visibly_and_nothing_else(self, scored: Project) -> None:
        done = scored.inside("run", "sweep.yaml", "--format", "json", check=0)
        matrix = contract(done)
        base, other = (row["metrics"] for row in matrix["rows"])
        # x = 3 comes from c3 by the default and from c2 by v1; the others are compared where both have scores.
        assert (base["picky"]["n"], base["picky"]["mean"]) == (3, 1)
        assert (other["picky"]["n"], other["picky"]["mean"], other["picky"]["n_pairs"]) == (3, (1 + 2 + 4) / 3, 2)
        assert other["picky"]["delta"] == 1
        assert (base["total"]["n"], other["total"]["n"]) == (4, 4)
        (warning,) = matrix["warnings"]
        assert warning.startswith("2 scores of picky failed, such as: ValueError: no threes, please")
        assert "flow.py" in warning
        table = scored.text("matrix", "small")
        assert "2 scores of picky failed" in table
        assert "no threes, please" in table

    def test_a_finished_sweep_is_scored_again_without_running_it(self, scored: Project) -> None:
        before = contract(scored.inside("run", "sweep.yaml", "--format", "json", check=0))
        score = ("score", "small", "--format", "json", "-e", "exact_match: {field: x}", "-e", "flow:total")
        matrix = contract(scored.inside(*score, check=0))
        assert [row["metrics"]["exact_match"]["mean"] for row in matrix["rows"]] == [0, 1]
        assert matrix["best"]["exact_match"]["combination"] == {"A": "v1"}
        for same in ("node_runs", "cost", "cells", "sweep"):
            assert matrix[same] == before[same]
        for row, earlier in zip(matrix["rows"], before["rows"], strict=True):
            assert row["metrics"].pop("exact_match")
            for name, found_now in row["metrics"].items():  # but for corrections, over one metric more
                found_now |= {key: earlier["metrics"][name][key] for key in ("p_adjusted", "detectable")}
            assert row["metrics"] == earlier["metrics"]
        repeated = scored.inside(*score, check=0)
        assert contract(repeated) == contract(scored.inside("matrix", "small", "--format", "json", check=0))
        assert "16 scores written" in repeated.stderr
        assert scored.query("SELECT count(*) FROM scores") == [(8 * 3,)]

    def test_scores_of_a_file_replace_those_of_the_same_name(self, scored: Project) -> None:
        scored.inside("run", "sweep.yaml", check=0)
        fixed = (scored.folder / "flow.py").read_text().replace("% 10 == 3", "% 10 == 7")
        scored.write({"flow.py": fixed})
        matrix = contract(scored.inside("score", "small", "--file", "sweep.yaml", "--format", "json", check=0))
        assert matrix["rows"][0]["metrics"]["picky"]["n"] == 4
        assert matrix["warnings"] == []


class TestLimits:
    """A sweep stops at a limit, reports it, and continues with another."""

    def test_a_cap_on_node_runs_is_a_cap_and_resume_continues_to_the_end(self, project: Project) -> None:
        project.write({"sweep.yaml": (project.folder / "sweep.yaml").read_text() + "limits: {node_runs: 100}\n"})
        paused = project.inside("run", "sweep.yaml", "--format", "json", check=1)
        matrix = contract(paused)
        assert matrix["sweep"]["status"] == "paused"
        assert matrix["sweep"]["finished_at"] is None
        assert matrix["node_runs"]["executed"] == matrix["node_runs"]["attempts"] == 100
        assert (
            sentence(
                "paused ({}); continue with: wtb resume {}", "limit reached: node_runs = 100", matrix["sweep"]["id"]
            )
            in paused.output
        )
        assert any(sentence("limit reached: {} = {}", "node_runs", 100) in warning for warning in matrix["warnings"])

        resumed = contract(project.inside("resume", "first", "--limits", "node_runs=300", "--format", "json", check=1))
        assert (resumed["sweep"]["status"], resumed["node_runs"]["executed"]) == ("paused", 300)

        last = contract(project.inside("resume", "first", "--limits", "node_runs=840", "--format", "json", check=0))
        assert last["sweep"]["status"] == "completed"
        assert last["node_runs"]["executed"] == last["node_runs"]["attempts"] == 840
        assert last["node_runs"]["unshared"] == 1920
        assert last["cost"]["usd"] == 730

    def test_a_cap_on_money_is_a_cap(self, project: Project) -> None:
        code = (project.folder / "flow.py").read_text().replace("@wf.node\n", "@wf.node(max_usd=1.0)\n")
        project.write({"flow.py": code, "sweep.yaml": SMALL + "limits: {usd: 3}\n"})
        paused = project.inside("run", "sweep.yaml", "--format", "json", check=1)
        matrix = contract(paused)
        assert matrix["sweep"]["status"] == "paused"
        assert 2 < matrix["cost"]["usd"] <= 3
        assert sentence("limit reached: {} = {}", "usd", "3 (spent ") in paused.output
        last = contract(project.inside("resume", "small", "--limits", "usd=100", "--format", "json", check=0))
        assert last["cost"]["usd"] == 2 * 10 * 1.75

    def test_a_cap_on_time_stops_new_work(self, project: Project) -> None:
        code = (
            (project.folder / "flow.py")
            .read_text()
            .replace("    ctx.cost(usd=1.0)\n", "    import time; time.sleep(0.1)\n")
        )
        project.write({"flow.py": code})
        for number, wall in enumerate((0.5, 2, 8)):  # on a busy machine nothing may have ended in half a second
            # On threads: a run's time begins before its node processes have started.
            run = f"limits: {{wall: {wall}s}}\nrun: {{concurrency: 1, pool: thread}}\n"
            project.write({"sweep.yaml": SMALL.replace("sweep: small", f"sweep: small{number}") + run})
            paused = project.inside("run", "sweep.yaml", "--format", "json", check=1)
            matrix = contract(paused)
            if matrix["cells"]["succeeded"]:
                break
        assert 0 < matrix["cells"]["succeeded"] < 20
        assert sentence("limit reached: {} = {}", "wall", f"{wall:g} s") in paused.output
        assert contract(project.inside("resume", f"small{number}", "--limits", "wall=1h", "--format", "json", check=0))

    @pytest.mark.parametrize("kind", ["def", "async def"])
    def test_a_cell_that_takes_too_long_fails(self, project: Project, kind: str) -> None:
        sleep = "await asyncio.sleep(60)" if kind == "async def" else "time.sleep(60)"
        code = f"""
import asyncio, time
from wtb import END, Workflow
wf = Workflow("slow")
@wf.node
def first(state): time.sleep(0.15)
@wf.node
def quick(state): ...
@quick.variant("stuck")
{kind} _(state): {sleep}
wf.entry(first)
wf.edge(first, quick)
wf.edge(quick, END)
"""
        spec = "sweep: slow\nworkflow: slow:wf\ncases: cases.jsonl\nvary: {quick: all}\nlimits: {cell_timeout: 400ms}\n"
        project.write({"slow.py": code, "sweep.yaml": spec, "cases.jsonl": project.cases(1)})
        done = project.wtb("run", "sweep.yaml", "--format", "json", timeout=20, check=1)
        matrix = contract(done)
        assert [row["failed"] for row in matrix["rows"]] == [0, 1]
        cells = project.json("show", "slow", "--cells")["cells"]
        assert "node 'quick': NodeTimeout" in cells[1]["error"]
        # The time of the first node counts against the cell's limit.
        assert "deadline of 0.2" in cells[1]["error"]


def test_a_case_s_files_are_in_its_workspace_and_go_from_node_to_node(project: Project) -> None:
    code = """
from wtb import END, Workflow
wf = Workflow("files")
@wf.node
def read(state, ctx, *, shout: bool = False):
    text = (ctx.workspace / "in" / "note.txt").read_text()
    (ctx.workspace / "out.txt").write_text(text.upper() if shout else text)
read.variant("loud", shout=True)
@wf.node
def count(state, ctx): return {"text": (ctx.workspace / "out.txt").read_text()}
wf.entry(read)
wf.edge(read, count)
wf.edge(count, END)
def kept(case, result): return (result.workspace / "out.txt").read_text() == case.expected
"""
    cases = '{"input": {}, "expected": "HELLO", "files": {"in/note.txt": "notes/hello.txt"}}\n'
    spec = "workflow: files:wf\ncases: data/cases.jsonl\nvary: {read: all}\nevaluate: ['files:kept']\n"
    project.write({"files.py": code, "data/cases.jsonl": cases, "data/notes/hello.txt": "hello", "sweep.yaml": spec})
    matrix = contract(project.inside("run", "sweep.yaml", "--format", "json", check=0))
    assert [row["metrics"]["kept"]["mean"] for row in matrix["rows"]] == [0, 1]
    rescored = contract(project.inside("score", "sweep", "-e", "files:kept", "--format", "json", check=0))
    assert rescored["rows"] == matrix["rows"]
    assert not any((project.file.parent / "attempts").glob("*"))
    assert (project.folder / "data" / "notes" / "hello.txt").read_text() == "hello"


def test_a_sweep_pauses_after_a_node(project: Project) -> None:
    done = project.inside(
        "run", "sweep.yaml", "--limit", "1", "--combination", "A=v1,B=v1,C=v1", "--until", "A", check=1
    )
    assert "paused (paused executions: 1)" in done.output
    assert project.text("log", "first", "--kind", "node_run.succeeded").count(" done in ") == 1
