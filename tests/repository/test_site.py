"""The site of the pages: built without a warning, complete, readable on a phone, with nothing from elsewhere.

`make docs` runs the tests that need a build, and CI runs it before `make test`.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.pictures import DIAGRAMS, source_mark
from tests.repository.test_public import PUBLIC
from tests.support.browser import started
from tests.support.project import run_program

ROOT = Path(__file__).parents[2]
PAGES = ["index", "docs/workers", "docs/results", "docs/reference/wtb", "ARCHITECTURE"]
LOADED = re.compile(r'<(?:script|img|iframe|source)\b[^>]*?\bsrc="([^"]+)"|<link\b[^>]*?\bhref="([^"]+)"')


def build(source: Path, out: Path) -> CompletedProcess[str]:
    """Run Sphinx as `make docs` does."""
    options = ["--quiet", "--fail-on-warning", "--keep-going", "-c", str(ROOT / "docs"), "-d", str(out / "trees")]
    command = [sys.executable, "-m", "sphinx", *options, str(source), str(out / "site")]
    return run_program(command)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site that `make docs` has just built (it sets SITE), or one built now."""
    if built_already := os.environ.get("SITE"):
        return ROOT / built_already
    out = tmp_path_factory.mktemp("docs")
    built = build(ROOT, out)
    assert (built.returncode, built.stderr) == (0, "")
    return out / "site"


def texts(site: Path, pattern: str) -> list[str]:
    return [file.read_text("utf-8") for file in site.rglob(pattern)]


@pytest.mark.slow
def test_every_page_is_there_and_can_be_reached(site: Path) -> None:
    """A page in no list of the navigation would be a warning."""
    docs = [f"docs/{page.stem}" for page in ROOT.glob("docs/*.md")]
    pages = ["README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", *docs]
    assert [page for page in pages if not (site / f"{page}.html").exists()] == []
    assert (site / "index.html").read_text("utf-8") == (site / "README.html").read_text("utf-8")


@pytest.mark.slow
def test_the_reference_has_every_public_name(site: Path) -> None:
    html = "".join(texts(site / "docs" / "reference", "*.html"))
    names = {f"{module}.{name}" for module, names in PUBLIC.items() for name in names}
    assert names - set(re.findall(r'<dt [^>]*id="([\w.]+)"', html)) == set()


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = {url for text in texts(site, "*.html") for groups in LOADED.findall(text) for url in groups}
    assert len(loaded) > 5
    assert [url for url in loaded if url.startswith(("http:", "https:", "//"))] == []
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", sheet.read_text("utf-8")), sheet.name


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280])
def test_pages_fit_and_ask_nobody_as_local_files(site: Path, width: int) -> None:
    with started() as browser:
        page = browser.new_page(viewport={"width": width, "height": 900})
        urls: list[str] = []
        page.on("request", lambda request: urls.append(request.url))
        for name in PAGES:
            page.goto((site / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    assert [url for url in urls if not url.startswith(("file:", "data:"))] == []


@pytest.mark.slow
def test_a_link_or_an_anchor_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Page\n\n[gone](docs/gone.md) and [no such](#heading)\n", "utf-8")
    built = build(tmp_path, tmp_path / "out")
    assert built.returncode == 1
    assert "'docs/gone.md' [myst.xref_missing]" in built.stderr
    assert "'heading' [myst.xref_missing]" in built.stderr


def test_diagrams_show_their_present_sources() -> None:
    sources = sorted(DIAGRAMS.glob("*.mmd"))
    assert len(sources) >= 4
    for source in sources:
        mark = source_mark(source.read_text("utf-8"))
        assert source.with_suffix(".svg").read_text("utf-8").endswith(f"{mark}\n"), f"{source.name}: run make pictures"
