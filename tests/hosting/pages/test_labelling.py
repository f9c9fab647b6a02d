"""Answers are labelled in a real browser by keys, blind; what judges here is a server of this test, and no model."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from tests.hosting.pages.site import Site, served
from tests.support.model_server import ModelHandler
from tests.support.project import Project
from tests.support.prose import sentence
from wtb.core.roles import Role

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CASES = 30
FLOW = """
from wtb import Workflow, evaluator

wf = Workflow("letters")


@wf.node
def reply(state, *, greeting: str = "Hello"):
    return {"answer": f"{greeting}, <b>{state['name']}</b>.\\x1b[31m\\u202e\\x00"}


reply.variant("curt", greeting="Well")
reply.variant("warm", greeting="Hello")
wf.entry(reply)


@evaluator(better="higher")
def length(case, result):
    return len(result.state["answer"])
"""
RUBRIC = {"1": "rude", "2": "neither", "3": "kind"}


class Judging(ModelHandler):
    """Finds every answer kind."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": json.dumps({"reasoning": "", "level": 3})}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        about = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"]}
        self.send(200, about | {"choices": choices, "usage": usage})


@pytest.fixture(scope="module")
def judged(shared_project: Project) -> Project:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Judging)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    judge = {"name": "kind", "field": "answer", "model": "m", "rubric": RUBRIC, "criteria": "How kind is it?"}
    judge["url"] = f"http://127.0.0.1:{server.server_port}/v1"
    spec = {
        "sweep": "letters",
        "workflow": "letters:wf",
        "cases": [{"id": f"c{number}", "input": {"name": f"Ana{number}"}} for number in range(CASES)],
        "vary": {"reply": "all"},
        "evaluate": [{"judge": judge}, "letters:length"],
    }
    shared_project.write({"letters.py": FLOW, "sweep.yaml": json.dumps(spec)})
    shared_project.inside("run", "sweep.yaml", "-q", check=0)
    server.shutdown()
    server.server_close()
    thread.join()
    return shared_project


@pytest.fixture(scope="module")
def serving(judged: Project, browser: Browser) -> Iterator[Site]:
    with served(judged, browser) as site:
        yield site


def token_of(judged: Project, role: Role, name: str) -> str:
    judged.inside("admin", "user", "create", name, check=0)
    judged.inside("admin", "access", "grant", role, "--user", name, check=0)
    args = ("admin", "token", "create", name, "--user", name, "--scope", "read,answer")
    return judged.inside(*args, check=0).stdout.strip()


def labelled(page: Page, done: int) -> None:
    page.get_by_text(f"{done} labelled,").wait_for()


def test_sixty_answers_are_labelled_by_one_key_each_blind_and_undone(judged: Project, site: Site) -> None:
    page = site.open("/sweeps/letters", token=token_of(judged, Role.approver, "ana"))
    page.get_by_role("link", name="Label answers").click()
    labelled(page, 0)
    page.get_by_text(f"{2 * CASES} left").wait_for()  # two of three rows answer alike, which is asked once
    page.get_by_text("How kind is it?").wait_for()
    site.check_readable(page)
    main = page.locator("main")
    assert not [word for word in ("default", "curt", "warm", "reply") if word in main.inner_text()]
    assert "<b>Ana" in main.inner_text(), "as it was written, and no markup"
    assert "\u241b[31m\ufffd\u2400" in main.inner_text(), "controls are seen"
    assert not {"\x00", "\x1b", "\u202e"} & set(main.inner_text())
    page.keyboard.press("x")
    page.keyboard.press("3")
    labelled(page, 1)
    page.keyboard.press("b")
    labelled(page, 0)
    page.keyboard.press("s")
    for number in range(2 * CASES - 1):
        page.keyboard.press(str(number % 3 + 1))
        labelled(page, number + 1)
    page.get_by_text("Nothing is left to label.").wait_for()
    page.get_by_text("Agreement with labels").wait_for()
    site.check_readable(page)
    page.reload()
    page.get_by_text(f"{2 * CASES - 1} labelled, 1 left, by ana").wait_for()  # what was skipped is asked again
    page.get_by_role("button", name="2", exact=False).first.click()
    page.get_by_text("Nothing is left to label.").wait_for()
    rows = judged.query("SELECT rater, asked, probability, metric FROM labels")
    assert len(rows) == 3 * CASES, "a label of each cell that gave the answer"
    assert {tuple(row) for row in rows} == {("ana", "random", 1.0, "kind")}


def test_another_rater_has_the_same_cases_and_is_asked_about_disagreement(judged: Project, site: Site) -> None:
    page = site.open("/sweeps/letters/label?metric=length", token=token_of(judged, Role.approver, "ben"))
    labelled(page, 0)
    field = page.get_by_role("spinbutton")
    field.fill("5")
    field.press("Enter")
    labelled(page, 1)
    site.check_readable(page)
    page.get_by_label("Answers that other raters disagree about").check()
    page.get_by_text("Nothing is left to label.").wait_for()  # one of them alone cannot disagree
    ((rater, label),) = judged.query("SELECT DISTINCT rater, value FROM labels WHERE metric = 'length'")
    assert (rater, label) == ("ben", 5.0)


def test_who_may_only_look_is_not_asked_and_cannot_label(judged: Project, site: Site) -> None:
    page = site.open("/sweeps/letters", token=token_of(judged, Role.viewer, "vic"))
    page.locator("main table").first.wait_for()
    assert page.get_by_role("link", name="Label answers").count() == 0
    site.go(page, "/sweeps/letters/label")
    page.get_by_text("You may not label here.").wait_for()
    queue = page.request.get(f"{site.url}/api/v1/sweeps/letters/labelling").json()
    assert queue["items"], "what there is to label is no secret"
    assert all(question.keys() == {"id", "case", "input", "answer"} for question in queue["items"])
    label = {"case": queue["items"][0]["case"], "answer": queue["items"][0]["id"], "label": 3}
    for sent in (label, {**label, "rater": "ana"}):
        status, answer = site.post(page, "/sweeps/letters/labelling", sent)
        assert status == 403
        assert sentence("this takes the scope {}", "answer") in answer
