"""The first page, a heat map of 64 combinations x 1,000 cases, frames while it is panned and zoomed, and all files."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.embedded.evidence import CASES, quality
from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.pages.site import MARKED, frames_of, site
from benchmarks.workloads.chain import STEPS, workflow
from wtb import Sweep
from wtb.hosting.api.web_pages import served_files
from wtb.store.database import Database

LARGEST = 500_000  # bytes that a browser loads in all

FRAMES = frames_of(
    'const canvas = document.querySelector(".canvas"), box = canvas.getBoundingClientRect();',
    """
    const wheel = { ctrlKey: true, deltaY: at < 0.5 ? -12 : 12, clientX: box.left + box.width / 2, bubbles: true };
    canvas.dispatchEvent(new WheelEvent("wheel", { ...wheel, cancelable: true }));
    const [movementX, movementY] = [12 * Math.sin(20 * at), 4 * Math.cos(9 * at)].map(Math.round);
    canvas.dispatchEvent(new PointerEvent("pointermove", { buttons: 1, movementX, movementY, bubbles: true }));
    """,
)
FIRST_PAGE = """
async () => {
  while (!document.querySelector("main h1")) await new Promise(requestAnimationFrame);
  return performance.now();
}
"""


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    url = environment.fresh("sqlite")
    database = Database(url)
    swept = Sweep(
        workflow=workflow(),
        cases=[{"id": str(number), "input": {"x": number}} for number in range(CASES)],
        vary=dict.fromkeys(STEPS, "all"),
        evaluate=[quality],
    ).run(database, files=environment.folder / "pages")
    database.close()
    with site(url) as seen:
        first = [seen.open("/").evaluate(FIRST_PAGE) for _ in range(runs)]
        drawn, frames = [], []
        for _ in range(runs):
            page = seen.open(f"/sweeps/{swept.id}")
            drawn.append(page.evaluate(MARKED, ["heat-map", "/columns"]))
            frames.append(page.evaluate(FRAMES))
            page.context.close()
    what = f"64 x {CASES:,} cells"
    yield of_rounds("first page", first, "ms", 1_000)
    yield of_rounds(f"{what}: first draw from the arrival of data", drawn, "ms", 100)
    yield of_rounds(f"{what}: frames of 5 s of panning and zooming, p95", frames, "ms", 20)
    size = sum(map(len, served_files().values()))
    yield of_rounds("all files of the pages", [size / 1000], "kB", LARGEST / 1000)
