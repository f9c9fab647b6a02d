"""A node run that succeeds at its first attempt has no row in `attempts`; every other has a row for each attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.bench import Bench, one_node
from wtb.authoring.workflow import Workflow
from wtb.store.access import budgets
from wtb.store.read import costs, queries
from wtb.store.runs.leases import stop_nodes
from wtb.store.runs.node_progress import record_first_attempts
from wtb.store.tables.schema import attempts, node_runs

Make = Callable[..., Bench]
USD, TOKENS = 0.25, (5, 3)


def workflow(failures: int) -> Workflow:
    """One node that spends money and fails in its first attempts."""

    def work(state: dict[str, Any], ctx: Any) -> dict[str, Any]:
        ctx.cost(usd=USD, tokens_in=TOKENS[0], tokens_out=TOKENS[1])
        if ctx.attempt <= failures:
            raise ValueError(f"attempt {ctx.attempt}")
        return {"y": 1}

    return one_node(work, retries=3, backoff=0.0)


def stored(sweep: Bench) -> list[dict[str, Any]]:
    with sweep.database.read() as connection:
        return [dict(row) for row in connection.execute(sa.select(attempts)).mappings()]


def read(sweep: Bench) -> list[tuple[int, str, float]]:
    (run,) = sweep.node_runs
    return [(row.number, row.status, row.usd) for row in queries.attempt_rows(sweep.database, [run["id"]])]


@pytest.mark.parametrize(("failures", "rows"), [(0, 0), (1, 2), (2, 3)])
def test_all_attempts_are_read_wherever_they_are(run_sweep: Make, failures: int, rows: int) -> None:
    sweep = run_sweep(workflow(failures))

    assert sweep.counts == {"succeeded": 1}
    assert len(stored(sweep)) == rows
    statuses = ["failed"] * failures + ["succeeded"]
    assert read(sweep) == [(number, status, USD) for number, status in enumerate(statuses, 1)]

    count = failures + 1
    (spent,) = costs.of_attempts(sweep.database, ["node"], costs.Which(sweep.sweep_id))
    assert spent.figures["usd"] == queries.usd_spent(sweep.database, sweep.sweep_id) == count * USD
    assert (spent.figures["attempts"], spent.figures["failed_attempts"]) == (count, failures)
    with sweep.database.read() as connection:
        assert budgets.spent_before(connection, ("sweep", sweep.sweep_id, "", "tokens")) == count * sum(TOKENS)


def test_a_first_attempt_that_is_cancelled_gets_its_row(bench: Make) -> None:
    sweep = bench(workflow(0))
    sweep.run()
    running = {"status": "running", "ended_at": None, "ended_event": None, "ended_transaction": None}
    with sweep.database.write() as connection:  # as its runner left it
        connection.execute(node_runs.update().values(**running))
    assert read(sweep) == [(1, "failed", USD)]

    with sweep.database.write() as connection:
        stop_nodes(connection, [sweep.node_runs[0]["execution_id"]])

    (row,) = stored(sweep)
    assert (row["number"], row["status"], row["usd"], row["failure"]["kind"]) == (1, "failed", USD, "running")
    (run,) = sweep.node_runs
    assert (run["status"], run["begun_at"], run["usd"], run["stdout"]) == ("failed", None, 0.0, None)
    assert read(sweep) == [(1, "failed", USD)]


def test_a_first_attempt_whose_result_is_of_no_use_any_more_stays_accepted_once(run_sweep: Make) -> None:
    sweep = run_sweep(workflow(0))
    before = read(sweep)
    for _ in range(2):  # the second time it has a row already
        with sweep.database.write() as connection:
            record_first_attempts(connection, sa.true())
        assert read(sweep) == before
        assert len(stored(sweep)) == 1
