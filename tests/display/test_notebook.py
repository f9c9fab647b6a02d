"""Results in notebooks are complete and escaped, fetch nothing, and are readable in dark and light themes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser import executable, started
from wtb import Context, Sweep, SweepHandle, Workflow
from wtb.handles.start import start
from wtb.store.database import Database

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = "</style><script>alert(1)</script>"


def workflow() -> Workflow:
    wf = Workflow("notes")

    @wf.node
    def look(state: dict[str, Any], ctx: Context, *, by: float = 0.0) -> dict[str, Any]:
        if state["x"] == 3 and by:
            raise ValueError("nothing found")
        ctx.cost(usd=0.5, tokens_in=7, tokens_out=2)
        return {"found": state["x"] + by, "case": f"{HOSTILE} {state['x']}"}

    look.variant(HOSTILE, by=0.5)
    wf.entry(look)
    return wf


def much(case: Any, result: Any) -> float:
    return float(result.state["found"])


def ran(database: Database, evaluate: list[Any]) -> SweepHandle:
    cases = [
        {"id": f"c{n}", "input": {"x": n}, "expected": {"y": n}, "tags": ["odd"] if n % 2 else []} for n in range(8)
    ]
    options: dict[str, Any] = {"baseline": {"look": "default"}, "run": {"pool": "thread"}}
    return Sweep(workflow=workflow(), cases=cases, vary={"look": "all"}, evaluate=evaluate, **options).run(database)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    memory = Database("sqlite:///:memory:")
    memory.prepare()
    yield memory
    memory.close()


@pytest.fixture(scope="module")
def handle(database: Database) -> SweepHandle:
    return ran(database, [much, "cost", "latency"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if executable() is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no Chromium to look at it with: `make chromium`")
    with started() as chromium:
        yield chromium


def notebook(browser: Browser, html: str, paper: str, ink: str) -> Page:
    """A page that shows the HTML as a notebook does, in the colours of its theme."""
    page = browser.new_page()
    page.set_content(f'<body style="background:{paper};color:{ink};font:14px sans-serif">{html}</body>')
    return page


@pytest.mark.parametrize(
    ("paper", "ink"), [("rgb(255, 255, 255)", "rgb(0, 0, 0)"), ("rgb(17, 17, 17)", "rgb(238, 238, 238)")]
)
def test_a_result_is_its_matrix_with_intervals_in_any_theme(
    browser: Browser, handle: SweepHandle, paper: str, ink: str
) -> None:
    page = notebook(browser, handle._repr_html_(), paper, ink)
    text = page.locator(".wtb").inner_text()
    assert "95% interval" in text
    assert "Cells: 15 of 16 succeeded, 1 failed." in text
    assert page.locator(".wtb table").count() == 3
    assert page.locator(".wtb td:has-text('script')").count() == 3, "a name is shown as it is"
    assert page.evaluate("document.scripts.length") == 0
    colours = page.evaluate(
        """[...document.querySelectorAll('.wtb :is(td, th, p, h2, h4)')].map(e => getComputedStyle(e).color)"""
    )
    assert set(colours) == {ink}
    papers = page.evaluate("[...document.querySelectorAll('.wtb td')].map(e => getComputedStyle(e).backgroundColor)")
    assert all(re.search(r"/ 0\.\d+\)|, 0\)|none", colour) for colour in papers), (
        "nothing covers the paper of the notebook"
    )
    page.close()


def test_what_is_shown_needs_nothing_from_elsewhere(handle: SweepHandle) -> None:
    html = handle._repr_html_()
    assert not re.search(r"<script|https?:|url\(|@import|<link|<img", html)
    assert "<html" not in html


def test_a_single_execution_is_its_steps_and_its_state(browser: Browser, database: Database) -> None:
    run = start(workflow(), {"x": 3}, variants={"look": HOSTILE}, db=database)
    run.wait()
    page = notebook(browser, run._repr_html_(), "white", "black")
    text = page.locator(".wtb").inner_text()
    assert "failed" in text
    assert "nothing found" in text
    assert f"look={HOSTILE}" in text
    assert page.evaluate("document.scripts.length") == 0
    page.close()


def test_cost_is_shown_once(handle: SweepHandle, database: Database) -> None:
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", handle._repr_html_())
    assert "cost" not in heads
    (head, _) = re.findall(r"(?m)^.*\n──", str(handle)[: str(handle).rindex("──")])[0].split("\n")
    assert [name for name in head.split() if name.startswith("cost")] == ["cost↓"]
    frame = handle.to_pandas()
    assert [name for name in frame.columns if "cost" in name] == ["cost"]
    other = ran(database, [much])
    assert ">cost</th>" in other._repr_html_()
    assert [name for name in other.to_pandas().columns if "cost" in name] == ["cost_usd"]


def test_a_data_frame_has_all_that_is_known_of_a_cell(handle: SweepHandle) -> None:
    import pandas  # by this test alone: it takes as long as all that other tests here import

    frame = handle.to_pandas(state=["found", "case", "nothing"])
    assert list(frame.columns) == [
        *("look", "case", "repeat", "tags", "expected", "status", "error", "execution"),
        *("much", "cost", "latency", "much.counted", "tokens_in", "tokens_out", "found", "state.case", "nothing"),
    ]
    (failed,) = frame[frame["status"] == "failed"].to_dict("records")
    assert failed["case"] == "c3"
    assert "nothing found" in failed["error"]
    assert failed["tags"] == ["odd"]
    assert failed["expected"] == {"y": 3}
    well = frame[frame["status"] == "succeeded"]
    assert well["error"].isna().all()
    assert set(well["tokens_in"]) == {7}
    assert (well["latency"] > 0).all()
    assert set(well["found"]) == {n + by for n in range(8) for by in (0, 0.5)} - {3.5}
    assert well["state.case"].str.startswith(HOSTILE).all()
    assert well["nothing"].isna().all()
    assert frame["execution"].nunique() == 16
    assert isinstance(frame, pandas.DataFrame)
