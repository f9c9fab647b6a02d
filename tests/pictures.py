"""The pictures of the docs (`make pictures`): pages of a help desk's sweep, the report and the tree of what `make demo`
left, and diagrams. `python -m tests.pictures pages` takes a part: `diagrams`, `pages` or `demo`.

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page

from tests.support import helpdesk
from tests.support.browser import started

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "out" / "demo" / "report.html"
PICTURE = ROOT / "docs" / "report.png"
SIZE = {"width": 1040, "height": 1120}
SIZE_OF_PAGES = {"width": 1280, "height": 900}
TOKEN = "of-the-pictures-alone"
PLANNED_MS = 5_000  # until what is filled into a form is planned
LEVELS = {"model": "small\nmedium\nlarge", "temperature": "0\n0.7"}  # of the form of a new sweep
DIAGRAMS = ROOT / "docs" / "pictures"
MERMAID = "mermaid@11.16.0"
STYLE = {"startOnLoad": False, "theme": "neutral", "htmlLabels": False, "fontFamily": "sans-serif"}
DRAW = "async ([id, text, style]) => { mermaid.initialize(style); return (await mermaid.render(id, text)).svg }"


def source_mark(source: str) -> str:
    """Return the last line of a diagram's picture, which tests compare with the present source."""
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
def serving(folder: Path, environment: Mapping[str, str] = os.environ) -> Iterator[str]:
    """The address of a server of what a folder has."""
    command = [sys.executable, "-m", "wtb", "serve", "--run", "--port", "0"]
    variables = {**environment, "WTB_SERVER_TOKEN": TOKEN}
    with subprocess.Popen(command, cwd=folder, env=variables, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield next(match[1] for line in server.stderr if (match := re.search(r"at (http://\S+)/api/v1", line)))
        finally:
            server.terminate()


def sign_in(browser: Browser, address: str) -> Page:
    context = browser.new_context(viewport=SIZE_OF_PAGES, color_scheme="light")
    assert context.request.post(f"{address}/api/v1/sign-in", data={"token": TOKEN}).ok
    return context.new_page()


def look(page: Page, address: str) -> None:
    """Open a page, and wait until all of it is there."""
    page.goto(address)
    page.locator("main h1").first.wait_for()
    settle(page)


def settle(page: Page) -> None:
    page.get_by_text("Loading").first.wait_for(state="hidden")
    page.wait_for_load_state("networkidle")
    page.mouse.move(0, 0)


def take(page: Page, name: str, locator: Locator | None = None) -> None:
    """Keep what is seen, or an element of it."""
    (locator or page).screenshot(path=DIAGRAMS / f"page-{name}.png")


def take_help_desk(browser: Browser) -> None:
    """Take pictures of the pages of a help desk's sweep."""
    with tempfile.TemporaryDirectory() as name, helpdesk.models() as provider:
        folder, environment = Path(name), {**os.environ, "MODELS_URL": provider.url}
        helpdesk.write(folder)
        helpdesk.play(folder, lambda *args: _run(folder, environment, *args))
        with serving(folder, environment) as address:
            page = sign_in(browser, address)
            look(page, f"{address}/sweeps/helpdesk")
            take(page, "sweep")
            take(page, "decision", page.get_by_role("region", name="The decision"))
            look(page, f"{address}/sweeps/helpdesk?tab=outputs&rows=14-12-8&differ=14-12&against=14")
            page.locator(".outputs .figures").first.wait_for()
            page.locator("nav.tabs").evaluate("tabs => tabs.scrollIntoView()")
            take(page, "outputs")
            look(page, f"{address}/sweeps/helpdesk?tab=effects")
            take(page, "effects", page.locator("main section").filter(has_text="Each factor by itself").last)
            look(page, f"{address}/sweeps/nightly")
            take(page, "nightly", page.get_by_role("region", name="The decision"))
            take_extension(page, f"{address}/sweeps/helpdesk", folder / "more.csv")
            take_new_sweep(page, f"{address}/submit?workflow=helpdesk", folder / "tickets.csv")


def take_extension(page: Page, address: str, cases: Path) -> None:
    """Take a picture of the form that adds cases, filled in."""
    look(page, address)
    page.locator("details.extension > summary").click()
    page.locator("details.extension input[type=file]").set_input_files(cases)
    settle(page)
    page.wait_for_timeout(PLANNED_MS)
    take(page, "extend", page.locator("details.extension"))


def take_new_sweep(page: Page, address: str, cases: Path) -> None:
    """Take a picture of the form of a new sweep, with factors."""
    look(page, address)
    page.locator("input[type=file]").set_input_files(cases)
    for parameter in page.locator(".parameter").all():
        name = parameter.locator("code").inner_text()
        if name in LEVELS:
            parameter.get_by_role("button", name="Vary").click()
            parameter.locator("textarea").fill(LEVELS[name])
    settle(page)
    page.wait_for_timeout(PLANNED_MS)
    page.screenshot(path=DIAGRAMS / "page-new-sweep.png", full_page=True)


def _run(folder: Path, environment: Mapping[str, str], *args: str) -> None:
    command = [sys.executable, "-m", "wtb", *args]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False)
    assert done.returncode in (0, 1), f"wtb {args[0]} exited with {done.returncode}"


def take_demo(browser: Browser) -> None:
    """Take pictures of what `make demo` left: its report, and the tree of its sweep."""
    sweep = json.loads((REPORT.parent / "matrix.json").read_text("utf-8"))["sweep"]["id"]
    with serving(ROOT) as address:
        page = sign_in(browser, address)
        look(page, f"{address}/sweeps/{sweep}?tab=tree")
        page.get_by_role("treeitem").first.click()
        take(page, "tree")
    page = browser.new_page(viewport=SIZE, color_scheme="light")
    page.goto(REPORT.as_uri())
    page.screenshot(path=PICTURE)


PARTS = {"diagrams": draw_diagrams, "pages": take_help_desk, "demo": take_demo}


def main() -> None:
    with started() as browser:
        for part in sys.argv[1:] or PARTS:
            PARTS[part](browser)


if __name__ == "__main__":
    main()
