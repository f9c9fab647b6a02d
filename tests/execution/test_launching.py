"""A node process that starts before its workflow is known is used if it fits, and ended otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.project import Project
from tests.support.waiting import until
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
def launched() -> Iterator[list[Launched]]:
    """Processes that a test has launched; they are ended after it."""
    processes: list[Launched] = []
    yield processes
    for process in processes:
        process.close()
        assert process.process.wait(10) == 0


def running(launch: Launch) -> list[int]:
    return tagged(RUNNER).get(launch.environment[RUNNER], [])


def is_alone(launched: Launched, launch: Launch) -> bool:
    """Return whether this process and its children are all that runs by a launch. A starting process has no tag yet."""
    processes = running(launch)
    return bool(processes) and set(processes) <= set(tagged(PROCESS).get(launched.id, []))


def test_the_process_that_was_started_ahead_is_taken_once(launch: Launch, launched: list[Launched]) -> None:
    start_ahead(launch)
    ahead, *_ = until(lambda: running(launch), "for the tag of the process")
    launched += [start(launch), start(launch)]
    assert launched[0].process.pid == ahead
    assert launched[1].process.pid != ahead


def test_one_that_was_started_for_something_else_is_ended(launch: Launch, launched: list[Launched]) -> None:
    start_ahead(launch)
    other = replace(launch, environment={**launch.environment, "CHANGED": "by what was imported"})
    launched.append(start(other))
    until(lambda: is_alone(launched[0], launch), "for the end of the other")


def test_a_second_one_ahead_takes_the_place_of_the_first(launch: Launch, launched: list[Launched]) -> None:
    start_ahead(launch)
    start_ahead(launch)
    launched.append(start(launch))
    until(lambda: is_alone(launched[0], launch), "for the end of the other")


@pytest.mark.parametrize(
    ("what", "wrong"), [("vary: {look: all}", "vary: {lok: all}"), ("{look: all}", "{look: all}\nrun: {poll: 1}")]
)
def test_a_sweep_that_is_refused_leaves_no_process(project: Project, what: str, wrong: str) -> None:
    mark = new_id()
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP.replace(what, wrong)})
    with project.start("run", "sweep.yaml", own=True, env={"MARK": mark}) as running:
        running.wait(check=2)
    until(lambda: mark not in tagged("MARK"), "for the end of what it started")
