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
from wtb import END, Workflow
from wtb.core.errors import ConflictError
from wtb.core.status import OPEN_EXECUTIONS
from wtb.execution.runtime.repair import repair_sweep
from wtb.operations.context import Context
from wtb.operations.control.answers import answer
from wtb.operations.control.forks import add_fork
from wtb.operations.control.pause_cancel import retry
from wtb.operations.control.rollback import rollback
from wtb.store.control import questions
from wtb.store.database import Database
from wtb.store.growth.retry import retry as retry_cells
from wtb.store.process_identity import identity
from wtb.store.read import queries
from wtb.store.read.references import find_one
from wtb.store.runs import leases
from wtb.store.runs.node_progress import adopt
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
        wf.edge(z, END)


def tries(made: Bench) -> dict[tuple[str, str], list[int]]:
    """The numbers of the attempts of each node run of a step that has just one."""
    query = sa.select(node_runs.c.node, node_runs.c.variant, attempts.c.number).join(
        attempts, attempts.c.node_run_id == node_runs.c.id
    )
    found: dict[tuple[str, str], list[int]] = {}
    with made.database.read() as connection:
        for node, variant, number in connection.execute(query.order_by(attempts.c.number)):
            found.setdefault((node, variant), []).append(number)
    return found


@pytest.mark.parametrize("slots", [1, 2])
def test_two_retries_of_what_failed_in_one_node_run_try_it_once(bench: Make, slots: int) -> None:
    flow = Parallel()
    made = bench(flow.wf, vary={"b": ["default", "two"]}, run={"pool": "thread", "concurrency": slots})
    made.run()
    failed = [row for row in made.executions if row.status == "failed"]
    assert len({row.head_id for row in failed}) == 1

    flow.down = False
    for row in failed:
        retry(made.database, row)

    assert made.run().status == "completed"
    assert made.counts == {"succeeded": 2}
    assert flow.ran == ["c1", "c1"]
    assert tries(made)["c", "default"] == [1, 2]


def test_an_answer_and_a_retry_at_one_head_share_what_they_run(bench: Make) -> None:
    flow = Parallel()
    flow.asks = True
    both = {"b": ["default", "two"], "c": ["default", "two"]}
    made = bench(flow.wf, vary=both, run={"pool": "thread", "concurrency": 2})
    made.run()
    assert made.counts == {"failed": 2, "waiting": 1, "succeeded": 1}

    flow.down = False
    assert retry_cells(made.database, made.sweep_id) == 2
    (question,) = questions.approval_rows(made.database, sweep_id=made.sweep_id)
    answer(Context(made.database), question.id, "approve", bound=made.prepared.bound)

    assert made.run().status == "completed"
    assert made.counts == {"succeeded": 4}
    assert sorted(flow.ran) == ["c1", "c1", "c2"]
    assert tries(made)["b", "default"] == [1, 2]
    assert tries(made)["c", "default"] == [1, 2]
    assert sorted(cell.state["z"] for cell in made.cells()) == [[1, 1], [1, 2], [2, 1], [2, 2]]


def test_whoever_is_in_a_node_run_keeps_others_out_until_it_is_taken_back(bench: Make, database: Database) -> None:
    flow = Parallel()
    made = bench(flow.wf, vary={"b": ["default", "two"]}, run={"pool": "thread"})
    made.run()
    (c,) = (row for row in made.node_runs if row["node"] == "c")
    first, second = (retry(database, row) for row in made.executions if row.status == "failed")
    runner = identity()
    leases.register(database, runner)
    claimed: dict[str, ExecutionRow] = {}

    def claim() -> list[str]:
        claimed.update((row.id, row) for row in leases.claim(database, made.sweep_id, runner.id, 2, 60.0))
        return list(claimed)

    started = queries.node_runs_by_id(database, [c["id"]])

    def take(id: str, *, attempts: int = c["attempts"]) -> str:
        row = claimed[id]
        return adopt(database, id, row.token, row.head_id, {c["id"]: structs.replace(started[0], attempts=attempts)})

    assert claim() == [first, second]
    assert take(first, attempts=0) == "changed"
    assert [take(first), take(second), take(first)] == ["ours", "busy", "ours"]
    leases.release_all(database, runner.id)
    assert take(first) == "lost"
    claim()
    assert take(second) == "busy"


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
    wf.edge(work, END)
    return wf


def spoil(made: Bench, node: str) -> None:
    """Change a character of what a node wrote, in the database."""
    (digest,) = {digest for row in made.node_runs if row["node"] == node for digest in row["writes"].values()}
    with made.database.write() as connection:
        connection.execute(values.update().where(values.c.digest == digest).values(data='"spoilt"'))


def test_what_a_person_forked_stays_a_fork_where_damage_is_repaired_and_no_question_is_left(bench: Make) -> None:
    made = bench(questioner(), run={"pool": "thread"})
    made.run()
    (root,) = made.executions
    add_fork(Context(made.database), root.id, bound=made.prepared.bound, variants={"work": "two"}, paused=True)
    spoil(made, "first")

    assert repair_sweep(made.database, made.row) == 2

    opened = {row.origin: row for row in made.executions if row.status in OPEN_EXECUTIONS}
    assert opened.keys() == {"manual", "retry"}
    assert (opened["manual"].status, opened["manual"].choices) == ("paused", {"first": "default", "work": "two"})
    assert (opened["retry"].status, opened["retry"].combinations) == ("pending", [0])
    assert made.counts == {"pending": 1}
    assert questions.approval_rows(made.database, sweep_id=made.sweep_id) == []
    made.run()
    assert made.counts == {"waiting": 1}
    assert len(questions.approval_rows(made.database, sweep_id=made.sweep_id)) == 1


def test_a_rollback_is_refused_where_mending_gave_its_cells_to_one_that_others_share(bench: Make) -> None:
    both = {"first": ["default", "same"], "work": ["default", "two"]}
    made = bench(questioner(), vary=both, run={"pool": "thread"})
    made.run()
    assert made.counts == {"succeeded": 2, "waiting": 2}
    forked = [row.id for row in made.executions if row.status == "forked" and row.parent_id is not None]
    assert len(forked) == 2
    spoil(made, "first")
    repair_sweep(made.database, made.row)
    (joined,) = (row for row in made.executions if row.status == "pending")
    assert len(joined.combinations) == 2

    for id in forked:
        row = find_one(made.database, id)
        with pytest.raises(ConflictError, match=f"execution {joined.id} has its cells by now"):
            rollback(Context(made.database), row.id, "first", bound=made.prepared.bound)
