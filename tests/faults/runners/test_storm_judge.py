"""The judge of storms finds nothing in a sweep that went well, and every damage that a storm could do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chaos.drawn.judge import Verdict, judge_all
from tests.chaos.drawn.oracle import expect
from tests.chaos.drawn.scenario import Branch, Fan, Loop, Node, Scenario, Step, draw_scenarios
from tests.chaos.drawn.source import set_pace, write_scenario
from tests.support.project import Project

SCENARIO = Scenario(
    name="judged",
    blocks=(
        Loop(Node("n01", fails=1), Node("n02", usd=0.5, bulk=100)),
        Branch(Node("n03"), Node("n04", kind="async"), Node("n05")),
        Fan((Node("n06", variants=2, tool=True), Node("n07", durable=True)), Node("n08", usd=0.25)),
        Step(Node("n09", variants=2, fatal=1)),
    ),
    langgraph=False,
    cases=2,
    repeats=2,
    combinations=tuple({"n06": b, "n09": d} for b in (0, 1) for d in (0, 1)),
    single=False,
    share=True,
    evaluated=False,
    durability="20ms",
    pool="process",
    checkpoints="coarse",
    per_process=64,
    budget=True,
    reversible=True,
    paced=True,
    priority=0,
    concurrency=2,
)

DAMAGES = {
    "head": (
        "UPDATE executions SET head_id = (SELECT parent_id FROM checkpoints c WHERE c.id = head_id) "
        "WHERE id = (SELECT execution_id FROM cells WHERE status = 'succeeded' LIMIT 1)"
    ),
    "values": 'UPDATE "values" SET data = \'["0123456789ab"]\' WHERE data LIKE \'["____________"]\'',
    "node run": "UPDATE node_runs SET status = 'running' WHERE id = (SELECT MIN(id) FROM node_runs WHERE node = 'n09')",
    "outcome": "UPDATE cells SET status = 'failed' WHERE case_number = 0 AND repeat = 1 AND combination = 0",
    "cost": "UPDATE cells SET usd = usd + 0.25 WHERE case_number = 0 AND repeat = 1 AND combination = 0",
    "no failure": "UPDATE attempts SET failure = NULL, status = 'succeeded' WHERE failure IS NOT NULL AND number = 1",
    "open execution": "UPDATE executions SET status = 'pending' WHERE id = (SELECT MIN(id) FROM executions)",
    "budget": "UPDATE budgets SET spent = 0.25",
    "lost": "UPDATE cells SET status = 'running' WHERE case_number = 0 AND repeat = 0 AND combination = 0",
    "no cell": "DELETE FROM cells WHERE case_number = 0 AND repeat = 0 AND combination = 0",
}


def _judge(project: Project) -> Verdict:
    ((sweep,),) = project.query("SELECT id FROM sweeps")
    return judge_all(project, {sweep: SCENARIO})


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A sweep without faults, whose files the tests copy."""
    project = Project(tmp_path_factory.mktemp("judged") / "project")
    project.write(write_scenario(SCENARIO))
    set_pace(project, 0.0)
    project.wtb("run", f"{SCENARIO.name}.yaml", "--quiet")
    return project


def test_a_sweep_without_faults_is_as_computed(judged: Project) -> None:
    assert _judge(judged) == Verdict()


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_found(judged: Project, tmp_path: Path, damage: str) -> None:
    project = Project(tmp_path)
    for path in judged.folder.iterdir():
        (project.folder / path.name).symlink_to(path)
    (project.folder / ".wtb").unlink()
    project.file.parent.mkdir()
    (project.folder / ".wtb" / "files").symlink_to(judged.folder / ".wtb" / "files")
    project.file.write_bytes(judged.file.read_bytes())
    project.change(DAMAGES[damage])
    verdict = _judge(project)
    project.close()
    assert verdict.lost if damage in ("lost", "no cell") else verdict.wrong + verdict.doubled, damage


def test_an_attempt_that_was_not_accepted_is_found_in_the_state(judged: Project) -> None:
    log = judged.folder / f"{SCENARIO.name}.log"
    text = log.read_text()
    try:
        lines = [json.loads(line) for line in text.splitlines()]
        for line in lines:
            if line["word"] == "ended" and line["node"] == "n08":
                line["inputs"]["n07"] = ["1 1"]  # another attempt than the one of the lineage
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert any("read the state of other attempts" in text for text in _judge(judged).wrong)
    finally:
        log.write_text(text)


def test_what_is_computed_depends_on_all_that_a_cell_is_made_of() -> None:
    choices = {"n06": 0, "n09": 0}
    baseline = expect(SCENARIO, "c0", 0, choices).trail
    variations = [
        expect(SCENARIO, "c1", 0, choices),
        expect(SCENARIO, "c0", 1, choices),
        expect(SCENARIO, "c0", 0, {**choices, "n06": 1}),
    ]
    assert all(other.trail[-1] != baseline[-1] for other in variations)


def test_the_same_seed_draws_the_same_storm() -> None:
    assert draw_scenarios(7, 2000) == draw_scenarios(7, 2000)
    assert draw_scenarios(7, 2000) != draw_scenarios(8, 2000)
    first = draw_scenarios(7, 1)[0]
    assert (first.evaluated, first.durability) == (False, "sync")
