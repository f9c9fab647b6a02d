"""The page of two executions whose states hold a text of 10 MB each, of which 40 lines differ."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.pages.made import give, swept
from benchmarks.pages.site import DRAWN, site
from wtb.store.database import Database

LINES = 200_000


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    url = environment.fresh("sqlite")
    database = Database(url)
    executions = swept(database, environment.folder / "states", combinations=2)
    lines = [f"line {number:<7} {'x' * 37}" for number in range(LINES)]
    for place, execution in enumerate(executions):
        marks = ["!" if place and number % 5000 == 7 else "" for number in range(LINES)]
        give(database, execution, "text", "\n".join(map("".join, zip(lines, marks, strict=True))))
    database.close()
    drawn, whole = [], []
    with site(url) as seen:
        for _ in range(runs):
            page = seen.open("/executions/{}/diff/{}".format(*executions))
            drawn.append(page.evaluate(DRAWN, [".text-diff tbody tr", "/diff/"]))
            whole.append(page.evaluate("performance.now()"))
            page.context.close()
    yield of_rounds("two states of 10 MB: difference drawn from the arrival of data", drawn, "ms", 500)
    yield of_rounds("two states of 10 MB: from the address to the difference", whole, "ms")
