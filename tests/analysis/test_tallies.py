"""Tallies equal one GROUP BY over the scores, even if processes are killed; a kept matrix is never stale."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

import orjson
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

import wtb
from tests.support.amounts import examples
from tests.support.forkserver import Script
from tests.support.waiting import until
from wtb import Sweep
from wtb.analysis.kept_matrix import read_matrix
from wtb.analysis.matrix.build import freeze, matrix_from
from wtb.analysis.matrix.facts import SweepFacts, read_facts
from wtb.analysis.running_totals import leaders, live
from wtb.analysis.scores import Scores
from wtb.authoring.workflow import Workflow
from wtb.config.retention_policy import Policy
from wtb.core.documents.matrix import MatrixDocument
from wtb.core.ids import new_id
from wtb.core.scoring.measure import Measure, Score
from wtb.operations.garbage_collection import apply_policy
from wtb.store.bulk import fetch_records
from wtb.store.control.forks import retry
from wtb.store.control.rescore import write_scores
from wtb.store.database import Database
from wtb.store.files.store import FileStore
from wtb.store.housekeeping import deletion, retention
from wtb.store.log import log_rows
from wtb.store.process_identity import ProcessIdentity
from wtb.store.read import tallies
from wtb.store.read.queries import find_sweep, list_sweeps
from wtb.store.read.tallies import kept_matrix, tally, tally_rows, whole_at
from wtb.store.runs import leases
from wtb.store.runs.batch import Batch
from wtb.store.runs.flush import flush
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import cells, checkpoints, events, executions, scores

Make = Callable[..., Any]


class State(TypedDict, total=False):
    x: int
    y: int


def workflow(variants: int = 3, fails: Callable[[int], bool] = lambda y: False) -> Workflow:
    """One node that adds its variant's number to x, and fails for some sums."""
    wf = Workflow("sums", state=State)

    @wf.node
    def add(state: State, *, k: int = 0) -> State:
        if fails(state["x"] + k):
            raise ValueError("not this one")
        return {"y": state["x"] + k}

    for number in range(1, variants):
        add.variant(f"v{number}", k=number)
    wf.entry(add)
    return wf


def score(case: Any, result: Any) -> dict[str, Any]:
    """Halves, so that sums are exact in any order; no `odd` for even sums."""
    y = result.state["y"]
    return {"half": y / 2} | ({"odd": float(y)} if y % 2 else {})


CASES = [{"id": str(x), "input": {"x": x}} for x in range(6)]
ALL = {"add": "all"}


def grouped(database: Database, sweep_id: str) -> list[dict[str, Any]]:
    """The expected tallies, by one GROUP BY."""
    keys = (scores.c.sweep_id, scores.c.metric, scores.c.combination)
    sums = (sa.func.count().label("n"), sa.func.sum(scores.c.value).label("total"))
    query = sa.select(*keys, *sums).where(scores.c.sweep_id == sweep_id, scores.c.value.is_not(None)).group_by(*keys)
    with database.read() as connection:
        rows = [dict(row) for row in connection.execute(query).mappings()]
    return sorted(rows, key=lambda row: (row["metric"], row["combination"]))


def tallied(database: Database, sweep_id: str) -> list[dict[str, Any]]:
    rows = map(structs.asdict, tally_rows(database, sweep_id))
    return sorted(rows, key=lambda row: (row["metric"], row["combination"]))


class Cells:
    """The cells of a sweep without a runner: a test decides when and how they finish."""

    def __init__(self, bench: Any) -> None:
        self.database: Database = bench.database
        self.sweep_id: str = bench.sweep_id
        self.session_id = str(bench.row.session_id)
        runner = ProcessIdentity(new_id(), "here", "b", 1, 0.0)
        leases.register(self.database, runner)
        self.runner_id = runner.id

    def claimed(self, limit: int = 1) -> list[dict[str, Any]]:
        with self.database.write() as connection:
            is_pending = (executions.c.sweep_id == self.sweep_id, executions.c.status == "pending")
            pending = sa.select(executions.c.id).where(*is_pending).order_by(executions.c.id).limit(limit)
            some = executions.c.id.in_(list(connection.scalars(pending)))
            claim = {
                "status": "running",
                "owner_id": self.runner_id,
                "token": executions.c.token + 1,
                "lease_until": 2e9,
            }
            connection.execute(executions.update().where(some).values(**claim))
            rows = connection.execute(sa.select(executions).where(some)).mappings()
            return sorted(map(dict, rows), key=lambda row: str(row["id"]))

    def batch(self, row: dict[str, Any], points: float | None) -> Batch:
        """The batch that a runner writes at the end of an execution; without a value the execution fails."""
        status, cell = ("failed", "failed") if points is None else ("completed", "succeeded")
        place = {"sweep_id": self.sweep_id, "case_number": row["case_number"], "repeat": row["repeat"]}
        event = {"session_id": self.session_id, "sweep_id": self.sweep_id, "execution_id": row["id"], "at": 1.0}
        names = [] if points is None else ["first", "second"]
        change = {"status": status, "owner_id": None, "lease_until": None, "reason": None, "finished_at": 1.0}
        ends = {"ended_transaction": None, "ended_event": len(row["combinations"])}  # of an execution that completed
        failed = [{**event, "kind": "execution.failed", "severity": "info", "data": {}}]
        batch, numbers, metric = Batch(), row["combinations"], {"sweep_id": self.sweep_id, "better": "higher"}
        outcome = {**place, "status": cell, "execution_id": row["id"], "usd": 0.5}
        score = {**place, "value": points, "error": None}
        scored = [{**score, "metric": name, "combination": number} for name in names for number in numbers]
        batch.add(
            row["id"],
            row["token"],
            change=change if points is None else change | ends,
            outcomes=[{**outcome, "combination": number} for number in numbers],
            metrics=[{**metric, "name": name, "number": n} for n, name in enumerate(names)],
            appended={"scores": scored, "events": failed if points is None else []},
        )
        return batch

    def finish(self, points: float | None, limit: int = 1) -> int:
        """Finish the oldest pending cells, each in its own transaction, and return their number."""
        rows = self.claimed(limit)
        for row in rows:
            assert flush(self.database, self.batch(row, points), 30.0) == set()
        return len(rows)

    def rescore(self, points: float, limit: int) -> None:
        """Change the scores of some finished cells."""
        with self.database.read() as connection:
            ended = sa.select(executions).where(
                executions.c.sweep_id == self.sweep_id,
                executions.c.id.in_(sa.select(cells.c.execution_id).where(cells.c.status == "succeeded")),
            )
            rows = fetch_records(connection, ExecutionRow, ended.order_by(executions.c.id).limit(limit))
        sweep = find_sweep(self.database, self.sweep_id)
        write_scores(self.database, sweep, [(row, [Score("first", points, Measure())]) for row in rows])

    def check(self) -> None:
        """Bring the tallies up to date, and compare them with the scores."""
        until(lambda: not tally(self.database, self.sweep_id) and self.whole())
        assert tallied(self.database, self.sweep_id) == grouped(self.database, self.sweep_id)

    def whole(self) -> bool:
        return whole_at(self.database, self.sweep_id) is not None


@pytest.fixture
def apart(bench: Make) -> Callable[..., Cells]:
    """A submitted sweep of 6 cases and 3 combinations, one execution a cell."""

    def make(**spec: Any) -> Cells:
        return Cells(bench(workflow(), CASES, ALL, run={"share": False}, **spec))

    return make


# The tallies


def test_after_a_run_the_tallies_are_the_sums_of_its_scores(run_sweep: Make) -> None:
    ran = run_sweep(workflow(fails=lambda y: y == 4), CASES, ALL, evaluators={"tests:score": score}, repeats=2)
    assert ran.counts["failed"] > 0
    assert tally(ran.database, ran.sweep_id)
    assert tallied(ran.database, ran.sweep_id) == grouped(ran.database, ran.sweep_id)
    assert {row["metric"] for row in tallied(ran.database, ran.sweep_id)} == {"score.half", "score.odd"}
    assert not tally(ran.database, ran.sweep_id), "there was nothing new"


def test_tallying_while_a_run_continues_counts_each_cell_once(bench: Make) -> None:
    many = [{"id": str(x), "input": {"x": x}} for x in range(60)]
    sweep = bench(workflow(), many, ALL, evaluators={"tests:s": score})
    run = sweep.start()
    while not run.wait(0.001):
        tally(sweep.database, sweep.sweep_id)
    run.finish()
    until(lambda: not tally(sweep.database, sweep.sweep_id) and freeze(sweep.database, sweep.sweep_id))
    assert tallied(sweep.database, sweep.sweep_id) == grouped(sweep.database, sweep.sweep_id)


def test_a_cell_that_is_retried_after_it_was_counted_counts_once(apart: Make) -> None:
    sweep = apart()
    sweep.finish(1.0, 18)
    sweep.check()
    assert retry(sweep.database, sweep.sweep_id, ("succeeded",)) == 18
    sweep.check()
    assert tallied(sweep.database, sweep.sweep_id) == []
    sweep.finish(3.0, 18)
    sweep.check()
    assert [(row["n"], row["total"]) for row in tallied(sweep.database, sweep.sweep_id)] == [(6, 18.0)] * 6


def test_new_scores_take_the_place_of_those_that_were_counted(apart: Make) -> None:
    sweep = apart()
    sweep.finish(1.0, 18)
    sweep.check()
    sweep.rescore(2.5, 5)
    sweep.check()
    assert sum(row["total"] for row in tallied(sweep.database, sweep.sweep_id)) == 18 + 13 + 5 * 2.5


@pytest.mark.parametrize("size", [1, 7])
def test_parts_of_any_size_count_each_cell_once(apart: Make, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(tallies, "PART_S", 0.0)
    monkeypatch.setattr(tallies, "_LEAST", size)
    sweep = apart()
    sweep.finish(1.0, 10)
    sweep.check()
    sweep.finish(2.0, 8)
    sweep.rescore(2.5, 5)
    sweep.check()
    retry(sweep.database, sweep.sweep_id, ("succeeded",))
    sweep.finish(3.0, 18)
    parts: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        parts.extend(["part"] * ("INSERT INTO tallies" in statement))

    sa.event.listen(sweep.database.engine, "before_cursor_execute", note)
    sweep.check()
    sa.event.remove(sweep.database.engine, "before_cursor_execute", note)

    assert [(row["n"], row["total"]) for row in tallied(sweep.database, sweep.sweep_id)] == [(6, 18.0)] * 6
    assert len(parts) >= 18 / size


def plan_of_tally(database: Database, sweep_id: str) -> str:
    """Run a tally and return the query plans by which the database reads the new rows, one step a line."""
    lines: list[str] = []
    explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"

    def ask(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        if "INSERT INTO tallies" in statement:
            cursor.execute(f"{explain} {statement}", parameters)
            lines.extend(str(row[-1]) for row in cursor.fetchall())

    sa.event.listen(database.engine, "before_cursor_execute", ask)
    assert tally(database, sweep_id)
    sa.event.remove(database.engine, "before_cursor_execute", ask)
    return "\n".join(lines)


def test_a_tally_reads_what_is_new_by_its_keys_and_nothing_else(run_sweep: Make) -> None:
    """PostgreSQL has statistics of the first sweep, and overestimates a part of it. The second one began after the
    last ANALYZE, so that PostgreSQL expects one row at most.
    """
    many = [{"id": str(x), "input": {"x": x}} for x in range(200)]
    first = run_sweep(workflow(), many, ALL, evaluators={"tests:score": score})
    with first.database.write() as connection:
        connection.execute(sa.text("ANALYZE"))
    second = run_sweep(workflow(), many, ALL, evaluators={"tests:score": score})
    plans = [plan_of_tally(bench.database, bench.sweep_id) for bench in (first, second)]
    for plan in plans:
        assert not [table for table in ("cells", "scores") if f"Seq Scan on {table}" in plan]
    assert "Seq Scan on events" not in plan
    if second.database.is_sqlite:
        assert "SCAN events" not in plan
        assert "(sweep_id=? AND metric=? AND case_number=? AND repeat=? AND combination=?)" in plan
    else:
        assert "Index Cond: ((id)::text = ANY" in plan
        assert "(case_number = executions_1.case_number) AND (repeat = executions_1.repeat)" in plan
        assert "(combination = (anon_2.value)::integer)" in plan
        assert "Join Filter" not in plan
    assert tallied(second.database, second.sweep_id) == grouped(second.database, second.sweep_id)


def test_the_next_tally_on_sqlite_begins_where_the_last_one_ended(apart: Make) -> None:
    sweep = apart()
    sweep.finish(1.0, 9)
    sweep.check()
    sweep.finish(1.0, 9)
    if sweep.database.is_sqlite:
        plan = plan_of_tally(sweep.database, sweep.sweep_id)
        assert "(sweep_id=? AND transaction=? AND id>? AND id<?)" in plan
    sweep.check()


def test_a_sweep_that_is_not_there_is_not_tallied(database: Database) -> None:
    assert not tally(database, new_id())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("finish"), st.integers(0, 9), st.integers(1, 6)),
        st.tuples(st.just("fail"), st.just(0), st.integers(1, 3)),
        st.tuples(st.just("rescore"), st.integers(0, 9), st.integers(1, 4)),
        st.tuples(st.sampled_from(["retry", "retry all", "tally"]), st.just(0), st.just(0)),
    ),
    max_size=20,
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_whatever_happens_in_whatever_order_the_tallies_are_right(
    memory_bench: Make, steps: list[tuple[str, int, int]]
) -> None:
    bench = memory_bench(workflow(), CASES, ALL, run={"share": False})
    sweep = Cells(bench)
    does: dict[str, Callable[[int, int], Any]] = {
        "finish": lambda quarters, limit: sweep.finish(quarters / 4, limit),
        "fail": lambda quarters, limit: sweep.finish(None, limit),
        "rescore": lambda quarters, limit: sweep.rescore(quarters / 4, limit),
        "retry": lambda quarters, limit: retry(sweep.database, sweep.sweep_id),
        "retry all": lambda quarters, limit: retry(sweep.database, sweep.sweep_id, ("succeeded", "failed")),
        "tally": lambda quarters, limit: sweep.check(),
    }
    for name, quarters, limit in steps:
        does[name](quarters, limit)
    sweep.check()
    bench.database.close()


# The same on PostgreSQL, where transactions overlap


@pytest.fixture
def postgres(prepared_postgres_url: str) -> Iterator[Database]:
    opened = Database(prepared_postgres_url)
    yield opened
    opened.close()


@pytest.fixture
def on_postgres(postgres: Database, tmp_path: Path) -> Callable[..., Cells]:
    from tests.support.bench import make_bench

    def make(cases: int = 6) -> Cells:
        listed = [{"id": str(x), "input": {"x": x}} for x in range(cases)]
        return Cells(make_bench(postgres, tmp_path / "files", workflow(), listed, ALL, run={"share": False}))

    return make


def begin(database: Database) -> tuple[sa.Connection, int]:
    """Begin a transaction that has its number and stays open."""
    connection = database.engine.connect()
    return connection, connection.scalar(sa.text("SELECT pg_current_xact_id()::text::bigint"))


def test_what_commits_before_an_older_transaction_waits_for_it_and_nothing_is_missed(on_postgres: Make) -> None:
    sweep = on_postgres()
    old, number = begin(sweep.database)
    young = sweep.claimed(2)
    for row in young:
        flush(sweep.database, sweep.batch(row, 1.0), 30.0)
    assert not any(row["n"] for row in tallied(sweep.database, sweep.sweep_id))
    tally(sweep.database, sweep.sweep_id)
    assert tallied(sweep.database, sweep.sweep_id) == [], "an older one may still add events before these"
    # The older one ends a cell, too, and commits last.
    (late,) = sweep.claimed(1)
    event = {"session_id": sweep.session_id, "sweep_id": sweep.sweep_id, "execution_id": late["id"], "at": 1.0}
    place = {"sweep_id": sweep.sweep_id, "case_number": late["case_number"], "repeat": 0}
    old.execute(
        scores.insert().values(**place, metric="first", combination=late["combinations"][0], value=4.0, error=None)
    )
    old.execute(cells.update().where(cells.c.execution_id == late["id"]).values(status="succeeded"))
    old.execute(events.insert().values(**event, kind="execution.completed", severity="info", data={}))
    old.commit()
    old.close()
    with sweep.database.read() as connection:
        ends = log_rows(connection, sweep.sweep_id, kinds=["execution.completed"])
        written = sorted(ends, key=lambda row: row["id"])
    assert [row["execution_id"] for row in written] == [*(row["id"] for row in young), late["id"]]
    assert written[-1]["transaction"] == number < min(row["transaction"] for row in written[:-1])
    sweep.check()
    assert sum(row["total"] for row in tallied(sweep.database, sweep.sweep_id)) == 2 * 2 * 1.0 + 4.0


def test_a_new_outcome_is_not_counted_for_the_one_that_it_superseded(on_postgres: Make) -> None:
    sweep = on_postgres()
    sweep.finish(1.0, 3)
    sweep.check()
    retry(sweep.database, sweep.sweep_id, ("succeeded",))
    old, _ = begin(sweep.database)
    # The second outcome is there, but not to be counted yet, while the retry makes the sweep be counted anew.
    rows = [row for row in sweep.claimed(18) if row["origin"] == "retry"]
    for row in rows:
        flush(sweep.database, sweep.batch(row, 2.0), 30.0)
    assert len(rows) == 3
    tally(sweep.database, sweep.sweep_id)
    assert tallied(sweep.database, sweep.sweep_id) == []
    old.rollback()
    old.close()
    sweep.check()
    assert sum(row["n"] for row in tallied(sweep.database, sweep.sweep_id)) == 2 * 3


def test_who_finds_somebody_tallying_continues_at_once(on_postgres: Make) -> None:
    sweep = on_postgres()
    sweep.finish(1.0, 3)
    tally(sweep.database, sweep.sweep_id)
    sweep.finish(1.0, 3)
    with sweep.database.engine.connect() as other:
        other.execute(sa.text("SELECT 1 FROM matrices WHERE sweep_id = :id FOR UPDATE"), {"id": sweep.sweep_id})
        started = time.monotonic()
        assert not tally(sweep.database, sweep.sweep_id)
        assert time.monotonic() - started < 4, "it waited for the lock"
    sweep.check()


KILLED = """
import os, signal, sys
import sqlalchemy as sa
from wtb.store.database import Database
from wtb.store.read.tallies import tally

database = Database(sys.argv[1])

@sa.event.listens_for(database.engine, "after_cursor_execute")
def die(connection, cursor, statement, *rest):
    if statement.startswith("UPDATE matrices"):  # the last statement: all is written, and nothing committed
        os.kill(os.getpid(), signal.SIGKILL)

tally(database, sys.argv[2])
"""

TALLIES = """
import sys
from wtb.store.database import Database
from wtb.store.read.tallies import tally

database = Database(sys.argv[1])
print("ready", flush=True)
while True:
    tally(database, sys.argv[2])
"""


def test_a_tally_killed_before_its_commit_counts_nothing_and_the_next_one_counts_all(on_postgres: Make) -> None:
    sweep = on_postgres()
    sweep.finish(1.0, 2)
    sweep.check()
    before = tallied(sweep.database, sweep.sweep_id)
    sweep.finish(2.0, 7)
    url = sweep.database.url.render_as_string(hide_password=False)
    with Script(KILLED, url, sweep.sweep_id) as tallying:
        assert tallying.wait(60) == -signal.SIGKILL
    assert tallied(sweep.database, sweep.sweep_id) == before
    sweep.check()
    assert sum(row["n"] for row in tallied(sweep.database, sweep.sweep_id)) == 2 * 9


def test_two_processes_tally_while_cells_finish_and_one_is_killed_again_and_again(on_postgres: Make) -> None:
    sweep = on_postgres(cases=150)
    luck = random.Random(4)
    url = sweep.database.url.render_as_string(hide_password=False)

    def started() -> Script:
        script = Script(TALLIES, url, sweep.sweep_id)
        assert script.stdout.readline() == "ready\n"
        return script

    one_at_a_time = threading.Lock()  # so that two do not score or retry the same cells

    def work(seed: int) -> None:
        mine = random.Random(seed)
        while True:
            with one_at_a_time:
                if mine.random() < 0.05:
                    sweep.rescore(mine.randrange(8) / 4, 3)
                    retry(sweep.database, sweep.sweep_id)
                rows = sweep.claimed(2)
            if not rows:
                return
            for row in rows:
                points = mine.randrange(8) / 4 if mine.random() < 0.9 else None
                flush(sweep.database, sweep.batch(row, points), 30.0)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    tallying = [started(), started()]
    try:
        for thread in threads:
            thread.start()
        kills = 0
        while any(thread.is_alive() for thread in threads):
            threads[0].join(luck.uniform(0.05, 0.4))
            tallying[0].kill()
            tallying[0].communicate()
            kills += 1
            tallying[0] = started()
        until(sweep.whole)
        assert tallied(sweep.database, sweep.sweep_id) == grouped(sweep.database, sweep.sweep_id)
        assert kills > 0
    finally:
        for process in tallying:
            process.kill()
            process.communicate()
        for thread in threads:
            thread.join(30)
    sweep.check()
    assert sum(row["n"] for row in tallied(sweep.database, sweep.sweep_id)) > 0


# The kept matrix


@pytest.fixture
def ended(run_sweep: Make) -> Any:
    """A sweep that has ended with failed cells."""
    wf = workflow(fails=lambda y: y == 4)
    return run_sweep(wf, CASES, ALL, evaluators={"tests:score": score}, baseline={"add": "v1"})


def frozen(bench: Any) -> dict[str, Any]:
    until(lambda: freeze(bench.database, bench.sweep_id))
    matrix = kept_matrix(bench.database, bench.sweep_id)
    assert matrix is not None
    return matrix


def test_a_kept_matrix_is_the_one_that_is_made_byte_for_byte_and_nobody_looks_at_cells_for_it(ended: Any) -> None:
    encoded, counts, row = orjson.dumps(read_matrix(ended.database, ended.row)), ended.counts, ended.row
    assert orjson.dumps(frozen(ended)) == encoded
    queries: list[str] = []
    sa.event.listen(ended.database.engine, "before_cursor_execute", lambda *args: queries.append(args[2]))
    assert orjson.dumps(read_matrix(ended.database, row)) == encoded
    assert any("matrices" in query for query in queries)
    assert not [query for query in queries if "cells" in query or "scores" in query or "node_runs" in query]
    queries.clear()
    assert [counts, *(listed.counts for listed in list_sweeps(ended.database))] == [ended.counts] * 2
    assert queries
    assert not [query for query in queries if "FROM cells" in query]


def test_a_sweep_that_is_not_at_its_end_has_no_kept_matrix(bench: Make) -> None:
    sweep = bench(workflow(), CASES, ALL)
    assert not freeze(sweep.database, sweep.sweep_id)
    sweep.run(node_runs=3)
    assert sweep.status == "paused"
    assert not freeze(sweep.database, sweep.sweep_id)
    assert kept_matrix(sweep.database, sweep.sweep_id) is None


def test_on_postgresql_a_matrix_is_kept_once_no_older_transaction_can_add_to_it(on_postgres: Make) -> None:
    sweep = on_postgres()
    old, _ = begin(sweep.database)
    leases.move_sweep(sweep.database, sweep.sweep_id, "running")
    sweep.finish(1.0, 18)
    leases.move_sweep(sweep.database, sweep.sweep_id, "completed")
    assert not freeze(sweep.database, sweep.sweep_id)
    old.rollback()
    old.close()
    until(lambda: freeze(sweep.database, sweep.sweep_id))


def retry_failed(bench: Any) -> None:
    assert retry(bench.database, bench.sweep_id) > 0


def retry_and_run(bench: Any) -> None:
    retry(bench.database, bench.sweep_id)
    bench.run()


def rescore(bench: Any) -> None:
    completed = [row for row in bench.executions if row.status == "completed"]
    write_scores(bench.database, bench.row, [(row, [Score("tests:score.half", 9.0, Measure())]) for row in completed])


def resume(bench: Any) -> None:
    leases.move_sweep(bench.database, bench.sweep_id, "running")


def collect_superseded(bench: Any) -> None:
    """Delete superseded checkpoints and an attempt that cost money."""
    retry(bench.database, bench.sweep_id)
    bench.run()
    frozen(bench)
    with bench.database.write() as connection:  # as a rollback leaves them
        heads = sa.select(executions.c.head_id).where(executions.c.sweep_id == bench.sweep_id)
        head = connection.scalar(heads.limit(1))
        connection.execute(cells.update().where(cells.c.sweep_id == bench.sweep_id).values(execution_id=None))
        assert connection.scalar(sa.select(checkpoints.c.id).where(checkpoints.c.id == head))
    policy = Policy(outputs=None, superseded=0.0, sweeps=None)
    report = apply_policy(bench.database, FileStore(bench.folder / "files"), policy, at=time.time() + 10)
    assert report.removed["checkpoints"].count


CHANGES = [retry_failed, retry_and_run, rescore, resume, collect_superseded]


def fresh(ended: Any) -> MatrixDocument:
    """The matrix of a sweep, built from the current rows of its database."""
    return matrix_from(read_facts(ended.database, ended.row, Scores(ended.database, ended.row)))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_kept_matrix_is_not_read_any_more_when_its_sweep_has_changed(
    ended: Any, change: Callable[[Any], None]
) -> None:
    before = frozen(ended)
    change(ended)
    after = read_matrix(ended.database, ended.row)
    assert after == fresh(ended)
    assert after != before, "the change shows"
    assert ended.counts == Counter(row["status"] for row in ended.rows(cells))
    if ended.status == "completed" and ended.counts.keys() <= {"succeeded", "failed"}:
        assert frozen(ended) == after


def test_what_does_not_show_in_the_matrix_leaves_it_right(ended: Any) -> None:
    before = frozen(ended)
    retention.pin_sweep(ended.database, ended.sweep_id, True)
    assert read_matrix(ended.database, ended.row) == frozen(ended) == before


def test_a_matrix_whose_sweep_changed_while_it_was_made_is_not_read(ended: Any, monkeypatch: Any) -> None:
    from wtb.analysis.matrix import build as matrix

    def change_meanwhile(facts: SweepFacts) -> MatrixDocument:
        document = matrix_from(facts)
        rescore(ended)
        return document

    until(lambda: not tally(ended.database, ended.sweep_id) and _is_whole(ended))
    monkeypatch.setattr(matrix, "matrix_from", change_meanwhile)
    freeze(ended.database, ended.sweep_id)
    monkeypatch.undo()
    assert kept_matrix(ended.database, ended.sweep_id) is None
    assert read_matrix(ended.database, ended.row) == fresh(ended)


def _is_whole(bench: Any) -> bool:
    return whole_at(bench.database, bench.sweep_id) is not None


def test_a_sweep_goes_with_its_tallies_and_its_kept_matrix(ended: Any) -> None:
    frozen(ended)
    deletion.delete_sweep(ended.database, ended.sweep_id)
    assert tally_rows(ended.database, ended.sweep_id) == []
    assert kept_matrix(ended.database, ended.sweep_id) is None


# Watching


def test_how_a_sweep_stands_agrees_with_its_scores(bench: Make) -> None:
    sweep = bench(workflow(fails=lambda y: y == 4), CASES, ALL, evaluators={"tests:score": score})
    sweep.run(node_runs=11)
    assert sweep.status == "paused"
    until(lambda: not tally(sweep.database, sweep.sweep_id) and _is_whole(sweep))
    document = live(sweep.database, sweep.row)
    assert document["cells"]["total"] == 18
    assert document["sweep"] == {name: getattr(sweep.row, name) for name in ("id", "name", "status", "reason")}
    ended_cells = [cell for cell in sweep.cells() if cell.status in ("succeeded", "failed")]
    for row in document["rows"]:
        mine = [cell for cell in ended_cells if cell.combination == row["combination"]]
        assert (row["cells"], row["done"]) == (6, len(mine))
        assert row["failed"] == sum(cell.status == "failed" for cell in mine)
        for name in document["metrics"]:
            values = [cell.scores[name] for cell in mine if cell.scores.get(name) is not None]
            expected = {"n": len(values), "mean": sum(values) / len(values)} if values else None
            assert row["metrics"].get(name) == expected


def test_before_anything_is_tallied_nobody_leads(bench: Make) -> None:
    sweep = bench(workflow(), CASES, ALL, evaluators={"tests:score": score})
    document = live(sweep.database, sweep.row)
    assert [row["metrics"] for row in document["rows"]] == [{}, {}, {}]
    assert set(leaders(sweep.database, sweep.row)["best"].values()) <= {None}
    assert document["tallied_at"] is None


def test_a_run_on_this_machine_keeps_its_matrix_when_it_ends(prepared_url: str, tmp_path: Path) -> None:
    wf = Workflow("doubling")
    wf.entry(wf.node(lambda state: {"y": 2 * state["x"]}, name="double"))
    cases = [{"id": str(x), "input": {"x": x}, "expected": {"y": 2 * x}} for x in range(4)]
    sweep = Sweep(workflow=wf, cases=cases, vary={"double": "all"}, evaluate=[{"exact_match": {"field": "y"}}])
    with wtb.open(prepared_url, files=tmp_path / "files") as bench:
        ended = bench.run(sweep)
        matrix = kept_matrix(bench.database, ended.id)
        assert matrix["rows"] == ended.matrix()["rows"]
        assert matrix["rows"][0]["metrics"]["exact_match"]["mean"] == 1.0
