"""A backup holds everything that a database refers to at one moment. Restored, unfinished sweeps can be resumed."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import psycopg
import pytest
import sqlalchemy as sa

from tests.support.bench import Bench, finish, make_bench
from tests.support.databases import postgres_database
from tests.support.project import FLOW, SWEEP, Project
from tests.support.prose import sentence
from wtb import Context as NodeContext
from wtb import Workflow
from wtb.config.retention_policy import Policy
from wtb.core.errors import ConflictError, InputError, StoreError
from wtb.features.access.audit import list_audit, verify_audit
from wtb.features.backup import queries as copies
from wtb.features.backup.operations import DATABASE, FILES, HEAD, backup, restore
from wtb.operations.context import Context
from wtb.operations.garbage_collection import apply_policy
from wtb.store.bulk import insert_rows
from wtb.store.database import Database
from wtb.store.files.locations import copying_files
from wtb.store.housekeeping import deletion
from wtb.store.housekeeping.stored_values import snapshots
from wtb.store.read import queries
from wtb.store.runs import leases
from wtb.store.tables.schema import REVISION, budgets, executions, metadata, sessions, sweeps

CASES = [{"id": f"c{n}", "input": {"x": n}} for n in range(3)]
COPIED = [table for table in metadata.sorted_tables if table not in copies._OF_PROCESSES]


class Steps:
    """A workflow of two nodes, whose second waits while the gate is shut."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.workflow = Workflow("steps")

        @self.workflow.node
        def first(state: dict[str, int], ctx: NodeContext) -> dict[str, int]:
            (ctx.workspace / "seen.txt").write_text(f"file of {state['x']}")
            print(f"output of {state['x']}")
            ctx.cost(usd=0.25)
            return {"x": state["x"] + 1}

        @self.workflow.node
        def second(state: dict[str, int], ctx: NodeContext, *, by: int = 1) -> dict[str, int]:
            self.entered.release()
            assert self.gate.wait(60), "the test never opened the gate"
            return {"y": state["x"] * by}

        second.variant("twice", by=2)
        self.workflow.entry(first)
        self.workflow.edge(first, second)


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def place(database: Database, tmp_path: Path) -> Context:
    return Context(database, files=tmp_path / "files")


def filled(place: Context, steps: Steps) -> Bench:
    """Return a sweep with files, outputs, costs and scores that has not started."""
    assert place.files is not None
    return make_bench(
        place.database, place.files, steps.workflow, CASES, {"second": ["default", "twice"]}, run={"pool": "thread"}
    )


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Context]:
    """Another place, empty, on either database."""
    url = f"sqlite:///{tmp_path / 'there' / 'restored.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("restored_url")
    database = Database(url)
    database.prepare()
    yield Context(database, files=tmp_path / "there" / "files")
    database.close()


@pytest.fixture
def restored_url(postgres_url: str, postgres_admin: psycopg.Connection, postgres_template: str) -> Iterator[str]:
    with postgres_database(postgres_url, postgres_admin, postgres_template) as url:
        yield url


MOVED = {"transaction", "created_transaction", "started_transaction", "ended_transaction", "logged_transaction"}


def comparable(database: Database) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows without values of another server: transaction numbers, and the creation time of the database."""
    rows = {}
    for table in COPIED:
        left_out = MOVED | ({"created_at"} if table is sessions else set())
        columns = [column for column in table.columns if column.name not in left_out]
        if table.name in ("log_ids", "audit"):  # a restore is noted behind what the audit log had
            continue
        with database.read() as connection:
            rows[table.name] = sorted((tuple(row) for row in connection.execute(sa.select(*columns))), key=repr)
    return rows


def test_all_rows_and_files_come_back_in_either_database(
    place: Context, steps: Steps, target: Context, tmp_path: Path
) -> None:
    steps.gate.set()
    sweep = filled(place, steps)
    sweep.run()
    assert sweep.counts == {"succeeded": 6}
    with place.database.write() as connection:
        insert_rows(connection, budgets, [{"scope": "project", "key": "p", "node": "", "kind": "usd", "most": 5.0}])

    document = backup(place, tmp_path / "backup")
    restored = restore(target, tmp_path / "backup")

    assert document["missing"] == restored["missing"] == {"values": [], "files": []}
    assert document["rows"]["cells"] == 6
    assert restored["files"] == document["files"] == 6  # three contents, three manifests
    assert comparable(target.database) == comparable(place.database)
    assert verify_audit(target)["ok"]
    noted, *before = list_audit(target)
    assert (noted["operation"], before) == ("backups.restore", list_audit(place))
    row = queries.find_sweep(target.database, sweep.sweep_id)
    ends = [end for end in target.database.records(queries.ExecutionRow, sa.select(executions)) if end.head_id]
    with target.database.read() as connection:
        assert copies.missing_values(connection) == copies.damaged_values(connection) == []
        named = {digest for _, _, digest in snapshots(connection)}
    assert ends
    texts = {
        b"".join(target.workspaces.files.of_project("default").read(file.digest)).decode()
        for snapshot in named
        for file in target.workspaces.files.of_project("default").manifest(snapshot).values()
    }
    assert texts == {"file of 0", "file of 1", "file of 2"}
    before = [event["kind"] for event in queries.event_rows(place.database, row.id)]
    assert [event["kind"] for event in queries.event_rows(target.database, row.id)] == before
    # What happens next comes after all of it.
    leases.pause(target.database, row.id, "x", by="x")
    target.database.execute(sweeps.update().values(status="running"))
    assert leases.pause(target.database, row.id, "a look", by="ana")
    assert queries.event_rows(target.database, row.id)[-1]["kind"] == "sweep.paused"


def test_a_backup_is_made_while_a_sweep_runs_and_the_sweep_continues_where_it_is_restored(
    place: Context, steps: Steps, target: Context, tmp_path: Path
) -> None:
    sweep = filled(place, steps)
    run = sweep.start()
    assert steps.entered.acquire(timeout=60)

    backup(place, tmp_path / "backup")
    steps.gate.set()
    finish(run)
    restored = restore(target, tmp_path / "backup")

    assert sweep.counts == {"succeeded": 6}, "the backup held the sweep up"
    assert restored["open_sweeps"] == 1
    other = Bench.__new__(Bench)
    other.database, other.prepared, other.folder = target.database, sweep.prepared, Path(str(target.files))
    other.sweep_id, other.ended, other.workspaces = sweep.sweep_id, [], target.workspaces
    assert leases.owners(target.database, sweep.sweep_id) == []
    assert (other.row.status, other.row.reason) == ("paused", copies.RESTORED)
    assert other.counts.get("succeeded", 0) < 6
    other.run()
    assert other.counts == {"succeeded": 6}
    states = [[cell.state for cell in bench.cells()] for bench in (other, sweep)]
    assert states[0] == states[1]


def test_it_is_of_one_moment_whatever_is_written_meanwhile(
    place: Context, steps: Steps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are written once the copy has begun are not in it, and do not make it begin anew."""
    filled(place, steps)
    written = threading.Event()
    original = copies._copy_pages if place.database.is_sqlite else copies._copy_table

    def writing_first(*arguments: Any) -> None:
        if not written.is_set():
            written.set()
            arguments[0].execute(sa.select(sessions.c.id)).all()
            thread = threading.Thread(target=place.database.execute, args=(sessions.insert().values(id="s", name="s"),))
            thread.start()
            thread.join()
        original(*arguments)

    monkeypatch.setattr(copies, original.__name__, writing_first)
    backup(place, tmp_path / "backup")
    assert written.is_set()
    assert set(place.database.scalars(sa.select(sessions.c.id))) == {"default", "s"}
    with copies.reading_copy(tmp_path / "backup" / DATABASE) as copy:
        assert set(copy.scalars(sa.select(sessions.c.id))) == {"default"}
        assert copy.scalar(sa.select(sa.func.count()).select_from(executions)) == 3


@pytest.fixture
def local(sqlite_url: str, tmp_path: Path) -> Iterator[Context]:
    """A place on SQLite alone, for tests that do not depend on the database."""
    database = Database(sqlite_url)
    database.prepare()
    yield Context(database, files=tmp_path / "files")
    database.close()


@pytest.fixture
def backed_up(local: Context, steps: Steps, tmp_path: Path) -> Path:
    """The backup of a sweep that ran."""
    steps.gate.set()
    filled(local, steps).run()
    backup(local, tmp_path / "backup")
    return tmp_path / "backup"


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Context]:
    database = Database(f"sqlite:///{tmp_path / 'there' / 'restored.db'}")
    database.prepare()
    yield Context(database, files=tmp_path / "there" / "files")
    database.close()


def test_it_is_not_restored_into_a_database_that_holds_something(local: Context, backed_up: Path) -> None:
    with pytest.raises(ConflictError, match=r"is not empty: its table .* rows; restore into a new database"):
        restore(local, backed_up)


def test_of_another_version_it_is_refused(backed_up: Path, empty: Context) -> None:
    head = backed_up / HEAD
    head.write_text(head.read_text().replace(f'"revision": "{REVISION}"', '"revision": "1000"'))
    with pytest.raises(InputError, match=r"is of version 1000.*wtb admin db upgrade"):
        restore(empty, backed_up)


def change_copy(folder: Path, sql: str) -> None:
    with sqlite3.connect(folder / DATABASE) as connection:
        connection.execute(sql)
    connection.close()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            'DELETE FROM "values" WHERE digest = (SELECT min(digest) FROM "values")',
            sentence("table {} has {} rows; expected", "values", ".*"),
        ),
        ("UPDATE \"values\" SET data = '7' WHERE data = '0'", "lacks 1 value"),
        ("DELETE FROM cells WHERE case_number = 1", sentence("table {} has {} rows; expected {}", "cells", 4, 6)),
    ],
)
def test_one_that_lacks_something_is_refused_and_nothing_is_restored(
    backed_up: Path, empty: Context, sql: str, expected: str
) -> None:
    change_copy(backed_up, sql)
    with pytest.raises((InputError, StoreError), match=expected):
        restore(empty, backed_up)
    copies.check_empty(empty.database)


def test_a_damaged_file_is_found_by_its_hash(backed_up: Path, empty: Context) -> None:
    content = next(path for path in (backed_up / FILES).rglob("??/*") if path.read_bytes().startswith(b"file of"))
    content.chmod(0o644)
    content.write_bytes(b"another")
    with pytest.raises(StoreError, match="lacks 1 file"):
        restore(empty, backed_up)
    copies.check_empty(empty.database)


def test_a_file_that_was_lost_before_is_named_and_stops_neither(
    local: Context, steps: Steps, empty: Context, tmp_path: Path
) -> None:
    steps.gate.set()
    filled(local, steps).run()
    lost = next(
        path for path in (tmp_path / "files" / "files").rglob("??/*") if path.read_bytes().startswith(b"file of")
    )
    lost.unlink()
    digest = lost.parent.name + lost.name
    warned: list[str] = []
    place = Context(local.database, files=local.files, warn=warned.append)
    assert backup(place, tmp_path / "backup")["missing"] == {"values": [], "files": [digest]}
    assert warned == [sentence("{} that the database names: missing or damaged, and so in the backup", "1 file")]
    assert restore(empty, tmp_path / "backup")["missing"]["files"] == [digest]


@pytest.mark.parametrize("after", ["missing_values", "continue_log"])
def test_what_fails_half_way_leaves_nothing(
    local: Context, backed_up: Path, empty: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """The step after the rows are copied or loaded fails, as if the disk were gone."""
    monkeypatch.setattr(copies, after, MagicMock(side_effect=StoreError("the disk is gone")))
    with pytest.raises(StoreError, match="the disk is gone"):
        backup(local, tmp_path / "another") if after == "missing_values" else restore(empty, backed_up)
    assert not (tmp_path / "another").exists()
    assert list(tmp_path.glob(".*.new")) == []
    copies.check_empty(empty.database)


def test_a_folder_with_something_in_it_is_refused(local: Context, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine").touch()
    with pytest.raises(InputError, match=sentence("exists already")):
        backup(local, tmp_path / "there")
    with pytest.raises(InputError, match="make it first"):
        backup(local, tmp_path / "nowhere" / "backup")
    with pytest.raises(InputError, match="is no backup"):
        restore(local, tmp_path / "there")


def test_while_files_are_copied_a_collection_removes_none(local: Context, steps: Steps, tmp_path: Path) -> None:
    steps.gate.set()
    sweep = filled(local, steps)
    sweep.run()
    deletion.delete_sweep(local.database, sweep.sweep_id)
    files, everything = local.workspaces.files, Policy(outputs=None, superseded=None, sweeps=None, files=3600.0)
    later = time.time() + 2 * 3600
    with copying_files(files):
        collection = apply_policy(local.database, files, everything, at=later)
    assert collection.removed["files"].count == 0
    assert any(sentence("a backup copies them") in note for note in collection.notes)
    assert apply_policy(local.database, files, everything, at=later).removed["files"].count == 6


def test_commands_and_python_make_and_restore_one(project: Project, tmp_path: Path) -> None:
    project.write({"flow.py": FLOW, "first.sweep.yaml": SWEEP, "cases.jsonl": Project.cases(1)})
    project.inside("run", "first.sweep.yaml", "--quiet", check=0)
    backup_run = project.inside("admin", "backup", "kept", "--format", "json", check=0)
    assert backup_run.json["rows"]["cells"] == 64
    new_url = f"sqlite:///{tmp_path / 'new' / 'wtb.db'}"
    restored = project.inside("admin", "restore", "kept", "--db", new_url, "--format", "json", check=0)
    assert restored.json["rows"] == backup_run.json["rows"]
    assert project.inside("matrix", "first", "--format", "json", "--db", new_url, check=0).json["rows"]
    second = project.inside("admin", "restore", "kept", "--db", new_url, check=2)
    assert "is not empty" in second.output


def test_a_backup_among_the_files_that_it_copies_is_refused(local: Context, subtests: pytest.Subtests) -> None:
    home = local.workspaces.files.top.parent
    for place in ("files", "files/projects/default", "sessions"):
        (home / place).mkdir(parents=True, exist_ok=True)
        with subtests.test(place), pytest.raises(InputError, match=sentence("in which WTB stores its own files")):
            backup(local, home / place / "kept")
    assert not list(home.rglob("*kept*"))
