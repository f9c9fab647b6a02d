"""Figures over all cells of a row on the page of a sweep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.hosting.pages.site import Site, served
from tests.support.project import Project
from tests.support.tickets import FIGURES, expected, written

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def serving(shared_project: Project, browser: Browser) -> Iterator[Site]:
    written(shared_project)
    shared_project.inside("run", "sweep.yaml", "--quiet", check=0)
    with served(shared_project, browser) as site:
        yield site


def test_the_page_of_a_sweep_has_them_by_row(site: Site, shared_project: Project) -> None:
    ((sweep,),) = shared_project.query("SELECT id FROM sweeps")
    page = site.open(f"/sweeps/{sweep}")
    page.locator("main table").first.locator("tbody tr").nth(1).wait_for()
    text = " ".join(page.locator("main").inner_text().split())
    for every in (4, 8):
        assert f"{expected(every)['macro_f1']:.3f}" in text
    for figures in FIGURES:
        assert next(iter(figures)) in text
