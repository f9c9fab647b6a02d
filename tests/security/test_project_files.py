"""A node finds no files of another project: it tries from inside, as root and as a user, with each of the walls."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.security.test_nodes import by_users, on_linux, run_apart
from tests.security.test_nodes import folder as folder
from wtb.store.files.store import FileStore

FLOW = """
import glob, json, os, subprocess
from pathlib import Path

from wtb import END, Workflow

wf = Workflow("spy")


def tried(act):
    try:
        found = act()
        return "read" if found else "nothing"
    except OSError as error:
        return type(error).__name__


@wf.node
def leave(state):
    Path("secret.txt").write_text("SESAME of " + state["who"])
    return {}


@wf.node
def spy(state):
    project = Path(state["project"])
    own, other, top = Path(state["own"]), Path(state["other"]), Path(state["top"])
    sessions = project / ".wtb" / "sessions"
    live = Path(state["live"])
    contents = [Path(one) for one in state["contents"]]
    digest = contents[0].parent.name + contents[0].name

    def follow(link, path):
        link.symlink_to(path)
        return link.read_bytes()

    def write(path):
        path.write_text("spoiled")
        return True

    def spoil(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path("fresh")
        fresh.write_text("spoiled")
        os.replace(fresh, path)
        return True

    probes = {}
    for number, path in enumerate([*contents, other / "judgements" / "ab" / "reply", live / "draft.txt"]):
        probes[f"read {number}"] = lambda path=path: path.read_bytes()
        probes[f"read by link {number}"] = lambda path=path, link=Path(f"link{number}"): follow(link, path)
        probes[f"read by root {number}"] = lambda path=path: Path(f"/proc/self/root{path}").read_bytes()
        probes[f"write {number}"] = lambda path=path: write(path)
        probes[f"append {number}"] = lambda path=path: os.close(os.open(path, os.O_WRONLY | os.O_APPEND)) or True
        probes[f"truncate {number}"] = lambda path=path: os.truncate(path, 0) or True
        probes[f"replace {number}"] = lambda path=path: spoil(path)
        probes[f"remove {number}"] = lambda path=path: path.unlink() or True
        probes[f"hard link {number}"] = lambda path=path: os.link(path, f"hard{number}") or True
        probes[f"move {number}"] = lambda path=path: path.rename(f"moved{number}") and True
        probes[f"shell {number}"] = lambda path=path: subprocess.run(["cat", path], capture_output=True).stdout
        probes[f"shell write {number}"] = lambda path=path: not subprocess.run(
            f"echo spoiled >> {path}", shell=True, capture_output=True).returncode
        again = f"umount -l {top}; umount -l {sessions}; cat {path}"
        probes[f"unshare {number}"] = lambda again=again: subprocess.run(
            ["unshare", "-Urm", "sh", "-c", again], capture_output=True).stdout
    probes["move folder"] = lambda: other.rename(own.with_name("taken")) and True
    probes["swap folder"] = lambda: own.rename(own.with_name("aside")) and True
    probes["add"] = lambda: write(other / "added")
    probes["add folder"] = lambda: (other / "00").mkdir() or True
    probes["beside"] = lambda: write(top / "added")
    probes["mark"] = lambda: write(top / ".databases" / "added")
    probes["lock"] = lambda: write(top / ".lock")
    mine = next(own.glob("??/*"))
    probes["own write"] = lambda: write(mine)
    probes["own replace"] = lambda: spoil(mine)
    probes["own add"] = lambda: spoil(own / digest[:2] / digest[2:])
    probes["own chmod"] = lambda: (os.chmod(mine, 0o666), write(mine))
    lists = {
        "other": lambda: os.listdir(other),
        "live": lambda: os.listdir(live),
        "projects": lambda: set(os.listdir(other.parent)) - {own.name},
        "sessions": lambda: set(os.listdir(sessions)) - {own.name},
        "glob": lambda: glob.glob(f"{project}/.wtb/files/projects/*/??/*") and other.exists(),
    }
    found = {
        "probes": {name: tried(act) for name, act in probes.items()},
        "lists": {name: tried(act) for name, act in lists.items()},
        "own": [tried(lambda: mine.read_bytes()), tried(lambda: Path("secret.txt").read_text()),
                tried(lambda: write(own / "judgements" / "turns"))],
    }
    for path in Path().glob("*"):
        if path.is_symlink() or path.name != "secret.txt":
            path.unlink()
    (project / "more" / "found.json").write_text(json.dumps(found))
    return {}


wf.entry(leave)
wf.edge(leave, spy)
wf.edge(spy, END)

alone = Workflow("alone")


@alone.node
def leave(state):
    Path("secret.txt").write_text("SESAME of " + state["who"])
    return {}


alone.entry(leave)
alone.edge(leave, END)
"""


def write(project: Path, sweep: str, inputs: Mapping[str, Any]) -> str:
    """Write one sweep of a project, and return the command that runs it."""
    case = {"id": "one", "input": inputs}
    name = inputs["who"]
    (project / f"{name}.yaml").write_text(
        f"workflow: spying:{sweep}\nproject: {name}\ncases: [{json.dumps(case)}]\nvary: {{leave: all}}\n"
        "run: {rlimits: {processes: 50}}\n"
    )
    return f"cd {project} && exec {sys.executable} -m wtb run {name}.yaml --quiet"


@on_linux
@pytest.mark.parametrize("way", ["namespaces", "landlock"])
@by_users
def test_a_node_of_one_project_finds_nothing_of_another(
    folder: Path, fresh_postgres_url: str, user: str, way: str
) -> None:
    project, home = folder / "project", folder / "home"
    home.mkdir()
    (project / "more").mkdir(parents=True)
    (project / "spying.py").write_text(FLOW)
    (project / "wtb.toml").write_text('[nodes]\nwritable = ["more"]\n')
    settings = {"HOME": str(home), "WTB_DATABASE_URL": fresh_postgres_url}
    run_apart(folder, write(project, "alone", {"who": "alpha"}), user, way, settings)
    store = FileStore(project / ".wtb" / "files")
    alpha, beta = store.of_project("alpha"), store.of_project("beta")
    before = {digest: Path(alpha.path(digest)).read_bytes() for digest, _, _ in alpha.stored()}
    assert len(before) == 2
    reply = alpha.judgements / "ab" / "reply"
    live = project / ".wtb" / "sessions" / "alpha" / "sweep" / "runner" / "attempt"
    for path in (reply, live / "draft.txt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("SESAME")
    for path in (*(project / ".wtb").rglob("*"),):
        os.chown(path, (project / "more").stat().st_uid, -1)
    inputs = {
        "who": "beta",
        "project": str(project),
        "own": str(beta.root),
        "other": str(alpha.root),
        "top": str(store.root),
        "live": str(live),
        "contents": [alpha.path(digest) for digest in before],
    }
    run_apart(folder, write(project, "wf", inputs), user, way, settings)
    report = json.loads((project / "more" / "found.json").read_text())
    assert len(report["probes"]) > 60
    assert {name: came for name, came in report["probes"].items() if came == "read"} == {}
    if way == "namespaces":  # by Landlock, names of files below the project's folder are seen
        assert {name: came for name, came in report["lists"].items() if came == "read"} == {}
    assert report["own"] == ["read"] * 3
    assert {digest: Path(alpha.path(digest)).read_bytes() for digest in before} == before
    assert {digest for digest, _, _ in alpha.stored()} == before.keys()
    assert reply.read_text() == (live / "draft.txt").read_text() == "SESAME"
    assert b"SESAME of beta" in {b"".join(beta.read(digest)) for digest, _, _ in beta.stored()}
