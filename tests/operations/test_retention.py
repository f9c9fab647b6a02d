"""A collection removes unreachable and old rows and files; whatever can still be reached stays."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.prose import sentence
from tests.support.waiting import until
from wtb.authoring.workflow import Workflow
from wtb.config.retention_policy import LEAST_GRACE_S, Policy, read_policy
from wtb.core.errors import ConflictError, InputError
from wtb.display.views.executions import execution_document, history_document
from wtb.operations.context import Context
from wtb.operations.garbage_collection import Collected, Removed, apply_policy
from wtb.operations.projects import change_project, create_project
from wtb.store.access.requests import KEPT_S
from wtb.store.access.usage import stored_amounts
from wtb.store.bulk import insert_rows, insert_values
from wtb.store.database import Database
from wtb.store.files.manifest import Entry
from wtb.store.files.store import FileStore
from wtb.store.housekeeping import contents as filing
from wtb.store.housekeeping import deletion, retention, stored_values, superseded
from wtb.store.housekeeping.contents import mark
from wtb.store.housekeeping.stored_values import values_named
from wtb.store.log import take_positions
from wtb.store.read.queries import find_execution
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.node_runs import FIRST_HAS_ROW
from wtb.store.tables.schema import (
    attempts,
    calls,
    cases,
    cells,
    checkpoints,
    decisions,
    events,
    executions,
    files,
    idempotency_keys,
    metadata,
    node_runs,
    operations,
    scores,
    sessions,
    sweeps,
    uploads,
    values,
    workflows,
)

DAY = 86400.0
NOW = 1_700_000_000.0
ALL_OFF = Policy(outputs=None, superseded=None, sweeps=None)


def stored_value(text: str) -> tuple[str, bytes]:
    content = f'"{text}"'.encode()
    return hashlib.sha256(content).hexdigest(), content


@dataclass
class World:
    """A database with rows as runs leave them, written by hand, and a store of files."""

    database: Database
    store: FileStore
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(10_000)))

    def insert(self, table: sa.Table, **row: Any) -> None:
        with self.database.write() as connection:
            insert_rows(connection, table, [row])

    def rows(self, table: sa.Table) -> list[dict[str, Any]]:
        with self.database.read() as connection:
            return [dict(row) for row in connection.execute(sa.select(table)).mappings()]

    def ids(self, table: sa.Table) -> set[str]:
        return {row["id"] for row in self.rows(table)}

    def store_values(self, *texts: str) -> dict[str, str]:
        """Store values, and name them as a state does."""
        with self.database.write() as connection:
            insert_values(connection, sorted(stored_value(text) for text in texts))
        return {f"k{n}": stored_value(text)[0] for n, text in enumerate(texts)}

    @property
    def stored(self) -> set[str]:
        return {row["data"].strip('"') for row in self.rows(values)}

    def sweep(self, id: str, *, days: float = 0, name: str = "nightly", session: str = "default", **row: Any) -> str:
        """Insert a completed sweep of one case that finished `days` ago."""
        if not self.rows(workflows):
            self.insert(
                workflows,
                id="w",
                name="w",
                version="1",
                graph={"name": "w", "entries": [], "nodes": [], "edges": [], "branches": []},
            )
        at = NOW - days * DAY
        about = {"session_id": session, "workflow_id": "w", "name": name, "status": "completed", "cells": 1}
        about |= {"spec": {}, "fingerprints": {}, "created_at": at, "started_at": at, "finished_at": at}
        self.insert(sweeps, **{"id": id, **about, **row})
        self.insert(cases, sweep_id=id, number=0, id="c", input=self.store_values(f"{id} input"), tags=[])
        with self.database.write() as connection:
            connection.execute(
                sa.text("INSERT INTO combinations (sweep_id, number, choices) VALUES (:id, 0, '{}')"), {"id": id}
            )
        return id

    def execution(self, id: str, sweep: str, head: str | None, status: str = "completed", *, named: bool = True) -> str:
        about = {"session_id": "default", "sweep_id": sweep, "origin": "root", "case_number": 0, "repeat": 0}
        about |= {"combinations": [0], "status": status, "head_id": head, "created_at": NOW}
        self.insert(executions, id=id, **about)
        if named:
            combination = next(self.numbers)
            row = {"sweep_id": sweep, "case_number": 0, "repeat": 0, "combination": combination}
            self.insert(cells, **row, status="succeeded", execution_id=id)
        return id

    def line(self, sweep: str, execution: str, *ids: str, after: str | None = None, days: float = 5) -> None:
        """Checkpoints after one another, each with the node run that led to it, an attempt, a call and a decision."""
        for number, id in enumerate(ids):
            at = NOW - days * DAY + number
            writers = []
            if after is not None:
                run = f"run-{id}"
                about = {"sweep_id": sweep, "execution_id": execution, "checkpoint_id": after, "task": run}
                about |= {"node": "n", "variant": "v", "visit": 0, "status": "succeeded", "attempts": 1, "cells": 1}
                about |= {"fingerprint": "f", "writes": self.store_values(f"{id} write"), "started_at": at}
                spent = {"duration_s": 1.0, "usd": 0.5, "tokens_in": 2, "tokens_out": 1}
                self.insert(node_runs, id=run, **about, **spent, begun_at=at, stdout=f"out {id}")
                self.insert(
                    calls, id=f"call-{id}", node_run_id=run, attempt=1, tokens_in=0, tokens_out=0, usd=0.0, at=at
                )
                writers = [["n", "v", run]]
            step = next(self.numbers)
            about = {"sweep_id": sweep, "execution_id": execution, "parent_id": after, "created_at": at}
            about |= {"position": {"step": step, "next": [], "arrived": {}, "visits": {}}, "writers": writers}
            about |= {"state": self.store_values(f"{id} state", "common"), "totals": [0, 0, 0, 0, 0]}
            self.insert(checkpoints, id=id, trigger="step", **about)
            self.insert(decisions, checkpoint_id=id, number=0, node="n", to="m", why="so")
            after = id

    def collect(self, dry: bool = False, **policy: Any) -> Collected:
        return apply_policy(self.database, self.store, Policy(**{**vars(ALL_OFF), **policy}), dry_run=dry, at=NOW)

    def collected(self, **policy: Any) -> dict[str, tuple[int | None, int | None]]:
        """Collect, and return what was removed. Check that a dry run before it reports the same and changes nothing."""
        before = self.everything()
        preview = self.collect(dry=True, **policy)
        assert self.everything() == before
        collection = self.collect(**policy)
        assert preview.removed == collection.removed
        assert preview.notes == collection.notes == ()
        assert not any(
            removal.count for removal in self.collect(**policy).removed.values()
        )  # a second run has nothing to do
        return {kind: (removal.count, removal.bytes) for kind, removal in collection.removed.items() if removal.count}

    def everything(self) -> dict[str, Any]:
        tables = {table.name: sorted(map(repr, self.rows(table))) for table in metadata.sorted_tables}
        return {**tables, "stored": sorted(self.store.stored())}

    def keep_file(self, text: str, *, old: bool = True) -> Entry:
        place = self.store.top.parent / "source"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        digest, size = self.store.add(place)
        self.age(digest, old)
        return Entry(digest, size, 0o644)

    def snapshot(self, *texts: str, old: bool = True) -> str:
        digest, _ = self.store.add_manifest({f"{text}.txt": self.keep_file(text, old=old) for text in texts})
        self.age(digest, old)
        return digest

    def age(self, digest: str, old: bool = True) -> None:
        at = NOW - (2 * 3600 if old else 0)
        os.utime(self.store.path(digest), (at, at))

    def note(self, *digests: str, session: str = "default") -> None:
        for digest in digests:
            self.insert(files, session_id=session, digest=digest, size=1)

    def noted(self, session: str = "default") -> set[str]:
        return {row["digest"] for row in self.rows(files) if row["session_id"] == session}

    def contents(self) -> set[str]:
        return {digest for digest, _, _ in self.store.stored()}


@pytest.fixture
def world(database: Database, tmp_path: Path) -> World:
    return World(database, FileStore(tmp_path / "home" / "files").of_project("default"))


# Superseded checkpoints


def forked(world: World) -> None:
    """root -> a -> b, which a cell names, and root -> x -> y, which was left."""
    world.sweep("s", days=5)
    world.execution("kept", "s", "b")
    world.execution("left", "s", "y", "failed", named=False)
    world.line("s", "kept", "root", "a", "b")
    world.line("s", "left", "x", "y", after="root")


def test_checkpoints_on_no_line_of_a_head_go_with_all_that_hangs_on_them(world: World) -> None:
    forked(world)

    counts = world.collected(superseded=DAY)

    sizes = [len(stored_value(text)[1]) for text in ("x state", "y state", "y write")]
    assert counts == {"checkpoints": (2, None), "node_runs": (1, None), "values": (3, sum(sizes))}
    assert world.ids(checkpoints) == {"root", "a", "b"}
    # The node run that led to x started from a checkpoint that stays, and so does it: it has its identity there.
    assert world.ids(node_runs) == {"run-a", "run-b", "run-x"}
    assert world.ids(calls) == {"call-a", "call-b", "call-x"}
    assert {row["checkpoint_id"] for row in world.rows(decisions)} == {"root", "a", "b"}


def test_what_went_has_been_told_by_an_event_and_an_execution_is_told_from_what_is_left(world: World) -> None:
    forked(world)
    world.collect(superseded=DAY)
    (event,) = world.rows(events)

    assert event["kind"] == "sweep.collected"
    spent = {"usd": 0.5, "tokens_in": 2, "tokens_out": 1}
    assert event["data"] == {"checkpoints": 2, "node_runs": 1, "attempts": 1, **spent}

    row = find_execution(world.database, "left")

    assert row.head_id == "root"
    assert row.reason == superseded.SUPERSEDED
    assert [checkpoint["id"] for checkpoint in history_document(world.database, row)["checkpoints"]] == ["root"]
    document = execution_document(world.database, row)
    assert (document["execution"]["status"], document["state"]["k0"]) == ("failed", "root state")


def test_an_execution_of_which_nothing_is_left_is_still_shown(world: World) -> None:
    world.sweep("s", days=5)
    world.execution("left", "s", "b", "cancelled", named=False)
    world.line("s", "left", "root", "a", "b")
    world.collect(superseded=DAY)

    (row,) = world.database.records(ExecutionRow, sa.select(executions))

    assert row.head_id is None
    assert history_document(world.database, row)["checkpoints"] == []
    assert execution_document(world.database, row)["state"] == {}


def test_an_open_execution_keeps_its_line(world: World) -> None:
    world.sweep("s", days=5, status="paused")
    world.execution("open", "s", "a", named=False)
    world.line("s", "open", "root", "a")
    for status in ("pending", "waiting", "paused"):
        world.database.execute(executions.update().values(status=status))
        assert world.collected(superseded=DAY) == {}, status


def test_a_pinned_checkpoint_keeps_the_line_that_leads_to_it(world: World) -> None:
    forked(world)
    retention.pin_checkpoint(world.database, "x", "s", True, "here")

    assert world.collected(superseded=DAY)["checkpoints"] == (1, None)
    assert world.ids(checkpoints) == {"root", "a", "b", "x"}
    (row,) = [row for row in world.rows(executions) if row["id"] == "left"]
    assert row["head_id"] == "x"


def test_a_young_checkpoint_keeps_its_line_until_its_time_has_come(world: World) -> None:
    forked(world)
    world.line("s", "left", "z", after="y", days=0.5)

    assert world.collected(superseded=DAY) == {}
    assert world.collected(superseded=DAY / 4)["checkpoints"] == (3, None)


def test_a_sweep_that_is_pinned_or_runs_keeps_everything(world: World) -> None:
    forked(world)
    retention.pin_sweep(world.database, "s", True)

    assert world.collected(superseded=DAY, outputs=DAY, sweeps=DAY, keep=0) == {}

    retention.pin_sweep(world.database, "s", False)
    world.database.execute(sweeps.update().values(status="running"))
    assert world.collected(superseded=DAY) == {}
    world.database.execute(sweeps.update().values(status="completed"))
    assert set(world.collected(superseded=DAY, outputs=DAY)) == {"checkpoints", "node_runs", "outputs", "values"}


def test_many_are_removed_in_parts_from_the_ends_of_lines(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.sweep("s", days=5)
    world.execution("left", "s", "c9", "failed", named=False)
    world.line("s", "left", *(f"c{n}" for n in range(10)))
    monkeypatch.setattr(superseded, "PART", 3)

    removed = superseded.remove_superseded(world.database, "s", NOW)

    assert (removed.checkpoints, removed.node_runs) == (3, 2)
    (row,) = world.database.records(ExecutionRow, sa.select(executions))
    assert row.head_id == "c6"  # killed here, it would still be a whole line
    assert len(history_document(world.database, row)["checkpoints"]) == 7
    assert world.collected(superseded=DAY)["checkpoints"] == (7, None)


# Outputs


def test_what_is_kept_for_a_day_goes_after_it(world: World) -> None:
    now, old = time.time(), time.time() - KEPT_S - 10
    for id, at in (("old", old), ("new", now)):
        world.insert(uploads, id=id, digest="d", bytes=7, by="ann", created_at=at)
        world.insert(idempotency_keys, digest=id, request="r", created_at=at)
        world.insert(operations, id=id, name="compare", by="ann", projects="*", began_at=at, lease_until=at)
    world.insert(operations, id="busy", name="compare", by="ann", projects="*", began_at=old, lease_until=now + 60)
    assert world.collected() == {"uploads": (1, 7), "answers": (2, None)}
    assert (world.ids(uploads), world.ids(operations)) == ({"new"}, {"new", "busy"})


def test_old_outputs_go_and_the_attempts_stay(world: World) -> None:
    world.sweep("s", days=40)
    world.execution("e", "s", "b")
    world.line("s", "e", "root", "a", days=40)
    world.line("s", "e", "b", after="a", days=1)
    world.line("s", "e", "c", after="b", days=1)
    world.database.execute(node_runs.update().where(node_runs.c.id == "run-c").values(**FIRST_HAS_ROW))
    for number, days in ((1, 40), (2, 1)):
        spent = {"duration_s": 1.0, "usd": 0.0, "tokens_in": 0, "tokens_out": 0}
        attempt = {"status": "failed", "started_at": NOW - days * DAY, "fingerprint": "f", "stdout": f"try {number}"}
        world.insert(attempts, node_run_id="run-c", number=number, **attempt, **spent)

    assert world.collected(outputs=30 * DAY) == {"outputs": (2, len("out a") + len("try 1"))}
    assert {row["id"]: row["stdout"] for row in world.rows(node_runs)} == {
        "run-a": None,
        "run-b": "out b",
        "run-c": None,
    }
    assert {row["number"]: row["stdout"] for row in world.rows(attempts)} == {1: None, 2: "try 2"}


def test_the_size_of_an_output_is_its_bytes(world: World) -> None:
    world.sweep("s", days=40)
    world.execution("e", "s", "a")
    world.line("s", "e", "root", "a", days=40)
    world.database.execute(node_runs.update().values(stdout="日本", stderr="é"))

    assert world.collected(outputs=DAY) == {"outputs": (1, 8)}


# Sweeps


def finished(world: World, *days: float, name: str = "nightly", session: str = "default") -> list[str]:
    sweep_ids = [world.sweep(f"{name[0]}{session[0]}{day:g}", days=day, name=name, session=session) for day in days]
    for sweep in sweep_ids:
        world.execution(f"e-{sweep}", sweep, f"{sweep}-a")
        world.line(sweep, f"e-{sweep}", f"{sweep}-root", f"{sweep}-a")
        key = {"case_number": 0, "repeat": 0, "combination": 0}
        world.insert(scores, sweep_id=sweep, metric="m", **key, value=1.0)
    return sweep_ids


def test_no_sweep_goes_unless_that_is_asked_for(world: World) -> None:
    finished(world, 1000)
    assert world.collected() == {}


def test_old_sweeps_go_but_the_newest_of_each_name_and_session_stay(world: World) -> None:
    world.insert(sessions, id="team", name="team")
    finished(world, 1, 10, 20, 30)
    finished(world, 40, 50, name="weekly")
    finished(world, 60, 70, session="team")

    counts = world.collected(sweeps=5 * DAY, keep=1)

    assert counts["sweeps"] == (5, None)
    assert world.ids(sweeps) == {"nd1", "wd40", "nt60"}
    for table in (cases, cells, scores, checkpoints, node_runs, executions):
        assert {row["sweep_id"] for row in world.rows(table)} == world.ids(sweeps)
    assert {text.split()[0] for text in world.stored} == {
        *("nd1", "nd1-root", "nd1-a", "wd40", "wd40-root", "wd40-a", "nt60", "nt60-root", "nt60-a", "common")
    }


def test_what_a_project_says_of_its_sweeps_holds_in_place_of_the_policy(world: World) -> None:
    context = Context(world.database, by="ann")
    for name, settings in {"short": {"sweeps": "7d", "keep": 1}, "long": {"sweeps": "never"}, "other": {}}.items():
        create_project(context, name)
        change_project(context, name, **settings)
        for days in (1, 10, 40):
            world.sweep(f"{name}{days}", days=days, name=name, project=name)

    assert set(world.collected()) == {"sweeps", "values"}, "where the policy keeps all"
    assert world.ids(sweeps) == {"short1", "long1", "long10", "long40", "other1", "other10", "other40"}
    change_project(context, "short", keep=0)
    world.collected(sweeps=30 * DAY, keep=0)
    assert world.ids(sweeps) == {"short1", "long1", "long10", "long40", "other1", "other10"}
    change_project(context, "long", clear=True)
    world.collected(sweeps=30 * DAY, keep=0)
    assert world.ids(sweeps) == {"short1", "long1", "long10", "other1", "other10"}


def test_what_nothing_refers_to_is_freed_without_what_is_old(world: World) -> None:
    context = Context(world.database, by="ann")
    create_project(context, "short")
    assert change_project(context, "short", sweeps="0s", keep=0)["retention"] == {"sweeps": 0.0, "keep": 0}
    world.sweep("s", days=10, project="short")
    apply_policy(world.database, world.store, ALL_OFF, of_projects=False, at=NOW)
    assert world.ids(sweeps) == {"s"}
    with pytest.raises(InputError, match=sentence("expected a duration such as 12h, 7d or 2w{}", ", or 'never'")):
        change_project(context, "short", sweeps="soon")


def test_a_sweep_with_a_pinned_checkpoint_stays(world: World) -> None:
    finished(world, 10, 20)
    retention.pin_checkpoint(world.database, "nd20-root", "nd20", True)

    assert world.collected(sweeps=DAY, keep=0)["sweeps"] == (1, None)
    assert world.ids(sweeps) == {"nd20"}


def test_a_sweep_that_has_not_finished_or_is_about_to_be_retried_stays(world: World) -> None:
    finished(world, 10)
    for status in ("running", "pending", "paused"):
        world.database.execute(sweeps.update().values(status=status))
        assert world.collected(sweeps=DAY, keep=0) == {}, status
    world.database.execute(sweeps.update().values(status="completed"))
    world.execution("again", "nd10", "nd10-a", "pending", named=False)
    assert world.collected(sweeps=DAY, keep=0) == {}


def test_a_deletion_that_was_killed_is_ended_by_the_next_run_whatever_its_policy(world: World) -> None:
    finished(world, 10)
    assert deletion.begin_deletion(world.database, "nd10")
    looks = iter((False, True))  # killed after one part
    assert not deletion.remove_rows(world.database, "nd10", lambda: next(looks, True))

    with pytest.raises(ConflictError, match=sentence("is being deleted")):
        retention.pin_sweep(world.database, "nd10", True)
    assert world.collected()["sweeps"] == (1, None)
    assert world.rows(sweeps) == world.rows(executions) == world.rows(values) == []


def test_a_sweep_that_was_pinned_meanwhile_is_not_deleted(world: World) -> None:
    finished(world, 10)
    retention.pin_sweep(world.database, "nd10", True)

    assert not deletion.begin_deletion(world.database, "nd10", *retention.removable())


# Values


def test_a_value_stays_as_long_as_a_state_an_input_or_a_write_names_it(world: World) -> None:
    world.sweep("s")
    world.execution("e", "s", "a")
    world.line("s", "e", "root", "a")
    texts = world.stored
    world.store_values("nobody's", "日本")

    size = len(stored_value("nobody's")[1]) + len(stored_value("日本")[1])
    assert world.collected() == {"values": (2, size)}
    assert world.stored == texts == {"s input", "root state", "a state", "a write", "common"}


def a_write(world: World, connection: sa.Connection, text: str) -> None:
    """Write as a flush does: the value unless it exists, and a checkpoint that names it."""
    key, content = stored_value(text)
    insert_values(connection, [(key, content)])
    about = {"sweep_id": "s", "execution_id": "e", "parent_id": None, "created_at": NOW, "trigger": "step"}
    about |= {"position": {"step": 0}, "state": {"k": key}, "writers": [], "totals": [0, 0, 0, 0, 0]}
    insert_rows(connection, checkpoints, [{"id": f"new-{text}", **about}])


def with_its_place_in_the_log(connection: sa.Connection, text: str) -> None:
    transaction, ids = take_positions(connection, 1)
    place = {"created_transaction": transaction, "created_event": ids[0]}
    connection.execute(checkpoints.update().where(checkpoints.c.id == f"new-{text}").values(place))


def a_result(connection: sa.Connection, text: str) -> None:
    """Write as a node run that succeeded, on an existing checkpoint."""
    key, content = stored_value(text)
    insert_values(connection, [(key, content)])
    transaction, ids = take_positions(connection, 1)
    place = {"ended_transaction": transaction, "ended_event": ids[0], "started_at": NOW, "ended_at": NOW}
    about = {"sweep_id": "s", "execution_id": "e", "checkpoint_id": "root", "task": text, "node": text, "variant": text}
    counts = {"visit": 1, "attempts": 1, "cells": 1, "duration_s": 0, "usd": 0, "tokens_in": 0, "tokens_out": 0}
    run = {"id": f"run-{text}", "status": "succeeded", "fingerprint": "", "writes": {"k": key}}
    insert_rows(connection, node_runs, [run | about | counts | place])


def with_a_lone_value(world: World) -> stored_values.Unreferenced:
    world.sweep("s")
    world.execution("e", "s", None)
    world.store_values("lone")
    candidates = stored_values.unreferenced(world.database, 100)
    assert candidates.digests == [stored_value("lone")[0]]
    return candidates


def test_a_value_that_is_named_after_it_was_found_to_be_unreferenced_stays(world: World) -> None:
    candidates = with_a_lone_value(world)
    with world.database.write() as connection:
        a_write(world, connection, "lone")

    assert stored_values.remove_values(world.database, candidates) == (0, 0)
    assert "lone" in world.stored


@pytest.fixture
def postgres(prepared_postgres_url: str, tmp_path: Path) -> Iterator[World]:
    database = Database(prepared_postgres_url)
    yield World(database, FileStore(tmp_path / "home" / "files").of_project("default"))
    database.close()


def waits_for_a_lock(world: World) -> bool:
    with world.database.read() as connection:
        return bool(connection.scalar(sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")))


def in_background(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    outcomes: list[Any] = []
    thread = threading.Thread(target=lambda: outcomes.append(work()))
    thread.start()
    return thread, outcomes


def test_a_flush_that_found_the_value_and_has_not_committed_is_waited_for(postgres: World) -> None:
    candidates = with_a_lone_value(postgres)
    with postgres.database.engine.connect() as flush, flush.begin():
        insert_values(flush, [stored_value("lone")])  # it is there: nothing is inserted
        thread, removed = in_background(lambda: stored_values.remove_values(postgres.database, candidates))
        until(lambda: waits_for_a_lock(postgres))
        a_write(postgres, flush, "lone")
    thread.join()

    assert removed == [(0, 0)]
    assert "lone" in postgres.stored


def test_flushes_that_began_before_the_search_are_seen_too(postgres: World) -> None:
    """Rows with and without a position in the log, in a table with an index of positions and in others."""
    postgres.sweep("s")
    postgres.execution("e", "s", None)
    postgres.line("s", "e", "root")
    texts = ("row", "in the log", "result", "nobody's")
    postgres.store_values(*texts)
    with postgres.database.engine.connect() as flush, flush.begin():
        a_write(postgres, flush, "row")
        a_write(postgres, flush, "in the log")
        with_its_place_in_the_log(flush, "in the log")
        a_result(flush, "result")
        candidates = stored_values.unreferenced(postgres.database, 100)  # does not see what is not committed
        assert set(candidates.digests) == {stored_value(text)[0] for text in texts}

    assert stored_values.remove_values(postgres.database, candidates) == (1, len(stored_value("nobody's")[1]))


def test_what_was_written_since_the_search_is_found_by_indexes(postgres: World) -> None:
    """While the table of values is locked nothing is looked through whose size grows with the node runs."""
    postgres.sweep("s")
    with postgres.database.read() as connection:
        plan = connection.scalars(sa.text(f"EXPLAIN {values_named(connection, 1)}")).all()
    whole = {line.split(" on ")[1].split()[0] for line in plan if "Seq Scan" in line}
    assert whole <= {"sweeps", "cases", "approvals", "thread_checkpoints", "thread_writes"}, plan


def test_a_flush_that_comes_while_a_value_is_removed_stores_it_again(postgres: World) -> None:
    candidates = with_a_lone_value(postgres)

    def flush() -> None:
        with postgres.database.write() as connection:
            a_write(postgres, connection, "lone")

    with postgres.database.write() as collection:
        assert stored_values._remove(collection, candidates) == (1, 6)
        thread, _ = in_background(flush)
        until(lambda: waits_for_a_lock(postgres))
    thread.join()

    assert "lone" in postgres.stored
    assert "new-lone" in postgres.ids(checkpoints)


def test_a_collection_that_cannot_get_the_lock_gives_up_and_takes_nothing(postgres: World) -> None:
    candidates = with_a_lone_value(postgres)
    with postgres.database.engine.connect() as submit, submit.begin():
        insert_values(submit, [stored_value("another")])
        with pytest.raises(stored_values.Busy, match=sentence("run `wtb admin gc` again")):
            stored_values.remove_values(postgres.database, candidates, tries=2)

    assert "lone" in postgres.stored


def test_values_survive_flushes_that_write_and_name_them_all_the_time(world: World) -> None:
    world.sweep("s")
    world.execution("e", "s", None)
    stop = threading.Event()
    written: list[str] = []

    def flush() -> None:
        number = 0
        while not stop.is_set():
            world.store_values(f"v{number}")  # as if its sweep had just been deleted
            with world.database.write() as connection:
                a_write(world, connection, f"v{number}")
            written.append(f"v{number}")
            number += 1

    thread, _ = in_background(flush)
    for _ in range(15):
        world.collect()
    stop.set()
    thread.join()

    assert len(written) > 5
    assert set(written) <= world.stored


def test_a_sweep_that_runs_meanwhile_misses_nothing(world: World, bench: Callable[..., Any]) -> None:
    wf = Workflow("busy")

    @wf.node
    def first(state: Any, *, k: int = 0) -> dict[str, Any]:
        return {"same": state["x"] % 2, "k": k}

    @wf.node
    def second(state: Any, *, k: int = 0) -> dict[str, Any]:
        return {"all": [state["same"], state["k"], k]}

    for node in (first, second):
        for k in range(1, 4):
            node.variant(f"v{k}", k=k)
    wf.entry(first)
    wf.edge(first, second)
    inputs = [{"id": str(n), "input": {"x": n}} for n in range(20)]
    sweep = bench(wf, inputs, {"first": "all", "second": "all"})

    run = sweep.start()
    while not run.wait(0):
        world.collect(superseded=0.0)
    run.finish()
    assert world.collect(superseded=0.0).removed["values"] == Removed(0, 0)

    assert sweep.counts == {"succeeded": 320}
    assert all(cell.state["all"][0] == int(cell.case) % 2 for cell in sweep.cells())


# Files


def test_files_that_no_snapshot_has_go_and_the_others_stay(world: World) -> None:
    world.sweep("s")
    world.execution("e", "s", "a")
    world.line("s", "e", "root", "a")
    snapshot = world.snapshot("one", "two")
    of_run, of_case = world.snapshot("three"), world.snapshot("four")
    with world.database.write() as connection:
        connection.execute(checkpoints.update().where(checkpoints.c.id == "a").values(workspace=snapshot))
        connection.execute(node_runs.update().values(workspace=of_run))
        connection.execute(cases.update().values(workspace=of_case))
    reached = world.contents()
    orphan = world.snapshot("five", "one")
    size = sum(file_size for digest, file_size, _ in world.store.stored() if digest not in reached)
    world.note(*world.contents())

    assert world.collected() == {"files": (2, size)}
    assert world.contents() == world.noted() == reached
    assert len(reached) == 3 + 4
    assert orphan not in reached


def test_what_snapshots_have_is_noted_where_it_was_not(world: World) -> None:
    snapshot = world.snapshot("one")
    world.sweep("s")
    world.database.execute(cases.update().values(workspace=snapshot))

    world.collect()

    sizes = {row["digest"]: row["size"] for row in world.rows(files)}
    assert sizes == {digest: size for digest, size, _ in world.store.stored()}


def test_files_go_with_the_sweep_that_had_them_and_stay_for_another_session(world: World) -> None:
    world.insert(sessions, id="team", name="team")
    mine, both = world.snapshot("mine"), world.snapshot("both")
    for sweep, session, days, workspace in (
        ("a", "default", 20, mine),
        ("b", "default", 20, both),
        ("c", "team", 0, both),
    ):
        world.sweep(sweep, session=session, days=days, name=sweep)
        world.database.execute(cases.update().where(cases.c.sweep_id == sweep).values(workspace=workspace))
    world.collect()
    assert len(world.noted()) == 4

    counts = world.collected(sweeps=DAY, keep=0)

    assert counts["sweeps"] == (2, None)
    assert counts["files"][0] == 2
    assert world.noted() == set()
    assert world.contents() == world.noted("team") == {both, world.keep_file("both").digest}


def test_young_files_stay_and_so_does_what_is_noted_of_them(world: World) -> None:
    world.sweep("s")
    old, young = world.keep_file("old").digest, world.keep_file("young", old=False).digest
    world.note(old, young)

    assert world.collected() == {"files": (1, 3)}
    assert world.contents() == world.noted() == {young}


def test_what_is_stored_again_while_it_is_being_forgotten_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.sweep("s")
    file = world.keep_file("again").digest
    world.note(file)
    forgetting = filing.forgetting_files

    def late(*args: Any) -> Any:
        world.age(file, old=False)  # a node stores it and its run has noted it
        return forgetting(*args)

    monkeypatch.setattr(filing, "forgetting_files", late)
    world.collect()

    assert world.contents() == world.noted() == {file}


def test_a_snapshot_that_cannot_be_read_stops_the_removal_of_files_and_says_so(world: World) -> None:
    lost, other = world.snapshot("lost"), world.keep_file("other").digest
    world.sweep("s")
    world.store.remove(lost)
    world.database.execute(cases.update().values(workspace=lost))

    for dry in (True, False):
        collection = world.collect(dry=dry)
        (note,) = collection.notes
        assert sentence("stored file {} is missing", lost) in note
        assert collection.removed["files"] == Removed(0, 0)
    assert other in world.contents()


def test_a_store_that_another_database_uses_too_is_left_alone(world: World, tmp_path: Path) -> None:
    world.sweep("s")
    world.note(world.keep_file("mine").digest)
    other = Database(f"sqlite:///{tmp_path / 'home' / 'other.db'}")
    other.prepare()

    (note,) = world.collect().notes
    assert sentence("{} may keep files", "other.db") in note  # it lies beside, and the store has no marks yet

    mark(world.database, world.store)
    mark(other, world.store)
    for dry in (True, False):
        collection = world.collect(dry=dry)
        assert sentence("may keep files") in collection.notes[0]
        assert collection.removed["files"] == Removed(0, 0)
    assert len(world.contents()) == 1
    (its,) = [place for place in (world.store.top / ".databases").iterdir() if "other.db" in place.read_text()]
    its.unlink()
    assert world.collected()["files"] == (1, 4)
    other.close()


def test_a_store_of_which_a_database_knows_nothing_is_left_alone(world: World) -> None:
    world.keep_file("somebody's")

    (note,) = world.collect().notes

    assert sentence("knows none of those") in note
    assert len(world.contents()) == 1


# The policy


def test_the_policy_is_read_from_the_nearest_file_and_options_come_first(tmp_path: Path) -> None:
    (tmp_path / "wtb.toml").write_text('[retention]\noutputs = "7d"\nsweeps = "2w"\nkeep = 3\nsuperseded = "never"\n')
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text("[tool.other]\n")

    assert read_policy(inner) == Policy(outputs=7 * DAY, sweeps=14 * DAY, keep=3, superseded=None)
    assert read_policy(inner, outputs="12h", keep=0).outputs == DAY / 2
    assert read_policy(inner, keep=0).keep == 0

    (inner / "pyproject.toml").write_text("[tool.wtb.retention]\nfiles = 7200\n")
    assert read_policy(inner) == Policy(files=7200.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('output = "7d"', sentence("has no setting {}", "'output'") + sentence("; did you mean '{}'", "outputs")),
        ('outputs = "soon"', sentence("expected a duration such as 12h, 7d or 2w{}", ", or 'never'")),
        ("sweeps = -1", "expected a duration"),
        ("sweeps = true", "expected a duration"),
        ('keep = "3"', sentence("expected a number of sweeps")),
        ('files = "1s"', sentence("expected at least 60s")),
        ('files = "never"', "expected a duration"),
        ("outputs = [", sentence("cannot be read as TOML")),
    ],
)
def test_a_policy_that_cannot_be_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "wtb.toml").write_text(f"[retention]\n{text}\n")
    with pytest.raises(InputError, match=message):
        read_policy(tmp_path)
    assert LEAST_GRACE_S == 60.0


# Sizes


def test_sizes_are_those_of_what_is_stored(world: World) -> None:
    world.sweep("s")
    world.execution("e", "s", "a")
    world.line("s", "e", "root", "a")
    world.note("0" * 64, "1" * 64)
    texts = ("s input", "root state", "a state", "a write", "common")

    assert stored_amounts(world.database) == {
        "values": (5, sum(len(stored_value(text)[1]) for text in texts)),
        "outputs": (1, len("out a")),
        "files": {"default": (2, 2)},
    }
