"""The report in a browser: opened from disk, where nothing may go wrong and nothing be fetched."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser import executable, started

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Look = Callable[..., "Page"]


@pytest.fixture(scope="module")
def report_browser() -> Iterator[Browser]:
    """A browser; without one the test is skipped, unless CI runs it."""
    if executable() is None:
        end = pytest.fail if os.environ.get("CI") else pytest.skip
        end("no Chromium to look at the report with: `make chromium`")
    with started() as browser:
        yield browser


@pytest.fixture
def look(report_browser: Browser) -> Iterator[Look]:
    """Open pages; at the end, nothing may have gone wrong in them, and nothing been fetched."""
    wrong: list[str] = []
    contexts = []

    def opened(url: str, width: int = 1280, **options: Any) -> Page:
        context = report_browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: wrong.append(request.url) if not request.url.startswith(("file:", "data:")) else None,
        )
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong


def too_wide(page: Page) -> list[str]:
    """Return the texts that reach beyond the page, or beyond a box that does not scroll."""
    texts: list[str] = page.evaluate(
        """() => {
          const beyond = (e) => e.getBoundingClientRect().right > innerWidth + 1;
          const told = (e) => `${e.tagName}: ${e.textContent.slice(0, 60)}`;
          const labels = [...document.querySelectorAll("h1, h2, h3, h4, .took li, p, dd, li, summary")];
          const cut = [...document.querySelectorAll("h1, h2, .took li, dd")]
            .filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth);
          const page = document.documentElement.scrollWidth > innerWidth ? ["the page"] : [];
          const isBoxed = (e) => e.closest(".scroll, .outputs, .seen-only-by-readers");
          const wrong = [...labels.filter(beyond), ...cut].filter((e) => !isBoxed(e));
          return [...page, ...wrong.map(told)];
        }"""
    )
    return texts
