"""The page of an execution of 10,000 steps: its first draw, and all of its steps."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.pages.made import lengthen, swept
from benchmarks.pages.site import DRAWN, processor_s, site
from wtb.store.database import Database

STEPS = 10_000
# The longest of all times that it takes to show more, until all are there.
OPENED = """
async (steps) => {
  const count = () => document.querySelectorAll(".steps > li").length;
  let longest = 0;
  while (count() < steps) {
    const start = performance.now(), before = count();
    [...document.querySelectorAll("button")].find((button) => /more steps/.test(button.textContent)).click();
    while (count() === before) await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    await new Promise((done) => setTimeout(done));
    longest = Math.max(longest, performance.now() - start);
  }
  return longest;
}
"""


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    url = environment.fresh("sqlite")
    database = Database(url)
    (execution,) = swept(database, environment.folder / "trace")
    lengthen(database, execution, STEPS - 3)
    database.close()
    drawn, whole, opened, computed = [], [], [], []
    with site(url) as seen:
        for _ in range(runs):
            before = processor_s(seen.server)
            page = seen.open(f"/executions/{execution}")
            drawn.append(page.evaluate(DRAWN, [".steps > li", "/executions/"]))
            whole.append(page.evaluate("performance.now()"))
            computed.append(1000 * (processor_s(seen.server) - before))
            opened.append(page.evaluate(OPENED, STEPS))
            page.context.close()
    what = f"execution of {STEPS:,} steps"
    yield of_rounds(f"{what}: first draw from the arrival of data", drawn, "ms", 300)
    yield of_rounds(f"{what}: from the address to the first draw", whole, "ms")
    yield of_rounds(f"{what}: processor time of the server until then", computed, "ms")
    yield of_rounds(f"{what}: 1,000 more of its steps, at most", opened, "ms", 300)
