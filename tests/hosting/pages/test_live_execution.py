"""The page of an execution while it runs: its graph, what its nodes say, and what they have spent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.hosting.pages.site import Site, served, take_picture
from tests.support.project import Project
from tests.support.prose import sentence

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLOW = '''
"""plan -> search -> judge, which leads back to search once, then answer."""
import time
from pathlib import Path

from wtb import END, Workflow

wf = Workflow("live")


@wf.node
def plan(state, ctx):
    ctx.cost(usd=0.02, tokens_in=100, tokens_out=20)
    return {"round": 0}


@wf.node
def search(state, ctx):
    ctx.cost(usd=0.01, tokens_in=50, tokens_out=10)
    ctx.tell("thought", f"looking in round {state['round']}")
    until(ctx, f"go-{state['round']}")
    return {"round": state["round"] + 1}


@wf.node
def judge(state):
    pass


@wf.node
def answer(state, ctx):
    return {"answer": ctx.ask("Is this it?", options=["yes", "no"])}


def until(ctx, name):
    (Path(FOLDER) / "began").touch()
    while not (Path(FOLDER) / name).exists():
        time.sleep(0.05)


FOLDER = Path(__file__).parent
wf.entry(plan)
wf.edge(plan, search)
wf.edge(search, judge)
wf.edge(judge, search, when=lambda state: state["round"] < 2)
wf.edge(judge, answer, default=True)
wf.edge(answer, END)
'''


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path)
    project.write({"flow.py": FLOW})
    yield project
    project.close()


def stands(page: Page, **statuses: str) -> None:
    """Wait until the picture of the graph has these statuses."""
    for node, status in statuses.items():
        page.locator(f"svg.graph g.{status}").filter(has_text=node).wait_for()


def test_graph_messages_and_cost_follow_a_run(project: Project, browser: Browser) -> None:
    with project.start("start", "flow:wf", "--quiet") as run:
        project.until(lambda: (project.folder / "began").exists(), "the first search")
        ((id,),) = project.query("SELECT id FROM executions")
        with served(project, browser) as site:
            try:
                follow(site, project, id)
            finally:
                site.close()
            assert site.faults == []
        run.wait(check=1)  # it waited for an answer


def follow(site: Site, project: Project, id: str) -> None:
    page = site.open("/")
    page.locator("main td").get_by_role("link").first.click()  # a single execution in the list of sweeps
    page.wait_for_url("**/executions/*")
    stands(page, plan="succeeded", search="running")
    page.get_by_role("log", name="Messages").get_by_text("looking in round 0").wait_for()
    page.locator("dd").get_by_text("$0.03").wait_for()
    site.check_readable(page)
    (project.folder / "go-0").touch()
    page.get_by_role("log", name="Messages").get_by_text("looking in round 1").wait_for()
    stands(page, judge="succeeded", search="running")
    page.locator("dd").get_by_text("$0.04").wait_for()
    (project.folder / "go-1").touch()
    stands(page, search="succeeded", answer="waiting")
    page.get_by_role("log", name="Messages").get_by_text("asks: Is this it?").wait_for()
    page.get_by_role("img").filter(has=page.locator("path.back")).wait_for()
    assert sentence("{} waits for a person", "answer:") in str(page.locator("svg.graph").get_attribute("aria-label"))
    take_picture(page)
    dark = site.open(f"/executions/{id}", dark=True, width=390)
    stands(dark, answer="waiting")
    site.check_readable(dark)
    project.inside("cancel", id, "--yes", check=0)
    ended = site.open(f"/executions/{id}")
    ended.get_by_role("log", name="Messages").get_by_text("looking in round 1").wait_for()
    ended.wait_for_load_state("networkidle")  # what has ended holds no connection
