"""Several executions at one head: a node run that they share is in the hands of one of them at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec import structs

from tests.support.attempts import attempts
from tests.support.bench import Bench
from wtb import Workflow
from wtb.core.errors import ConflictError
from wtb.core.status import OPEN_EXECUTIONS
from wtb.execution.runtime.upkeep import repair_sweep
from wtb.operations.context import Context
from wtb.operations.control.answers import answer
from wtb.operations.control.forks import add_fork
from wtb.operations.control.pause_cancel import retry
from wtb.operations.control.rollback import rollback
from wtb.store.control import approvals
from wtb.store.control.forks import retry as retry_cells
from wtb.store.database import Database
from wtb.store.process_identity import identity
from wtb.store.read import queries
from wtb.store.read.details import find_one
from wtb.store.runs import leases
from wtb.store.runs.node_progress import transfer_node_runs
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import node_runs, values

Make = Callable[..., Bench]


class Parallel:
    """a -> (b, c) -> z. c fails under its default variant while `down`, b asks under its own while `asks`."""

    def __init__(self) -> None:
        self.down, self.asks = True, False
        self.ran: list[str] = []
        self.inside = 0
        self.most_inside = 0
        self._lock = threading.Lock()
        self.wf = wf = Workflow("parallel")

        @wf.node
        def a(state: Any) -> Any:
            return {"a": 1}

        @wf.node
        def b(state: Any, ctx: Any, *, k: int = 1) -> Any:
            if self.asks and k == 1:
                ctx.ask("Go on?")
            return {"b": k}

        @wf.node
        def c(state: Any, *, k: int = 1) -> Any:
            with self._lock:
                self.inside += 1
                self.most_inside = max(self.most_inside, self.inside)
                self.ran.append(f"c{k}")
            try:
                time.sleep(0.1)  # so that another one that does not wait would be seen
                if self.down and k == 1:
                    raise ValueError("down")
                return {"c": k}
            finally:
                with self._lock:
                    self.inside -= 1

        @wf.node
        def z(state: Any) -> Any:
            return {"z": [state["b"], state["c"]]}

        b.variant("two", k=2)
        c.variant("two", k=2)
        wf.entry(a)
        wf.edge(a, b)
        wf.edge(a, c)
        wf.edge([b, c], z)


def tries(sweep: Bench) -> dict[tuple[str, str], list[int]]:
    """Return the attempt numbers of each node run whose step has only one."""
    query = sa.select(node_runs.c.node, node_runs.c.variant, attempts.c.number).join(
        attempts, attempts.c.node_run_id == node_runs.c.id
    )
    numbers: dict[tuple[str, str], list[int]] = {}
    with sweep.database.read() as connection:
        for node, variant, number in connection.execute(query.order_by(attempts.c.number)):
            numbers.setdefault((node, variant), []).append(number)
    return numbers


@pytest.mark.parametrize("slots", [1, 2])
def test_two_retries_of_what_failed_in_one_node_run_try_it_once(bench: Make, slots: int) -> None:
    flow = Parallel()
    sweep = bench(flow.wf, vary={"b": ["default", "two"]}, run={"pool": "thread", "concurrency": slots})
    sweep.run()
    failed = [row for row in sweep.executions if row.status == "failed"]
    assert len({row.head_id for row in failed}) == 1

    flow.down = False
    for row in failed:
        retry(sweep.database, row)

    assert sweep.run().status == "completed"
    assert sweep.counts == {"succeeded": 2}
    assert flow.ran == ["c1", "c1"]
    assert tries(sweep)["c", "default"] == [1, 2]


def test_an_answer_and_a_retry_at_one_head_share_what_they_run(bench: Make) -> None:
    flow = Parallel()
    flow.asks = True
    both = {"b": ["default", "two"], "c": ["default", "two"]}
    sweep = bench(flow.wf, vary=both, run={"pool": "thread", "concurrency": 2})
    sweep.run()
    assert sweep.counts == {"failed": 2, "waiting": 1, "succeeded": 1}

    flow.down = False
    assert retry_cells(sweep.database, sweep.sweep_id) == 2
    (question,) = approvals.approval_rows(sweep.database, sweep_id=sweep.sweep_id)
    answer(Context(sweep.database), question.id, "approve", bound=sweep.prepared.bound)

    assert sweep.run().status == "completed"
    assert sweep.counts == {"succeeded": 4}
    assert sorted(flow.ran) == ["c1", "c1", "c2"]
    assert tries(sweep)["b", "default"] == [1, 2]
    assert tries(sweep)["c", "default"] == [1, 2]
    assert sorted(cell.state["z"] for cell in sweep.cells()) == [[1, 1], [1, 2], [2, 1], [2, 2]]


def test_whoever_is_in_a_node_run_keeps_others_out_until_it_is_released(bench: Make, database: Database) -> None:
    flow = Parallel()
    sweep = bench(flow.wf, vary={"b": ["default", "two"]}, run={"pool": "thread"})
    sweep.run()
    (c,) = (row for row in sweep.node_runs if row["node"] == "c")
    first, second = (retry(database, row) for row in sweep.executions if row.status == "failed")
    runner = identity()
    leases.register(database, runner)
    claimed: dict[str, ExecutionRow] = {}

    def claim() -> list[str]:
        claimed.update((row.id, row) for row in leases.claim(database, sweep.sweep_id, runner.id, 2, 60.0))
        return list(claimed)

    started = queries.node_runs_by_id(database, [c["id"]])

    def transfer(id: str, *, attempts: int = c["attempts"]) -> str:
        row = claimed[id]
        return transfer_node_runs(
            database, id, row.token, row.head_id, {c["id"]: structs.replace(started[0], attempts=attempts)}
        )

    assert claim() == [first, second]
    assert transfer(first, attempts=0) == "changed"
    assert [transfer(first), transfer(second), transfer(first)] == ["ours", "busy", "ours"]
    leases.release_all(database, runner.id)
    assert transfer(first) == "lost"
    claim()
    assert transfer(second) == "busy"


def questioner() -> Workflow:
    """first -> work -> last, where work asks under its default variant."""
    wf = Workflow("asking")

    @wf.node
    def first(state: Any, *, k: int = 1) -> Any:
        return {"a": "A" * 50}

    @wf.node
    def work(state: Any, ctx: Any, *, k: int = 1) -> Any:
        if k == 1:
            ctx.ask("Sure?")
        return {"y": k}

    first.variant("same", k=2)
    work.variant("two", k=2)
    wf.entry(first)
    wf.edge(first, work)
    return wf


def spoil(sweep: Bench, node: str) -> None:
    """Change a character of a node's output in the database."""
    (digest,) = {digest for row in sweep.node_runs if row["node"] == node for digest in row["writes"].values()}
    sweep.database.execute(values.update().where(values.c.digest == digest).values(data='"spoilt"'))


def test_what_a_person_forked_stays_a_fork_where_damage_is_repaired_and_no_question_is_left(bench: Make) -> None:
    sweep = bench(questioner(), run={"pool": "thread"})
    sweep.run()
    (root,) = sweep.executions
    add_fork(Context(sweep.database), root.id, bound=sweep.prepared.bound, variants={"work": "two"}, paused=True)
    spoil(sweep, "first")

    assert repair_sweep(sweep.database, sweep.row) == 2

    opened = {row.origin: row for row in sweep.executions if row.status in OPEN_EXECUTIONS}
    assert opened.keys() == {"manual", "retry"}
    assert (opened["manual"].status, opened["manual"].choices) == ("paused", {"first": "default", "work": "two"})
    assert (opened["retry"].status, opened["retry"].combinations) == ("pending", [0])
    assert sweep.counts == {"pending": 1}
    assert approvals.approval_rows(sweep.database, sweep_id=sweep.sweep_id) == []
    sweep.run()
    assert sweep.counts == {"waiting": 1}
    assert len(approvals.approval_rows(sweep.database, sweep_id=sweep.sweep_id)) == 1


def test_a_rollback_is_refused_where_mending_gave_its_cells_to_one_that_others_share(bench: Make) -> None:
    both = {"first": ["default", "same"], "work": ["default", "two"]}
    sweep = bench(questioner(), vary=both, run={"pool": "thread"})
    sweep.run()
    assert sweep.counts == {"succeeded": 2, "waiting": 2}
    forked = [row.id for row in sweep.executions if row.status == "forked" and row.parent_id is not None]
    assert len(forked) == 2
    spoil(sweep, "first")
    repair_sweep(sweep.database, sweep.row)
    (joined,) = (row for row in sweep.executions if row.status == "pending")
    assert len(joined.combinations) == 2

    for id in forked:
        row = find_one(sweep.database, id)
        with pytest.raises(ConflictError, match=f"execution {joined.id} has its cells by now"):
            rollback(Context(sweep.database), row.id, "first", bound=sweep.prepared.bound)
