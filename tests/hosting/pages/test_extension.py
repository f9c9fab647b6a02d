"""The form that extends a sweep, in a real browser: files of cases, repeats, levels, and copies of baselines."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from openpyxl import Workbook

from tests.hosting.client.sending import SWEEP, Sending, submitted
from tests.hosting.pages.site import Site, take_picture

if TYPE_CHECKING:
    from playwright.sync_api import Page

GRID = {**SWEEP, "vary": {"B": {"by": [1, 2]}}}


def opened(site: Site, sweep: str, **how: Any) -> tuple[Page, Any]:
    page = site.open(f"/sweeps/{sweep}", **how)
    page.get_by_text("Extend", exact=True).click()
    return page, page.locator("details.extension")


def choose(form: Any, name: str, content: bytes) -> None:
    form.get_by_label("Choose a file").set_input_files({"name": name, "mimeType": "text/plain", "buffer": content})


def cells(sending: Sending, sweep: str) -> dict[str, int]:
    counts: dict[str, int] = sending.wtb("show", sweep, "--format", "json").json["cells"]
    return counts


def book() -> bytes:
    workbook, content = Workbook(), BytesIO()
    for row in (["id", "x"], ["d", 7], ["e", 8]):
        workbook.active.append(row)
    workbook.save(content)
    return content.getvalue()


def test_a_table_levels_and_repeats_are_planned_and_added(sending: Sending, site: Site) -> None:
    sweep = submitted(sending, {**GRID, "sweep": "wider"})
    page, form = opened(site, sweep)
    choose(form, "more.csv", b"Id,Amount\na,1\nc,3\n")
    form.get_by_label("Column Amount is read as").select_option("x")
    form.get_by_role("alert").get_by_text("case 'a' is in the sweep with another input 'x'").wait_for()
    choose(form, "more.csv", b"Id,Amount\nc,3\nd,4\n")
    form.get_by_label("Column Amount is read as").select_option("x")
    form.get_by_text("2 new cases.").wait_for()
    form.get_by_role("button", name="Add 4 cells").wait_for()
    form.get_by_label("More of B.by").fill("5\n7")
    form.get_by_text("B.by=5").wait_for()
    form.get_by_label("Repeats in all").fill("2")
    form.get_by_role("button", name=f"Add {4 * 4 * 2 - 2 * 2} cells").wait_for()
    site.check_readable(page)
    take_picture(page)
    form.get_by_role("button", name="Add 28 cells").click()
    form.get_by_text("new cells").wait_for(state="detached")
    sending.cluster.wait_completed(sweep)
    after = cells(sending, sweep)
    assert (after["total"], after["succeeded"]) == (32, 16), "values of tables are text, so these nodes fail"
    rows = sending.wtb("matrix", sweep, "--format", "json").json["rows"]
    assert [row["levels"]["B.by"] for row in rows] == ["1", "2", "5", "7"]


def test_a_workbook_is_read_and_a_picture_is_not(sending: Sending, site: Site) -> None:
    sweep = submitted(sending, {**GRID, "sweep": "sheet"})
    page, form = opened(site, sweep, width=390)
    for name in ("chart.png", "cases.pdf"):
        choose(form, name, b"\x89PNG\r\n\x1a\n")
        form.get_by_role("alert").get_by_text(
            f"{name} is no file of cases; expected a name that ends with .csv"
        ).wait_for()
    choose(form, "chart.csv", b"\x89PNG\r\n\x1a\n\x00\x00\x00")
    form.get_by_role("alert").get_by_text("chart.csv").wait_for()
    choose(form, "more.xlsx", book())
    form.get_by_role("button", name="Add 4 cells").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    take_picture(page)
    form.get_by_role("button", name="Add 4 cells").click()
    form.get_by_text("new cells").wait_for(state="detached")
    sending.cluster.wait_completed(sweep)
    assert cells(sending, sweep)["total"] == 8


def test_a_baseline_is_extended_as_a_copy_to_which_the_page_leads(sending: Sending, site: Site) -> None:
    sweep = submitted(sending, {**GRID, "sweep": "reference"})
    sending.wtb("baseline", "set", "main", sweep)
    page, form = opened(site, sweep, dark=True)
    form.get_by_label("Repeats in all").fill("2")
    form.get_by_role("alert").get_by_text("is the baseline 'main'").wait_for()
    form.get_by_label("Name of a copy").fill("reference-2")
    form.get_by_role("button", name="Copy, and add 4 cells").wait_for()
    site.check_readable(page)
    take_picture(page)
    form.get_by_role("button", name="Copy, and add 4 cells").click()
    page.get_by_role("heading", name="reference-2").wait_for()
    copy = page.url.rpartition("/")[2]
    sending.cluster.wait_completed(copy)
    assert (cells(sending, sweep)["total"], cells(sending, copy)["succeeded"]) == (4, 8)
