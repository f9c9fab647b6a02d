"""The browser that looks at pages: a Chromium of this machine, headless and without a message to anybody."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PATIENCE_MS = 120_000  # with what a page is to show, on a machine that does other things too
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def executable() -> str | None:
    """Return the path of the browser; None if there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def started() -> Iterator[Browser]:
    """The browser, for as long as it is needed."""
    from playwright.sync_api import sync_playwright  # heavy, and every process of the tests reads this module

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=list(_OPTIONS))
        yield browser
        browser.close()
