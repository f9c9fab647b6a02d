"""The tree of a sweep with 10,000 and with 100,000 prefixes: its first draw, and frames during a zoom.

The server's report of a small sweep is answered with a larger tree in it, so the page is real and the data is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.pages.site import DRAWN, P95, site
from benchmarks.workloads.chain import workflow
from wtb import Sweep
from wtb.display.report.sweep_evidence import MAX_PREFIXES
from wtb.store.database import Database

if TYPE_CHECKING:
    from playwright.sync_api import Route

# Whoever looks at it by keyboard: a key each frame, of which three in eight zoom.
FRAMES = (
    """
async () => {
  const keys = ["ArrowDown", "End", "Enter", "ArrowUp", "ArrowRight", "+", "Home", "0"];
  document.querySelector(".icicle [role=treeitem]").focus();
  const frames = [], start = performance.now();
  for (let last = start, turn = 0; last - start < 5000; turn++) {
    const key = keys[turn % keys.length];
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - last);
    last = now;
  }
  return ["""
    + P95
    + ", frames.length];\n}\n"
)


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    url = environment.fresh("sqlite")
    database = Database(url)
    swept = Sweep(workflow=workflow(), cases=[{"id": "a", "input": {"x": 1}}], vary={"A": "all"}).run(
        database, files=environment.folder / "tree"
    )
    database.close()
    with site(url) as seen:
        report = seen.page().context.request.get(f"{seen.address}/api/v1/sweeps/{swept.id}/report").json()
        for sizes in ((10, 9, 10, 10), (10, 10, 10, 100)):
            nodes = sum(len(list(product(*map(range, sizes[: depth + 1])))) for depth in range(len(sizes)))
            document = json.dumps({**report, **grown(sizes)})
            drawn, frames, box_counts, each = [], [], [], []
            for _ in range(runs):
                page = seen.page()

                page.route("**/report", partial(_fulfil, document))
                page.goto(f"{seen.address}/sweeps/{swept.id}?tab=tree")
                drawn.append(page.evaluate(DRAWN, [".icicle [role=treeitem]", "/report"]))
                box_counts.append(page.evaluate("performance.getEntriesByName('tree')[0].detail"))
                before = seen.browser_s()
                p95, count = page.evaluate(FRAMES)
                frames.append(p95)
                each.append(1000 * (seen.browser_s() - before) / count)
                page.context.close()
            yield of_rounds(f"tree of {nodes:,} prefixes: first draw from the arrival of data", drawn, "ms", 150)
            yield of_rounds(f"tree of {nodes:,} prefixes: frames of 5 s of zooming, p95", frames, "ms", 20)
            yield of_rounds(f"tree of {nodes:,} prefixes: processor time of the browser a frame", each, "ms")
            yield of_rounds(f"tree of {nodes:,} prefixes: boxes that are seen", box_counts, "", 5_000)


def _fulfil(document: str, route: Route) -> None:
    route.fulfill(body=document, content_type="application/json")


def grown(sizes: tuple[int, ...]) -> dict[str, Any]:
    """Return the rows and the tree of a sweep with these numbers of variants."""
    names = "ABCD"[: len(sizes)]
    combinations = list(product(*map(range, sizes)))
    counts = {"executed": 1, "unshared": 1, "failed": 0, "seconds": 1.0, "usd": 0.0}
    levels: list[dict[str, Any]] = []
    folded = []
    for depth, name in enumerate(names):
        numbers_by_prefix: dict[tuple[int, ...], list[int]] = {}
        for number, choice in enumerate(combinations):
            numbers_by_prefix.setdefault(choice[: depth + 1], []).append(number)
        if sum(len(level["prefixes"]) for level in levels) + len(numbers_by_prefix) > MAX_PREFIXES:
            folded.append({"node": name, "prefixes": len(numbers_by_prefix)})
            continue
        prefixes = [
            {"combinations": its, "variant": f"v{choice[-1]}", **counts} for choice, its in numbers_by_prefix.items()
        ]
        levels.append({"node": name, "prefixes": prefixes})
    rows = [
        {"combination": dict(zip(names, map("v{}".format, levels), strict=True)), "metrics": {}}
        for levels in combinations
    ]
    nodes = [{"node": name, "variants": [], **counts} for name in names]
    tree = {"nodes": nodes, "levels": levels, "folded": folded, "because": None}
    return {"tree": tree, "matrix": {"rows": rows, "metrics": {}, "best": {}, "primary": None}}
