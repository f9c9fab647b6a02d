"""Outputs of 64 combinations x 1,000 cases side by side: the operation, the first draw, frames, and a word diff."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from statistics import median

import sqlalchemy as sa

from benchmarks.embedded.evidence import CASES, quality
from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.pages.site import MARKED, frames_of, site
from benchmarks.workloads.chain import STEPS, workflow
from wtb import Sweep
from wtb.core.serialization.codec import digest, encode
from wtb.operations.context import Context
from wtb.operations.results.side_by_side import outputs
from wtb.store.bulk import insert_values
from wtb.store.database import Database
from wtb.store.tables.schema import checkpoints

TEXT = "the answer of a model with **marks**, a list:\n\n- one\n- two\n\nand `code` that people read"
WORDS = tuple(TEXT.split(" "))

VIEW = 'const view = document.querySelector(".outputs");'
FRAMES = frames_of(VIEW, "view.scrollTop = at * 20000; view.scrollLeft = 3000 * (1 + Math.sin(9 * at));")
READING = frames_of(VIEW, "view.scrollTop = at * 2500;")  # 500 pixels a second, so that all is formatted
# Plain text that stands where cells do, without a script, for as far as FRAMES scrolls: what the browser can do here.
STATIC = """
(text) => {
  const room = document.createElement("div"), view = document.createElement("div");
  [view.className, room.className] = ["outputs", "room"];
  room.style.cssText = "height: 210044px; width: 21000px";
  for (let row = 0; row < 101; row++) for (let column = 0; column < 22; column++) {
    const cell = document.createElement("div");
    cell.className = "cell";
    cell.style.cssText = `top: ${44 + 210 * row}px; height: 210px; left: ${340 + 318 * column}px; width: 318px`;
    cell.textContent = text.slice((row + column) % 40);
    room.append(cell);
  }
  view.append(room);
  document.body.replaceChildren(view);
}
"""
VSYNC_MS = 17  # a frame of 60 a second
NEAR = 1.25  # of frames of static text, which differ by that much from one round to the next
DIFF = """
async ([path, before, other]) => {
  const { compareTexts } = await import(path);
  const start = performance.now();
  const parts = compareTexts(before, other);
  if (!parts.length) throw new Error("nothing was compared");
  return performance.now() - start;
}
"""


def _text(seed: int, words: int) -> str:
    drawn = random.Random(seed)
    return " ".join(drawn.choice(WORDS) + ("\n\n" if place % 40 == 39 else "") for place in range(words))


def _write_texts(database: Database, count: int) -> None:
    """Put texts of 1 kB into the states at the heads of executions."""
    texts = [encode(_text(number, 150)) for number in range(count)]
    pairs = sorted({digest(text): text for text in texts}.items())
    with database.write(long=True) as connection:
        insert_values(connection, pairs)
        heads = connection.execute(sa.select(checkpoints.c.id, checkpoints.c.state)).all()
        for number, (id_, state) in enumerate(heads):
            changed = {**state, "c": digest(texts[number % count])}
            connection.execute(sa.update(checkpoints).where(checkpoints.c.id == id_).values(state=changed))


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    url = environment.fresh("sqlite")
    database = Database(url)
    swept = Sweep(
        workflow=workflow(),
        cases=[{"id": str(number), "input": {"x": number}} for number in range(CASES)],
        vary=dict.fromkeys(STEPS, "all"),
        evaluate=[quality],
    ).run(database, files=environment.folder / "pages")
    _write_texts(database, 2_000)
    context, took = Context(database), []
    for _ in range(runs + 1):
        start = time.perf_counter()
        outputs(context, swept.id, keys=["c"], limit=50)
        took.append(1000 * (time.perf_counter() - start))
    database.close()
    what = f"outputs of 64 x {CASES:,} cells"
    yield of_rounds("cells.outputs for 64 x 50 cells", took[1:], "ms", 100)
    with site(url) as seen:
        drawn, still, frames, reading = [], [], [], []
        rows = "-".join(map(str, range(64)))
        for _ in range(runs):  # one after the other, since others may use this machine too
            page = seen.open("/")
            page.evaluate(STATIC, _text(3, 150))
            still.append(page.evaluate(FRAMES))
            page.context.close()
            page = seen.open(f"/sweeps/{swept.id}?tab=outputs&rows={rows}&keys=c")
            drawn.append(page.evaluate(MARKED, ["outputs", "/outputs?"]))
            frames.append(page.evaluate(FRAMES))
            reading.append(page.evaluate(READING))
            page.context.close()
        page = seen.open("/")
        module = page.evaluate("document.querySelector('script').src").replace("main.js", "lib/text_diff.js")
        before = _text(1, 16_000)[:100_000]
        other = " ".join("changed" if place % 90 == 7 else word for place, word in enumerate(before.split(" ")))
        alike = [page.evaluate(DIFF, [module, before, other]) for _ in range(runs)]
        unlike = [page.evaluate(DIFF, [module, before, _text(2, 16_000)[:100_000]]) for _ in range(runs)]
    yield of_rounds(f"{what}: first draw from the arrival of data", drawn, "ms", 150)
    yield from _frames(what, still, frames, reading)
    yield of_rounds("word diff of two similar outputs of 100 kB", alike, "ms", 100)
    yield of_rounds("word diff of two unlike outputs of 100 kB", unlike, "ms", 100)


def _frames(what: str, still: list[float], frames: list[float], reading: list[float]) -> Iterator[Figure]:
    """Yield frame times beside those of static text, which are the lower bound; the target is relative to them."""
    can = median(still) <= VSYNC_MS
    floor = "static text of that size, what the browser reaches here"
    yield of_rounds(f"{floor}{'' if can else f', above {VSYNC_MS} ms'}: frames, p95", still, "ms")
    yield of_rounds(f"{what}: frames of 5 s of scrolling, p95", frames, "ms", VSYNC_MS if can else None)
    ratios = [scrolling / other for scrolling, other in zip(frames, still, strict=True)]
    yield of_rounds(f"{what}: these by those of static text", ratios, "", NEAR)
    yield of_rounds(f"{what}: frames of 5 s of scrolling as one reads, p95", reading, "ms")
