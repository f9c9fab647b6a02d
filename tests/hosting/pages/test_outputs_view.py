"""Outputs side by side in a real browser: filters, words that differ, keys, links, and what models may write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.hosting.pages.site import Site, served, take_picture
from tests.support.project import Project

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLOW = r'''
import base64
from typing import Any, TypedDict

from wtb import Workflow, evaluator

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
HOSTILE = """<script>window.ran=1</script> <img src=x onerror="window.ran=1">
[press](javascript:window.ran=1) [again](JaVaScRiPt:window.ran=1) [data](data:text/html,<script>window.ran=1</script>)
![remote](https://example.com/a.png) ![own](chart.png) [fine](https://example.com/fine)
\u202ereversed \x00\x1b[31mred\x07 `\u202ecode`"""


class State(TypedDict, total=False):
    question: str
    answer: str
    steps: list[Any]
    messages: list[Any]


wf = Workflow("helpdesk", state=State, input=State)


@wf.node
def answer(state, ctx, *, model: str = "mini", style: str = "terse"):
    question = state["question"]
    (ctx.workspace / "chart.png").write_bytes(base64.b64decode(PNG))
    if "refund" in question and model == "mini":
        raise ValueError("the policy was not found")
    if question == "hostile":
        text = HOSTILE
    elif question == "huge":
        text = "\n".join(f"line {number} of {model} {'x' * 900}" for number in range(10_000))
    else:
        text = f"""## {question}

The **{model}** model answers in a `{style}` style:

1. Open *Settings*
2. Choose {"Billing" if model == "large" else "Account"}
3. Save

| plan | price |
| --- | --- |
| basic | 10 |

See [the manual](https://example.com/manual)."""
    ctx.cost(usd=0.002 if model == "large" else 0.0004)
    messages = [
        {"role": "system", "content": "You help people."},
        {"role": "user", "content": question},
        {"role": "assistant", "content": text[:2000], "tool_calls": [{"name": "search", "args": {"q": question}}]},
    ]
    return {"answer": text, "steps": [{"tool": "search", "hits": [1, 2, 3]}, {"tool": "read"}], "messages": messages}


for model in ("mini", "large"):
    for style in ("terse", "polite"):
        answer.variant(f"{model}-{style}", model=model, style=style)
wf.entry(answer)


@evaluator(better="higher", scale=(0, 1))
def helps(case, result):
    if "huge" in case.id:
        raise ValueError("too long to be judged")
    return float("Billing" in result.state["answer"])
'''
SWEEP = """
sweep: helpdesk
workflow: flow:wf
cases: cases.jsonl
vary: {answer: [mini-terse, mini-polite, large-terse, large-polite]}
evaluate: ["flow:helps", {contains: {field: answer}}]
primary: helps
run: {pool: thread}
"""
QUESTIONS = ["Where is my invoice?", "How do I get a refund?", "Can I change my plan?", "hostile", "huge"]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("outputs"))
    cases = [
        {"id": f"q{number}" if len(text) > 8 else text, "input": {"question": text}, "expected": "Choose Billing"}
        for number, text in enumerate([*QUESTIONS, *(f"What is question {more}?" for more in range(60))])
    ]
    cases[0]["tags"] = ["billing"]
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP, "cases.jsonl": "\n".join(map(json.dumps, cases))})
    project.inside("run", "sweep.yaml", "--quiet")
    yield project
    project.close()


@pytest.fixture(scope="module")
def serving(asked: Project, browser: Browser) -> Iterator[Site]:
    with served(asked, browser) as site:
        yield site


def cell(page: Page, row: int, column: int) -> str:
    found = page.locator(f"#cell-{row}-{column}")
    found.locator(".figures").first.wait_for()
    return " ".join(found.inner_text().split())


def opened(site: Site, query: str = "", **how: object) -> Page:
    page = site.open(f"/sweeps/helpdesk?tab=outputs{query}", **how)  # type: ignore[arg-type]
    page.locator(".outputs .figures").first.wait_for()
    return page


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True), (360, False), (2560, False)])
def test_outputs_stand_side_by_side_at_every_width(site: Site, width: int, dark: bool) -> None:
    page = opened(site, "&rows=0-2", width=width, dark=dark)
    assert "Account" in cell(page, 0, 0)
    if width > 600:
        assert "Billing" in cell(page, 0, 1)
    head = page.locator(".outputs .case").first.inner_text()
    assert "Where is my invoice?" in head
    assert "Choose Billing" in head
    site.check_readable(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page itself does not scroll sideways"
    page.locator("#cell-0-0").dblclick()
    page.get_by_role("dialog").get_by_role("heading", name="answer=mini-terse").wait_for()
    site.check_readable(page)
    page.keyboard.press("Escape")
