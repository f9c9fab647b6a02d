"""The browser of a module's tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.hosting.client.sending import Sending
from tests.hosting.pages.site import Site
from tests.support.browser import executable, started

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert executable(), "there is no Chromium: `make chromium` installs one"
    with started() as browser:
        yield browser


@pytest.fixture(scope="module")
def serving(sending: Sending, browser: Browser) -> Site:
    """The site of the server that sweeps are sent to, unless a module serves something else."""
    return Site(sending.server, browser)


@pytest.fixture
def site(serving: Site) -> Iterator[Site]:
    """The site of the module; each test leaves it without a fault."""
    serving.faults.clear()
    yield serving
    serving.close()
    assert not serving.faults
