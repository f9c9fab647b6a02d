"""Scorings on workers: one worker has it at a time, and writes nothing after losing it."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support.bench import Bench, make_bench
from tests.support.prose import sentence
from tests.support.tenants import plain
from wtb.core.stop import Stop, Stopped
from wtb.core.values import Json
from wtb.operations.results.scoring import Scored, evaluators_of, score_by
from wtb.planning.sweep_spec import read_evaluators
from wtb.store.control import rescore, sweeps
from wtb.store.database import Database
from wtb.store.housekeeping.deletion import begin_deletion, delete_sweep
from wtb.store.tables.control import ScoringRow
from wtb.store.tables.schema import scores, scorings
from wtb.store.tables.schema import sweeps as table

LEASE_S = 60.0


@pytest.fixture
def bench(database: Database, tmp_path: Path) -> Bench:
    sweep = make_bench(database, tmp_path, plain(), [{"id": "a", "input": {"x": 1}, "expected": {"x": 2}}])
    sweep.run()
    return sweep


def request_scoring(bench: Bench, queue: str = "", **other: Json) -> ScoringRow:
    evaluators: list[dict[str, Json]] = [other or {"exact_match": {"field": "x"}}]
    id = rescore.ask_to_score(bench.database, bench.sweep_id, evaluators, queue=queue, by="ann")
    return rescore.find_scoring(bench.database, bench.sweep_id, id)


def claimed(bench: Bench, row: ScoringRow, runner: str = "one", lease_s: float = LEASE_S) -> ScoringRow:
    scoring = rescore.claim_scoring(bench.database, row, runner, lease_s)
    assert scoring is not None
    return scoring


def published(bench: Bench) -> list[str]:
    """Publish the claimable scorings, and return their ids."""
    with bench.database.write() as connection:
        return [id for id, _, _ in rescore.publish_scorings(connection)]


def status_of(bench: Bench, row: ScoringRow) -> str:
    return rescore.find_scoring(bench.database, bench.sweep_id, row.id).status


def scored(bench: Bench, scoring: ScoringRow, stop: Stop | None = None) -> Scored:
    """Score as a worker does."""

    def count(connection: sa.Connection, written: int) -> None:
        rescore.count_scores(connection, scoring, written)

    evaluators = evaluators_of(bench.row, read_evaluators(scoring.evaluators), str)
    options = {"at_once": None, "runner_id": "one", "stop": stop, "also": count}
    return score_by(bench.database, bench.workspaces, bench.row, evaluators, **options)  # type: ignore[arg-type]


def test_who_has_it_writes_and_counts(bench: Bench) -> None:
    scoring = claimed(bench, request_scoring(bench))
    assert rescore.scoring_of_task(bench.database, scoring.id) is None
    assert scored(bench, scoring).scores == 1
    rescore.end_scoring(bench.database, scoring, "succeeded")
    row = rescore.find_scoring(bench.database, bench.sweep_id, scoring.id)
    assert (row.status, row.scores, row.owner_id, row.lease_until) == ("succeeded", 1, None, None)
    assert rescore.claim_scoring(bench.database, row, "two", LEASE_S) is None


def test_what_may_ask_judges_runs_where_nodes_do(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker has keys and the database URL; the environment of nodes does not."""
    monkeypatch.delattr("wtb.operations.results.scoring._all_scores")
    scoring = claimed(bench, request_scoring(bench, any_of={"of": [{"exact_match": {"field": "x"}}]}))
    assert scored(bench, scoring).scores > 0
    assert {row["error"] for row in bench.rows(scores)} == {None}


def test_a_task_of_it_is_published_once_for_its_queue(bench: Bench) -> None:
    row = request_scoring(bench, "gpu")
    with bench.database.write() as connection:
        assert rescore.publish_scorings(connection) == [(row.id, "gpu", bench.sweep_id)]
        assert rescore.publish_scorings(connection) == []
        assert rescore.publish_scorings(connection, again_s=60.0) == []
        assert rescore.publish_scorings(connection, again_s=-1.0) == [(row.id, "gpu", bench.sweep_id)]


def test_who_lost_it_writes_nothing_and_ends_nothing(bench: Bench) -> None:
    row = request_scoring(bench)
    late = claimed(bench, row, lease_s=-1.0)
    claimed(bench, row, "two")
    with pytest.raises(Stopped):
        scored(bench, late)
    assert bench.rows(scores) == []
    assert not rescore.renew_scoring(bench.database, late, LEASE_S)
    rescore.release_scoring(bench.database, late)
    rescore.end_scoring(bench.database, late, "failed")
    assert status_of(bench, row) == "running"


def test_those_of_one_sweep_are_done_one_after_the_other(bench: Bench) -> None:
    first, second = request_scoring(bench), request_scoring(bench)
    scoring = claimed(bench, first)
    assert published(bench) == []
    assert rescore.claim_scoring(bench.database, second, "two", LEASE_S) is None
    rescore.release_scoring(bench.database, scoring)
    assert set(published(bench)) == {first.id, second.id}
    claimed(bench, first)
    rescore.withdraw_scoring(bench.database, second.id)  # its task came while the other one ran
    assert published(bench) == []
    rescore.end_scoring(bench.database, rescore.find_scoring(bench.database, bench.sweep_id, first.id), "succeeded")
    assert published(bench) == [second.id]


def test_what_was_begun_too_often_fails(bench: Bench) -> None:
    row = request_scoring(bench)
    for _ in range(rescore.MOST_CLAIMS):
        claimed(bench, row, lease_s=-1.0)
    assert rescore.claim_scoring(bench.database, row, "one", LEASE_S) is None
    after = rescore.find_scoring(bench.database, bench.sweep_id, row.id)
    assert (after.status, sentence("none came to its end") in str(after.reason)) == ("failed", True)


def test_a_stop_is_heard_before_the_next_cell(bench: Bench) -> None:
    stop = Stop()
    stop.request("its worker is being stopped")
    with pytest.raises(Stopped):
        scored(bench, claimed(bench, request_scoring(bench)), stop)
    assert bench.rows(scores) == []


def test_who_cancels_a_sweep_ends_it(bench: Bench) -> None:
    bench.database.execute(table.update().values(status="running"))
    scoring, waits = claimed(bench, request_scoring(bench)), request_scoring(bench)
    sweeps.cancel(bench.database, bench.sweep_id, reason="by ann", by="ann")
    assert {status_of(bench, scoring), status_of(bench, waits)} == {"cancelled"}
    with pytest.raises(Stopped):
        scored(bench, scoring)
    assert bench.rows(scores) == []


def test_a_sweep_that_is_deleted_takes_it_along(bench: Bench) -> None:
    scoring, waits = claimed(bench, request_scoring(bench)), request_scoring(bench)
    begin_deletion(bench.database, bench.sweep_id)
    assert published(bench) == []
    assert rescore.claim_scoring(bench.database, waits, "two", LEASE_S) is None
    assert not rescore.renew_scoring(bench.database, scoring, LEASE_S)
    delete_sweep(bench.database, bench.sweep_id)
    assert bench.rows(scorings) == []
