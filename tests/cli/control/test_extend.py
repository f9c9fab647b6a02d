"""extend: new cases, repeats and variants, with nodes in separate processes, on this machine and on workers."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.control.test_all_cases import FLOW, SWEEP
from tests.support.cluster import Cluster
from tests.support.crew import ran as held_by
from tests.support.crew import write_sweep
from tests.support.project import Project
from tests.support.prose import sentence

MORE = "".join(json.dumps({"id": f"c{number}", "input": {"x": number}}) + "\n" for number in (7, 8, 9))


@pytest.fixture
def ran(tmp_path: Path) -> Iterator[Project]:
    """A sweep of eight cases and two variants that was run to its end; its log is empty again."""
    project = Project(tmp_path / "project")
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP, "more.jsonl": MORE})
    project.inside("run", "sweep.yaml", check=0)
    (project.folder / "log").unlink()
    yield project
    project.close()


def counts(project: Project, sweep: str = "first") -> dict[str, int]:
    cells: dict[str, int] = project.json("matrix", sweep)["cells"]
    return cells


def test_a_plan_shows_what_extend_adds_and_changes_nothing(ran: Project) -> None:
    planned = ran.inside("extend", "first", "--cases", "more.jsonl", "--repeats", "2", "--dry-run", check=0)
    assert "24 new cells of 2 cases" in planned.stdout
    assert sentence("node runs: {}; cells that are there stay as they are", 60) in planned.stdout
    assert sentence("{} in the sweep already: skipped", "note: 1 case") in planned.stdout
    assert counts(ran)["total"] == 16
    plan = ran.inside(
        "extend", "first", "--vary", "B={name: louder, of: loud, suffix: '!!'}", "--dry-run", "-f", "json"
    )
    assert plan.json["combinations"] == [{"B": "louder"}]
    assert (plan.json["cells"], plan.json["node_runs"]) == (8, [16, 16])


def test_cases_and_a_variant_run_in_one_go_and_the_matrix_is_shown(ran: Project) -> None:
    louder = "B={name: louder, of: loud, suffix: '!!'}"
    outcome = ran.inside("extend", "first", "--cases", "more.jsonl", "--vary", louder, check=0)
    assert "14 cells added of 2 cases and 1 combination (about 30 node runs)" in outcome.output
    assert Counter(ran.log()) == {"A": 2, "B": 8 + 2 * 3, "C": 8 + 2 * 3}
    assert counts(ran) | {"total": 30, "succeeded": 30} == counts(ran)
    assert "louder" in outcome.stdout
    assert "added 14 cells: 2 cases and 1 combination" in ran.text("log", "first")
    repeated = ran.inside("extend", "first", "--cases", "more.jsonl", "--vary", louder, check=0)
    assert sentence("nothing new to add") in repeated.output
    assert counts(ran)["total"] == 30


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], sentence("nothing to add; expected cases, more repeats, variants or")),
        (["--cases", "none.csv"], sentence("does not exist")),
        (["--cases", "changed.jsonl"], sentence("case {} is in the sweep with another {}", "'c1'", "input 'x'")),
        (["--repeats", "0"], "repeats"),
        (["--vary", "B"], "--vary"),
        (["--vary", "D=default"], sentence("the workflow has no node {}", "'D'")),
    ],
)
def test_what_cannot_be_added_is_rejected(ran: Project, arguments: list[str], words: str) -> None:
    ran.write({"changed.jsonl": json.dumps({"id": "c1", "input": {"x": 11}})})
    assert words in ran.refusal("extend", "first", *arguments)
    assert counts(ran)["total"] == 16


@pytest.mark.parametrize("fault", ["submit.written", "journal.committed:2", "node.answered:5"])
def test_an_extension_whose_runner_is_killed_is_whole_or_not_there_and_continues(ran: Project, fault: str) -> None:
    extend = ["extend", "first", "--cases", "more.jsonl", "--vary", "B={name: louder, of: loud, suffix: '!!'}"]
    killed = ran.wtb(*extend, env={"WTB_FAULT": fault})
    assert killed.code == -signal.SIGKILL
    assert counts(ran)["total"] == (16 if fault == "submit.written" else 30)
    ran.inside(*extend, check=0)
    assert counts(ran) | {"total": 30, "succeeded": 30} == counts(ran)
    executed = ran.json("matrix", "first")["node_runs"]["by_node"]
    assert [executed[node]["executed"] for node in "ABC"] == [10, 30, 30]


def test_workers_run_what_is_added_to_a_sweep_that_was_submitted(crew: Cluster) -> None:
    sweep = crew.wtb("submit", write_sweep(crew.project, "grows", cases=3), check=0).stdout.strip()
    crew.wait_completed(sweep)
    crew.project.write({"more.jsonl": json.dumps({"id": "grows-9", "input": {"x": 0}}) + "\n"})
    form = "held={name: nine, of: two, by: 9}"
    added = crew.wtb("extend", sweep, "--cases", "more.jsonl", "--vary", form, "--format", "json", check=0).json
    assert (added["queued"], added["cells"], added["cases"]) == (True, 4 * 3 - 6, 1)
    crew.wait_completed(sweep)
    assert crew.cells(sweep) == {"succeeded": 12}
    assert [held_by(crew.project, f"{node} grows-") for node in ("first", "held")] == [4, 12]
    document = crew.wtb("matrix", sweep, "--format", "json", check=0).json
    assert [row["metrics"]["y"]["mean"] for row in document["rows"]] == [1, 2, 9]
    assert document["best"]["y"]["combination"] == {"held": "nine"}


def test_cases_and_variants_are_added_while_workers_run_the_sweep(crew: Cluster) -> None:
    sweep = crew.wtb("submit", write_sweep(crew.project, "busy", cases=2, gate="opens"), check=0).stdout.strip()
    crew.until(lambda: held_by(crew.project, "held busy-") == 2, "both slots are in a node")
    crew.project.write({"more.jsonl": json.dumps({"id": "busy-9", "input": {"x": 0}}) + "\n"})
    form = "held={name: nine, of: two, by: 9}"
    added = crew.wtb("extend", sweep, "--cases", "more.jsonl", "--vary", form, "--format", "json", check=0).json
    assert (added["cells"], added["cases"], added["status"]) == (3 * 3 - 2 * 2, 1, "running")
    crew.project.write({"opens": ""})
    crew.wait_completed(sweep)
    assert crew.cells(sweep) == {"succeeded": 9}
    assert [held_by(crew.project, f"{node} busy-") for node in ("first", "held")] == [3, 9], "none of them twice"


def test_workers_end_what_only_a_stopped_combination_needs_and_run_it_again_later(crew: Cluster) -> None:
    sweep = crew.wtb("submit", write_sweep(crew.project, "stops", cases=1, gate="lets-go"), check=0).stdout.strip()
    crew.until(lambda: held_by(crew.project, "held stops-") == 2, "both variants are in a node")
    stopped = crew.wtb("combination", "stop", sweep, "held=two", "--reason", "it is bad", check=0)
    assert "stopped held=two, 1 cell skipped" in stopped.output
    running = "SELECT count(*) FROM executions WHERE sweep_id = :id AND status = 'running'"
    crew.until(lambda: crew.scalar(running, id=sweep) == 1, "the other one goes on")
    crew.project.write({"lets-go": ""})
    crew.wait_completed(sweep)
    assert crew.cells(sweep) == {"succeeded": 1, "skipped": 1}
    document = crew.wtb("matrix", sweep, "--format", "json", check=0).json
    assert [row.get("stopped", {}).get("cases") for row in document["rows"]] == [None, 0]
    outcome = crew.wtb("extend", sweep, "--combination", "held=two", check=0)
    assert sentence("{} of stopped combinations run again", "1 cell") in outcome.output
    crew.wait_completed(sweep)
    assert crew.cells(sweep) == {"succeeded": 2}
    assert held_by(crew.project, "first stops-") == 1
