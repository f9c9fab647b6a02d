"""wtb admin session create, change, list, show, archive and delete, and --session and WTB_SESSION of other commands."""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.prose import sentence
from wtb.core.ids import new_id
from wtb.store.access import sessions
from wtb.store.database import Database
from wtb.store.files.store import FileStore
from wtb.store.process_identity import identity
from wtb.store.runs import slots

if TYPE_CHECKING:
    from tests.support.project import Outcome, Project

ONE_CELL = ("--limit", "1", "--combination", "A=v1,B=v1,C=v1", "--quiet")


def session(project: Project, *arguments: str, **environment: str) -> Outcome:
    return project.in_80_columns("admin", "session", *arguments, **environment)


def run(project: Project, *arguments: str, **environment: str) -> Outcome:
    done = project.in_80_columns("run", "sweep.yaml", *ONE_CELL, *arguments, **environment)
    assert done.code == 0, done.stderr
    return done


def make_session(project: Project, name: str, *options: str) -> None:
    done = session(project, "create", name, *options)
    assert done.code == 0, done.stderr


def listed(project: Project, *options: str) -> dict[str, dict[str, Any]]:
    rows = session(project, "list", "--format", "json", *options).json["sessions"]
    return {session["name"]: session for session in rows}


def owned(project: Project) -> list[str]:
    """The sessions that sweeps belong to, in the order in which they were submitted."""
    return [
        row[0]
        for row in project.query(
            "SELECT s.name FROM sweeps w JOIN sessions s ON s.id = w.session_id ORDER BY w.created_at, w.id"
        )
    ]


def database_of(project: Project) -> Database:
    return Database(f"sqlite:///{project.file}")


NO_QUOTA = {"disk": None, "node_runs": None, "usd": None, "tokens": None, "memory": None}


# Making and changing


def test_a_session_is_made_with_its_quota_and_says_what_comes_next(project: Project) -> None:
    done = session(project, "create", "ann", "--disk", "1.5GB", "--concurrency", "4", "--usd", "20")
    assert (done.code, done.stdout) == (0, "session ann: made, disk 1.5 GB, 4 node runs at a time, $20.00\n")
    assert sentence("wtb run sweep.yaml --session {}", "ann") in done.output
    assert listed(project)["ann"]["quota"] == NO_QUOTA | {"disk": 1_500_000_000, "node_runs": 4, "usd": 20.0}


def test_a_session_has_a_quota_of_memory_in_all_that_shows_it(project: Project) -> None:
    done = session(project, "create", "ann", "--memory", "4GB", "--disk", "1GB")
    assert done.stdout == "session ann: made, disk 1.0 GB, memory 4.0 GB\n"
    ann = listed(project)["ann"]
    assert (ann["quota"]["memory"], ann["usage"]["memory"]) == (4 * 10**9, 0)
    assert listed(project)["default"]["usage"]["memory"] is None, "without a quota it is not measured"
    lines = [" ".join(line.split()) for line in session(project, "list", COLUMNS="100").stdout.splitlines()]
    assert lines[0] == "name sweeps cells disk memory spent node runs"
    assert lines[2:] == ["ann 0 0 0 B of 1.0 GB 0 B of 4.0 GB $0.00 0", "default 0 0 0 B $0.00 0"]
    assert "quota: disk 1.0 GB, memory 4.0 GB" in session(project, "list", COLUMNS="60").stdout
    text = session(project, "show", "ann").stdout
    assert "memory 0 B of 4.0 GB" in " ".join(text.split())
    assert session(project, "change", "ann", "--memory", "512MiB").stdout == (
        "session ann: disk 1.0 GB, memory 536.9 MB\n"
    )
    assert session(project, "change", "ann", "--memory", "none").stdout == "session ann: disk 1.0 GB\n"
    assert "memory" not in session(project, "list").stdout
    assert "memory" not in session(project, "show", "ann").stdout


def test_a_session_without_a_quota_has_no_limits(project: Project) -> None:
    assert session(project, "create", "ann", "--disk", "none").stdout == "session ann: made, no limits\n"
    assert listed(project)["ann"]["quota"] == NO_QUOTA


def test_a_change_leaves_the_limits_that_it_does_not_name(project: Project) -> None:
    make_session(project, "ann", "--disk", "2GiB", "--usd", "0.5")
    done = session(project, "change", "ann", "--usd", "none", "--concurrency", "1")
    assert (done.code, done.stdout) == (0, "session ann: disk 2.1 GB, 1 node run at a time\n")
    assert listed(project)["ann"]["quota"] == NO_QUOTA | {"disk": 2**31, "node_runs": 1}
    assert session(project, "change", "default", "--usd", "$5").stdout == "session default: $5.00\n"


@pytest.mark.parametrize(
    ("option", "limit", "expected"),
    [
        ("--disk", "ten", "--disk 'ten' is not a size; expected a positive size, such as 500MB, 1.5GB"),
        ("--disk", "0", sentence("{} is not a size", "--disk '0'")),
        ("--disk", "-1GB", sentence("{} is not a size", "--disk '-1GB'")),
        ("--memory", "0", "--memory '0' is not a size; expected a positive size, such as 500MB, 1.5GB"),
        ("--memory", "-4GB", "--memory '-4GB' is not a size"),
        ("--memory", "much", "--memory 'much' is not a size"),
        ("--memory", "4 PB", sentence("or none for no limit")),
        (
            "--concurrency",
            "2.5",
            sentence("{}: expected a positive whole number, such as 4", "--concurrency '2.5'")
            + sentence("; or none for no limit"),
        ),
        ("--concurrency", "0", "node_runs is 0; expected a whole number of at least 1 (--concurrency)"),
        ("--concurrency", "99999999999", "node_runs is 99999999999; expected at most 2,147,483,647"),
        ("--concurrency", "9" * 5000, sentence("expected a positive whole number")),
        ("--usd", "9" * 5000, sentence("expected a positive amount of US dollars")),
        ("--disk", "x" * 5000, sentence("is not a size; expected {}", "a positive size")),
        ("--usd", "nan", sentence("{}: expected a positive amount of US dollars", "--usd 'nan'")),
        ("--usd", "0.0", "usd is 0; expected a finite number above 0 (--usd)"),
        ("--usd", "1e400", sentence("expected a positive amount of US dollars")),
        ("--usd", "", sentence("expected a positive amount of US dollars")),
    ],
)
def test_a_limit_that_cannot_be_read_is_refused(project: Project, option: str, limit: str, expected: str) -> None:
    for command in ("create", "change"):
        done = session(project, command, "ann", option, limit)
        assert (command, done.code, done.stdout) == (command, 2, "")
        assert expected in done.output, command
    assert not project.file.exists()


@pytest.mark.parametrize("name", ["..", ".wtb", "a/b", "a b", "é", "x" * 65])
def test_a_name_that_cannot_be_a_directory_is_refused(project: Project, name: str) -> None:
    done = session(project, "create", name)
    assert (done.code, done.stdout) == (2, "")
    assert sentence("cannot be the name of a session; expected {}", "1 to 64 letters, digits") in done.output
    assert not project.file.exists()


def test_what_is_there_is_not_made_again(project: Project) -> None:
    make_session(project, "ann")
    for name in ("ann", "ANN", "default"):
        done = session(project, "create", name)
        assert (done.code, done.stdout) == (2, "")
        assert sentence("there is a session") in done.output


def test_a_change_of_nothing_is_refused(project: Project) -> None:
    make_session(project, "ann")
    done = session(project, "change", "ann")
    assert done.code == 2
    assert sentence("no change is given; give --disk, --memory, --concurrency, --usd or --tokens") in done.output


@pytest.mark.parametrize("command", ["change --usd 1", "show", "archive", "delete", "delete --yes"])
def test_a_session_that_is_not_there_is_named_with_a_near_one(project: Project, command: str) -> None:
    make_session(project, "nightly")
    name, *options = command.split()
    done = session(project, name, "nigthly", *options)
    assert (done.code, done.stdout) == (2, "")
    assert (
        "there is no session 'nigthly'; did you mean 'nightly'? (`wtb admin session create nigthly` makes it)"
        in done.output
    )


@pytest.mark.parametrize("command", ["show", "archive", "delete"])
def test_without_a_database_it_says_so_and_makes_none(project: Project, command: str) -> None:
    done = session(project, command, "ann")
    assert done.code == 2
    assert sentence("there is no database") in done.output
    assert not project.file.exists()


# Looking


def test_there_is_nothing_to_list_without_a_database(project: Project) -> None:
    done = session(project, "list")
    assert (done.code, done.stdout) == (0, "")
    assert sentence("no sessions yet; `wtb admin session create NAME` makes one") in done.output
    assert session(project, "list", "--format", "json").json == {"sessions": []}
    assert not project.file.exists()


def test_the_list_shows_what_is_used_of_how_much(project: Project) -> None:
    make_session(project, "ann", "--usd", "20", "--disk", "10GB", "--concurrency", "4")
    make_session(project, "bob")
    run(project, "--session", "ann")
    run(project, "--session", "ann")
    rows = listed(project)
    assert list(rows) == ["ann", "bob", "default"]
    assert (rows["ann"]["sweeps"], rows["ann"]["cells"]) == (2, 2)
    assert rows["ann"]["usage"] == {"disk": 0, "node_runs": 0, "usd": 3.5, "tokens": 8, "memory": None}
    assert rows["bob"]["usage"] == {"disk": 0, "node_runs": 0, "usd": 0.0, "tokens": 0, "memory": None}
    assert (rows["bob"]["sweeps"], rows["bob"]["archived_at"]) == (0, None)

    table = session(project, "list").stdout
    assert [" ".join(line.split()) for line in table.splitlines()[2:]] == [
        "ann 2 2 0 B of 10.0 GB $3.50 of $20.00 0 of 4",
        "bob 0 0 0 B $0.00 0",
        "default 0 0 0 B $0.00 0",
    ]


def test_the_list_fits_in_80_columns_whatever_its_figures(project: Project) -> None:
    make_session(project, "a" * 64, "--usd", "123456.78", "--disk", "999TB", "--concurrency", "2147483647")
    make_session(project, "b" * 64, "--usd", "0.000001")
    assert session(project, "archive", "b" * 64).code == 0
    tables = {width: session(project, "list", "--all", COLUMNS=str(width)).stdout for width in (72, 80)}
    assert all(max(map(len, text.splitlines())) <= width for width, text in tables.items())
    assert "quota: disk 999.0 TB, 2,147,483,647 node runs at a time, $123,456.78" in tables[72]
    assert "0 B of 999.0 TB" in tables[80]
    assert "quota" not in tables[80]
    assert all("  archived 20" in text for text in tables.values())


def test_one_session_is_shown_with_its_sweeps_and_who_holds_its_slots(project: Project) -> None:
    make_session(project, "ann", "--concurrency", "4")
    run(project, "--session", "ann")
    database = database_of(project)
    session_id = sessions.find_session(database, "ann").id
    # This process lives; of the same pid in an earlier life it is known that it is dead.
    slots.register_runner(database, identity(), session_id, 3)
    dead = replace(identity(), id=new_id(), process_started_at=1.0)
    slots.register_runner(database, dead, session_id, 1)

    outcome = session(project, "show", "ann")
    assert outcome.code == 0
    lines = [" ".join(line.split()) for line in outcome.stdout.splitlines()]
    assert lines[0] == "ann"
    assert {"sweeps 1: 1 completed", "cells 1", "disk 0 B", "spent $1.75", "node runs 3 of 4 at a time"} <= set(lines)
    assert sentence("process {} on {} ({}, {})", os.getpid(), socket.gethostname(), 3, "alive") in " ".join(lines)
    assert lines[-1] == "more: " + sentence("wtb list --session {}", "ann")
    assert max(map(len, outcome.stdout.splitlines())) <= 80

    document = session(project, "show", "ann", "--format", "json").json
    assert document["session"] == listed(project)["ann"]
    assert document["session"]["usage"]["node_runs"] == 3
    assert document["sweeps_by_status"] == {"completed": 1}
    assert [runner["slots"] for runner in document["runners"]] == [3]
    assert document["directory"] == str(project.folder / ".wtb" / "sessions" / "default")
    database.close()


# Whose a sweep is


def test_the_option_comes_before_the_file_and_the_file_before_the_environment(project: Project) -> None:
    for name in ("option", "file", "environment"):
        make_session(project, name)
    run(project)
    run(project, WTB_SESSION="environment")
    project.write({"sweep.yaml": (project.folder / "sweep.yaml").read_text("utf-8") + "session: file\n"})
    run(project, WTB_SESSION="environment")
    run(project, "--session", "option", WTB_SESSION="environment")
    assert owned(project) == ["default", "environment", "file", "option"]


def test_the_list_of_sweeps_is_that_of_a_session(project: Project) -> None:
    make_session(project, "ann")
    run(project)
    run(project, "--session", "ann")

    def sessions_of(*options: str, **environment: str) -> list[str]:
        sweeps = project.in_80_columns("list", "--format", "json", *options, **environment).json["sweeps"]
        return [sweep["session"] for sweep in sweeps]

    assert sorted(sessions_of()) == ["ann", "default"]
    assert sessions_of("--session", "ann") == ["ann"]
    assert sessions_of(WTB_SESSION="ann") == ["ann"]
    assert sessions_of("--session", "default", WTB_SESSION="ann") == ["default"]
    done = project.in_80_columns("list", "--session", "anm")
    assert (done.code, done.stdout) == (2, "")
    assert sentence("there is no session {}", "'anm'") + sentence("; did you mean '{}'?", "ann") in done.output
    assert (
        sentence("no sweep matches") in project.in_80_columns("list", "--session", "ann", "--status", "failed").output
    )


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize("source", ["option", "file", "environment"])
def test_an_unknown_session_is_refused(project: Project, command: str, source: str) -> None:
    make_session(project, "nightly")
    options, environment = [], {}
    if source == "option":
        options = ["--session", "nigthly"]
    elif source == "file":
        project.write({"sweep.yaml": (project.folder / "sweep.yaml").read_text("utf-8") + "session: nigthly\n"})
    else:
        environment = {"WTB_SESSION": "nigthly"}
    done = project.in_80_columns(command, "sweep.yaml", *options, **environment)
    assert (done.code, done.stdout) == (2, "")
    assert "did you mean 'nightly'? (`wtb admin session create nigthly` makes it)" in done.output
    assert owned(project) == []


def test_a_plan_needs_a_database_only_for_a_session_of_its_own(project: Project) -> None:
    assert project.in_80_columns("plan", "sweep.yaml").code == 0
    assert project.in_80_columns("plan", "sweep.yaml", "--session", "default").code == 0
    done = project.in_80_columns("plan", "sweep.yaml", "--session", "ann")
    assert done.code == 2
    assert "there is no session 'ann'; `wtb admin session create ann` makes it" in done.output
    assert not project.file.exists()
    make_session(project, "ann")
    assert project.in_80_columns("plan", "sweep.yaml", "--session", "ann").code == 0


# Archives


def test_an_archived_session_takes_no_sweeps_but_can_be_read(project: Project) -> None:
    make_session(project, "ann")
    run(project, "--session", "ann")
    assert session(project, "archive", "ann").stdout == "session ann: archived\n"
    assert session(project, "archive", "ann").stdout == "session ann: archived already\n"

    for command in ("plan", "run"):
        done = project.in_80_columns(command, "sweep.yaml", "--session", "ann")
        assert (done.code, done.stdout) == (2, "")
        assert (
            sentence(
                "{} is archived, so it accepts no new sweeps; reopen it with `wtb admin session archive {} --undo`",
                "'ann'",
                "ann",
            )
            in done.output
        )
    assert owned(project) == ["ann"]
    assert list(listed(project)) == ["default"]
    assert listed(project, "--all")["ann"]["archived_at"] is not None
    assert "archived" in session(project, "list", "--all").stdout
    assert session(project, "show", "ann").stdout.startswith("ann (archived: it takes no new sweeps)\n")
    assert project.in_80_columns("matrix", "first", "--format", "json").json["cells"]["succeeded"] == 1

    assert session(project, "archive", "ann", "--undo").stdout == sentence("session ann") + ": " + sentence(
        "not archived\n"
    )
    assert session(project, "archive", "ann", "--undo").stdout == "session ann: not archived already\n"
    run(project, "--session", "ann")
    assert owned(project) == ["ann", "ann"]


@pytest.mark.parametrize("command", ["archive", "delete"])
def test_the_default_session_stays(project: Project, command: str) -> None:
    run(project)
    done = session(project, command, "default")
    assert (done.code, done.stdout) == (2, "")
    assert sentence("{} cannot be {}", "'default'", f"{command}d") in done.output
    assert owned(project) == ["default"]


# Deleting


def test_a_session_goes_with_its_sweeps_and_directory_and_nothing_of_another(project: Project) -> None:
    for name in ("ann", "bob"):
        make_session(project, name)
        run(project, "--session", name)
        project.write({f".wtb/sessions/{name}/attempt/left.txt": "x"})
    (sweep,) = project.in_80_columns("list", "--session", "bob", "--format", "json").json["sweeps"]
    before = project.query("SELECT * FROM checkpoints WHERE sweep_id = :id ORDER BY id", id=sweep["id"])
    matrix = project.in_80_columns("matrix", sweep["id"], "--format", "json").json

    done = session(project, "delete", "ann", "--yes")

    assert done.code == 0
    assert done.stdout == sentence("deleted session {} with {} and {}", "ann", "1 sweep", "1 cell") + "\n"
    assert list(listed(project)) == ["bob", "default"]
    assert owned(project) == ["bob"]
    assert sorted(path.name for path in (project.folder / ".wtb" / "sessions").iterdir()) == ["bob"]
    assert project.query("SELECT * FROM checkpoints WHERE sweep_id = :id ORDER BY id", id=sweep["id"]) == before
    assert project.in_80_columns("matrix", sweep["id"], "--format", "json").json == matrix
    assert project.query("SELECT DISTINCT sweep_id FROM events") == [(sweep["id"],)]


FILES = """
import os
from wtb import END, Workflow

wf = Workflow("files")


@wf.node
def A(state, ctx):
    (ctx.workspace / "same.txt").write_text("the same in both" * 100)
    (ctx.workspace / "own.txt").write_text(os.environ["WHO"] * 100)
    return {"own": os.environ["WHO"] * 100, "same": "the same in both" * 100}


wf.entry(A)
wf.edge(A, END)
"""


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_of_content_that_two_sessions_share_nothing_is_lost(
    project: Project, kind: str, request: pytest.FixtureRequest
) -> None:
    if kind == "postgresql":
        project.url = request.getfixturevalue("prepared_postgres_url")
    project.write({"files.py": FILES, "sweep.yaml": "workflow: files:wf\ncases: [{input: {}}]\nvary: {A: all}\n"})
    for name in ("ann", "bob"):
        make_session(project, name)
        project.wtb("run", "sweep.yaml", "--session", name, "--quiet", env={"WHO": name}, check=0)
    store = FileStore(project.folder / ".wtb" / "files").of_project("default")
    own = {hashlib.sha256((name * 100).encode()).hexdigest(): name for name in ("ann", "bob")}
    same = hashlib.sha256(b"the same in both" * 100).hexdigest()
    snapshots = "SELECT w.name, c.workspace FROM checkpoints c JOIN sweeps s ON s.id = c.sweep_id"
    snapshots += " JOIN sessions w ON w.id = s.session_id WHERE c.workspace IS NOT NULL"
    manifests: dict[str, str] = dict(project.query(snapshots))  # type: ignore[arg-type]
    stored = {digest: size for digest, size, _ in store.stored()}
    assert stored.keys() == {*own, same, *manifests.values()}
    disk = {name: 1600 + 300 + stored[manifests[name]] for name in ("ann", "bob")}
    assert {name: session["usage"]["disk"] for name, session in listed(project).items()} == {**disk, "default": 0}
    for digest in stored:  # older than what a collection leaves alone
        os.utime(store.path(digest), (1.0, 1.0))

    done = session(project, "delete", "ann", "--yes")

    assert done.code == 0
    assert "freed" in done.output
    assert "1 stored value and 2 stored files" in done.output
    assert sentence("no stored files were removed") not in done.output
    remaining = {digest for digest, _, _ in store.stored()}
    assert {own.get(digest) for digest in remaining} == {"bob", None}
    assert remaining == {same, manifests["bob"], *(digest for digest, name in own.items() if name == "bob")}
    assert {name: file.digest for name, file in store.manifest(manifests["bob"]).items()} == {
        "own.txt": next(digest for digest, name in own.items() if name == "bob"),
        "same.txt": same,
    }
    for digest in remaining:
        assert hashlib.sha256(Path(store.path(digest)).read_bytes()).hexdigest() == digest
    (cell,) = project.in_80_columns("show", "sweep", "--cells", "--format", "json").json["cells"]
    assert cell["state"] == {"own": "bob" * 100, "same": sentence("the same in both") * 100}
    project.close()


def test_a_session_with_sweeps_is_not_deleted_unasked(project: Project) -> None:
    make_session(project, "ann")
    run(project, "--session", "ann")
    done = project.wtb("admin", "session", "delete", "ann", check=2)
    assert done.stdout == ""
    assert "Delete session ann with 1 sweep, 1 cell and 0 B of files permanently?" in done.output
    assert sentence("this needs confirmation, and there is no terminal; give --yes") in done.output
    assert owned(project) == ["ann"]
    refused = project.wtb("admin", "session", "delete", "ann", stdin="n\n", check=1)
    assert sentence("nothing was deleted") in refused.output
    project.wtb("admin", "session", "delete", "ann", stdin="y\n", check=0)
    assert owned(project) == []


def test_an_empty_session_is_deleted_without_a_question(project: Project) -> None:
    make_session(project, "ann")
    assert (
        session(project, "delete", "ann").stdout
        == sentence("deleted session {} with {} and {}", "ann", "0 sweeps", "0 cells") + "\n"
    )
    assert list(listed(project)) == ["default"]


def test_a_session_that_somebody_runs_is_not_deleted(project: Project) -> None:
    make_session(project, "ann")
    database = database_of(project)
    runner = identity()
    slots.register_runner(database, runner, sessions.find_session(database, "ann").id, 1)
    done = session(project, "delete", "ann", "--yes")
    assert (done.code, done.stdout) == (2, "")
    assert (
        sentence(
            "session {}: process {} on {} is running {}; stop that", "'ann'", runner.pid, runner.host, "a sweep of it"
        )
        in done.output
    )
    slots.end_runner(database, runner.id)
    database.close()
    assert session(project, "delete", "ann", "--yes").code == 0


# Owners, metadata and other names


def test_a_session_has_an_owner_metadata_and_another_name(project: Project) -> None:
    make_session(project, "ann", "--owner", "Ann <ann@example.org>", "--meta", "ticket=W-1", "--meta", "cost=a=b")
    run(project, "--session", "ann")
    assert session(project, "rename", "ann", "bob").stdout == sentence("session {}: called {} now", "ann", "bob") + "\n"
    assert listed(project)["bob"]["owner"] == "Ann <ann@example.org>"
    assert listed(project)["bob"]["metadata"] == {"ticket": "W-1", "cost": "a=b"}
    assert listed(project)["bob"]["active_at"] > listed(project)["bob"]["created_at"]
    text = session(project, "show", "bob").stdout
    assert "Ann <ann@example.org>" in text
    assert 'ticket: "W-1", cost: "a=b"' in text
    assert "last active" in text
    assert owned(project) == ["bob"]
    assert session(project, "change", "bob", "--owner", "", "--meta", "cost=").code == 0
    assert (listed(project)["bob"]["owner"], listed(project)["bob"]["metadata"]) == (None, {"ticket": "W-1"})
    assert (
        sentence("--meta {}: expected KEY=TEXT", "'cost'") in session(project, "change", "bob", "--meta", "cost").output
    )
    assert sentence("there is no session {}", "'ann'") in session(project, "show", "ann").output
    assert "'default' cannot be renamed" in session(project, "rename", "default", "x").output
