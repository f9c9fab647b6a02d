"""`wtb admin export` and `wtb admin import`: an execution carried to another database, and continued there."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.attempts import ATTEMPTS
from tests.support.project import Project
from tests.support.prose import sentence

WORKFLOW = """
from typing import TypedDict

from wtb import END, Workflow


class State(TypedDict):
    x: int
    y: int
    pair: tuple


wf = Workflow("carried", state=State)


@wf.node(retries=1)
def first(state, ctx, *, by: int = 1):
    (ctx.workspace / "notes").mkdir()
    (ctx.workspace / "notes" / "first.txt").write_text("first " * 1000)
    ctx.call(model="gpt-4o-mini", prompt="2 + 2?", response="four", tokens_in=10, tokens_out=2)
    if ctx.attempt == 1:
        raise ValueError("not yet")
    return {"x": state["x"] + by}


@wf.node
def second(state, ctx):
    (ctx.workspace / "second.txt").write_text(ctx.workspace.joinpath("notes", "first.txt").read_text()[:5])
    return {"y": state["x"] * 10, "pair": (1, 2)}


@wf.node
def third(state, ctx):
    return {"x": state["y"] + ctx.rng.randrange(1000)}


first.variant("by_two", by=2)
wf.entry(first)
wf.edge(first, second)
wf.branch(second, {"on": third, "off": END}, by=lambda state: "on")
wf.edge(third, END)
"""


def single(project: Project, *args: str) -> str:
    """Start a single execution and return its id."""
    command = ("start", "carry:wf", "--set", "x=1", "--variant", "first=by_two", *args)
    return str(project.inside(*command, "--format", "json", check=1).json["execution"]["sweep"]["id"])


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project with an execution that was exported when it was paused, and again at its end."""
    project = Project(tmp_path_factory.mktemp("origin") / "project")
    project.write({"carry.py": WORKFLOW})
    id = single(project, "--until", "second")
    project.inside("admin", "export", id, "-o", "paused.wtb", check=0)
    project.inside("resume", id, check=0)
    project.inside("admin", "export", id, "-o", "done.wtb", check=0)
    yield project
    project.close()


@pytest.fixture
def elsewhere(tmp_path: Path, fresh_postgres_url: str) -> Iterator[Project]:
    """Another folder with the same code, and a database of the other kind."""
    project = Project(tmp_path / "elsewhere")
    project.write({"carry.py": WORKFLOW})
    project.url = fresh_postgres_url
    yield project
    project.close()


def members(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def history(file: Path) -> dict[str, Any]:
    """Return the contents of an archive with numbers instead of ids, without the events of export and import."""
    parts = members(file)
    head = json.loads(parts.pop("execution.json"))
    rows = {name: [json.loads(line) for line in parts.pop(f"history/{name}.jsonl").splitlines()] for name in HISTORY}
    ids = [row["id"] for name in HISTORY for row in rows[name] if "id" in row]
    numbers = {id: f"#{number}" for number, id in enumerate(ids)}

    def plain(value: Any) -> Any:
        if isinstance(value, str):
            return numbers.get(value, value)
        if isinstance(value, list):
            return [plain(part) for part in value]
        return {key: plain(part) for key, part in value.items()} if isinstance(value, dict) else value

    rows["events"] = [row for row in rows["events"] if row["kind"] != "execution.imported"]
    rows["executions"] = [{**row, "status": None, "reason": None} for row in rows["executions"]]
    for key in ("exported_at", "host", "sweep", "history"):
        del head[key]
    return {"head": plain(head), "rows": plain(rows), "kept": parts}


HISTORY = (
    *("executions", "checkpoints", "node_runs", "attempts", "calls", "invocations"),
    *("decisions", "approvals", "rollbacks", "events", "scores"),
)


def test_an_execution_looks_the_same_in_another_database(origin: Project, elsewhere: Project) -> None:
    outcome = elsewhere.inside(
        "admin", "import", str(origin.folder / "done.wtb"), "--name", "carried", "--format", "json", check=0
    )
    imported = outcome.json
    assert (imported["name"], imported["status"], imported["files"]) == ("carried", "completed", 2)
    original = origin.json("show", imported["from"], "--calls")
    copied = elsewhere.json("show", imported["execution"], "--calls")
    assert copied["state"] == original["state"]
    assert copied["totals"] == original["totals"]
    names = ("node", "variant", "status", "attempts", "usd", "duration_s", "tried")
    assert [[run[n] for n in names] for run in copied["path"]] == [[run[n] for n in names] for run in original["path"]]
    assert [[call["prompt"] for call in run["calls"]] for run in copied["path"]] == [["2 + 2?"] * 2, [], []]
    elsewhere.inside("files", imported["execution"], "notes/first.txt", "-o", "first.txt", check=0)
    assert (elsewhere.folder / "first.txt").read_text() == "first " * 1000
    assert "→ third" in elsewhere.text("history", imported["id"])
    log = elsewhere.text("log", imported["id"])
    assert sentence("imported from an archive made on") in log
    assert sentence("{} failed in attempt {} of {}", "first=by_two", 1, 2) in " ".join(log.split())
    assert elsewhere.text("list") == ""  # single executions are not listed with sweeps
    elsewhere.inside("admin", "export", imported["id"], "-o", "again.wtb", check=0)
    assert history(elsewhere.folder / "again.wtb") == {
        **(first := history(origin.folder / "done.wtb")),
        "head": {**first["head"], "name": "carried", "spec": {**first["head"]["spec"], "sweep": "carried"}},
    }


ASKING = """
from wtb import END, Workflow

wf = Workflow("asking")


@wf.node
def tools(state, ctx):
    return {"decisions": ctx.ask("Call these?", context=state["calls"]).given["decisions"]}


wf.entry(tools)
wf.edge(tools, END)
"""


def test_an_answer_keeps_its_value_in_an_archive(origin: Project, elsewhere: Project) -> None:
    for project in (origin, elsewhere):
        project.write({"asking.py": ASKING})
    command = ("start", "asking:wf", "--set", "calls=[1, 2]")
    id = origin.inside(*command, "--format", "json", check=1).json["execution"]["sweep"]["id"]
    origin.inside("answer", id, "--value", '{"decisions": [{"type": "edit"}, null]}', "--no-run", check=0)
    origin.inside("admin", "export", id, "-o", "asked.wtb", check=0)

    imported = elsewhere.json("admin", "import", str(origin.folder / "asked.wtb"))
    (approval,) = elsewhere.json("approvals", "--all")["approvals"]
    assert approval["answer"]["value"] == {"decisions": [{"type": "edit"}, None]}
    elsewhere.inside("resume", imported["id"], check=0)
    document = elsewhere.json("show", imported["execution"])
    assert document["state"]["decisions"] == [{"type": "edit"}, None]

    def spoil(rows: list[dict[str, Any]]) -> None:
        rows[0]["answer"]["value"] = '{"$timedelta": 3}'

    with zipfile.ZipFile(elsewhere.folder / "bad.wtb", "w") as archive:
        for name, content in rewritten(members(origin.folder / "asked.wtb"), approvals=spoil).items():
            archive.writestr(name, content)
    refused = elsewhere.refusal("admin", "import", "bad.wtb")
    assert (
        sentence("{}.jsonl, line {}", "approvals", 1) + sentence(": answer.value") + sentence(": not a stored value")
        in refused
    )


def test_one_that_was_paused_continues_elsewhere_and_ends_the_same(origin: Project, elsewhere: Project) -> None:
    outcome = elsewhere.inside("admin", "import", str(origin.folder / "paused.wtb"), check=0)
    id = outcome.stdout.strip()
    assert sentence("continue with: wtb resume {}", id) in outcome.output
    elsewhere.inside("resume", id, check=0)
    sweep = elsewhere.json("show", id)
    assert [cell["status"] for cell in sweep["cells"]] == ["succeeded"]
    (execution,) = [row[0] for row in elsewhere.query("SELECT execution_id FROM cells")]
    done = json.loads(members(origin.folder / "done.wtb")["execution.json"])["execution"]
    continued = elsewhere.json("show", execution)
    original = origin.json("show", done)
    assert continued["state"] == original["state"]
    assert [run["node"] for run in continued["path"]] == ["first", "second", "third"]
    assert elsewhere.query(f"SELECT count(*) FROM {ATTEMPTS}")[0][0] == 4  # nothing ran again


def test_an_execution_of_a_sweep_is_exported_as_one_of_its_cells(shared_project: Project) -> None:
    project = shared_project
    project.inside("run", "sweep.yaml", "--limit", "1", "--quiet", check=0)
    cells = project.json("show", "first", "--cells")["cells"]
    root = project.query("SELECT id FROM executions WHERE origin = 'root'")[0][0]
    outcome = project.inside("admin", "export", root, "-o", "root.wtb", check=0)
    assert (
        sentence("it stands for {} cells; the archive is of the one with {}", 64, "A=default, B=default, C=default")
        in outcome.output
    )
    last = cells[-1]
    project.inside("admin", "export", last["execution"], "-o", "last.wtb", check=0)
    imported = project.json("admin", "import", "last.wtb")
    document = project.json("show", imported["execution"])
    assert document["cells"][0]["scores"] == last["scores"]
    assert document["execution"]["combinations"] == [{"A": "v3", "B": "v3", "C": "v3"}]
    root_made = project.json("admin", "import", "root.wtb")
    assert root_made["status"] == "paused"
    project.inside("resume", root_made["id"], check=0)
    (state,) = project.json("show", root_made["id"], "--cells")["cells"]
    assert state["state"] == cells[0]["state"]
    assert state["scores"] == cells[0]["scores"]


def rewritten(parts: dict[str, bytes], **history: Callable[[list[dict[str, Any]]], Any]) -> dict[str, bytes]:
    """Return the members with rows changed, and execution.json updated to match."""
    head = json.loads(parts["execution.json"])
    for name, change in history.items():
        rows = [json.loads(line) for line in parts[f"history/{name}.jsonl"].splitlines()]
        rows = change(rows) or rows
        lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        parts = {**parts, f"history/{name}.jsonl": lines}
        head["history"][name] = {"sha256": hashlib.sha256(lines).hexdigest(), "rows": len(rows)}
    return {**parts, "execution.json": json.dumps(head).encode()}


def headed(parts: dict[str, bytes], **changes: Any) -> dict[str, bytes]:
    return {**parts, "execution.json": json.dumps({**json.loads(parts["execution.json"]), **changes}).encode()}


def without(parts: dict[str, bytes], start: str) -> dict[str, bytes]:
    missing = next(name for name in parts if name.startswith(start))
    return {name: content for name, content in parts.items() if name != missing}


def damaged(parts: dict[str, bytes], start: str, content: bytes = b"1") -> dict[str, bytes]:
    return {**parts, next(name for name in parts if name.startswith(start)): content}


def put(parts: dict[str, bytes], content: bytes, folder: str = "files") -> dict[str, bytes]:
    return {**parts, f"{folder}/{hashlib.sha256(content).hexdigest()}": content}


def set_in(name: str, column: str, cell: Any, number: int = 0) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda parts: rewritten(parts, **{name: lambda rows: rows[number].__setitem__(column, cell)})


def in_graph(parts: dict[str, bytes], **changes: Any) -> dict[str, bytes]:
    return headed(parts, graph={**json.loads(parts["execution.json"])["graph"], **changes})


EDGE = {"from": ["first"], "to": "second", "when": None, "priority": 0, "default": False}
Parts = dict[str, bytes]
BAD: dict[str, tuple[Callable[[Parts], Parts], str]] = {
    "no execution": (lambda parts: without(parts, "execution.json"), "it has no execution.json"),
    "another document": (lambda parts: headed(parts, format="x"), "not that of an exported execution"),
    "no JSON": (lambda parts: {**parts, "execution.json": b"{"}, "execution.json is not JSON"),
    "a newer version": (lambda parts: headed(parts, version=2), "of version 2, and this WTB reads version 1"),
    "no version": (lambda parts: headed(parts, version=None), "is damaged: it has no version"),
    "a key too many": (lambda parts: headed(parts, more=1), "execution.json: more: Extra inputs"),
    "a spec of nonsense": (lambda parts: headed(parts, spec={"workflow": 3}), "spec"),
    "a graph of nonsense": (
        lambda parts: headed(parts, graph={"nodes": 3}),
        "execution.json: graph: name: Field required",
    ),
    "another execution": (lambda parts: headed(parts, execution="x"), "execution 'x' is missing"),
    "a path": (lambda parts: {**parts, "../../etc/passwd": b"x"}, "'../../etc/passwd' does not belong"),
    "an absolute path": (lambda parts: {**parts, "/etc/passwd": b"x"}, "'/etc/passwd' does not belong"),
    "an unknown member": (lambda parts: {**parts, "history/more.jsonl": b""}, "'history/more.jsonl' does not belong"),
    "no history": (lambda parts: without(parts, "history/calls"), "history/calls.jsonl is missing"),
    "a damaged history": (lambda parts: damaged(parts, "history/calls", b""), "history/calls.jsonl is damaged"),
    "a missing value": (lambda parts: without(parts, "values/"), "values/[0-9a-f]+ is missing"),
    "a damaged value": (lambda parts: damaged(parts, "values/"), "values/[0-9a-f]+ is damaged"),
    "a value too many": (lambda parts: put(parts, b"77", "values"), "nothing refers to values/"),
    "a missing file": (lambda parts: without(parts, "files/"), "files/[0-9a-f]+ is missing"),
    "a damaged file": (lambda parts: damaged(parts, "files/", b"first " * 1000), "files/[0-9a-f]+ (is damaged|has)"),
    "a file too many": (lambda parts: put(parts, b"77"), "nothing refers to files/"),
    "an unknown column": (set_in("calls", "more", 1), "calls.jsonl, line 1: more: Extra inputs are not permitted"),
    "text for a number": (
        set_in("attempts", "usd", "1"),
        "attempts.jsonl, line 1: usd: Input should be a valid number",
    ),
    "a number for text": (set_in("node_runs", "node", 7), "line 1: node: Input should be a valid string"),
    "a text too long": (set_in("node_runs", "node", "n" * 999), "node: String should have at most 200 characters"),
    "nothing where it must be": (set_in("attempts", "status", None), "status: Input should be a valid string"),
    "a status that cannot be": (set_in("attempts", "status", "fine"), "status: expected one of succeeded, failed"),
    "a time beyond all dates": (
        set_in("checkpoints", "created_at", 1e300),
        "created_at: Input should be less than or equal to 253370764800",
    ),
    "a time before all dates": (
        set_in("executions", "created_at", -1.0),
        "created_at: Input should be greater than or equal to 0",
    ),
    "a negative duration": (
        set_in("attempts", "duration_s", -0.5),
        "duration_s: Input should be greater than or equal to 0",
    ),
    "negative totals": (set_in("checkpoints", "totals", [0.0, -1.0, 0, 0, 0]), "totals.1: Input should be greater"),
    "more tokens than there are": (
        set_in("node_runs", "tokens_in", 2**62),
        "tokens_in: Input should be less than or equal to 1000000000000000",
    ),
    "a name with a control character": (
        set_in("node_runs", "node", "a\x1b[2Jb"),
        "node: it has a character that cannot be printed",
    ),
    "an id of another form": (set_in("calls", "id", "../x"), "calls.jsonl, line 1: id: String should match pattern"),
    "a digest of another form": (set_in("checkpoints", "workspace", "abc"), "workspace: String should match pattern"),
    "a severity that there is not": (set_in("events", "severity", "loud"), "severity: expected one of"),
    "an origin that there is not": (set_in("executions", "origin", "sky"), "origin: expected one of"),
    "an attempt too many": (
        set_in("attempts", "number", 9),
        "attempts.jsonl, line 1: attempt 9 of a node run that had",
    ),
    "an attempt that its node run describes": (
        set_in("node_runs", "begun_at", 1.0),
        "attempts.jsonl, line 1: an attempt of node run '.*', which has begun_at",
    ),
    "an attempt that is there twice": (set_in("attempts", "number", 2), "attempts.jsonl, line 2: .* is there twice"),
    "a writer that is nowhere": (
        set_in("checkpoints", "writers", [["first", "by_two", "x"]], 1),
        "checkpoints.jsonl, line 2: writers names 'x', which is not there",
    ),
    "an execution that came from itself": (
        lambda parts: rewritten(parts, executions=lambda rows: rows[0].__setitem__("parent_id", rows[0]["id"])),
        "executions.jsonl: parent_id of '.*' names '.*', which comes after it",
    ),
    "edges of nothing": (lambda parts: in_graph(parts, edges=[{}]), "graph: edges.0.from: Field required"),
    "an edge from nowhere": (
        lambda parts: in_graph(parts, edges=[{**EDGE, "from": []}]),
        "graph: edges.0.from: List should have at least 1 item",
    ),
    "an edge to a node that there is not": (
        lambda parts: in_graph(parts, edges=[{**EDGE, "to": "gone"}]),
        "graph: there is no node 'gone'",
    ),
    "a cell of a status that there is not": (
        lambda parts: headed(parts, cell={**json.loads(parts["execution.json"])["cell"], "status": "fine"}),
        "execution.json: cell.status: expected one of pending",
    ),
    "an export in the year 31000000": (
        lambda parts: headed(parts, exported_at=1e15),
        "exported_at: Input should be less",
    ),
    "a position of nonsense": (set_in("checkpoints", "position", {"step": -1}), "position.step"),
    "a state of nonsense": (set_in("checkpoints", "state", {"x": "y"}), "line 1: state.x"),
    "a value that is none": (set_in("calls", "prompt", '{"$timedelta": 3}'), "prompt: not a stored value"),
    "a character that no database takes": (set_in("attempts", "stdout", "a\0b"), "NUL"),
    "a checkpoint that leads back to itself": (
        lambda parts: rewritten(parts, checkpoints=lambda rows: rows[0].__setitem__("parent_id", rows[2]["id"])),
        "checkpoints.jsonl, line 1: parent_id names '.*', which is not there before it",
    ),
    "a row that is there twice": (
        lambda parts: rewritten(parts, node_runs=lambda rows: [*rows, rows[0]]),
        "is there twice",
    ),
    "a node run of nothing": (set_in("attempts", "node_run_id", "x"), "node_run_id names 'x'"),
}


@pytest.fixture(scope="module")
def good(origin: Project) -> dict[str, bytes]:
    return members(origin.folder / "done.wtb")


@pytest.mark.parametrize("what", BAD)
def test_a_bad_archive_is_refused_whole_and_named(origin: Project, good: dict[str, bytes], what: str) -> None:
    change, pattern = BAD[what]
    with zipfile.ZipFile(origin.folder / "bad.wtb", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in change(dict(good)).items():
            archive.writestr(name, content)
    before = origin.query("SELECT count(*) FROM sweeps"), origin.query("SELECT count(*) FROM checkpoints")
    refused = origin.inside("admin", "import", "bad.wtb", check=2)
    assert re.search(pattern, refused.output), refused.stderr
    lines = [line.strip() for line in refused.stderr.splitlines() if line.strip()]
    assert all(line.count("bad.wtb: ") == 1 for line in lines), refused.stderr
    assert (origin.query("SELECT count(*) FROM sweeps"), origin.query("SELECT count(*) FROM checkpoints")) == before


def test_what_is_no_archive_or_too_large_is_refused(origin: Project) -> None:
    origin.write({"text.wtb": "no zip"})
    assert sentence("cannot be read as an archive") in origin.refusal("admin", "import", "text.wtb")
    assert sentence("{} is a folder; expected a file", ".") in origin.refusal("admin", "import", ".")
    assert sentence("there is no file {}", "nowhere.wtb") in origin.refusal("admin", "import", "nowhere.wtb")
    cut = (origin.folder / "done.wtb").read_bytes()[:-200]
    (origin.folder / "cut.wtb").write_bytes(cut)
    assert sentence("cannot be read as an archive") in origin.refusal("admin", "import", "cut.wtb")
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("values/" + "0" * 64, b"\0" * 70_000_000)
    (origin.folder / "bomb.wtb").write_bytes(bomb.getvalue())
    assert sentence("{} bytes; at most {} are expected", "has 70,000,000", "67,108,864") in origin.refusal(
        "admin", "import", "bomb.wtb"
    )
    refusal = origin.refusal("admin", "import", "done.wtb", "--max-size", "1KB")
    assert sentence("max_bytes allows {} at most", "1,000") + " (--max-size)" in refusal
    assert "--max-size" in origin.refusal("admin", "import", "done.wtb", "--max-size", "large")


def test_a_session_is_not_given_more_files_than_its_quota(origin: Project) -> None:
    origin.inside("admin", "session", "create", "small", "--disk", "1KB", check=0)
    refused = origin.inside("admin", "import", "done.wtb", "--session", "small", check=2)
    assert sentence("the quota of the session ({} bytes)", "1,000") in refused.output
    assert sentence("there is no session") in origin.refusal("admin", "import", "done.wtb", "--session", "nobody")


def test_export_refuses_what_it_cannot_write_or_find(origin: Project) -> None:
    id = json.loads(members(origin.folder / "done.wtb")["execution.json"])["execution"]
    assert sentence("exists already; give another name, or force its replacement") + " (--force)" in origin.refusal(
        "admin", "export", id, "-o", "done.wtb"
    )
    assert "is a directory" in origin.refusal("admin", "export", id, "-o", ".")
    assert sentence("there is no execution {}", "'nothing'") in origin.refusal("admin", "export", "nothing")
    origin.write({"plain": ""})
    assert sentence("there is no folder {}", "plain") in origin.refusal("admin", "export", id, "-o", "plain/x.wtb")
    assert sentence("there is no folder {}", "gone") in origin.refusal("admin", "export", id, "-o", "gone/x.wtb")
    assert not (origin.folder / "gone").exists()
    assert (
        sentence("cannot be written") in origin.inside("admin", "export", id, "-o", "x" * 250 + ".wtb", check=1).stderr
    )
