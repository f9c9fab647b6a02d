"""Walls between nodes and an SQLite file: the file is hidden, everything but declared paths is hidden, or nothing is.

Nodes try every known way to its rows, and still use files, programs and the network as usual.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.security.test_nodes import by_users, is_root, on_linux, run_apart
from tests.security.test_nodes import folder as folder
from tests.support.project import Project
from tests.support.prose import sentence
from wtb.config.credentials import HIDING_NOTICE
from wtb.execution.sandbox.launch import hidden_database, walls


def _prints(module: Any) -> str:
    return subprocess.run([sys.executable, "-I", module.__file__], capture_output=True, text=True, check=False).stdout


WAY = _prints(walls)
HIDES = _prints(hidden_database).startswith("hidden")
SPY = """
import os
import sqlite3
import subprocess
from pathlib import Path

from wtb import END, Workflow

HERE = Path(__file__).parent
wf = Workflow("spy")


@wf.node
def first(state, ctx):
    (ctx.workspace / "kept.txt").write_text("kept")
    return {"read": Path(state["given"]).read_text() if "given" in state else None}


@wf.node
def look(state, ctx):
    home = HERE / ".wtb"
    try:
        rows = sqlite3.connect(f"file:{home / 'wtb.db'}?mode=ro", uri=True).execute("SELECT count(*) FROM sweeps")
        rows = rows.fetchone()[0]
    except sqlite3.Error as error:
        rows = None
    sizes = []
    for suffix in ("", "-wal", "-shm"):
        try:
            sizes.append(len((home / f"wtb.db{suffix}").read_bytes()))
        except OSError:
            sizes.append(0)
    child = subprocess.run(["cat", home / "wtb.db"], capture_output=True, check=False).stdout
    runner = f"/proc/{os.getppid()}/root{home / 'wtb.db'}"
    try:
        around = len(Path(runner).read_bytes())
    except OSError:
        around = 0
    found = {"rows": rows, "sizes": sizes, "child": len(child), "around": around}
    return {"found": found, "files": os.listdir(ctx.workspace)}


wf.entry(first)
wf.edge(first, look)
wf.edge(look, END)
"""


def read_report(project: Project, name: str) -> dict[str, object]:
    (cell,) = project.inside("show", name, "--cells", "--format", "json", check=0).json["cells"]
    state: dict[str, object] = cell["state"]
    assert state["files"] == ["kept.txt"]  # what nodes need of the store and of workspaces is there
    assert isinstance(state["found"], dict)
    return state["found"]


def doctor(project: Project) -> str:
    checks = project.inside("doctor", "--format", "json").json["checks"]
    (text,) = [check["found"] for check in checks if check["name"] == "nodes and its file"]
    assert isinstance(text, str)
    return text


@pytest.fixture
def spied(project: Project) -> Project:
    sweep = {"sweep": "spied", "workflow": "spy:wf", "cases": [{"id": "a", "input": {}}], "vary": {"look": "all"}}
    project.write({"spy.py": SPY, "spied.json": json.dumps(sweep)})
    return project


@pytest.mark.parametrize("named", [{"WTB_WALLS": "0"}, {}])
def test_without_walls_a_node_reads_the_database(spied: Project, named: dict[str, str]) -> None:
    if not named:
        spied.write({"wtb.toml": "[nodes]\nwalls = false\n"})
    spied.wtb("run", "spied.json", "--quiet", check=0, env=named)
    assert read_report(spied, "spied")["rows"] == 1
    if not named:
        assert sentence("nodes can read the database") in doctor(spied)


@pytest.mark.skipif(not HIDES, reason="this system forbids namespaces")
def test_by_default_a_node_finds_a_notice_where_the_database_is(spied: Project) -> None:
    notice = HIDING_NOTICE.stat().st_size
    for _ in range(2):  # the database is there from the start, too
        spied.wtb("run", "spied.json", "--quiet", check=0)
        nothing = read_report(spied, "spied")
        assert nothing == {"rows": None, "sizes": [notice] * 3, "child": notice, "around": 0}
    assert doctor(spied) == sentence("nodes cannot read the database: its file is hidden by a mount namespace")


@pytest.mark.skipif(not WAY.startswith(("namespaces", "landlock")), reason="this system has no walls")
def test_with_walls_a_node_finds_no_database(spied: Project) -> None:
    spied.write({"wtb.toml": "[nodes]\nwalls = true\n"})
    for _ in range(2):  # the database is there from the start, too
        spied.wtb("run", "spied.json", "--quiet", check=0)
        nothing = read_report(spied, "spied")
        assert nothing == {"rows": None, "sizes": [0, 0, 0], "child": 0, "around": 0}
    assert doctor(spied) == sentence("nodes cannot read the database")


def test_walls_are_of_three_kinds(spied: Project) -> None:
    spied.write({"wtb.toml": '[nodes]\nwalls = "yes"\n'})
    message = spied.wtb("run", "spied.json", check=2).output
    assert sentence("'walls' of {} must be true, false or \"database\"", "[nodes]") in message
    message = spied.wtb("run", "spied.json", check=2, env={"WTB_WALLS": "true"}).output
    assert (
        sentence("{}={}: expected 1 (all walls), 0 (none) or database (the default)", "WTB_WALLS", "'true'") in message
    )


WAYS = '''
import ctypes
import glob
import json
import multiprocessing
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import wtb
from wtb import END, Workflow

HERE = Path(__file__).parent
HOME = Path(os.path.realpath(HERE / ".wtb"))
DATABASE = HOME / "wtb.db"
libc = ctypes.CDLL(None, use_errno=True)
wf = Workflow("spy")


def has_rows(path):
    """Whether this is a database that can be read; pipes are not, which would wait for something to read."""
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return file.read(6) == b"SQLite"
    except OSError:
        return False


def rows(path):
    try:
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True).execute("SELECT count(*) FROM sweeps").fetchone()[0]
    except sqlite3.Error:
        return None


def shell(command):
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False, cwd=HERE)
    return b"SQLite format" in done.stdout


def fails(act):
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def disk():
    """Whether a disk can be read, or made readable."""
    for name in os.listdir("/sys/class/block"):
        try:
            with open(f"/dev/{name}", "rb") as file:
                if file.read(1):
                    return name
        except OSError:
            pass
    major, minor = os.major(os.stat(HERE).st_dev), os.minor(os.stat(HERE).st_dev)
    return fails(lambda: os.mknod("disk", 0o60600, os.makedev(major, minor))) is None


def around(ctx):
    parent = os.getppid()
    with open(f"/proc/{parent}/stat") as stat:
        runner = int(stat.read().rpartition(")")[2].split()[1])
    others = (parent, runner, 1)
    found = {
        "file": has_rows(DATABASE), "rows": rows(DATABASE), "log": rows(HERE / "same.db"),
        "names": [name for name in os.listdir(HOME) if not name.startswith("saver") and (has_rows(HOME / name)
                  or name.endswith(("-wal", "-shm")) and (HOME / name).stat().st_size != HIDDEN_BYTES)],
        "links": [has_rows(path) for path in (HERE / "link.db", f"/proc/self/root{DATABASE}")],
        "backups": [path for path in glob.glob(f"{HOME}/backups/*") if has_rows(path)],
        "processes": [path for pid in others for path in (f"/proc/{pid}/root{DATABASE}", f"/proc/{pid}/cwd/.wtb/wtb.db")
                      if has_rows(path)],
        "descriptors": [path for pid in (*others, "self") for path in glob.glob(f"/proc/{pid}/fd/*")
                        if any(map(has_rows, (path, f"{path}/.wtb/wtb.db", f"{path}{DATABASE}")))],
        "traced": [pid for pid in others if traces(pid)],
        "moved": [fails(act) is None for act in (
            lambda: os.link(DATABASE, HOME / "linked.db"), lambda: os.rename(DATABASE, HOME / "moved.db"),
            lambda: os.unlink(DATABASE), lambda: DATABASE.write_bytes(b"x")) if "BREAKS" in os.environ],
        "shell": [command for command in (
            f"cat {DATABASE}", f"umount {DATABASE}; cat {DATABASE}", f"umount -l {DATABASE}; cat {DATABASE}",
            f"unshare -m sh -c 'umount {DATABASE}; cat {DATABASE}'",
            f"unshare -Urm sh -c 'umount -l {DATABASE}; cat {DATABASE}; mkdir -p again; mount --bind {HOME} again; "
            "cat again/wtb.db; mount -t tmpfs none /mnt; umount -l again'",
            f"nsenter -t {runner} -m cat {DATABASE}", f"nsenter -t {parent} -m cat {DATABASE}",
            f"nsenter -t {runner} -U -m cat {DATABASE}", f"mkdir -p again; mount --bind {HOME} again; cat again/wtb.db",
        ) if shell(command)],
        "disk": disk(),
    }
    return found


def traces(pid):
    """Whether a process can be traced, which then runs on."""
    if libc.ptrace(16, pid, 0, 0) != 0:
        return False
    os.waitpid(pid, 0x40000000)
    return libc.ptrace(17, pid, 0, 0) == 0


def doubled(number):
    return 2 * number


def ordinary(ctx):
    """What nodes do."""
    (HERE / "beside.txt").write_text("beside")
    (HERE / "beside.txt").rename(HERE / "renamed.txt")
    (HOME / "mine").mkdir(exist_ok=True)
    (HOME / "mine" / "file.txt").write_text("mine")
    (HOME / "file.txt").write_text("mine")
    for path in (HERE / "saver.sqlite", HOME / "saver.sqlite", ctx.workspace / "saver.sqlite"):
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE IF NOT EXISTS checkpoints (x)")
            connection.execute("INSERT INTO checkpoints VALUES (1)")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q", "."], ["add", "renamed.txt"], ["commit", "-qm", "one"], ["status", "-s"]):
        subprocess.run([*git, *command], check=True, cwd=HERE / "repository", capture_output=True)
    with tempfile.TemporaryDirectory() as copies:
        shutil.copytree(HERE, f"{copies}/one", symlinks=True)
        subprocess.run(["cp", "-r", HERE, f"{copies}/two"], check=True)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        numbers = pool.map(doubled, [1, 2])
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        server.accept()[0].send(b"x")
        received = client.recv(1)
    return {"numbers": numbers, "received": received.decode(), "files": sorted(os.listdir(HOME / "mine"))}


def of_root(ctx):
    """What nodes of root do."""
    done = {}
    (HERE / "owned").write_text("x")
    os.chown(HERE / "owned", 12345, 12345)
    done["owner"] = (HERE / "owned").stat().st_uid
    (HERE / "owned").chmod(0o600)
    done["read"] = (HERE / "owned").read_text()
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        done["low port"] = fails(lambda: server.bind(("127.0.0.1", 997)))
    done["other user"] = subprocess.run(["id", "-u"], user=12345, group=12345, extra_groups=[], capture_output=True,
                                        text=True, check=True).stdout.strip()
    done["su"] = subprocess.run(["setpriv", "--reuid", "nobody", "--clear-groups", "id", "-un"], capture_output=True,
                                text=True, check=True).stdout.strip()
    return done


@wf.node
def spy(state, ctx):
    os.makedirs(HERE / "repository", exist_ok=True)
    (HERE / "repository" / "renamed.txt").write_text(os.urandom(8).hex())
    found = {"around": around(ctx), "ordinary": ordinary(ctx)}
    if os.geteuid() == 0 and "4294967295" in open("/proc/self/uid_map").read():
        found["root"] = of_root(ctx)
    found["nested"] = fails(lambda: wtb.open(DATABASE))
    with wtb.open(ctx.workspace / "own.db") as bench:
        found["own"] = list(bench.sweeps())
    (HERE / "found.json").write_text(json.dumps(found))
    return {}


wf.entry(spy)
wf.edge(spy, END)
'''
NOTHING = {
    "file": False,
    "rows": None,
    "log": None,
    "links": [False, False],
    "moved": [False] * 4,
    "disk": False,
    **{kind: [] for kind in ("names", "backups", "processes", "descriptors", "traced", "shell")},
}


def run(folder: Path, project: Path, user: str, way: str) -> dict[str, Any]:
    """Run the sweep, and again with a hard link and a copy of the database. Returns the findings of the node.

    Where its log can be read, too, that counts as code, and has changed the second time.
    """
    wtb = f"{sys.executable} -m wtb"
    once = f"cd {project} && {wtb} run sweep.yaml --quiet"
    twice = (
        f"{once} && ln -f .wtb/wtb.db .wtb/same.db && "
        "ln -sf .wtb/wtb.db link.db && mkdir -p .wtb/backups && "
        f"cp .wtb/wtb.db .wtb/backups/1001-20260101-000000.db && exec {wtb} run sweep.yaml --quiet"
    )
    breaks = {"BREAKS": "the database, unless it is hidden"} if way == "namespaces" else {}
    command = twice if way == "namespaces" else once
    run_apart(folder, command, user, way, {"HOME": str(folder), **breaks})
    report: dict[str, Any] = json.loads((project / "found.json").read_text())
    return report


@pytest.fixture
def probed_project(folder: Path) -> Path:
    project = folder / "project"
    project.mkdir()
    notice = HIDING_NOTICE.stat().st_size
    (project / "spying.py").write_text(WAYS.replace("HIDDEN_BYTES", str(notice)))
    (project / "sweep.yaml").write_text("workflow: spying:wf\ncases: [{id: one, input: {}}]\nvary: {spy: all}\n")
    return project


@on_linux
@pytest.mark.parametrize(
    ("user", "link"),
    [
        pytest.param("root", "folder", marks=is_root),
        ("somebody", "link"),
        pytest.param("root", "link", marks=(is_root, pytest.mark.slow)),
        pytest.param("somebody", "folder", marks=pytest.mark.slow),
    ],
)
def test_a_node_finds_no_way_to_the_file_and_works_as_ever(
    folder: Path, probed_project: Path, user: str, link: str
) -> None:
    if link == "link":
        (folder / "elsewhere").mkdir()
        (probed_project / ".wtb").symlink_to(folder / "elsewhere")
    report = run(folder, probed_project, user, "namespaces")
    assert report["around"] == NOTHING
    _check_work(report, user)
    assert sentence("is hidden from nodes") in report["nested"]
    assert "WTB_WALLS=0" in report["nested"]


@on_linux
@by_users
def test_where_namespaces_are_forbidden_nothing_is_hidden_and_nodes_work(
    folder: Path, probed_project: Path, user: str
) -> None:
    report = run(folder, probed_project, user, "forbidden")
    assert report["around"]["rows"] == 1
    assert report["nested"] is None
    _check_work(report, "in a user namespace")


def _check_work(report: dict[str, Any], user: str) -> None:
    assert report["ordinary"] == {"numbers": [2, 4], "received": "x", "files": ["file.txt"]}
    assert report["own"] == []
    if user == "root":
        done = {"owner": 12345, "read": "x", "low port": None, "other user": "12345", "su": "nobody"}
        assert report["root"] == done
