"""The pictures of the README, from what `make demo` left: `make pictures`."""

from __future__ import annotations

from pathlib import Path

from tests.support.browser import started

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "out" / "demo" / "report.html"
PICTURE = ROOT / "docs" / "report.png"
SIZE = {"width": 1040, "height": 1120}


def main() -> None:
    with started() as browser:
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(REPORT.as_uri())
        page.screenshot(path=PICTURE)


if __name__ == "__main__":
    main()
