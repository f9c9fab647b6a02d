"""The pictures of the pages: the report that `make demo` left, and diagrams in Mermaid's notation (`make pictures`).

Diagrams are kept as SVG, since code hosts, the site and package indexes all show that, and none has to load a library.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

from playwright.sync_api import Browser

from tests.support.browser import started

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "out" / "demo" / "report.html"
PICTURE = ROOT / "docs" / "report.png"
SIZE = {"width": 1040, "height": 1120}
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


def main() -> None:
    with started() as browser:
        draw_diagrams(browser)
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(REPORT.as_uri())
        page.screenshot(path=PICTURE)


if __name__ == "__main__":
    main()
