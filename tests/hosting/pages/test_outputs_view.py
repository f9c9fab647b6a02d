"""Outputs side by side in a real browser: filters, words that differ, keys, links, and what models may write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.hosting.pages.site import Site, reported, served, take_picture, wait_until
from tests.support.project import Project
from wtb.display.report.bundle import bundle
from wtb.display.report.report_files import small_outputs

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
def outputs_project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
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
def serving(outputs_project: Project, browser: Browser) -> Iterator[Site]:
    with served(outputs_project, browser) as site:
        yield site


def cell(page: Page, row: int, column: int) -> str:
    cell = page.locator(f"#cell-{row}-{column}")
    cell.locator(".figures").first.wait_for()
    return " ".join(cell.inner_text().split())


def opened(site: Site, query: str = "", **how: object) -> Page:
    page = site.open(f"/sweeps/helpdesk?tab=outputs{query}", **how)  # type: ignore[arg-type]
    page.locator(".outputs .figures").first.wait_for()
    return page


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, True), (2560, True)])
def test_outputs_stand_side_by_side_at_every_width(site: Site, width: int, dark: bool) -> None:
    page = opened(site, "&rows=0-2", width=width, dark=dark)
    assert "Account" in cell(page, 0, 0)
    if width > 600:
        assert "Billing" in cell(page, 0, 1)
    head = page.locator(".outputs .case").first.inner_text()
    assert "Where is my invoice?" in head
    assert "Choose Billing" in head
    site.check_readable(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
        "the page itself does not scroll sideways"
    )
    page.locator("#cell-0-0").dblclick()
    page.get_by_role("dialog").get_by_role("heading", name="answer=mini-terse").wait_for()
    site.check_readable(page)
    page.keyboard.press("Escape")


def shown_cases(page: Page) -> list[str]:
    page.wait_for_timeout(150)
    page.get_by_text("…", exact=True).first.wait_for(state="hidden")
    return [name.inner_text() for name in page.locator(".outputs .case .name").all()]


def test_filters_are_in_the_address_and_the_database_applies_them(site: Site, outputs_project: Project) -> None:
    page = opened(site, "&rows=0-2")
    page.get_by_label("Failed only").check()
    page.wait_for_url("**failed=1*")
    page.get_by_text("1 case", exact=True).wait_for()
    assert shown_cases(page) == ["q1"]
    assert "the policy was not found" in cell(page, 0, 0)
    page.get_by_label("Failed only").uncheck()
    page.get_by_label("Search").fill("question 7")
    page.wait_for_url("**text=question*")
    page.get_by_text("1 case", exact=True).wait_for()
    assert "What is question 7?" in page.locator(".outputs .case").first.inner_text()
    page.reload()
    page.get_by_text("1 case", exact=True).wait_for()
    assert page.get_by_label("Search").input_value() == "question 7"
    page.get_by_label("Search").fill("no such words")
    page.get_by_text("No case matches these filters.").wait_for()
    page.get_by_role("button", name="Clear the filters").click()
    page.get_by_text("65 cases", exact=True).wait_for()
    page.get_by_label("Differs between").select_option("0")
    page.wait_for_url("**differ=0-2*")
    page.get_by_text("64 cases", exact=True).wait_for()
    page.get_by_label("Differs between").select_option("")
    page.get_by_label("Tag").select_option("billing")
    page.get_by_text("1 case", exact=True).wait_for()
    assert shown_cases(page) == ["q0"]


def test_keys_move_open_and_compare(site: Site) -> None:
    page = opened(site, "&rows=0-2")
    page.get_by_role("grid").focus()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**at=2.1*")
    assert page.get_by_role("grid").get_attribute("aria-activedescendant") == "cell-2-1"
    page.keyboard.press("k")
    page.keyboard.press("k")
    page.keyboard.press("c")
    page.wait_for_url("**against=2*")
    removed, added = page.locator("#cell-0-0 del"), page.locator("#cell-0-0 ins")
    removed.first.wait_for()
    assert [mark.inner_text().split()[-1] for mark in removed.all()] == ["large", "Billing"]
    assert [mark.inner_text().split()[-1] for mark in added.all()] == ["mini", "Account"]
    page.keyboard.press("e")
    page.wait_for_url("**against=expected*")
    page.locator("#cell-0-0 del").get_by_text("Billing").first.wait_for()
    page.keyboard.press("e")
    page.keyboard.press("Enter")
    page.wait_for_url("**open=1*")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("Where is my invoice?").first.wait_for()
    page.keyboard.press("j")
    dialog.get_by_text("How do I get a refund?").first.wait_for()
    address = page.url
    page.goto(address)
    page.get_by_role("dialog").get_by_text("How do I get a refund?").first.wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog", name="q1").wait_for(state="hidden")
    wait_until(page, "document.activeElement.classList.contains('outputs')")


def test_only_what_is_seen_is_drawn(site: Site) -> None:
    page = opened(site, "&rows=0-1-2-3")
    assert page.locator(".outputs .line").count() < 12
    page.evaluate("document.querySelector('.outputs').scrollTop = 1e6")
    page.get_by_text("What is question 59?").first.wait_for()
    assert page.locator(".outputs .line").count() < 12
    assert "Account" in cell(page, 64, 0)


def test_what_models_write_is_text(site: Site) -> None:
    """Scripts, links that run them, images of elsewhere, controls and directions have no effect."""
    page = opened(site, "&rows=0-2&only=hostile&open=1")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("<script>window.ran=1</script>").first.wait_for()
    links = [link.get_attribute("href") for link in dialog.locator(".markdown a").all()]
    assert links == ["https://example.com/fine"]
    assert dialog.get_by_text("[press](javascript:window.ran=1)").count() == 1
    assert dialog.get_by_text("[image: remote: not loaded]").count() == 1
    image = dialog.locator(".markdown img")
    assert image.count() == 1
    wait_until(page, "document.querySelector('dialog .markdown img').naturalWidth === 1")
    text = dialog.locator(".markdown").last.inner_text()
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "\u241b[31mred" in text
    site.check_readable(page)


def test_controls_are_seen_wherever_text_of_models_is_shown(site: Site, outputs_project: Project) -> None:
    """The state, what a step changed, two states side by side, and the log of events."""
    document = outputs_project.inside("show", "helpdesk", "--outputs", "--case", "hostile", "--format", "json").json
    hostile = document["cases"][0]["cells"][0]["execution"]
    document = outputs_project.inside("show", "helpdesk", "--outputs", "--case", "q0", "--format", "json").json
    other = document["cases"][0]["cells"][0]["execution"]
    page = site.open(f"/executions/{hostile}")
    page.get_by_role("heading", name="State", exact=True).wait_for()
    page.locator("dd pre").get_by_text("\u241b[31mred").first.wait_for()
    page.locator(".steps summary").first.click()
    page.locator(".inner table").get_by_text("\u241b[31mred").first.wait_for()
    for path in (f"/executions/{hostile}", f"/executions/{hostile}/diff/{other}", "/sweeps/helpdesk?tab=log"):
        site.go(page, path)
        page.locator(".log td, dd pre, table.sides td").first.wait_for()
        assert not {"\x00", "\x1b", "\x07", "\u202e"} & set(page.locator("main").text_content() or ""), path
        site.check_readable(page)


def test_an_output_of_10_mb_is_cut_until_somebody_asks_for_all_of_it(site: Site) -> None:
    page = opened(site, "&rows=0-2&only=huge")
    assert "bytes in all" in cell(page, 0, 0)
    assert len(page.locator("#cell-0-0").inner_text()) < 6_000
    assert "too long to be judged" in cell(page, 0, 0), "the reason why there is no score"
    page.locator("#cell-0-0").dblclick()
    page.get_by_role("dialog").get_by_role("button", name="Show all of it").first.click()
    page.get_by_role("dialog").locator("pre").get_by_text("line 99 of mini").first.wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("c")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").locator("ins").first.wait_for()


def test_state_is_shown_as_a_tree_and_messages_as_a_conversation(site: Site) -> None:
    page = opened(site, "&rows=0-2&keys=messages,steps")
    text = cell(page, 0, 0)
    assert "user" in text
    assert "You help people." in text
    page.locator("#cell-0-0").dblclick()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("calls search").wait_for()
    dialog.locator(".json .key").get_by_text("hits:").wait_for()
    site.check_readable(page)


def test_failed_cells_and_worst_cases_are_a_click_away(site: Site) -> None:
    page = site.open("/sweeps/helpdesk")
    page.get_by_role("link", name="2 failed: show them").click()
    page.get_by_text("1 case", exact=True).wait_for()
    assert shown_cases(page) == ["q1"]
    assert "the policy was not found" in cell(page, 0, 1), "both of them"
    site.go(page, "/sweeps/helpdesk?tab=failures")
    page.get_by_role("link", name="2 failed: show them").last.click()
    page.get_by_text("1 case", exact=True).wait_for()
    site.go(page, "/sweeps/helpdesk")
    page.get_by_role("link", name="Worst cases first").click()
    page.wait_for_url("**worst=helps*")
    page.locator(".outputs .figures").first.wait_for()
    assert shown_cases(page)[0] == "hostile", "nobody helps there"


def test_pages_of_a_cell_a_difference_and_two_rows_say_what_was_asked_and_expected(
    site: Site, outputs_project: Project
) -> None:
    outputs = outputs_project.inside(
        "show", "helpdesk", "--outputs", "--case", "q0", "--row", "0", "--row", "2", "--format", "json"
    )
    first, other = (cell["execution"] for cell in outputs.json["cases"][0]["cells"])
    page = site.open(f"/executions/{first}")
    page.get_by_role("heading", level=1).get_by_text("q0 · answer=mini-terse").wait_for()
    for words in ("Where is my invoice?", "Choose Billing", "helps 0.000"):
        page.locator(".details-parts").get_by_text(words).first.wait_for()
    site.check_readable(page)
    site.go(page, f"/executions/{first}/diff/{other}")
    heading = page.get_by_role("heading", level=1)
    assert " ".join(heading.inner_text().split()) == "q0: answer=mini-terse and answer=large-terse"
    for words in ("Where is my invoice?", "Choose Billing", "helps 0.000", "helps 1.000"):
        page.locator(".two").get_by_text(words).first.wait_for()
    assert page.locator("main .sides > thead > tr > th").all_inner_texts()[1:] == [
        "answer=mini-terse",
        "answer=large-terse",
    ]
    site.check_readable(page)
    site.go(page, "/sweeps/helpdesk/compare?row=2&other=0&metric=helps")
    page.locator(".case-beside").first.get_by_text("Choose Billing").first.wait_for()
    site.check_readable(page)
    take_picture(page)
    page.get_by_role("link", name="Their outputs side by side").click()
    page.wait_for_url("**against=0*")
    page.locator(".outputs ins").first.wait_for()


VIEWS = {
    "": (),
    "failed=1": ("--failed",),
    "differ=0-2": ("--differ", "0", "--differ", "2"),
    "worst=helps": ("--worst", "helps"),
    "tag=billing": ("--tag", "billing"),
    "wrong=all": ("--wrong", "all"),
    "text=question+7": ("--text", "question 7"),
    "text=POLICY+was": ("--text", "POLICY was"),
    "text=choose+account&worst=contains": ("--text", "choose account", "--worst", "contains"),
    "only=q2": ("--case", "q2"),
}


def test_the_report_has_the_same_view_and_needs_no_server(site: Site, outputs_project: Project, tmp_path: Path) -> None:
    with reported(site, outputs_project, "helpdesk", tmp_path) as (page, address):
        for view, options in VIEWS.items():
            page.goto("about:blank")
            page.goto(f"{address}#?rows=0-2&{view}")
            page.locator(".outputs .figures").first.wait_for()
            rows = ("--row", "0", "--row", "2")
            outputs = outputs_project.inside("show", "helpdesk", "--outputs", *rows, *options, "--format", "json").json
            page.get_by_text(f"{outputs['total']} case{'s' if outputs['total'] > 1 else ''}", exact=True).wait_for()
            names = shown_cases(page)
            assert names == [case["case"] for case in outputs["cases"]][: len(names)], view
        page.goto("about:blank")
        page.goto(f"{address}#?rows=0-2&only=hostile&open=1")
        page.get_by_role("dialog").get_by_text("<script>window.ran=1</script>").first.wait_for()
        assert page.get_by_role("dialog").locator("img").count() == 0
        assert not page.evaluate("window.ran")


def test_a_report_of_more_cells_than_a_file_should_have_leaves_outputs_out() -> None:
    def ask(**options: Any) -> Any:
        assert options == {"limit": 1}, "nothing else is read"
        return {"combinations": 11, "total": 100}

    assert small_outputs(ask) is None


@pytest.mark.parametrize(("length", "is_kept"), [(1_000_000, True), (2_000_000, False)])
def test_a_report_of_longer_outputs_than_a_file_should_have_leaves_them_out(length: int, is_kept: bool) -> None:
    def ask(**_: Any) -> Any:
        return {"combinations": 2, "total": 4, "cases": ["x" * length]}

    assert (small_outputs(ask) is not None) == is_kept


def test_every_module_of_the_pages_can_stand_in_one_script() -> None:
    script = bundle("main.js")
    bundle("report.js")
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    assert script.count("const m_lib_html = ") == 1


def test_a_key_writes_a_comment_and_its_author_deletes_it(site: Site, outputs_project: Project, tmp_path: Path) -> None:
    page = opened(site, "&rows=0-2")
    page.get_by_role("grid").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("m")
    page.wait_for_url("**open=comment*")
    field = page.get_by_role("dialog").get_by_label("Comment")
    field.wait_for()
    wait_until(page, "document.activeElement.tagName === 'TEXTAREA'")
    page.keyboard.type("jk: <b>right</b>, but \u202erude")
    site.check_readable(page)
    page.keyboard.press("Control+Enter")
    written = page.get_by_role("dialog").get_by_role("list", name="Comments")
    written.get_by_text("jk: <b>right</b>, but ").wait_for()
    assert "\u202e" not in written.inner_text()
    site.check_readable(page)
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    page.locator("#cell-0-1 .comments").get_by_text("<b>right</b>").wait_for()
    take_picture(page)
    (comment,) = outputs_project.inside("comment", "list", "helpdesk", "q0", "--format", "json").json["comments"]
    assert (comment["case"], comment["row"], comment["repeat"]) == ("q0", 2, 0)
    outputs_project.inside("report", "helpdesk", "-o", tmp_path / "report.html", check=0)
    report = site.browser.new_page()
    report.goto(f"{(tmp_path / 'report.html').as_uri()}#?rows=0-2&only=q0&open=1&at=0.1")
    report.get_by_role("dialog").get_by_text("<b>right</b>").wait_for()
    assert report.get_by_role("dialog").get_by_role("button", name="Comment").count() == 0
    report.close()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Delete the comment by").click()
    page.get_by_role("dialog").get_by_text("<b>right</b>").wait_for(state="hidden")
    assert outputs_project.inside("comment", "list", "helpdesk").stdout == "no comments\n"


def test_reasons_of_scores_stand_beside_them(site: Site) -> None:
    page = opened(site, "&rows=0-2&only=q0")
    assert "contains: 'Choose Billing' is not in answer" in cell(page, 0, 0)
    page.locator("#cell-0-0").dblclick()
    page.get_by_role("dialog").get_by_text("contains: 'Choose Billing' is not in answer").wait_for()
    site.check_readable(page)
    page.goto(page.url.replace("open=1", ""))


def test_cells_show_plain_text_while_they_fly_past_and_are_formatted_then(site: Site) -> None:
    """Formatting takes ten times as long as a glimpse; nothing is left as one once scrolling ends."""
    page = opened(site, "&rows=0-1-2-3")
    wait_until(page, "!document.querySelector('.outputs .glimpse')")
    seen = page.evaluate(
        """async () => {
          const view = document.querySelector(".outputs"), seen = [];
          for (let step = 1; step < 40; step++) {
            view.scrollTop = step * 300;
            view.scrollLeft = (step % 7) * 150;
            await new Promise(requestAnimationFrame);
            const { top, bottom } = view.getBoundingClientRect();
            for (const cell of view.querySelectorAll(".cell")) {
              const box = cell.getBoundingClientRect();
              const glimpse = cell.querySelector(".glimpse");
              if (glimpse && box.bottom > top && box.top < bottom) seen.push(glimpse.textContent);
            }
          }
          return seen;
        }"""
    )
    assert any("answers in a `polite` style" in text for text in seen), "text as the model wrote it"
    assert not any("\u202e" in text or "\x1b" in text for text in seen)
    cells = "[...document.querySelectorAll('.outputs .cell, .outputs .case')]"
    wait_until(page, f"() => {cells}.every((one) => one.querySelector('.markdown'))")
    assert not page.locator(".outputs .glimpse").count()
    page.evaluate("document.querySelector('.outputs').scrollTop -= 250")  # one step is no flight
    wait_until(page, f"() => {cells}.every((one) => one.querySelector('.markdown'))")
