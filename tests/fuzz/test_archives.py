"""Archives that were tampered with: refused with nothing written, or taken and fit for every command that reads."""

from __future__ import annotations

import hashlib
import io
import json
import random
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.admin.test_archive import ASKING, HISTORY, WORKFLOW, members, rewritten, single
from tests.fuzz import nasty
from tests.support.project import FLOW, SWEEP, Project

Parts = dict[str, bytes]
SEED = 20_261_122
SLICE = 20

TOOLS = """
from wtb import END, Workflow

wf = Workflow("tooled")
kept = {}

@wf.tool(reverse=lambda call: None)
def remember(text: str) -> str:
    return text.upper()

@wf.node
def one(state, ctx):
    ctx.checkpoint("half way", saved={"n": 1})
    return {"said": ctx.tools.remember(text="hello"), "blob": b"123", "when": {1, 2}}

@wf.node
def two(state, ctx):
    if state.get("fail"):
        raise ValueError("it fails")
    return {"done": True}

wf.entry(one)
wf.edge(one, two)
wf.edge(two, END)
"""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Parts]]:
    """Archives of several kinds: paused, completed, answered, failed, rolled back, and a cell with scores."""
    project = Project(tmp_path_factory.mktemp("origin") / "project")
    project.write({"carry.py": WORKFLOW, "asking.py": ASKING, "tooled.py": TOOLS, "flow.py": FLOW, "sweep.yaml": SWEEP})
    project.write({"cases.jsonl": project.cases(1)})
    files = []

    def export(what: str) -> None:
        files.append(project.folder / f"{len(files)}.wtb")
        project.inside("admin", "export", what, "-o", files[-1], check=0)

    paused = single(project, "--until", "second")
    export(paused)
    project.inside("resume", paused, check=0)
    export(paused)
    answered = _started(project, "asking:wf", "--set", "calls=[1, 2]")
    project.inside("answer", answered, "--value", '{"decisions": [1]}', "--no-run", check=0)
    export(answered)
    rolled = _started(project, "tooled:wf", "--set", "x=1")
    project.inside("rollback", rolled, "--to", "one", check=0)
    export(rolled)
    export(_started(project, "tooled:wf", "--set", "fail=1"))
    project.inside("run", "sweep.yaml", "--quiet", check=0)
    cells = project.inside("show", "first", "--cells", "--format", "json", check=0).json["cells"]
    export(cells[-1]["execution"])
    yield [members(file) for file in files]
    project.close()


def _started(project: Project, *args: str) -> str:
    done = project.inside("start", *args, "--format", "json")
    return str(done.json["execution"]["sweep"]["id"])


# Ways to tamper with the members of an archive. execution.json is updated to match the changed history.


def _change_row(parts: Parts, dice: random.Random) -> Parts:
    table = dice.choice([name for name in HISTORY if parts[f"history/{name}.jsonl"].strip()])

    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        number = dice.randrange(len(rows))
        column = dice.choice(list(rows[number]))
        other = dice.choice(rows)[column]
        cell = rows[number][column]
        if isinstance(cell, dict | list) and cell and dice.random() < 0.6:
            rows[number][column] = nasty.mutated(cell, dice)
        else:
            rows[number][column] = other if dice.random() < 0.2 else nasty.odd_value(dice)
        return rows

    return rewritten(parts, **{table: change})


def _change_rows(parts: Parts, dice: random.Random) -> Parts:
    table = dice.choice([name for name in HISTORY if parts[f"history/{name}.jsonl"].strip()])

    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        number = dice.randrange(len(rows))
        match dice.randrange(5):
            case 0:
                return rows[:number] + rows[number + 1 :] or [{}]
            case 1:
                return [*rows, rows[number]]
            case 2:
                return rows[::-1]
            case 3:
                return [dice.choice([None, 3, [], "x"]), *rows]
            case _:
                ids = [row["id"] for row in rows if "id" in row] or ["x"]
                links = [key for key in rows[number] if key.endswith("_id") or key == "id"] or ["more"]
                rows[number][dice.choice(links)] = dice.choice(ids)
                return rows

    return rewritten(parts, **{table: change})


def _change_head(parts: Parts, dice: random.Random) -> Parts:
    head = json.loads(parts["execution.json"])
    for _ in range(dice.choice((1, 1, 2))):
        key = dice.choice(["graph", "spec", "case", "cell", "metrics", "choices", None])
        if key is None or not head.get(key):
            head = nasty.mutated(head, dice)
        else:
            head[key] = nasty.mutated(head[key], dice)
    return {**parts, "execution.json": json.dumps(head).encode()}


def _change_value(parts: Parts, dice: random.Random) -> Parts:
    """A value in the place of another, wherever that is named."""
    old = dice.choice([name for name in parts if name.startswith("values/")])[len("values/") :]
    try:
        content = json.dumps(nasty.mutated({"x": json.loads(parts[f"values/{old}"])}, dice)).encode()
    except ValueError:
        content = b"{}"
    if dice.random() < 0.3:
        content = dice.choice((b"", b"{", b"\xff", b"[" * 300 + b"]" * 300, b'{"$dataclass": 1}', b'{"$ndarray": []}'))
    return _renamed(parts, "values", old, content)


def _change_list_of_files(parts: Parts, dice: random.Random) -> Parts:
    manifests = [name for name, content in parts.items() if name.startswith("files/") and content.startswith(b"{")]
    if not manifests:
        return _change_row(parts, dice)
    old = dice.choice(manifests)
    entries = json.loads(parts[old])
    if dice.random() < 0.4:
        name = dice.choice(["../out", "/abs", "a/../b", "", ".", "a\0b", "a\nb", "a/b/c/d", "n" * 5000, "\x1b[2J"])
        entries[name] = dice.choice(list(entries.values()) or [1])
    else:
        entries = nasty.mutated(entries, dice)
    return _renamed(parts, "files", old[len("files/") :], json.dumps(entries).encode())


def _renamed(parts: Parts, folder: str, old: str, member: bytes) -> Parts:
    new = hashlib.sha256(member).hexdigest()
    renamed = {name: content.replace(old.encode(), new.encode()) for name, content in parts.items()}
    del renamed[f"{folder}/{old}"]
    renamed[f"{folder}/{new}"] = member
    return rewritten(renamed, **dict.fromkeys(HISTORY, lambda rows: rows))


def _mangle_member(parts: Parts, dice: random.Random) -> Parts:
    name = dice.choice(list(parts))
    return {**parts, name: nasty.mangled(parts[name], dice)}


def _change_members(parts: Parts, dice: random.Random) -> Parts:
    name = dice.choice(list(parts))
    rest = {other: content for other, content in parts.items() if other != name}
    odd = dice.choice(
        ["../x", "values/", "files/zz", "history/more.jsonl", "a" * 300, "values/" + "0" * 64, name + "/"]
    )
    return rest if dice.random() < 0.5 else {**parts, odd: b"1"}


CHANGES = {
    _change_row: 8, _change_rows: 4, _change_head: 4, _change_value: 2, _change_list_of_files: 2,
    _mangle_member: 1, _change_members: 1,
}  # fmt: skip


def packed(parts: Parts, dice: random.Random) -> bytes:
    """Pack the members as a zip, now and then with false headers."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # of names that come twice
        for name, content in parts.items():
            archive.writestr(name, content)
        if dice.random() < 0.03:
            archive.writestr(dice.choice(list(parts)), b"twice")
    content = buffer.getvalue()
    if dice.random() < 0.1:
        content = nasty.mangled(content, dice)
    return content


def tampered(good: list[Parts], dice: random.Random) -> bytes:
    parts = dict(dice.choice(good))
    for _ in range(dice.choice((1, 1, 1, 2))):
        (change,) = dice.choices([*CHANGES], [*CHANGES.values()])
        try:
            parts = change(parts, dice)
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error):
            return packed(parts, dice)  # what a first change left cannot be changed again
    return packed(parts, dice)


TABLES = (
    "sweeps", "executions", "checkpoints", "node_runs", "events", "cases", "cells", "scores", "files", "approvals",
)  # fmt: skip


def written(project: Project) -> list[Any]:
    return [project.query(f"SELECT count(*) FROM {table}") for table in TABLES]


def looked_at(project: Project, imported: dict[str, Any]) -> None:
    """Run every command that reads on an accepted archive."""
    sweep, execution = imported["id"], imported["execution"]
    for command in (
        *(["show", execution, "--calls"], ["show", execution, "--calls", "--format", "json"], ["show", sweep]),
        *(["show", sweep, "--cells", "--format", "json"], ["history", execution]),
        ["history", execution, "--format", "json"],
        *(["log", sweep], ["log", sweep, "--format", "json"], ["tree", sweep], ["tree", execution]),
        *(["diff", execution, execution], ["status", sweep], ["status", execution], ["files", execution]),
        *(["report", sweep, "-o", "report.html"], *(["report", sweep, "--format", form] for form in ("md", "json"))),
        *(["report", sweep, "--format", "junit"], ["matrix", sweep, "--format", "json"], ["matrix", sweep]),
        *(["costs", sweep], ["series", execution], ["approvals", "--all"], ["list", "--format", "json"], ["list"]),
        ["admin", "export", execution, "-o", "again.wtb", "--force"],
    ):
        done = project.inside(*command)
        assert done.code == 0, f"{command}: {done.stderr}"
    outcome = project.inside("admin", "import", "again.wtb")
    assert outcome.code == 0, f"what was taken and written again is refused: {outcome.stderr}"


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "start", [0, *(pytest.param(start, marks=pytest.mark.slow) for start in range(SLICE, 10 * SLICE, SLICE))]
)
def test_a_tampered_archive_is_refused_whole_or_can_be_looked_at(
    request: pytest.FixtureRequest, tmp_path: Path, good: list[Parts], start: int, kind: str
) -> None:
    project = Project(tmp_path / "project")
    if kind == "postgresql":
        project.url = request.getfixturevalue("fresh_postgres_url")
    project.inside("admin", "db", "upgrade", check=0)
    for number in range(start, start + SLICE):
        dice = random.Random(f"{SEED} {kind} {number}")
        (project.folder / "one.wtb").write_bytes(tampered(good, dice))
        before = written(project)
        try:
            done = project.inside("admin", "import", "one.wtb", "--format", "json")
            assert done.code in (0, 2), done.stderr
            if done.code == 2:
                assert 0 < len(done.stderr) < 2_000
                assert "one.wtb: " in done.stderr
                assert written(project) == before
            else:
                looked_at(project, done.json)
        except BaseException as error:
            error.add_note(f"archive {number} of {kind}")
            raise
    project.close()
