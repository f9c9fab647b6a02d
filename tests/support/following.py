"""A browser that does what a numbered list of the documentation says.

In bold is what one acts on, by the name that the page gives it: a link, a button or a step is pressed, a cell of a heat
map is opened, and what has only a text must come to be seen. `**Name**: `value`` fills a field, or chooses in it.
"""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.browser import PATIENCE_MS, started

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

_ACTED_ON = re.compile(r"\*\*(.+?)\*\*(?:: `([^`]+)`)?")
FIGURES_MS = 8_000  # until those of the last outcome are there


def follow(steps: str, address: str, secrets: dict[str, str], picture: Path | None = None, seen: Any = None) -> Any:
    """Do what steps say, from the page at an address on. Returns where that led: an address, and what a browser keeps.

    secrets: what stands for what is only known when it is run. picture: where one of the last page is kept. seen: what
    a browser kept that was there before.
    """
    from playwright.sync_api import TimeoutError

    with started() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 700}, storage_state=seen)
        page.set_default_timeout(PATIENCE_MS)
        page.goto(address)
        for name, value in _ACTED_ON.findall(steps):
            try:
                if value:
                    _put(page.get_by_label(name).filter(visible=True).first, secrets.get(value, value))
                else:
                    _press(page, name)
            except TimeoutError as error:
                raise AssertionError(f"there is no {name!r} at {page.url}:\n{page.inner_text('body')}") from error
        if picture is not None:
            page.wait_for_timeout(FIGURES_MS)
            page.screenshot(path=picture)
        return page.url, page.context.storage_state()


def _put(control: Locator, value: str) -> None:
    control.wait_for()
    if control.evaluate("one => one.tagName") == "SELECT":
        control.select_option(value)
    else:
        control.fill(value)


def _press(page: Page, name: str) -> None:
    kinds = (
        page.get_by_role("link", name=name, exact=True),
        page.get_by_role("button", name=name, exact=True),
        page.locator("summary").filter(has=page.get_by_text(name, exact=True)),
        page.get_by_role("grid", name=name),
        page.get_by_text(name, exact=True),
    )
    visible = [kind.filter(visible=True) for kind in kinds]
    reduce(lambda first, other: first.or_(other), visible).first.wait_for()
    page.get_by_text("Loading").filter(visible=True).first.wait_for(state="hidden")  # a heading comes before its grid
    control = next(kind.first for kind in visible if kind.count())
    if control.get_attribute("role") == "grid":
        control.press("Enter")
        page.wait_for_url("**/executions/*")
    else:
        control.click()
