"""What workers are asked to score again: one has it at a time, and who lost it writes nothing more."""

from __future__ import annotations

from collections.abc import Iterator
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
def bench(prepared_url: str, tmp_path: Path) -> Iterator[Bench]:
    database = Database(prepared_url)
    made = make_bench(database, tmp_path, plain(), [{"id": "a", "input": {"x": 1}, "expected": {"x": 2}}])
    made.run()
    yield made
    database.close()


def asked(bench: Bench, queue: str = "", **other: Json) -> ScoringRow:
    evaluators: list[dict[str, Json]] = [other or {"exact_match": {"field": "x"}}]
    id = rescore.ask_to_score(bench.database, bench.sweep_id, evaluators, queue=queue, by="ann")
    return rescore.find_scoring(bench.database, bench.sweep_id, id)


def claimed(bench: Bench, row: ScoringRow, runner: str = "one", lease_s: float = LEASE_S) -> ScoringRow:
    found = rescore.claim_scoring(bench.database, row, runner, lease_s)
    assert found is not None
    return found


def published(bench: Bench) -> list[str]:
    """Publish what can be claimed. Returns the ids."""
    with bench.database.write() as connection:
        return [id for id, _, _ in rescore.publish_scorings(connection)]


def status_of(bench: Bench, row: ScoringRow) -> str:
    return rescore.find_scoring(bench.database, bench.sweep_id, row.id).status


def scored(bench: Bench, held: ScoringRow, stop: Stop | None = None) -> Scored:
    """Score as a worker does."""

    def count(connection: sa.Connection, written: int) -> None:
        rescore.count_scores(connection, held, written)

    made = evaluators_of(bench.row, read_evaluators(held.evaluators), str)
    options = {"at_once": None, "runner_id": "one", "stop": stop, "also": count}
    return score_by(bench.database, bench.workspaces, bench.row, made, **options)  # type: ignore[arg-type]


def test_who_has_it_writes_and_counts(bench: Bench) -> None:
    held = claimed(bench, asked(bench))
    assert rescore.scoring_of_task(bench.database, held.id) is None
    assert scored(bench, held).scores == 1
    rescore.end_scoring(bench.database, held, "succeeded")
    found = rescore.find_scoring(bench.database, bench.sweep_id, held.id)
    assert (found.status, found.scores, found.owner_id, found.lease_until) == ("succeeded", 1, None, None)
    assert rescore.claim_scoring(bench.database, found, "two", LEASE_S) is None


def test_what_may_ask_judges_runs_where_nodes_do(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would find in a worker what the environment of nodes has not: keys, and the way to the database."""
    monkeypatch.delattr("wtb.operations.results.scoring._all_scores")
    held = claimed(bench, asked(bench, any_of={"of": [{"exact_match": {"field": "x"}}]}))
    assert scored(bench, held).scores > 0
    assert {row["error"] for row in bench.rows(scores)} == {None}


def test_a_task_of_it_is_published_once_for_its_queue(bench: Bench) -> None:
    row = asked(bench, "gpu")
    with bench.database.write() as connection:
        assert rescore.publish_scorings(connection) == [(row.id, "gpu", bench.sweep_id)]
        assert rescore.publish_scorings(connection) == []
        assert rescore.publish_scorings(connection, again_s=60.0) == []
        assert rescore.publish_scorings(connection, again_s=-1.0) == [(row.id, "gpu", bench.sweep_id)]


def test_who_lost_it_writes_nothing_and_ends_nothing(bench: Bench) -> None:
    row = asked(bench)
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
    first, second = asked(bench), asked(bench)
    held = claimed(bench, first)
    assert published(bench) == []
    assert rescore.claim_scoring(bench.database, second, "two", LEASE_S) is None
    rescore.release_scoring(bench.database, held)
    assert set(published(bench)) == {first.id, second.id}
    claimed(bench, first)
    rescore.withdraw_scoring(bench.database, second.id)  # its task came while the other one ran
    assert published(bench) == []
    rescore.end_scoring(bench.database, rescore.find_scoring(bench.database, bench.sweep_id, first.id), "succeeded")
    assert published(bench) == [second.id]


def test_what_was_begun_too_often_fails(bench: Bench) -> None:
    row = asked(bench)
    for _ in range(rescore.MOST_CLAIMS):
        claimed(bench, row, lease_s=-1.0)
    assert rescore.claim_scoring(bench.database, row, "one", LEASE_S) is None
    found = rescore.find_scoring(bench.database, bench.sweep_id, row.id)
    assert (found.status, sentence("none came to its end") in str(found.reason)) == ("failed", True)


def test_a_stop_is_heard_before_the_next_cell(bench: Bench) -> None:
    stop = Stop()
    stop.request("its worker is being stopped")
    with pytest.raises(Stopped):
        scored(bench, claimed(bench, asked(bench)), stop)
    assert bench.rows(scores) == []


def test_who_cancels_a_sweep_ends_it(bench: Bench) -> None:
    bench.database.execute(table.update().values(status="running"))
    held, waits = claimed(bench, asked(bench)), asked(bench)
    sweeps.cancel(bench.database, bench.sweep_id, reason="by ann", by="ann")
    assert {status_of(bench, held), status_of(bench, waits)} == {"cancelled"}
    with pytest.raises(Stopped):
        scored(bench, held)
    assert bench.rows(scores) == []


def test_a_sweep_that_is_deleted_takes_it_along(bench: Bench) -> None:
    held, waits = claimed(bench, asked(bench)), asked(bench)
    begin_deletion(bench.database, bench.sweep_id)
    assert published(bench) == []
    assert rescore.claim_scoring(bench.database, waits, "two", LEASE_S) is None
    assert not rescore.renew_scoring(bench.database, held, LEASE_S)
    delete_sweep(bench.database, bench.sweep_id)
    assert bench.rows(scorings) == []
