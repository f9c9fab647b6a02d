"""The documentation is run: its code, its commands, and the output that it shows.

A comment before a fenced block says what the block is:

    <!-- file: NAME -->          written to the folder that the page's blocks and commands share
    <!-- output of: COMMAND -->  the stdout of the command
    <!-- printed -->             the output of the python block before it
    <!-- exit: 1 -->             the exit code of the block's last command, where it is not 0
    <!-- own namespace -->       a python block that shares no names with the others of its page
    <!-- not run -->             shown only
    <!-- in the browser: PNG --> before a numbered list: what one does at the pages that `wtb serve --open` opened, or
                                 that `wtb up` printed, with the token that `wtb admin token create` did; a later list
                                 goes on where the one before it ended; see tests/support/following.py. PNG: its picture
    <!-- files of: PAGE -->      anywhere on a page: it also has the files of another one

Output is compared but for ids, times, durations and spaces; a line `...` stands for any lines. After a change that
is wanted, `WTB_UPDATE_DOCS=1 pytest tests/acceptance/test_docs.py` writes the real output, and takes pictures.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import linecache
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import psutil
import pytest
import typer

from tests.support import forkserver
from tests.support.databases import quick_disk
from tests.support.following import follow
from tests.support.project import Project, run_inside
from wtb.config.yaml_reader import parse
from wtb.core.errors import InputError
from wtb.planning.sweep_spec import SweepSpec, parse_part

ROOT = Path(__file__).parents[2]
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING")), *sorted(ROOT.glob("docs/*.md"))]
OF_LANGGRAPH = pytest.mark.nodes("langgraph")
MARKED_PAGES = [
    pytest.param(page, id=page.name, marks=OF_LANGGRAPH if page.name.startswith("langgraph") else ()) for page in PAGES
]
UPDATE = bool(os.environ.get("WTB_UPDATE_DOCS"))
ELSEWHERE = ("git ", "pip ", "uv ", "source ")  # commands that reach beyond the page's folder
ALONE = re.compile(r"wtb (?!up\b|down\b)[^|&;<>$`(]*")  # nothing for a shell to do, and no process that stays
PATIENCE_S = 120.0
HOME = "/home/ana/demo"  # what the page's folder is called in output
PROGRAMS = ".programs"  # a folder in it
OPENED = ".opened"  # a file in it: the page that a command opened in the browser
STAYS = re.compile(r"wtb serve --open\b.*")

_FENCE = re.compile(r"(```+|~~~+)\s*(\w*)\s*(.*)")
_COMMENT = re.compile(r"<!--\s*(.+?)\s*-->")
_VARYING = [
    (re.compile(r"\b1[0-9a-hjkmnp-tv-z]{11}(?:[0-9a-hjkmnp-tv-z]{10})?\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z)?)?|\b\d\d:\d\d:\d\d(\.\d+)?"), "TIME"),
    (re.compile(r"\(spent [\d.]+"), "(spent"),  # which attempts had ended at the limit
    (re.compile(r"\b\d+(\.\d+)? (ms|s|min|h|d|B|kB|MB)\b"), "AMOUNT"),
    (re.compile(r'("(?:p50|p95|duration_s|elapsed_s|latency|latency_s)": ?)[\d.e-]+'), r"\1NUMBER"),
    (re.compile(r"(\d+\.\d{9})\d+"), r"\1"),  # what machines may round differently
    (re.compile(r"\b0x[0-9a-f]+\b"), "ADDRESS"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "SERVER"),
    (re.compile(r"\bpassword \S+"), "PASSWORD"),
    (re.compile(r"#code=\S+"), "#CODE"),
    (re.compile(r"\bwtb-\d+@[\w.-]+"), "WORKER"),
    (re.compile(r"\bby [\w.-]+@[\w.-]+"), "by USER"),
    (re.compile(r"\bprocess \d+|(?<= up ) *\d+\b"), "PROCESS"),
    (re.compile(r"[─━]+|-{4,}"), "RULE"),
    (re.compile(r"[ \t]+"), " "),
]


@dataclass
class Block:
    """A fenced block: lines `start` to `end` (from 0, `end` not included) are its content."""

    language: str
    start: int
    end: int
    lines: list[str]
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def blocks(lines: list[str]) -> Iterator[Block]:
    notes: dict[str, str] = {}
    opened: tuple[str, Block] | None = None
    steps: list[str] = []
    for number, line in enumerate(lines):
        if opened is not None:
            fence, block = opened
            if line.strip() == fence:
                block.end, block.lines = number, lines[block.start : number]
                opened = None
                yield block
        elif match := _FENCE.fullmatch(line):
            fence, language, info = match.groups()
            if title := re.search(r'title="([^"]+)"', info):
                notes["file"] = title[1]
            opened, notes = (fence, Block(language, number + 1, 0, [], notes)), {}
        elif "in the browser" in notes and (line.strip() or not lines[number - 1].startswith("<!--")):
            if line.strip():
                steps.append(line)
            else:
                yield Block("browser", number - len(steps), number, steps, notes)
                notes, steps = {}, []
        elif match := _COMMENT.fullmatch(line.strip()):
            key, _, note = match[1].partition(":")
            notes[key.strip()] = note.strip()
        elif line.strip():
            notes = {}
    assert opened is None, f"line {opened[1].start}: a fence that is never closed"  # type: ignore[index]


def plain(text: str) -> str:
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return "\n".join(line.strip() for line in text.strip().splitlines())


def agrees(expected: str, printed: str) -> bool:
    """Return whether a command printed the output that a page shows, in which a line `...` stands for any lines."""
    parts = [re.escape(part.strip("\n")) for part in re.split(r"(?m)^\.\.\.$", plain(expected))]
    return re.fullmatch(r"(?:.|\n)*".join(parts), plain(printed)) is not None


class Page:
    """A page that runs in its own folder."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder
        self.cwd = folder
        self.lines = path.read_text("utf-8").splitlines()
        self.changes: list[tuple[int, int, list[str]]] = []
        self.printed = ""  # by all commands
        self.looked: tuple[str, Any] | None = None  # where steps in a browser led, and what it kept
        self.module = types.ModuleType("__main__")  # a page's Python is a script, or a notebook
        sys.modules["__main__"] = self.module

    def run(self) -> None:
        for other in re.findall(r"(?m)^<!-- files of: (.+?) -->$", "\n".join(self.lines)):
            for block in blocks((self.path.parent / other).read_text("utf-8").splitlines()):
                if "file" in block.notes:
                    self.write(block)
        for block in blocks(self.lines):
            if "not run" in block.notes:
                continue
            if "file" in block.notes:
                self.write(block)
            elif "printed" in block.notes:
                self.compare(block, block.start, block.end, self.printed)
            elif command := block.notes.get("output of"):
                printed = self.command(command, int(block.notes.get("exit", 0)), block, merge=False)
                self.compare(block, block.start, block.end, printed)
            elif block.language == "console":
                self.console(block)
            elif block.language == "browser":
                self.browse(block)
            elif block.language == "python":
                self.python(block)
            elif block.language in ("yaml", "yml"):
                self.yaml(block)

    def where(self, block: Block) -> str:
        return f"{self.path.name}:{block.start + 1}"

    def write(self, block: Block) -> None:
        target = self.cwd / block.notes["file"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text, "utf-8")
        if target.suffix == ".py":
            compile(block.text, target.name, "exec")

    def python(self, block: Block) -> None:
        """The block as if it stood at its lines of a module, so that tracebacks and `inspect` find its source."""
        source = "\n" * block.start + block.text
        file = str(self.folder / f"page_{block.start}.py")
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        names = self.module.__dict__
        if "own namespace" in block.notes:
            names = {"__name__": self.module.__name__}
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(source, file, "exec"), names)
        self.printed = printed.getvalue().replace(str(self.folder), HOME)

    def yaml(self, block: Block) -> None:
        """A part of a sweep file where it looks like one; other YAML must at least be readable."""
        document = parse(block.text.encode(), self.where(block)).data
        if document.keys() & SweepSpec.model_fields.keys():
            parse_part(block.text, self.where(block))

    def console(self, block: Block) -> None:
        at = [number for number, line in enumerate(block.lines) if line.startswith("$ ")]
        assert at[:1] == [0], f"{self.where(block)}: a console block starts with a command, '$ ...'"
        for start, end in zip(at, [*at[1:], len(block.lines)], strict=True):
            command, output = block.lines[start][2:], start + 1
            while command.endswith("\\"):
                command = command[:-1] + block.lines[output].lstrip("> ")
                output += 1
            code = int(block.notes.get("exit", 0)) if start == at[-1] else 0
            printed = self.command(command, code, block, merge=True)
            self.printed += printed or ""
            if printed is not None and block.lines[output:end]:
                self.compare(block, block.start + output, block.start + end, printed)

    def browse(self, block: Block) -> None:
        name = block.notes["in the browser"]
        picture = self.path.parent / name if UPDATE and name else None
        secrets: dict[str, str] = {}
        if self.looked:
            address, seen = self.looked
        elif (opened := self.folder / OPENED).exists():
            address, seen = opened.read_text("utf-8").strip(), None
        else:
            (address,) = re.findall(r"pages: (http://\S+?);", self.printed)[-1:]
            (secrets["wtb_..."],) = re.findall(r"\bwtb_\S{20,}", self.printed)[-1:]
            seen = None
        self.looked = follow(block.text, address, secrets, picture, seen)

    def serve(self, command: str) -> None:
        """Start a server, which users run in another terminal, and continue once it has opened a page."""
        browser = self.folder / PROGRAMS / "browser"
        browser.write_text(f'#!/bin/sh\necho "$1" > {self.folder / OPENED}\n', "utf-8")
        browser.chmod(0o755)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        env = {**self.environment(), "BROWSER": str(browser)}
        subprocess.Popen(shlex.split(command), cwd=self.cwd, env=env, **quiet)  # `end_processes` ends it
        Project.until(lambda: (self.folder / OPENED).exists(), f"{command} opens a page")

    def command(self, command: str, code: int, block: Block, *, merge: bool) -> str | None:
        if command.startswith("make"):
            check_targets(command, self.where(block))
            return None
        if command.startswith(ELSEWHERE):
            return None
        if STAYS.fullmatch(command):
            self.serve(command)
            return None
        first, _, rest = command.partition(" && ")
        if rest:
            before = self.command(first, 0, block, merge=merge)
            return f"{before}{self.command(rest, code, block, merge=merge)}"
        source, _, reader = command.partition(" | ")
        if reader and self.runs_inside(source):
            return self.shell(reader, code, block, merge=merge, stdin=self.wtb(source, 0, block, merge=merge))
        if self.runs_inside(command):
            return self.wtb(command, code, block, merge=merge)
        return self.shell(command, code, block, merge=merge)

    def runs_inside(self, command: str) -> bool:
        """Return whether the command can run in this process, because a separate one would mostly import modules."""
        by_itself = self.path.name == "first-sweep.md" and command.startswith("wtb run")
        return ALONE.fullmatch(re.sub(r"'[^']*'", "''", command)) is not None and not by_itself

    def shell(self, command: str, code: int, block: Block, *, merge: bool, stdin: str = "") -> str:
        keep = f"cd '{self.cwd}'\n{command}\nwtb_code=$?; pwd > '{self.folder}/.cwd'; exit $wtb_code"
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT if merge else subprocess.PIPE, "input": stdin}
        where = {"cwd": self.cwd, "env": self.environment(), "timeout": PATIENCE_S}
        done = subprocess.run(["bash", "-c", keep], text=True, check=False, **streams, **where)
        printed = f"{done.stdout}{done.stderr or ''}"
        self.check_exit(command, done.returncode, code, block, printed)
        self.cwd = Path((self.folder / ".cwd").read_text("utf-8").strip())
        return done.stdout.replace(str(self.folder), HOME)

    def wtb(self, command: str, code: int, block: Block, *, merge: bool) -> str:
        args = shlex.split(command)[1:]
        done = run_inside(self.cwd, self.environment(), args, merge=merge, timeout=PATIENCE_S)
        printed = f"{done.stdout}{done.stderr}"
        self.check_exit(command, done.code, code, block, printed)
        return done.stdout.replace(str(self.folder), HOME)

    def check_exit(self, command: str, code: int, expected: int, block: Block, printed: str) -> None:
        assert code == expected, f"{self.where(block)}: $ {command}\nexit {code}, not {expected}\n{printed}"

    def environment(self) -> dict[str, str]:
        left_out = ("WTB_", "COLUMNS", "FORCE_")
        inherited = {key: setting for key, setting in os.environ.items() if not key.startswith(left_out)}
        return {
            **inherited,
            # Loading the plugins that happen to be installed is most of what a pytest of ours takes.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "wtb.integrations.pytest_plugin",
            "PATH": f"{self.folder / PROGRAMS}:{Path(sys.executable).parent}:{inherited['PATH']}",
            "NO_COLOR": "1",
            "TERM": "dumb",
        }

    def compare(self, block: Block, start: int, end: int, printed: str | None) -> None:
        assert printed is not None
        expected = "\n".join(self.lines[start:end])
        if agrees(expected, printed):
            return
        assert UPDATE, f"{self.where(block)}: shows\n{expected}\nbut the command says\n{printed}"
        self.changes.append((start, end, printed.rstrip("\n").splitlines()))

    def update(self) -> None:
        for start, end, lines in reversed(self.changes):
            self.lines[start:end] = lines
        if self.changes:
            self.path.write_text("\n".join(self.lines) + "\n", "utf-8")


def check_targets(command: str, where: str) -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8")))
    for target in re.findall(r"\bmake ([a-z-]+)", command):
        assert target in targets, f"{where}: the Makefile has no target '{target}'"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder but for the project's own examples, in which a page runs. Its modules are unloaded afterwards.

    Its name is as long as HOME, so that lines are wrapped as if it were called so.
    """
    root = quick_disk() if len(quick_disk()) < len(HOME) - 5 else "/tmp"
    place = Path(root, secrets.token_hex(len(HOME))[: len(HOME) - len(root) - 1])
    assert len(str(place)) == len(HOME)
    place.mkdir(0o711)  # for root, the servers of a stack run as a user who has to pass through
    (place / "examples").symlink_to(ROOT / "examples")
    (place / PROGRAMS).mkdir()
    forkserver.write_stand_in(place / PROGRAMS)
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.delenv("WTB_DATABASE_URL", raising=False)
    before = set(sys.modules)
    yield place
    stop_stack(place)
    end_processes(place)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(place)):
            del sys.modules[name]
    shutil.rmtree(place)


def stop_stack(place: Path) -> None:
    """Stop the stack of a page if the page did not reach its `wtb down`."""
    for file in place.rglob(".wtb/stack/stack.json"):
        subprocess.run([sys.executable, "-m", "wtb", "down"], cwd=file.parents[1], check=True, timeout=120)


def end_processes(place: Path) -> None:
    """Stop the processes that a page started in its folder and did not stop."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and Path(process.cwd()).is_relative_to(place):
                process.kill()


def test_there_are_pages() -> None:
    assert {page.name for page in PAGES} >= {"README.md", "first-sweep.md", "langgraph-tutorial.md", "evaluators.md"}
    assert len(PAGES) > 30


@pytest.mark.parametrize("path", MARKED_PAGES)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a page's examples leave their databases open
def test_the_page_runs_and_shows_what_is_really_said(path: Path, folder: Path) -> None:
    page = Page(path, folder)
    page.run()
    page.update()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"(?ms)^(```+|~~~+).*?^\1$", "", path.read_text("utf-8"))
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", re.sub(r"`[^`\n]+`", "", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        assert file.exists(), f"{path.name}: the link {target} leads nowhere"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{path.name}: {file.name} has no heading for #{anchor}"


def anchors(file: Path) -> set[str]:
    """The headings of a page as GitHub names them in links."""
    headings = re.findall(r"(?m)^#+ (.+)$", file.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_and_options_named_exist(path: Path) -> None:
    root = typer.main.get_command(importlib.import_module("wtb.cli.main").app)
    text = path.read_text("utf-8")
    for groups in re.findall(r"`(wtb [^`\n]+)`|^\$ (wtb .+)$", text, re.MULTILINE):
        for part in re.split(r"\||&&|;", "".join(groups)):
            if words := re.fullmatch(r"\s*wtb(?: (.+))?", part):
                known_words(root, (words[1] or "").split(), f"{path.name}: {part.strip()}")


def test_every_command_is_named() -> None:
    text = "".join(page.read_text("utf-8") for page in PAGES)
    root = typer.main.get_command(importlib.import_module("wtb.cli.main").app)
    assert [name for name in command_names(root, "wtb") if not re.search(rf"{name}\b", text)] == []


def command_names(command: Any, name: str) -> list[str]:
    inner = getattr(command, "commands", {})
    return [of_group for word, sub in inner.items() for of_group in command_names(sub, f"{name} {word}")] or [name]


def known_words(command: Any, words: list[str], where: str) -> None:
    while words and hasattr(command, "commands") and re.fullmatch(r"[a-z]+(-[a-z]+)*", words[0]):
        assert words[0] in command.commands, f"{where}: there is no command '{words[0]}'"
        command = command.commands[words.pop(0)]
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if re.fullmatch(r"--?[a-z][a-z-]*", word):
            assert word in options | {"--help"}, f"{where}: '{command.name}' has no option {word}"


# The lists in the pages are complete.


def table_names(page: str, heading: str) -> list[str]:
    """The names in code quotes of the first column of the tables below a heading."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    section = re.split(r"(?m)^#+ ", text.partition(f"# {heading}\n")[2])[0]
    cells = re.findall(r"(?m)^\| ([^|]+)\|", section)
    return [name for cell in cells if not cell.startswith("key of ") for name in re.findall(r"`([\w.:<>]+)", cell)]


def test_the_table_of_the_context_is_complete() -> None:
    from wtb.authoring.context.node_context import Context

    internal = {
        "record", "seed", "draws", "resources_of", "workspace_of", "allowance", "questioner", "checkpoint_taker",
        "known_tools", "tool_gate",
    }  # fmt: skip
    internal |= {"done", "fine", "task", "trace", "load_prices", "unclocked_s"}
    internal |= {"awaited_s", "lag_s", "failed_calls", "unknown_cost", "warn_once", "warned"}
    public = {name for name, _ in inspect.getmembers(Context) if not name.startswith("_")}
    public |= {name for name in Context.__dataclass_fields__ if not name.startswith("_")}
    named = {name.removeprefix("ctx.") for name in table_names("workflow-reference.md", "The context")}
    assert named == public - internal


def test_the_tables_of_names_are_complete() -> None:
    from wtb.authoring.evaluation.built_in import BUILT_IN
    from wtb.authoring.nodes import NodeOptions
    from wtb.config.retention_policy import Policy
    from wtb.config.run_options import Limits, Rlimits, Run
    from wtb.core.documents.event_texts import _SAYS

    for page, heading, names in (
        ("workflow-reference.md", "Node options", NodeOptions.__annotations__),
        ("sweep-file.md", "Keys", SweepSpec.model_fields),
        ("sweep-file.md", "Limits", Limits.model_fields),
        ("sweep-file.md", "How it runs", Run.model_fields),
        ("isolation.md", "Limits", Rlimits.model_fields),
        ("data.md", "Retention", {setting.name for setting in fields(Policy)}),
        ("built-in-evaluators.md", "Built-in evaluators", BUILT_IN),
        ("events.md", "Kinds", _SAYS),
    ):
        assert set(table_names(page, heading)) == set(names), f"{page}: {heading}"


def test_the_table_of_an_answer_is_complete(folder: Path) -> None:
    from wtb.authoring.workflow import Workflow
    from wtb.display.views.questions import question_document
    from wtb.handles.start import start
    from wtb.store.control.approvals import approval_rows

    wf = Workflow("asking")
    wf.entry(wf.node(lambda state, ctx: {"a": ctx.ask("Go on?").given}, name="a"))
    run = start(wf, {})
    run.wait()
    run.answer(value=[1]).wait()
    (row,) = approval_rows(run.database, closed=True)
    assert set(table_names("people.md", "Answers with a value")) == set(question_document(row)["answer"] or ())
    run.database.close()


def test_the_tables_of_the_contract_name_what_a_matrix_holds(folder: Path) -> None:
    from wtb.authoring.workflow import Workflow
    from wtb.core.documents.sweeps import CellDocument
    from wtb.handles.local_sweep import Sweep

    wf = Workflow("one")
    wf.entry(wf.node(lambda state: {"a": 1}, name="a"))
    sweep = Sweep(workflow=wf, cases=[{"input": {}}], vary={"a": "all"}, evaluate=["node_runs"]).run()
    named = set(table_names("json.md", "The matrix"))
    assert {name for name in paths(sweep.matrix()) if not name.startswith("cells.")} <= named
    assert set(sweep.cells()[0]) <= set(table_names("json.md", "Cells")) == set(CellDocument.__annotations__)
    sweep.database.close()


_COMBINATIONS = ("combination", ".candidates", ".unranked", ".rival")


def paths(document: Any, before: str = "") -> Iterator[str]:
    """The keys of a document as the table writes them; names of nodes and metrics are `<name>`."""
    if isinstance(document, list) and document and isinstance(document[0], dict):
        yield from paths(document[0], before)
    if not isinstance(document, dict) or before.endswith("combination."):
        return
    for key, child in document.items():
        name = before + ("<name>" if re.search(r"(by_node|best|front|metrics|lag_s)\.$", before) else key)
        is_whole = key in ("baseline", "decision") or name.endswith(_COMBINATIONS) or not isinstance(child, dict | list)
        yield from ([] if is_whole else list(paths(child, f"{name}."))) or [name]


def test_unreadable_yaml_would_be_noticed(folder: Path) -> None:
    file = folder / "page.md"
    file.write_text("```yaml\nrepeats: none\n```\n", "utf-8")
    page = Page(file, folder)
    with pytest.raises(InputError, match="repeats"):
        page.run()
