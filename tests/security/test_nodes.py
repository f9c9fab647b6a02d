"""A node finds no way to the database: it tries from inside, as root and as a user, with each of the two walls."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.support.prose import sentence
from tests.support.users import NOBODY, reachable, without_namespaces
from wtb.execution.sandbox.launch.walls import Displaced, hide, raise_walls

HIDDEN = {
    ".wtb/stack/stack.json": "project",
    ".wtb/postgres/password": "project",
    ".wtb/postgres/data/base": "project",
    ".wtb/valkey/password": "project",
    ".wtb/logs/wtb.log": "project",
    ".pgpass": "home",
    ".pg_service.conf": "home",
    ".config/wtb/credentials.toml": "home",
}
FLOW = """
import ctypes, glob, json, os, subprocess, sys, tempfile
from pathlib import Path

from wtb import END, Workflow

wf = Workflow("spy")
SECRET = "SESAME"


def tried(path):
    try:
        with open(path, "rb") as file:
            return "read" if file.read(1) else "nothing"
    except OSError as error:
        return type(error).__name__


def changed(act):
    try:
        act()
    except OSError:
        return False
    return True


def tried_to_write(project):
    # The ways to change code that others run that were open.
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    acts = {
        "module": lambda: open(project / "spying.py", "a").close(),
        "new module": lambda: (project / "orjson.py").write_text(""),
        "new folder": lambda: (project / "wtb").mkdir(),
        "link": lambda: (project / "yaml.py").symlink_to("/dev/null"),
        "by /proc": lambda: open("/proc/self/root" + str(project / "orjson.py"), "w").close(),
        "remove": lambda: (project / "sweep.yaml").unlink(),
        "move": lambda: project.rename(str(project) + "-moved"),
        "truncate": lambda: os.truncate(project / "spying.py", 0),
        "package": lambda: open(os.path.join(packages, "sitecustomize.py"), "w").close(),
        "wtb": lambda: open(sys.modules["wtb"].__file__, "a").close(),
        "etc": lambda: open("/etc/wtb-planted", "w").close(),
        "programs": lambda: open("/usr/local/bin/wtb-planted", "w").close(),
        "kernel": lambda: open("/proc/sys/kernel/core_pattern", "w").close(),
        "a program": lambda: shell(f"cd {project} && touch touched") or os.stat(project / "touched"),
    }
    return [name for name, act in acts.items() if changed(act)]


def shell(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


@wf.node
def spy(state):
    project, home = Path(state["project"]), Path.home()
    reaper = os.getppid()
    runner = int(Path(f"/proc/{reaper}/stat").read_text().rpartition(")")[2].split()[1])
    others = [pid for pid in (reaper, runner, 1)]
    files = {name: (project if where == "project" else home) / name for name, where in state["hidden"].items()}
    libc = ctypes.CDLL(None, use_errno=True)
    Path("link").symlink_to(project / ".wtb" / "stack")
    Path("mine").mkdir()
    Path("mine/kept").write_text("kept")
    os.rename("mine/kept", "kept")
    moved = []
    for path in files.values():
        for act in (lambda: path.rename(project / "taken"), lambda: os.link(path, "linked"), lambda: path.unlink()):
            try:
                act()
            except OSError:
                continue
            moved.append(str(path))
    found = {
        "processes": {f"{pid}/{name}": tried(f"/proc/{pid}/{name}") for pid in others
                      for name in ("environ", "mem", "maps", "auxv", "root/etc/passwd", "cwd/sweep.yaml")},
        "descriptors": [one for pid in others for one in glob.glob(f"/proc/{pid}/fd/*") if tried(one) == "read"],
        "traced": [pid for pid in others if libc.ptrace(16, pid, 0, 0) == 0],
        "files": {name: tried(path) for name, path in files.items()},
        "around": [tried("link/stack.json"), tried(f"/proc/self/root{files['.wtb/stack/stack.json']}"),
                   tried(f"/proc/thread-self/root{files['.wtb/stack/stack.json']}")],
        "moved": moved,
        "environment": [name for name, value in os.environ.items() if SECRET in value or name == "PGPASSFILE"],
        "shell": shell(f"cat /proc/{runner}/environ {' '.join(map(str, files.values()))}; cd {project}; "
                       f"umount .wtb/stack; cat .wtb/stack/*; "
                       "unshare -Urm sh -c 'umount -l .wtb/stack; cat .wtb/stack/* .wtb/postgres/password; "
                       "mkdir again; mount --bind . again; cat again/.wtb/stack/*'"),
        "own": [tried(one) for one in ("/proc/self/environ", "kept", project / "sweep.yaml", project / "more/file")],
        "written": tried_to_write(project),
        "open": [changed(lambda: open("new", "w").close()), changed(lambda: (project / "more" / "new").mkdir())],
        "user": [os.getuid(), os.stat(project / "sweep.yaml").st_uid],
        "powers": [line.split() for line in open("/proc/self/status") if line.startswith(("CapPrm", "NoNewPrivs"))],
    }
    os.unlink("link")
    (project / "more" / "found.json").write_text(json.dumps(found))
    return {}


wf.entry(spy)
wf.edge(spy, END)
"""
READ = {"read", "nothing"}


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="walls are of Linux")
is_root = pytest.mark.skipif(os.getuid() != 0, reason="this user is not root")
by_users = pytest.mark.parametrize("user", [pytest.param("root", marks=is_root), "somebody"])


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can enter, for a project and a home."""
    path = Path(tempfile.mkdtemp(prefix="wtb-walls-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def run_apart(folder: Path, command: str, user: str, way: str, settings: Mapping[str, str]) -> None:
    """Run a command with mounts of its own as a user, who then has all files of a folder, without namespaces or with
    them.
    """
    if way != "namespaces":
        command = without_namespaces(command, is_root=user == "root")
    if user == "somebody" and os.getuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        command = f"exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups sh -c {shlex.quote(command)}"
        command = reachable(command, Path(sys.base_prefix))
    inherited = {name: setting for name, setting in os.environ.items() if not name.startswith(("WTB_", "XDG_"))}
    environment = {**inherited, "PYTHONPATH": os.getcwd(), **settings}
    unshared = ["unshare", "-m", "sh", "-c", command]
    done = subprocess.run(unshared, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr


def _write(folder: Path, project: Path, home: Path) -> None:
    for name, where in HIDDEN.items():
        file = (project if where == "project" else home) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('{"pid": 0, "mark": "of no process: SESAME"}' if name.endswith(".json") else "SESAME")
    (project / "more").mkdir()
    (project / "more" / "file").write_text("open")
    (project / "wtb.toml").write_text('[nodes]\nwritable = ["more"]\n')
    (project / "spying.py").write_text(FLOW)
    case = {"id": "one", "input": {"project": str(project), "hidden": HIDDEN}}
    (project / "sweep.yaml").write_text(
        f"workflow: spying:wf\ncases: [{json.dumps(case)}]\nvary: {{spy: all}}\nrun: {{rlimits: {{processes: 50}}}}\n"
    )


@on_linux
@pytest.mark.parametrize("way", ["namespaces", "landlock"])
@by_users
def test_a_node_finds_no_way_to_the_database(folder: Path, fresh_postgres_url: str, user: str, way: str) -> None:
    project, home = folder / "project", folder / "home"
    _write(folder, project, home)
    command = f"cd {project} && exec {sys.executable} -m wtb run sweep.yaml --quiet"
    url = make_url(fresh_postgres_url).update_query_dict({"application_name": "SESAME"})
    settings = {"HOME": str(home), "PGPASSWORD": "SESAME", "PGPASSFILE": str(home / ".pgpass")}
    settings |= {"WTB_DATABASE_URL": url.render_as_string(hide_password=False)}
    run_apart(folder, command, user, way, settings)
    report = json.loads((project / "more" / "found.json").read_text())
    assert not [name for name, what in report["processes"].items() if what in READ]
    assert report["descriptors"] == report["traced"] == report["moved"] == report["environment"] == []
    assert not [name for name, what in report["files"].items() if what == "read"]
    assert "read" not in report["around"]
    assert "SESAME" not in report["shell"]
    assert report["own"] == ["read"] * 4
    assert report["written"] == []
    assert report["open"] == [True, True]
    assert report["user"][0] == report["user"][1]
    assert report["powers"] == [["CapPrm:", "0" * 16], ["NoNewPrivs:", "1"]]


def test_what_is_hidden_is_not_looked_for_where_a_directory_was_put_in_its_place(tmp_path: Path) -> None:
    secret = tmp_path / "home" / "stack"
    secret.mkdir(parents=True)
    hidden = hide(os.fspath(secret))
    assert hidden is not None
    (tmp_path / "home").rename(tmp_path / "elsewhere")
    secret.mkdir(parents=True)
    with pytest.raises(Displaced, match=sentence("was replaced by another directory")):
        raise_walls([hidden])
    assert hide(os.fspath(tmp_path / "nothing")) is None


def test_a_process_with_a_database_that_is_a_server_leaves_no_core(fresh_postgres_url: str) -> None:
    """Nor is its memory open to others of its user, wherever it found the URL."""
    program = f"""
import ctypes
from wtb.store.database import Database

PR_GET_DUMPABLE = 3
libc = ctypes.CDLL(None)
before = libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
Database("sqlite://")
assert libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == before
Database({fresh_postgres_url!r})
assert libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True)
