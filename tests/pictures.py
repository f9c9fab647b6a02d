"""The pictures of the docs (`make pictures`): the report that `make demo` left, its sweep in a browser, and diagrams.

Diagrams are in Mermaid's notation and kept as SVG, since code hosts, the site and package indexes all show that, and
none has to load a library.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser

from tests.support.browser import started

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "out" / "demo" / "report.html"
PICTURE = ROOT / "docs" / "report.png"
SIZE = {"width": 1040, "height": 1120}
SIZE_OF_PAGES = {"width": 1280, "height": 900}
TOKEN = "of-the-pictures-alone"
PAGES = {
    "sweep": "/sweeps/{sweep}",
    "tree": "/sweeps/{sweep}?tab=tree",
}
DIAGRAMS = ROOT / "docs" / "pictures"
MERMAID = "mermaid@11.16.0"
STYLE = {"startOnLoad": False, "theme": "neutral", "htmlLabels": False, "fontFamily": "sans-serif"}
DRAW = "async ([id, text, style]) => { mermaid.initialize(style); return (await mermaid.render(id, text)).svg }"


def source_mark(source: str) -> str:
    """What the picture of a diagram ends with, so that a test sees whether it shows the present source."""
    return f"<!-- source: {hashlib.sha256(source.encode()).hexdigest()} -->"


def draw_diagrams(browser: Browser) -> None:
    """Draw the diagrams with Mermaid, which npm fetches."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", MERMAID], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (packed,) = Path(folder).glob("*.tgz")
        with tarfile.open(packed) as archive:
            library = archive.extractfile("package/dist/mermaid.min.js")
            assert library is not None
            script = library.read().decode()
    page = browser.new_page(color_scheme="light")
    page.add_script_tag(content=script)
    for file in sorted(DIAGRAMS.glob("*.mmd")):
        source = file.read_text("utf-8")
        drawn = page.evaluate(DRAW, [file.stem, source, STYLE]).replace('style="', 'style="background: white; ', 1)
        drawn = re.sub(r'width="100%"(.*?viewBox="0 0 ([\d.]+) ([\d.]+)")', r'width="\2" height="\3"\1', drawn, count=1)
        file.with_suffix(".svg").write_text(f"{drawn}\n{source_mark(source)}\n", "utf-8")


@contextmanager
def serving() -> Iterator[str]:
    """The address of a server of what `make demo` left."""
    command = [sys.executable, "-m", "wtb", "serve", "--port", "0"]
    given = {**os.environ, "WTB_SERVER_TOKEN": TOKEN}
    with subprocess.Popen(command, cwd=ROOT, env=given, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield next(found[1] for line in server.stderr if (found := re.search(r"at (http://\S+)/api/v1", line)))
        finally:
            server.terminate()


def take_pages(browser: Browser) -> None:
    """Take pictures of the pages of the demo's sweep."""
    sweep = json.loads((REPORT.parent / "matrix.json").read_text("utf-8"))["sweep"]["id"]
    with serving() as address:
        context = browser.new_context(viewport=SIZE_OF_PAGES, color_scheme="light")
        assert context.request.post(f"{address}/api/v1/sign-in", data={"token": TOKEN}).ok
        page = context.new_page()
        for name, path in PAGES.items():
            page.goto(address + path.format(sweep=sweep))
            page.locator("main h1").first.wait_for()
            page.get_by_text("Loading").first.wait_for(state="hidden")
            page.wait_for_load_state("networkidle")
            for prefix in page.get_by_role("treeitem").all()[:1]:
                prefix.click()
            page.screenshot(path=DIAGRAMS / f"page-{name}.png")


def main() -> None:
    with started() as browser:
        draw_diagrams(browser)
        take_pages(browser)
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(REPORT.as_uri())
        page.screenshot(path=PICTURE)


if __name__ == "__main__":
    main()
