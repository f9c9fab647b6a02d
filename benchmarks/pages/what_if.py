""" "What if" for every case: another variant of the third of four nodes, in a sweep of 64 combinations x 100 cases.

Workers run it, on PostgreSQL. Counted are clicks (besides the choice of the variant from a list) and node runs; timed
is from the last outcome, as the database has it, until the page shows the row, which leaves out the case that
suggested it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import sqlalchemy as sa

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.harness.serving import TOKEN
from benchmarks.harness.workers import WorkerStack, empty_stack
from benchmarks.pages.site import Site, site
from wtb.store.database import Database
from wtb.store.tables.schema import cells, executions, node_runs

if TYPE_CHECKING:
    from playwright.sync_api import Page

CASES = 100
FOUR = ["default", "v1", "v2", "v3"]
KEYS = {
    "sweep": "four",
    "workflow": "four",
    "cases": [{"id": str(number), "input": {"x": number}} for number in range(CASES)],
    "vary": {"A": FOUR, "B": FOUR, "C": FOUR},
    "evaluate": ["benchmarks.workloads.importable:summed"],
}
PUBLISHED = """
[workflows]
four = "benchmarks.workloads.importable:four"
[publish]
evaluators = ["benchmarks.workloads.importable:summed"]
"""
# The row, once all of its cases count; what the page shows in its place where that takes more than a minute.
WHAT_IF_IS_SHOWN = """
async (cases) => {
  const counted = (row) => Number.parseInt(row.querySelector("td.num").textContent, 10);  // what is left out follows
  const isShown = (row) => row.textContent.includes("exploratory") && counted(row) === cases;
  for (const start = performance.now(); performance.now() - start < 60000; ) {
    if ([...document.querySelectorAll("main table tbody tr")].some(isShown)) return "";
    await new Promise((done) => setTimeout(done, 20));
  }
  const rows = [...document.querySelectorAll("main table tbody tr")].map((row) => row.innerText);
  return [document.querySelector(".head").innerText, ...rows.filter((text) => text.includes("exploratory"))].join("; ");
}
"""


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    with empty_stack(environment, "what-if") as stack:
        (stack.folder / "wtb.toml").write_text(PUBLISHED)
        stack.start_workers(1, 4)
        with site(stack.database.url.render_as_string(hide_password=False)) as seen:
            page = seen.page()
            sweep = _submitted(stack, seen, page)
            before = _node_runs(stack.database, sweep)
            clicks = _ask(stack.database, seen, page, sweep)
            if instead := page.evaluate(WHAT_IF_IS_SHOWN, CASES - 1):
                raise RuntimeError(f"the row is not there after a minute: {instead:.2000}")
            shown_at = time.time()
            stack.wait_completed(sweep)
            late = shown_at - _last_outcome(stack.database, sweep)
            more = _node_runs(stack.database, sweep) - before
    yield of_rounds("what if, 64 x 100, node 3 of 4: clicks, besides the choice", [clicks], "", 3)
    yield of_rounds("what if: node runs upstream", [more["A"] + more["B"]], "", 0)
    yield of_rounds(
        "what if: node runs downstream, more or less than 100 x 2", [abs(more["C"] + more["D"] - 200)], "", 0
    )
    yield of_rounds("what if: from the last outcome to its row on the page", [late], "s", 1.0)


def _submitted(stack: WorkerStack, seen: Site, page: Page) -> str:
    """Submit the sweep as a program does, once its workflow is published, and wait for its end."""
    api = f"{seen.address}/api/v1"
    client = page.context.request
    stack.until(lambda: bool(client.get(f"{api}/workflows?published=true").json()["workflows"]), "the workflow")
    answer = seen.browser.new_context().request.post(
        f"{api}/sweeps", data={"keys": KEYS, "anyway": True}, headers={"Authorization": f"Bearer {TOKEN}"}
    )
    if not answer.ok:
        raise RuntimeError(answer.text())
    sweep: str = answer.json()["sweep"]
    stack.wait_completed(sweep)
    return sweep


def _ask(database: Database, seen: Site, page: Page, sweep: str) -> int:
    """Request the row on the page of one of the cells. Return the number of clicks."""
    query = sa.select(cells.c.execution_id).where(cells.c.sweep_id == sweep).limit(1)
    page.goto(f"{seen.address}/executions/{database.scalar(query)}")
    step = page.locator(".steps > li").nth(2)
    step.locator("summary").first.click()
    step.get_by_role("button", name="What if").click()
    step.get_by_label("Variant of C").select_option("v4")
    step.get_by_role("button", name="Run it for every case").click()
    page.wait_for_url(f"**/sweeps/{sweep}")
    return 3


def _node_runs(database: Database, sweep: str) -> Counter[str]:
    query = sa.select(node_runs.c.node, sa.func.count()).where(node_runs.c.sweep_id == sweep).group_by(node_runs.c.node)
    return Counter({str(node): int(count) for node, count in database.tuples(query)})


def _last_outcome(database: Database, sweep: str) -> float:
    query = sa.select(sa.func.max(executions.c.finished_at)).where(executions.c.sweep_id == sweep)
    return float(database.scalars(query)[0])
