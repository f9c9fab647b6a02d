"""The ledger: caps hold under concurrency, and reservations of dead runners are released."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.attempts import attempts
from tests.support.bench import Bench, finish
from tests.support.flows import events_of
from tests.support.prose import sentence
from tests.support.waiting import until
from wtb import END, Workflow
from wtb.core.errors import InputError
from wtb.core.ids import new_id
from wtb.store.access import budgets as ledger
from wtb.store.access import reservations as reserving
from wtb.store.access.budgets import Key
from wtb.store.access.reservations import Claim, Granted, Reached
from wtb.store.control import executions
from wtb.store.database import Database
from wtb.store.tables.schema import budgets, node_runs, reservations

Make = Callable[..., Bench]
KEY: Key = ("sweep", "s", "", "usd")
ONE = {"work": ["default"]}


def inputs(count: int) -> list[dict[str, Any]]:
    return [{"id": f"c{n}", "input": {"x": n}} for n in range(count)]


def of_node(work: Callable[..., None], **options: Any) -> Workflow:
    """Return a workflow with one node, which has two equal variants."""
    workflow = Workflow("spending")

    @workflow.node(name="work", **options)
    def node(state: dict[str, Any], ctx: Any) -> dict[str, Any]:
        work(state, ctx)
        return {"y": 1}

    node.variant("same", node.variants["default"].fn)
    workflow.entry(node)
    workflow.edge(node, END)
    return workflow


def spending(usd: float = 0.25, tokens: int = 0, **options: Any) -> Workflow:
    """Return a workflow with one node that spends an amount."""
    return of_node(lambda state, ctx: ctx.cost(usd=usd, tokens_in=tokens), **options)


def give(database: Database, limits: Mapping[Key, float | None]) -> None:
    with database.write() as connection:
        ledger.set_budgets(connection, limits)


def claim(amount: float | None, keys: tuple[Key, ...] = (KEY,), runner: str = "r", execution: str = "e") -> Claim:
    return Claim(new_id(), "default", "s", execution, runner, keys, {"usd": amount, "tokens": amount, "node_runs": 1})


def settle(database: Database, reservation: Claim, spent: float, *, remaining: float | None = None) -> None:
    about: dict[str, Any] = {"session_id": reservation.session_id, "sweep_id": reservation.sweep_id}
    about |= {"id": reservation.id, "spent": spent, "left": remaining}
    with database.write() as connection:
        reserving.settle(
            connection, [{**about, **dict(zip(ledger.COLUMNS, key, strict=True))} for key in reservation.keys]
        )


def spent_of(database: Database, key: Key = KEY) -> float:
    return next(row.spent for row in ledger.budget_rows(database) if ledger.key_of(row) == key)


def reserved(database: Database) -> list[Any]:
    with database.read() as connection:
        return list(connection.execute(sa.select(reservations)))


def test_what_is_reserved_is_not_there_for_another_and_what_was_not_spent_is(database: Database) -> None:
    give(database, {KEY: 1.0})
    first, second = claim(0.75), claim(0.5)
    assert isinstance(reserving.reserve(database, first), Granted)
    assert reserving.reserve(database, second) is None, "the first may leave enough"
    settle(database, first, 0.25)
    granted = reserving.reserve(database, second)
    assert isinstance(granted, Granted)
    assert granted.remaining["usd"] == pytest.approx(0.25)
    third = claim(0.8)
    reached = reserving.reserve(database, third)
    assert reached == Reached(KEY, 1.0, 0.25, 0.8)


def test_what_a_running_attempt_has_spent_counts_and_the_rest_stays_reserved(database: Database) -> None:
    give(database, {KEY: 1.0})
    first = claim(0.75)
    assert isinstance(reserving.reserve(database, first), Granted)
    settle(database, first, 0.5, remaining=0.25)
    assert spent_of(database) == 0.5
    assert reserving.reserve(database, claim(0.5)) is None
    assert isinstance(reserving.reserve(database, claim(0.25)), Granted)


def test_what_a_running_attempt_tells_of_is_in_the_ledger_before_it_ends(bench: Make) -> None:
    look_before_the_end(bench, patience_s=60.0)


def look_before_the_end(bench: Make, patience_s: float) -> None:
    """Run an attempt that reports its spending, and end it once the ledger has that."""
    spent, go = threading.Event(), threading.Event()

    def work(state: dict[str, Any], ctx: Any) -> None:
        ctx.cost(usd=0.25)
        spent.set()
        assert go.wait(60)

    workflow = of_node(work, max_usd=1.0)
    sweep = bench(workflow, inputs(1), ONE, limits={"usd": 2}, run={"pool": "thread", "durability": 0.05})
    run = sweep.start()
    try:
        assert spent.wait(60)
        key = ("sweep", sweep.sweep_id, "", "usd")
        until(
            lambda: spent_of(sweep.database, key) == 0.25, "what was spent to be in the ledger", patience_s, pause=0.02
        )
        assert [row.amount for row in reserved(sweep.database) if row.kind == "usd"] == [0.75]
    finally:
        go.set()
        finish(run)
    assert reserved(sweep.database) == []


def test_all_budgets_are_reserved_of_or_none(database: Database) -> None:
    other: Key = ("project", "p", "", "usd")
    give(database, {KEY: 10.0, other: 1.0})
    reservation = claim(0.75, (other,))
    assert isinstance(reserving.reserve(database, reservation), Granted)
    assert reserving.reserve(database, claim(0.5, (KEY, other))) is None
    assert [row.key for row in reserved(database)] == ["p"]


def test_what_nobody_can_tell_the_cost_of_runs_alone(database: Database) -> None:
    give(database, {KEY: 1.0})
    priced, blind, other = claim(0.25), claim(None), claim(None)
    assert isinstance(reserving.reserve(database, priced), Granted)
    assert reserving.reserve(database, blind) is None
    assert reserving.reserve(database, claim(0.1)) is None, "it would never be alone"
    assert reserving.reserve(database, other) is None
    settle(database, priced, 0.25)
    assert reserving.reserve(database, other) is None
    granted = reserving.reserve(database, blind)
    assert isinstance(granted, Granted)
    assert granted.remaining["usd"] == pytest.approx(0.75), "all that is left"
    assert reserving.reserve(database, claim(0.1)) is None
    settle(database, blind, 0.5)
    assert isinstance(reserving.reserve(database, claim(0.1)), Granted)


def test_what_costs_nothing_continues_where_nothing_is_left(database: Database) -> None:
    give(database, {KEY: 1.0})
    whole = claim(1.0)
    assert isinstance(reserving.reserve(database, whole), Granted)
    settle(database, whole, 1.0)
    assert isinstance(reserving.reserve(database, claim(0.0)), Granted)
    assert isinstance(reserving.reserve(database, claim(None)), Reached)


def test_thresholds_are_told_once_each_and_anew_for_another_size(database: Database, bench: Make) -> None:
    sweep = bench(spending(0.25, max_usd=0.25), inputs(5), ONE, limits={"usd": 1})
    ended = sweep.run()
    assert (ended.status, ended.limit) == ("paused", "usd")
    assert ended.reason == "limit reached: usd = 1 (spent 1, 0.25 wanted)"
    events = events_of(sweep, "budget.threshold")
    assert sorted({event["share"] for event in events} | {0.95}) == sorted({event["share"] for event in events})
    assert len({event["share"] for event in events}) == len(events)
    (reached,) = events_of(sweep, "budget.reached")
    assert (reached["scope"], reached["kind"], reached["most"], reached["spent"]) == ("sweep", "usd", 1, 1)
    assert sweep.run(usd=1.25).status == "completed"
    assert len(events_of(sweep, "budget.threshold")) > len(events)


@pytest.mark.parametrize("declared", [True, False])
def test_a_cap_is_a_cap_and_is_used_up(declared: bool, bench: Make) -> None:
    options = {"max_usd": 0.25} if declared else {}
    sweep = bench(spending(0.25, **options), inputs(20), {"work": ["default", "same"]}, limits={"usd": 3.1})
    ended = sweep.run()
    assert (ended.status, ended.limit) == ("paused", "usd")
    assert sum(row["usd"] for row in sweep.node_runs) == 3.0
    assert reserved(sweep.database) == []
    assert sweep.run(usd=None).status == "completed"
    assert sweep.counts == {"succeeded": 40}
    rerun_ids = [row["id"] for row in sweep.node_runs if row["attempts"] > 1]
    with sweep.database.read() as connection:
        rows = connection.execute(sa.select(attempts).where(attempts.c.node_run_id.in_(rerun_ids))).mappings()
        assert [(row["failure"], row["usd"], row["tokens_in"]) for row in rows] == []


def test_a_node_has_a_budget_of_its_own_and_of_tokens(bench: Make) -> None:
    workflow = spending(0.0, tokens=10, max_tokens=10)
    sweep = bench(workflow, inputs(5), ONE, limits={"nodes": {"work": {"tokens": 30}}})
    outcome = sweep.run()
    assert outcome.limit == "nodes.work.tokens"
    assert outcome.reason == "limit reached: nodes.work.tokens = 30 (spent 30, 10 wanted)"
    assert sweep.executed == 3


def test_an_attempt_that_spends_more_than_is_left_is_ended_and_runs_again_later(bench: Make) -> None:
    def work(state: dict[str, Any], ctx: Any) -> None:
        for _ in range(4):
            ctx.check_allowance()
            ctx.cost(usd=0.25)

    sweep = bench(of_node(work), inputs(1), ONE, limits={"usd": 0.5})
    outcome = sweep.run()
    assert (outcome.status, outcome.limit) == ("paused", "usd")
    assert outcome.reason == sentence("limit reached: {} = {}", "usd", "0.5 (spent 0.5)"), "with what the attempt spent"
    assert sweep.counts == {"pending": 1}, "the cell has not failed"
    with sweep.database.read() as connection:
        assert list(connection.scalars(sa.select(attempts.c.usd))) == [0.5]
    assert sweep.run(usd=2).status == "completed"
    assert spent_of(sweep.database, ("sweep", sweep.sweep_id, "", "usd")) == 1.5


def test_a_node_that_spends_more_than_it_declares_fails_for_good(bench: Make) -> None:
    sweep = bench(spending(0.5, max_usd=0.25, retries=3), inputs(1), ONE)
    assert sweep.run().status == "completed"
    assert sweep.counts == {"failed": 1}
    (row,) = sweep.node_runs
    assert row["attempts"] == 1
    with sweep.database.read() as connection:
        failure = connection.scalar(sa.select(attempts.c.failure))
    assert failure["kind"] == "budget"
    assert (
        sentence("it has spent {} and may spend {}", "0.5", "0.25 US dollars") + sentence(" (its max_{})", "usd")
        in failure["message"]
    )


def test_a_budget_below_what_is_spent_is_refused(bench: Make) -> None:
    sweep = bench(spending(0.25), inputs(4), ONE, limits={"usd": 0.5})
    assert sweep.run().status == "paused"
    with pytest.raises(InputError, match=r"usd = 0\.4: 0\.5 US dollars are spent already.*at least 0\.5"):
        sweep.run(usd=0.4)
    assert sweep.status == "paused"
    with pytest.raises(InputError, match="spent already"):
        ledger.set_project(sweep.database, "p", {"usd": -1})


def test_a_budget_that_is_made_later_counts_what_was_spent_before(bench: Make) -> None:
    sweep = bench(spending(0.25), inputs(4), ONE, project="p")
    assert sweep.run().status == "completed"
    ledger.set_project(sweep.database, "p", {"usd": 2.0, "node_runs": 100})
    assert spent_of(sweep.database, ("project", "p", "", "usd")) == 1.0
    assert spent_of(sweep.database, ("project", "p", "", "node_runs")) == 4


def test_racing_runners_never_pass_a_cap_and_come_within_one_of_it(database: Database) -> None:
    """Two ledgers on one database, as in two processes; each spends less than it reserves."""
    give(database, {KEY: 2.05, ("project", "p", "", "usd"): 100.0})
    databases = [database] if database.path is None and database.is_sqlite else [database, Database(str_of(database))]
    threads = 8
    began = threading.Barrier(threads)
    accepted: list[float] = []

    def spend(number: int) -> None:
        mine = databases[number % len(databases)]
        began.wait()
        while True:
            reservation = claim(0.1, (("project", "p", "", "usd"), KEY))
            got = reserving.reserve(mine, reservation)
            if isinstance(got, Reached):
                return
            if got is not None:
                total = sum(row.spent + row.reserved for row in ledger.budget_rows(mine) if row.scope == "sweep")
                assert total <= 2.05 + 1e-9
                settle(mine, reservation, 0.09)
                accepted.append(0.09)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(spend, range(threads)))
    assert sum(accepted) == pytest.approx(spent_of(database))
    assert 2.05 - 0.1 < sum(accepted) <= 2.05
    assert reserved(database) == []


def str_of(database: Database) -> str:
    return database.url.render_as_string(hide_password=False)


def test_what_the_dead_reserved_can_be_had(bench: Make) -> None:
    """A killed runner leaves a reservation; the runner that claims its executions releases it."""
    sweep = bench(spending(0.25, max_usd=0.25), inputs(2), ONE, limits={"usd": 0.5})
    ledger.open_budgets(sweep.database, sweep.row, {}, {})
    key = ("sweep", sweep.sweep_id, "", "usd")
    dead_claim = claim(0.5, (key,), runner="dead", execution="gone")
    assert isinstance(reserving.reserve(sweep.database, dead_claim), Granted)
    with sweep.database.write() as connection:
        reserving.forget_reservations_of_lost(connection)
    assert len(reserved(sweep.database)) == 1, "nobody knows that it is dead"
    with sweep.database.write() as connection:
        columns = {"host": "h", "boot": "b", "pid": 1, "process_started_at": 0.0, "ended_at": 1.0}
        connection.execute(reserving.runners.insert().values(id="dead", **columns))
    assert sweep.run().status == "completed"
    assert reserved(sweep.database) == []
    with sweep.database.read() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(node_runs)) == 2
        assert connection.scalar(sa.select(budgets.c.spent)) == 0.5


def test_an_attempt_that_was_taken_away_leaves_nothing_reserved(bench: Make) -> None:
    """If the same runner claims the execution again, the reservation of the lost attempt does not block it."""
    entered, first, second = threading.Semaphore(0), threading.Event(), threading.Event()

    def work(state: dict[str, Any], ctx: Any) -> None:
        is_repeat = state["x"] in seen
        seen.add(state["x"])
        ctx.cost(usd=0.01)
        entered.release()
        assert is_repeat or (first if state["x"] == 0 else second).wait(60)

    seen: set[int] = set()
    workflow = of_node(work, max_usd=0.6)
    sweep = bench(workflow, inputs(2), ONE, limits={"usd": 1.2}, run={"pool": "thread", "concurrency": 2})
    run = sweep.start()
    for _ in range(2):
        assert entered.acquire(timeout=60)
    paused_id = next(row.id for row in sweep.executions if row.case_number == 0)
    # Both have been counted: a count that came after the pause would end the reservation of the lost attempt early.
    until(lambda: [row.spent for row in ledger.budget_rows(sweep.database)] == [0.02], "both to be counted")
    executions.pause(sweep.database, paused_id, reason="look", by="ann", at_once=True)
    executions.resume(sweep.database, paused_id, by="ann")
    second.set()
    assert not entered.acquire(timeout=0.5), "the reservations of both leave nothing"
    first.set()
    assert entered.acquire(timeout=60), "the lost attempt let go"
    assert finish(run).status == "completed"
    assert reserved(sweep.database) == []


def test_a_budget_that_is_given_while_attempts_are_under_way_counts_what_they_spend(bench: Make) -> None:
    entered, go = threading.Semaphore(0), threading.Event()

    def work(state: dict[str, Any], ctx: Any) -> None:
        entered.release()
        assert go.wait(60)
        ctx.cost(usd=1.0)
        ctx.cost(usd=1.0)

    sweep = bench(of_node(work), inputs(6), ONE, project="p", run={"pool": "thread", "concurrency": 4})
    run = sweep.start()
    for _ in range(4):
        assert entered.acquire(timeout=60)
    ledger.set_project(sweep.database, "p", {"usd": 5.0})
    run.context.refresh_usage()  # as once a second
    go.set()
    outcome = finish(run)
    assert (outcome.status, outcome.limit) == ("paused", "project usd")
    with sweep.database.read() as connection:
        spent = connection.scalar(sa.select(sa.func.sum(attempts.c.usd)))
    assert spent < 12.0
    assert spent_of(sweep.database, ("project", "p", "", "usd")) == spent
