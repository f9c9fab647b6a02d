"""A node process that starts ahead of knowing what it is for: taken where it is what is wanted, else ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.flows import until
from tests.support.project import Project
from wtb.core.ids import new_id
from wtb.execution.sandbox.launch.launching import Launch, Launched, environment, launch_of, start, start_ahead
from wtb.execution.sandbox.launch.process_tags import PROCESS, RUNNER, tagged

FLOW = """
import os

from wtb import END, Workflow

wf = Workflow("flow")


@wf.node
def look(state):
    return {"processes": os.environ["MARK"]}


wf.entry(look)
wf.edge(look, END)
"""
SWEEP = """
workflow: flow:wf
cases: [{id: c0, input: {x: 0}}]
vary: {look: all}
"""


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    return launch_of(environment(None, new_id()), {}, tmp_path)


@pytest.fixture
def taken() -> Iterator[list[Launched]]:
    """Processes that tests took, ended after them."""
    processes: list[Launched] = []
    yield processes
    for launched in processes:
        launched.close()
        assert launched.process.wait(10) == 0


def running(launch: Launch) -> list[int]:
    return tagged(RUNNER).get(launch.environment[RUNNER], [])


def is_alone(launched: Launched, launch: Launch) -> bool:
    """Whether all that runs by a launch is this process and what is below it. What is just starting shows no tag."""
    found = running(launch)
    return bool(found) and set(found) <= set(tagged(PROCESS).get(launched.id, []))


def test_the_process_that_was_started_ahead_is_taken_once(launch: Launch, taken: list[Launched]) -> None:
    start_ahead(launch)
    ahead, *_ = until(lambda: running(launch), "for the tag of the process")
    taken += [start(launch), start(launch)]
    assert taken[0].process.pid == ahead
    assert taken[1].process.pid != ahead


def test_one_that_was_started_for_something_else_is_ended(launch: Launch, taken: list[Launched]) -> None:
    start_ahead(launch)
    other = replace(launch, environment={**launch.environment, "CHANGED": "by what was imported"})
    taken.append(start(other))
    until(lambda: is_alone(taken[0], launch), "for the end of the other")


def test_a_second_one_ahead_takes_the_place_of_the_first(launch: Launch, taken: list[Launched]) -> None:
    start_ahead(launch)
    start_ahead(launch)
    taken.append(start(launch))
    until(lambda: is_alone(taken[0], launch), "for the end of the other")


@pytest.mark.parametrize(
    ("what", "wrong"), [("vary: {look: all}", "vary: {lok: all}"), ("{look: all}", "{look: all}\nrun: {poll: 1}")]
)
def test_a_sweep_that_is_refused_leaves_no_process(project: Project, what: str, wrong: str) -> None:
    mark = new_id()
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP.replace(what, wrong)})
    with project.start("run", "sweep.yaml", own=True, env={"MARK": mark}) as running:
        running.wait(check=2)
    until(lambda: mark not in tagged("MARK"), "for the end of what it started")
