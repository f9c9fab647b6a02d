"""Two texts of 10 MB compared in the browser, by the module that does it for pages."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.pages.site import site
from wtb.store.database import Database

LINES = 200_000  # of a text of 10 MB
TEXTS = """
async ([path, lines]) => {
  const { compareLines } = await import(path);
  const before = Array.from({ length: lines }, (_, line) => `line ${line} ${"x".repeat(38)}`);
  const other = before.map((text, line) => (line % 5000 === 7 ? `${text}!` : text)).join("\\n");
  const text = before.join("\\n"), start = performance.now();
  const { hunks } = compareLines(text, other);
  if (hunks.length !== lines / 5000) throw new Error(`${hunks.length} hunks`);
  return performance.now() - start;
}
"""


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    url = environment.fresh("sqlite")
    database = Database(url)
    database.prepare()
    database.close()
    with site(url) as seen:
        page = seen.open("/")
        module = page.evaluate("document.querySelector('script').src").replace("main.js", "lib/text_diff.js")
        took = [page.evaluate(TEXTS, [module, LINES]) for _ in range(runs)]
    yield of_rounds("two texts of 10 MB compared", took, "ms", 500)
