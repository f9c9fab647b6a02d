"""Leftovers of dead runners are removed; those of runners that live or may live are not touched."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest

from tests.support.waiting import until
from wtb.core.ids import new_id
from wtb.execution.runtime import upkeep
from wtb.execution.runtime.upkeep import Cleaned, clean
from wtb.execution.sandbox.launch.process_tags import RUNNER, kill
from wtb.store.bulk import insert_rows
from wtb.store.database import Database
from wtb.store.process_identity import ProcessIdentity, boot_id, identity
from wtb.store.runs import leases
from wtb.store.tables.schema import runners

pytestmark = pytest.mark.nodes("started")

Register = Callable[..., str]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "home" / "sessions"


def ended_process() -> ProcessIdentity:
    """The identity of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return replace(identity(), pid=process.pid, process_started_at=time.time() - 60)


@pytest.fixture
def alive(database: Database) -> str:
    """A runner that lives: this process."""
    me = identity()
    leases.register(database, me)
    return me.id


@pytest.fixture
def dead(database: Database) -> str:
    """A runner whose process has ended."""
    runner = ended_process()
    leases.register(database, runner)
    return runner.id


def attempt(root: Path, runner: str, *, session: str = "default", sweep: str = "sweep1") -> Path:
    folder = root / session / sweep / runner / new_id()
    folder.mkdir(parents=True)
    (folder / "draft").write_text("x")
    return folder


def age(folder: Path, seconds: float) -> None:
    at = time.time() - seconds
    for place in (*folder.rglob("*"), folder):
        os.utime(place, (at, at), follow_symlinks=False)


# Directories


def test_directories_of_a_dead_runner_go_and_those_of_a_living_one_stay(
    database: Database, root: Path, alive: str, dead: str
) -> None:
    living_folder, dead_folder = attempt(root, alive), attempt(root, dead)
    attempt(root, dead, session="team", sweep="sweep2")

    assert clean(database, root, dry=True) == Cleaned(directories=2)
    assert dead_folder.exists()
    assert clean(database, root) == Cleaned(directories=2)

    assert (living_folder / "draft").exists()
    assert list(root.rglob("draft")) == [living_folder / "draft"]
    assert not (root / "team").exists()  # empty parents go too
    assert clean(database, root) == Cleaned()


def test_directories_of_a_runner_that_has_ended_go_although_its_process_lives(
    database: Database, root: Path, alive: str
) -> None:
    attempt(root, alive)
    with database.write() as connection:
        connection.execute(runners.update().values(ended_at=1.0))

    assert clean(database, root).directories == 1


@pytest.mark.parametrize(("host", "boot", "goes"), [("elsewhere", "b", False), (socket.gethostname(), "before", True)])
def test_a_runner_of_another_machine_may_live_and_one_before_the_last_start_does_not(
    database: Database, root: Path, host: str, boot: str, goes: bool
) -> None:
    runner = replace(identity(), host=host, boot=boot)
    assert boot_id() != boot
    with database.write() as connection:
        insert_rows(connection, runners, [asdict(runner)])
    folder = attempt(root, runner.id)

    assert clean(database, root).directories == int(goes)
    assert folder.exists() is not goes


def test_directories_of_an_unknown_runner_go_after_an_hour(database: Database, root: Path) -> None:
    old, young, busy = (attempt(root, runner) for runner in ("old", "young", "busy"))
    age(old.parent, upkeep.UNKNOWN_S + 60)
    age(busy.parent, upkeep.UNKNOWN_S + 60)
    (busy / "more").write_text("just written")

    assert clean(database, root).directories == 1
    assert not old.exists()
    assert young.exists()
    assert busy.exists()


def test_what_lies_in_the_old_place_goes_after_a_day(database: Database, root: Path) -> None:
    attempts = root.parent / "attempts"
    for name in ("old", "young"):
        (attempts / name).mkdir(parents=True)
        (attempts / name / "draft").write_text("x")
    age(attempts / "old", upkeep.OLD_LAYOUT_S + 60)

    assert clean(database, root).directories == 1
    assert [place.name for place in attempts.iterdir()] == ["young"]


def test_links_are_not_followed_and_unwritable_directories_are_no_hindrance(
    database: Database, root: Path, dead: str, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    (precious / "inner").mkdir(parents=True)
    (precious / "inner" / "file").write_text("mine")
    folder = attempt(root, dead)
    (folder / "link").symlink_to(precious)
    (folder / "closed").mkdir()
    (folder / "closed" / "file").write_text("x")
    (folder / "closed").chmod(0o500)
    (root / "default" / "linked").symlink_to(precious)
    (root / "default" / "sweep1" / "linked").symlink_to(precious)
    folder.chmod(0o000)

    assert clean(database, root) == Cleaned(directories=1)
    assert (precious / "inner" / "file").read_text() == "mine"
    assert not folder.exists()


def test_an_empty_directory_that_is_young_stays_for_who_is_about_to_fill_it(database: Database, root: Path) -> None:
    (root / "default" / "young").mkdir(parents=True)
    (root / "default" / "old").mkdir()
    age(root / "default" / "old", upkeep.EMPTY_S + 10)

    clean(database, root)

    assert [place.name for place in (root / "default").iterdir()] == ["young"]


def test_where_there_is_nothing_nothing_is_made(database: Database, root: Path) -> None:
    assert clean(database, root) == Cleaned()
    assert not root.exists()


def test_it_is_quick_where_there_is_nothing_to_do(database: Database, root: Path, alive: str) -> None:
    attempt(root, alive)
    took = []
    for _ in range(7):
        started = time.process_time()
        clean(database, root)
        took.append(time.process_time() - started)

    assert min(took) < 0.02


# Processes

DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(120)
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[[str | None], int]]:
    """Start a process like a node's stray grandchild: forked twice, in its own session. Return its pid."""
    started: list[int] = []

    def start(runner: str | None) -> int:
        pid_file = tmp_path / f"pid-{len(started)}"
        environment = {name: text for name, text in os.environ.items() if name != RUNNER}
        environment |= {RUNNER: runner} if runner is not None else {}
        subprocess.run([sys.executable, "-c", DAEMON, str(pid_file)], env=environment, check=True)
        until(pid_file.exists, "the process to write its pid")
        started.append(int(pid_file.read_text()))
        return started[-1]

    yield start
    for pid in started:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_processes_of_a_dead_runner_are_killed_and_no_others(
    database: Database, root: Path, alive: str, dead: str, daemon: Callable[[str | None], int]
) -> None:
    stray, another = daemon(dead), daemon(dead)
    other_pids = [daemon(alive), daemon("unknown"), daemon(None), daemon(dead + "0")]
    folder = attempt(root, dead)

    assert clean(database, root, dry=True) == Cleaned(directories=1, processes=2)
    assert is_alive(stray)
    assert clean(database, root) == Cleaned(directories=1, processes=2)

    assert not is_alive(stray)
    assert not is_alive(another)
    assert all(map(is_alive, other_pids))
    assert not folder.exists()


def test_processes_of_a_runner_on_another_machine_are_left(
    database: Database, root: Path, daemon: Callable[[str | None], int]
) -> None:
    runner = replace(identity(), host="elsewhere")
    leases.register(database, runner)
    pid = daemon(runner.id)

    assert clean(database, root) == Cleaned()
    assert is_alive(pid)


def test_directories_of_an_unknown_runner_stay_while_a_process_of_it_lives(
    database: Database, root: Path, daemon: Callable[[str | None], int]
) -> None:
    daemon("of-another-database")
    folder = attempt(root, "of-another-database")
    age(folder.parent, upkeep.UNKNOWN_S + 60)

    assert clean(database, root) == Cleaned()
    assert folder.exists()


def test_a_number_that_is_another_process_by_now_is_not_killed(
    dead: str, database: Database, daemon: Callable[[str | None], int]
) -> None:
    pid = daemon("another")
    row = replace(identity(), id=dead, process_started_at=0.0)
    assert kill(pid, partial(upkeep._belongs_to, row)) is None

    pid = daemon(dead)
    younger = replace(row, process_started_at=time.time() + 60)
    assert kill(pid, partial(upkeep._belongs_to, younger)) is None  # it is older than its runner
    assert is_alive(pid)
