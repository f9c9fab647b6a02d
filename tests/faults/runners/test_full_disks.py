"""Faults 16 and 17: the disk of files, workspaces or database is full. When there is room, the sweep continues."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import SmallDisk
from tests.support.cluster import Cluster
from tests.support.invariants import (
    A_CASE,
    SLOTS,
    Before,
    at_most_durability_was_lost,
    files_are_whole,
    invariants_hold,
    noted,
    nothing_committed_ran_again,
    nothing_is_left,
    trail_is_complete,
    write_trail,
)
from tests.support.project import Project, Running
from tests.support.prose import sentence
from wtb.hosting.servers.postgres import PostgresServer

MountDisk = Callable[[Path, int], SmallDisk]

# Each node leaves 200 kB that nobody else has.
FILES = """
import hashlib
import os

from wtb import END, Workflow

wf = Workflow("files")
HERE = os.path.dirname(os.path.abspath(__file__)) + "/"


def leave(state, ctx):
    with open(HERE + "log", "a") as log:
        log.write(f"{ctx.node}={ctx.variant} of {ctx.case.id}\\n")
    word = hashlib.sha256(f"{ctx.case.id} {ctx.node} {ctx.variant}".encode()).digest()
    (ctx.workspace / f"{ctx.node}.bin").write_bytes(word * 6250)


@wf.node
def one(state, ctx):
    return leave(state, ctx)


@wf.node
def two(state, ctx, *, by: int = 0):
    return leave(state, ctx)


two.variant("other", by=1)
wf.entry(one)
wf.edge(one, two)
wf.edge(two, END)


def whole(case, result):
    return sorted((file.name, file.stat().st_size) for file in result.workspace.iterdir()) == [
        ("one.bin", 200_000), ("two.bin", 200_000)
    ]
"""
CASES = 4


def write_files(project: Project, code: str = FILES, cases: int = CASES, **spec: Any) -> None:
    defaults = {"vary": {"two": "all"}, "evaluate": ["files:whole"], "run": {"concurrency": 2}}
    project.write_sweep("files", code, cases, **{**defaults, **spec})


def waits_for_room(project: Project, running: Running) -> None:
    """Wait until a run says, in a message and in the log, that it waits; nothing has failed by then."""
    is_waiting = lambda: "it continues by itself" in " ".join(running.stderr.split())  # noqa: E731
    project.until(is_waiting, "the run to say that a disk is full")
    project.until(lambda: events(project, "sweep.disk_full"), "an event")
    assert running.process.poll() is None
    ((status, reason),) = project.query("SELECT status, reason FROM sweeps")
    assert status == "running"
    assert "No space left on device" in reason
    assert project.query("SELECT count(*) FROM cells WHERE status = 'failed'") == [(0,)], "no cell is to blame"


def events(project: Project, kind: str) -> list[str]:
    return [str(details) for (details,) in project.query("SELECT data FROM events WHERE kind = :kind", kind=kind)]


@pytest.mark.parametrize(
    ("full", "pool"),
    [
        ("files", "process"),
        ("sessions", "thread"),
        pytest.param("files", "thread", marks=pytest.mark.slow),
        pytest.param("sessions", "process", marks=pytest.mark.slow),
    ],
)
def test_a_sweep_whose_files_fill_the_disk_waits_and_continues_by_itself_when_there_is_room(
    empty_project: Project, small_disk: MountDisk, full: str, pool: str
) -> None:
    project = empty_project
    write_files(project, run={"concurrency": 2, "pool": pool})
    place = project.folder / ".wtb" / full
    small_disk(place, 1 << 20 if full == "files" else 1 << 18)
    with project.start("run", "sweep.yaml", "--quiet") as running:
        waits_for_room(project, running)
        before = succeeded(project)
        subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)
        done = running.wait(check=0)
    assert "Traceback" not in done.stderr
    assert sentence("there is room again") in done.output
    assert events(project, "sweep.disk_has_room")
    assert project.query("SELECT reason FROM sweeps") == [(None,)]
    invariants_hold(project, {"succeeded": 2 * CASES})
    files_are_whole(project)
    assert [line for line in project.log() if line in before and project.log().count(line) > 1] == []


def test_ctrl_c_ends_a_run_that_waits_for_room_and_resume_continues(
    empty_project: Project, small_disk: MountDisk
) -> None:
    project = empty_project
    write_files(project)
    place = project.folder / ".wtb" / "files"
    small_disk(place, 1 << 20)
    with project.start("run", "sweep.yaml", "--quiet") as running:
        waits_for_room(project, running)
        running.signal(signal.SIGINT)
        running.wait(check=130)
    assert project.query("SELECT status, reason FROM sweeps") == [("paused", "interrupted")]
    nothing_is_left(project)
    subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)
    project.inside("resume", "files", check=0)
    invariants_hold(project, {"succeeded": 2 * CASES})


@pytest.mark.slow
def test_a_worker_whose_disk_is_full_continues_by_itself_and_works_on_what_needs_no_room(
    cluster: Cluster, small_disk: MountDisk
) -> None:
    project = cluster.project
    write_files(project)
    place = project.folder / ".wtb" / "files"
    small_disk(place, 1 << 20)
    cluster.start_scheduler()
    cluster.start_worker(concurrency=2)
    files = cluster.submit()
    project.until(lambda: events(project, "sweep.disk_full"), "an event")
    ((status, reason),) = project.query("SELECT status, reason FROM sweeps")
    assert status == "running"
    assert sentence("it continues by itself") in reason

    write_trail(project, 1, params="{files: false}")
    project.write({"trail.py": without_files(project)})
    cluster.wait_completed(cluster.submit())
    subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)
    cluster.wait_completed(files)
    assert events(project, "sweep.disk_has_room")
    failures = project.query("SELECT failure FROM executions WHERE status = 'failed'")
    assert not failures, "\n".join(str(cause) for (failure,) in failures for cause in failure.items())
    assert project.query("SELECT status, count(*) FROM cells GROUP BY status") == [("succeeded", 2 * CASES + 4)]


def succeeded(project: Project) -> set[str]:
    query = (
        "SELECT r.node, r.variant, c.id FROM node_runs r JOIN executions e ON e.id = r.execution_id "
        "JOIN cases c ON c.sweep_id = e.sweep_id AND c.number = e.case_number WHERE r.status = 'succeeded'"
    )
    return {f"{node}={variant} of {case}" for node, variant, case in project.query(query)}


# Two nodes of one step. `slow` waits until the other one's files are stored, then leaves room for its own file and
# the list of its files, and for nothing more: merging both lists finds the disk full.
MERGING = """
import os
import time

from wtb import END, Workflow

wf = Workflow("merging")
HERE = os.path.dirname(os.path.abspath(__file__)) + "/"
STORE = HERE + ".wtb/files/"


@wf.node
def quick(state, ctx, *, by: int = 0):
    (ctx.workspace / "quick").write_text(f"quick {by} {ctx.case.id}")


@wf.node
def slow(state, ctx):
    (ctx.workspace / "slow").write_text(f"slow {ctx.case.id}")
    if not os.path.exists(HERE + "roomy"):
        while sum(len(files) for folder, _, files in os.walk(STORE) if len(os.path.basename(folder)) == 2) < 4:
            time.sleep(0.005)
        with open(STORE + "filler", "wb", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)):
                    pass
            except OSError:
                filler.truncate(filler.tell() // 4096 * 4096 - 2 * 4096)


quick.variant("other", by=1)
wf.entry(quick)
wf.entry(slow)
wf.edge([quick, slow], END)
"""


def test_a_disk_that_is_full_when_files_are_merged_holds_up_the_sweep_too(
    empty_project: Project, small_disk: MountDisk
) -> None:
    project = empty_project
    project.write_sweep("merging", MERGING, vary={"quick": "all"}, run={"concurrency": 3})
    disk = small_disk(project.folder / ".wtb" / "files", 1 << 20)
    with project.start("run", "sweep.yaml", "--quiet") as running:
        waits_for_room(project, running)
        # What waits for room is in the database at once, what succeeded before with the next group of the journal.
        ended = "SELECT count(*) FROM node_runs WHERE status = 'succeeded'"
        project.until(lambda: project.query(ended) == [(3,)], "all node runs to be recorded")
        disk.make_room()
        running.wait(check=0)
    invariants_hold(project, {"succeeded": 2})
    assert project.query("SELECT count(*), max(attempts) FROM node_runs") == [(3, 1)]
    files_are_whole(project)


# The evaluator fills the disk before it asks for the files, the first time.
SCORING = (
    FILES
    + """

def copied(case, result):
    if not os.path.exists(HERE + "filled"):
        open(HERE + "filled", "w").close()
        with open(HERE + ".wtb/sessions/filler", "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
    return len(list(result.workspace.iterdir())) == 2
"""
)


def test_a_disk_that_is_full_when_a_cell_is_scored_is_no_error_of_its_metric(
    empty_project: Project, small_disk: MountDisk
) -> None:
    project = empty_project
    write_files(project, SCORING, 1, vary={"two": ["default"]}, evaluate=["files:copied"])
    disk = small_disk(project.folder / ".wtb" / "sessions", 1 << 20)
    with project.start("run", "sweep.yaml", "--quiet") as running:
        waits_for_room(project, running)
        disk.make_room()
        running.wait(check=0)
    assert project.query("SELECT value, error FROM scores") == [(1, None)]
    invariants_hold(project, {"succeeded": 1})


def test_files_of_cases_that_find_the_disk_full_leave_nothing_of_the_sweep(
    empty_project: Project, small_disk: MountDisk
) -> None:
    project = empty_project
    case = {"id": "c0", "input": {"x": 1}, "files": {"big.bin": "big.bin"}}
    write_files(project)
    project.write({"cases.jsonl": json.dumps(case) + "\n"})
    (project.folder / "big.bin").write_bytes(b"x" * (2 << 20))
    small_disk(project.folder / ".wtb" / "files", 1 << 20)
    done = project.wtb("run", "sweep.yaml", "--quiet")
    assert "Traceback" not in done.stderr, done.stderr
    assert done.code in (1, 2, 4)
    assert "No space left on device" in done.output
    assert not project.query("SELECT id FROM sweeps")
    assert [name.name for name in (project.folder / ".wtb" / "files").iterdir() if name.name.startswith(".new")] == []


@pytest.fixture
def database_disk(empty_project: Project, small_disk: MountDisk) -> SmallDisk:
    """The disk of the project's database; the files are elsewhere on it."""
    disk = small_disk(empty_project.folder / "disk", 6 << 20)
    empty_project.url = f"sqlite:///{disk.place / 'wtb.db'}"
    return disk


def test_a_database_whose_disk_is_full_loses_no_accepted_outcome(
    empty_project: Project, database_disk: SmallDisk
) -> None:
    project = empty_project
    write_trail(project, 4, params="{files: false}")
    project.write({"trail.py": without_files(project)})
    sweep = (project.folder / "sweep.yaml").read_text()
    project.write({"sweep.yaml": sweep + "limits: {node_runs: 8}\n"})
    project.wtb("run", "sweep.yaml", "--quiet", check=1)
    first = Before.of(project)
    project.close()
    project._database = None

    database_disk.fill(leaving=150_000)
    with project.start("resume", "trail", "--limits", "node_runs=999", "--quiet") as running:
        is_reported = lambda: "the disk of the database is full" in " ".join(running.stderr.split())  # noqa: E731
        project.until(lambda: is_reported() or running.process.poll() is not None, "the run to say so")
        assert is_reported(), running.stderr
        assert running.process.poll() is None
        database_disk.make_room()
        done = running.wait(check=0)
    assert "Traceback" not in done.stderr, done.stderr
    assert sentence("there is room again") in done.output
    nothing_committed_ran_again(project, first)
    assert project.query("SELECT status, count(*) FROM cells GROUP BY status") == [("succeeded", 16)]
    invariants_hold(project, {"succeeded": 16})
    assert project.query("PRAGMA integrity_check") == [("ok",)]


def without_files(project: Project) -> str:
    """The trail workflow, whose evaluator does not look for files."""
    return (project.folder / "trail.py").read_text().replace(" and files", "")


def test_a_database_whose_disk_is_full_takes_no_half_of_a_sweep(
    empty_project: Project, database_disk: SmallDisk
) -> None:
    project = empty_project
    write_trail(project, 1)
    project.wtb("run", "sweep.yaml", "--quiet", check=0)
    project.write({"cases.jsonl": project.cases(3_000)})
    database_disk.fill(leaving=200_000)
    done = project.wtb("run", "sweep.yaml", "--quiet")
    assert done.code == 4, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert "full" in done.output
    database_disk.make_room()
    assert project.query("SELECT count(*) FROM sweeps") == [(1,)]
    assert project.query("SELECT count(*) FROM cells") == [(4,)]
    assert noted(project)


def test_a_database_file_that_may_not_grow_any_more_is_a_clear_error(empty_project: Project) -> None:
    """The same without a mount: the runner's limit for the size of its files stands in for the disk."""
    project = empty_project
    write_trail(project, 4, params="{hold: [b c1, c c1]}")
    with project.start("run", "sweep.yaml", "--quiet") as running:
        waiting = lambda: len(noted(project, "begun")) - len(noted(project, "ended")) == SLOTS  # noqa: E731
        project.until(waiting, "both slots to be in nodes that wait")
        log = project.file.with_name("wtb.db-wal")
        size = log.stat().st_size + 20_000
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (size, size))
        project.write({"gate": ""})
        done = running.wait()
    assert done.code == 4, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert "database" in done.output
    before = Before.of(project)
    assert before.committed.total() < 4 * A_CASE
    at_most_durability_was_lost(before, killed_at=0.0)
    project.inside("resume", "trail", check=0)
    nothing_committed_ran_again(project, before)
    trail_is_complete(project, 4)


# Each node run writes a megabyte that does not compress.
HEAVY = """
import os
import random

from wtb import Workflow

wf = Workflow("heavy")
HERE = os.path.dirname(__file__)


@wf.node
def write(state, ctx, *, by: int = 0):
    with open(os.path.join(HERE, "log"), "a") as log:
        log.write(f"write={ctx.variant} of {ctx.case.id}\\n")
    return {"text": random.Random(f"{ctx.case.id} {by}").randbytes(500_000).hex()}


write.variant("other", by=1)
wf.entry(write)
"""


@pytest.fixture
def postgres_disk(
    empty_project: Project, servers_folder: Path, small_disk: MountDisk
) -> Iterator[tuple[PostgresServer, SmallDisk]]:
    """A PostgreSQL whose data directory is on a disk of its own."""
    disk = small_disk(servers_folder / "small", 200 << 20)
    disk.place.chmod(0o711)  # for root the server runs as another user
    settings = {"max_wal_size": "32MB", "min_wal_size": "32MB", "autovacuum": "off"}
    with PostgresServer(disk.place / "server", settings=settings) as server:
        empty_project.url = server.url
        yield server, disk
        empty_project.close()


@pytest.mark.slow
def test_a_postgresql_whose_disk_is_full_loses_no_accepted_outcome(
    empty_project: Project, postgres_disk: tuple[PostgresServer, SmallDisk]
) -> None:
    project, (server, disk) = empty_project, postgres_disk
    project.write_sweep("heavy", HEAVY, 20, vary={"write": "all"}, limits={"node_runs": 4})
    project.wtb("run", "sweep.yaml", "--quiet", check=1)
    first = succeeded(project)
    assert len(first) == 4

    disk.fill(leaving=4 << 20)
    with project.start("resume", "heavy", "--limits", "node_runs=999", "--quiet") as running:
        waits = lambda: "it continues" in " ".join(running.stderr.split())  # noqa: E731
        project.until(lambda: waits() or running.process.poll() is not None, "the run to find the disk full")
        project.close()
        project._database = None
        disk.make_room()
        server.stop()  # where it had no room for its log it ended by itself
        server.start()
        project.url = server.url
        done = running.wait()
    assert "Traceback" not in done.stderr, done.stderr
    second = succeeded(project)
    assert first <= second
    assert done.code == (0 if len(second) == 40 else 4), "it waited for room, or its server had died of the full disk"

    if done.code == 4:
        project.wtb("resume", "heavy", "--limits", "node_runs=999", "--quiet", check=0)
    assert project.query("SELECT status, count(*) FROM cells GROUP BY status") == [("succeeded", 40)]
    ran = Counter(project.log())
    assert all(ran[line] == 1 for line in second), "what was committed did not run again"
    invariants_hold(project, {"succeeded": 40})
