"""Pages submit and steer in a real browser, workers run it, and nothing is loaded before somebody asks for it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.hosting.api.serving import TOKEN
from tests.hosting.client.sending import CELLS, SWEEP, Sending, execution_of, state_of, submitted, until_it_is
from tests.hosting.pages.site import Site
from wtb.core.roles import PERMISSIONS, Permission, Role

if TYPE_CHECKING:
    from playwright.sync_api import Page


def started(sending: Sending, x: int, *keys: str) -> str:
    """Give one input to the workers, and return its execution when it stands still."""
    return execution_of(sending, "reviewed", "--set", f"x={x}", *keys)


def opened_step(page: Page, number: int) -> Any:
    """A step of an execution, opened as far as what it changed."""
    step = page.locator(".steps > li").nth(number)
    step.locator("summary").first.click()
    step.get_by_role("heading", name="Changes to the state").wait_for()
    return step


def asked_what_if(page: Page, number: int) -> Any:
    """A step of an execution, where something else can be tried."""
    step = opened_step(page, number)
    step.get_by_role("button", name="What if").click()
    return step


def test_a_sweep_is_planned_and_submitted_in_a_browser(sending: Sending, site: Site) -> None:
    page = site.open("/")
    page.get_by_role("link", name="New sweep").first.click()  # an empty list has another one
    page.get_by_role("combobox", name="Workflow").select_option("shop")
    page.get_by_label("Name", exact=True).fill("by form")
    nodes = page.get_by_role("group", name="A", exact=True)
    nodes.wait_for()
    for box in nodes.get_by_role("checkbox").all():
        box.check()
    pick = page.get_by_label("Add an evaluator")
    for name in ("flow:total", "tokens", "regex", "nodes_visited"):
        pick.select_option(name)
    page.get_by_role("button", name="Remove tokens").click()
    regex, visited = (page.get_by_role("group", name=name, exact=True) for name in ("regex", "nodes_visited"))
    regex.get_by_label("field").fill("x")
    regex.get_by_label("pattern").fill("[0-9]")
    visited.get_by_label("nodes").fill("A, B")
    visited.get_by_label("order").select_option("in_order")
    page.get_by_text("There are no cases yet").wait_for()
    assert page.get_by_role("button", name="Submit").is_disabled()
    page.get_by_label("Cases, each").fill("{not JSON")
    page.get_by_role("alert").get_by_text("pasted.jsonl:1: not JSON").wait_for()
    page.get_by_label("Cases, each").fill("\n".join(map(json.dumps, SWEEP["cases"])))  # type: ignore[call-overload]
    page.get_by_text(f"{len(SWEEP['cases'])} cases").wait_for()  # type: ignore[arg-type]
    before = sending.cluster.scalar("SELECT count(*) FROM sweeps")
    page.get_by_text("= 8 cells").wait_for()
    site.check_readable(page)
    assert sending.cluster.scalar("SELECT count(*) FROM sweeps") == before, "a plan runs nothing"
    page.get_by_role("button", name="Submit 8 cells").click()
    page.wait_for_url("**/sweeps/*")
    sweep = page.url.rsplit("/", 1)[1]
    sending.cluster.wait_completed(sweep)
    document = sending.wtb("show", sweep, "--format", "json").json
    assert document["cells"]["succeeded"] == CELLS / 2
    assert document["definition"]["evaluate"][1:] == [
        {"regex": {"field": "x", "pattern": "[0-9]"}},
        {"nodes_visited": {"nodes": ["A", "B"], "order": "in_order"}},
    ]


def test_a_sweep_is_extended_in_a_browser_after_it_shows_what_that_adds(sending: Sending, site: Site) -> None:
    swept = submitted(sending, {**SWEEP, "sweep": "grows"})
    page = site.open(f"/sweeps/{swept}")
    page.get_by_text("Extend", exact=True).click()
    form = page.locator("details.extension")
    form.get_by_label("Cases, each").fill('{"id": "a", "input": {"x": 9}}')
    form.get_by_role("alert").get_by_text("case 'a' is in the sweep with another input 'x'").wait_for()
    form.get_by_label("Cases, each").fill('{"id": "a", "input": {"x": 1}}\n{"id": "c", "input": {"x": 3}}')
    form.get_by_text("1 new case; 1 case in the sweep already").wait_for()
    form.get_by_label("More of B").fill('{"name": "bigger", "by": 50}')
    form.get_by_role("button", name="Add 20 cells").wait_for()
    site.check_readable(page)
    before = sending.wtb("show", swept, "--format", "json").json["cells"]["total"]
    page.get_by_role("button", name="Add 20 cells").click()
    form.get_by_text("1 case in the sweep already").wait_for(state="detached")
    sending.cluster.wait_completed(swept)
    after = sending.wtb("show", swept, "--format", "json").json["cells"]
    assert (before, after["total"], after["succeeded"]) == (CELLS, CELLS + 20, CELLS + 20)
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_questions_are_answered_in_the_inbox_by_two_keys_each(sending: Sending, site: Site) -> None:
    execution = started(sending, 100)
    page = site.open("/inbox")
    page.get_by_role("region", name="Send 100?").wait_for()
    site.check_readable(page)
    page.keyboard.press("2")
    assert page.evaluate("document.activeElement.textContent").startswith("no"), "the first key decides nothing"
    page.keyboard.press("Enter")
    page.get_by_text("Nothing waits for a person.").wait_for()
    until_it_is(sending, execution, "completed")
    assert state_of(sending, execution)["answer"] == "no"
    answered = page.get_by_role("status").filter(has_text="Answered: Send 100?")
    answered.get_by_role("link").click()
    page.wait_for_url(f"**/executions/{execution}")


def test_one_answer_is_for_all_that_ask_the_same(sending: Sending, site: Site) -> None:
    cases = [{"id": id, "input": {"x": 300}} for id in ("a", "b")]
    keys = {"sweep": "asking", "workflow": "reviewed", "vary": {"draft": ["default"]}, "cases": cases}
    status, _, sent = sending.post("/sweeps", {"keys": keys})
    assert status == 201, sent
    asking = "SELECT count(*) FROM approvals WHERE status = 'open' AND sweep_id = :id"
    sending.cluster.until(lambda: sending.cluster.scalar(asking, id=sent["sweep"]) == 2, "both ask")
    page = site.open("/inbox")
    question = page.get_by_role("region", name="Send 300?")
    question.get_by_text("2 questions that ask the same").wait_for()
    question.get_by_label("Feedback").fill("go on")
    question.get_by_role("button", name="yes").click()
    sending.cluster.wait_completed(sent["sweep"])
    answers = sending.cluster.query(
        "SELECT answer->>'choice', answer->>'feedback' FROM approvals WHERE sweep_id = :id", id=sent["sweep"]
    )
    assert [tuple(answer) for answer in answers] == [("yes", "go on")] * 2


def test_the_state_of_an_execution_is_changed_before_it_continues(sending: Sending, site: Site) -> None:
    execution = started(sending, 4, "--until", "draft")
    page = site.open(f"/executions/{execution}")
    page.get_by_text("team: search").wait_for()  # the metadata of its workflow
    page.get_by_text("Change the state before it goes on").click()
    field = page.get_by_label("x", exact=True)
    field.fill("many")
    page.get_by_role("button", name="Resume with these values").click()
    page.get_by_role("alert").get_by_text("x: ").wait_for()
    site.check_readable(page)
    field.fill("7")
    page.get_by_role("button", name="Resume with these values").click()
    page.get_by_text("completed").first.wait_for()
    assert state_of(sending, execution) == {"x": 7, "answer": "small"}


def test_an_execution_is_rolled_back_and_its_rollback_undone(sending: Sending, site: Site) -> None:
    execution = started(sending, 5)
    page = site.open(f"/executions/{execution}")
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.accept()))
    step = opened_step(page, 1)
    assert "answer" in step.locator("table.sides").inner_text()
    step.get_by_role("button", name="Roll back to before this step").click()
    page.get_by_role("button", name="Undo the rollback").wait_for()
    assert "before review" in dialogs[0]
    assert state_of(sending, execution) == {"x": 5}
    page.get_by_text("Where it forked and was rolled back").click()
    page.locator(".lineage").get_by_text("left by a rollback").first.wait_for()
    assert execution in page.locator(".lineage").inner_text()
    site.check_readable(page)
    page.get_by_role("button", name="Undo the rollback").click()
    page.get_by_role("button", name="Undo the rollback").wait_for(state="hidden")
    assert state_of(sending, execution) == {"x": 5, "answer": "small"}
    page.get_by_role("button", name="Resume").click()
    until_it_is(sending, execution, "completed")


def test_what_if_is_tried_for_one_case(sending: Sending, site: Site) -> None:
    vary = {"A": ["default"], "B": ["default"]}
    swept = submitted(sending, {**SWEEP, "sweep": "what if", "vary": vary})
    cell = sending.wtb("show", swept, "--cells", "--case", "b", "--format", "json").json["cells"][0]
    page = site.open(f"/executions/{cell['execution']}")
    step = asked_what_if(page, 2)
    step.get_by_label("Variant of C").select_option("v2")
    site.check_readable(page)
    step.get_by_role("button", name="Run it for this case").click()
    page.wait_for_url(lambda url: not url.endswith(cell["execution"]))
    fork = page.url.rsplit("/", 1)[1]
    until_it_is(sending, fork, "completed")
    assert state_of(sending, fork) == {"x": 202}


def test_what_if_tries_another_parameter_for_one_case(sending: Sending, site: Site) -> None:
    vary = {"A": ["default"], "B": ["v1"]}
    swept = submitted(sending, {**SWEEP, "sweep": "other parameter", "vary": vary})
    cell = sending.wtb("show", swept, "--cells", "--case", "b", "--format", "json").json["cells"][0]
    page = site.open(f"/executions/{cell['execution']}")
    step = asked_what_if(page, 1)
    step.get_by_role("group", name="B", exact=True).get_by_label("by").fill("7")
    site.check_readable(page)
    step.get_by_role("button", name="Run it for this case").click()
    page.wait_for_url(lambda url: not url.endswith(cell["execution"]))
    fork = page.url.rsplit("/", 1)[1]
    until_it_is(sending, fork, "completed")
    assert state_of(sending, fork) == {"x": 2 + 70}, "of case b alone"
    page.get_by_text("v1, by=7").first.wait_for()


def node_runs(sending: Sending, sweep: str) -> Counter[str]:
    rows = sending.cluster.query("SELECT node, count(*) FROM node_runs WHERE sweep_id = :id GROUP BY node", id=sweep)
    return Counter({str(node): int(count) for node, count in rows})


def test_what_if_for_every_case_runs_each_node_downstream_once_a_case_and_nothing_upstream(
    sending: Sending, site: Site
) -> None:
    cases = [{"id": str(number), "input": {"x": number}} for number in range(5)]
    keys = {**SWEEP, "sweep": "wider", "cases": cases, "vary": {"A": ["default", "v1"], "B": ["default", "v1"]}}
    swept = submitted(sending, keys)
    before = node_runs(sending, swept)
    cell = sending.wtb("show", swept, "--cells", "--case", "3", "--format", "json").json["cells"][0]
    page = site.open(f"/executions/{cell['execution']}")
    step = asked_what_if(page, 1)
    step.get_by_label("Variant of B").select_option("v2")
    step.get_by_role("button", name="Run it for every case").click()
    page.wait_for_url(f"**/sweeps/{swept}")
    sending.cluster.wait_completed(swept)
    assert node_runs(sending, swept) - before == {"B": 5, "C": 5}
    page.locator("tr", has_text="exploratory").get_by_text("1 left out").wait_for()


def test_a_list_says_what_waits_for_a_person_and_what_it_has_cost(sending: Sending, site: Site) -> None:
    cases = [{"id": id, "input": {"x": 500}} for id in ("a", "b")]
    keys = {"sweep": "waiting for people", "workflow": "reviewed", "vary": {"draft": ["default"]}, "cases": cases}
    _, _, sent = sending.post("/sweeps", {"keys": keys})
    page = site.open("/")
    row = page.locator("tbody tr", has_text="waiting for people")
    row.get_by_role("link", name="2 wait for a person").click()
    page.get_by_role("region", name="Send 500?").get_by_text("2 questions that ask the same").wait_for()
    sending.wtb("cancel", sent["sweep"], "--yes", check=None)


def test_submit_says_where_its_page_is_and_opens_it_if_asked(sending: Sending, tmp_path: Path) -> None:
    sending.laptop.write({"sent.yaml": json.dumps({**SWEEP, "sweep": "with a page"})})
    text = sending.wtb("submit", "sent.yaml").output
    sweep = sending.cluster.scalar("SELECT id FROM sweeps WHERE name = 'with a page'")
    address = f"http://127.0.0.1:{sending.server.port}/sweeps/{sweep}"
    assert f"its page is {address}" in text
    sending.cluster.wait_completed(sweep)
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    browser.chmod(0o755)
    cell, *_, other = sending.wtb("show", sweep, "--cells", "--format", "json").json["cells"]
    environment = {
        "BROWSER": f"{browser} %s",
        "WTB_SERVER": f"http://127.0.0.1:{sending.server.port}",
        "WTB_TOKEN": TOKEN,
    }
    expected = {
        ("show", sweep): f"/sweeps/{sweep}",
        ("show", cell["execution"]): f"/executions/{cell['execution']}",
        ("matrix", sweep, "--baseline", "1"): f"/sweeps/{sweep}?baseline=1",
        ("compare", sweep, "--row", "1"): f"/sweeps/{sweep}/compare?row=1&other=0&metric=total",
        ("compare", sweep, sweep): f"/compare/{sweep}/{sweep}",
        ("diff", cell["execution"], other["execution"]): f"/executions/{cell['execution']}/diff/{other['execution']}",
    }
    for command in expected:
        sending.laptop.inside(*command, "--open", env=environment, check=None)
    host = f"http://127.0.0.1:{sending.server.port}"
    assert opened.read_text().split() == [host + path for path in expected.values()]


def test_a_sweep_pauses_at_a_breakpoint_that_a_page_sets_and_resumes_there(sending: Sending, site: Site) -> None:
    execution = started(sending, 6, "--until", "draft")
    page = site.open(f"/executions/{execution}")
    page.get_by_text("Breakpoints of the sweep").click()
    page.get_by_label("Pause at").fill("before reviews")
    page.get_by_role("button", name="Add").click()
    page.get_by_role("alert").get_by_text("did you mean 'review'").wait_for()
    page.get_by_label("Pause at").fill("after review")
    page.get_by_role("button", name="Add").click()
    page.get_by_role("button", name="Remove after review").wait_for()
    page.get_by_role("button", name="Resume").first.click()
    page.get_by_text("answer").filter(visible=True).first.wait_for()
    until_it_is(sending, execution, "paused", "completed")
    assert state_of(sending, execution)["answer"] == "small"


@pytest.mark.parametrize("role", Role)
def test_who_has_a_role_is_offered_what_it_allows(sending: Sending, site: Site, role: Role) -> None:
    """That the server refuses the rest is in test_reading.py."""
    asking, paused = started(sending, 400), started(sending, 7, "--until", "draft")
    sending.wtb("admin", "user", "create", role)
    sending.wtb("admin", "access", "grant", role, "--user", role)
    token = sending.wtb(
        "admin", "token", "create", role, "--user", role, "--scope", ",".join(Permission)
    ).stdout.strip()
    page = site.open("/", token=token)
    page.locator("main table").wait_for()
    offered = {Permission.submit} if page.get_by_role("link", name="New sweep").count() else set()
    site.go(page, f"/executions/{asking}")
    question = page.get_by_role("region", name="Send 400?")
    yes = question.get_by_role("button", name="yes")
    yes.or_(question.get_by_text("You may not answer here.")).wait_for()
    offered |= {Permission.answer} if yes.count() else set()
    site.go(page, f"/executions/{paused}")
    opened_step(page, 0)
    steered = [page.get_by_role("button", name=name).count() for name in ("Resume", "Cancel", "Roll back")]
    assert all(steered) or not any(steered)
    offered |= {Permission.steer} if any(steered) else set()
    site.go(page, "/submit")
    assert bool(page.get_by_text("You may not submit sweeps here.").count()) != (Permission.submit in offered)
    assert offered == PERMISSIONS[role] - {Permission.read, Permission.administer}
