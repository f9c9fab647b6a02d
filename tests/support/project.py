"""A user's folder: files written there, and the `wtb` command run in it as a user runs it."""

from __future__ import annotations

import functools
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import sqlalchemy as sa
import typer.main

from tests.support import documents, forkserver
from tests.support.deadlines import alarm
from tests.support.waiting import PATIENCE_S, until
from wtb.cli.main import main
from wtb.config import credentials
from wtb.store.database import Database

# A(4) -> B(4) -> C(4). The figures are powers of two, so that sums of money are exact.
FLOW = """
from typing import TypedDict

from wtb import END, Workflow, evaluator


class State(TypedDict):
    x: int


wf = Workflow("flow", state=State, input=State)


@wf.node
def A(state, ctx, *, by: int = 0):
    ctx.cost(usd=0.25, tokens_in=3, tokens_out=1)
    return {"x": state["x"] + by}


@wf.node
def B(state, ctx, *, by: int = 0):
    ctx.cost(usd=0.5)
    return {"x": state["x"] + 10 * by}


@wf.node
def C(state, ctx, *, by: int = 0):
    ctx.cost(usd=1.0)
    return {"x": state["x"] + 100 * by}


for node in (A, B, C):
    for by in (1, 2, 3):
        node.variant(f"v{by}", by=by)

wf.entry(A)
wf.edge(A, B)
wf.edge(B, C)
wf.edge(C, END)


@evaluator(better="higher")
def total(case, result):
    return result.state["x"]


@evaluator(better="lower")
def picky(case, result):
    if result.state["x"] % 10 == 3:
        raise ValueError("no threes, please")
    return result.state["x"]
"""

SWEEP = """
sweep: first
workflow: flow:wf
cases: cases.jsonl
vary: {A: all, B: all, C: all}
evaluate: ["flow:total"]
"""


_command = functools.cache(typer.main.get_command)  # made once: it takes longer than many a command


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """All of stdout as JSON."""
        return json.loads(self.stdout)

    @property
    def output(self) -> str:
        """Stderr with its line breaks as spaces, to look for sentences in."""
        return " ".join(self.stderr.split())


class Running:
    """A command that was started; a context manager that leaves nothing running."""

    def __init__(self, args: list[str], folder: Path, environment: Mapping[str, str], *, own: bool = False) -> None:
        self._stdout, self._stderr = (folder / f".{name}-{time.monotonic_ns()}" for name in ("stdout", "stderr"))
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr, open(os.devnull, "rb") as stdin:
            self.process = forkserver.start(
                args, cwd=folder, env=environment, stdin=stdin, stdout=stdout, stderr=stderr, own=own
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stderr(self) -> str:
        """The text that it has written to stderr so far."""
        return self._stderr.read_text("utf-8")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, check: int | None = None, timeout: float = PATIENCE_S) -> Outcome:
        code = self.process.wait(timeout)
        return _checked(Outcome(code, self._stdout.read_text("utf-8"), self.stderr), check)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()


class Project:
    """A folder with a user's files, and a database of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.url: str | None = None
        self._database: Database | None = None

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")

    def write_sweep(self, name: str, code: str, cases: int = 1, **spec: Any) -> None:
        """Write a workflow, a sweep of it in `sweep.yaml`, and so many cases."""
        sweep = {"sweep": name, "workflow": f"{name}:wf", "cases": "cases.jsonl", **spec}
        self.write({f"{name}.py": code, "sweep.yaml": json.dumps(sweep), "cases.jsonl": self.cases(cases)})

    def failures(self) -> list[tuple[str, str, Any]]:
        """(variant, status, failure) of the node runs of cells that did not succeed."""
        query = (
            "SELECT r.variant, c.status, c.failure FROM cells c JOIN node_runs r ON r.execution_id = c.execution_id "
            "WHERE c.status <> 'succeeded'"
        )
        rows = self.query(query)
        return [(variant, status, json.loads(why) if isinstance(why, str) else why) for variant, status, why in rows]

    def cells(self, sweep: str) -> list[dict[str, Any]]:
        """Return the cells of a sweep."""
        cells: list[dict[str, Any]] = self.json("show", sweep, "--cells")["cells"]
        return cells

    @staticmethod
    def cases(count: int, **same: Any) -> str:
        """Cases c0, c1, ... with x = 0, 10,000, ... as JSON lines."""
        cases = ({"id": f"c{n}", "input": {"x": 10_000 * n}, **same} for n in range(count))
        return "".join(json.dumps(case) + "\n" for case in cases)

    @property
    def file(self) -> Path:
        """The database file that is made where none is named."""
        return self.folder / ".wtb" / "wtb.db"

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("WTB_", "COLUMNS"))}
        # Python takes a source of the same size and second as its compiled one: tests change files faster than that.
        inherited["PYTHONDONTWRITEBYTECODE"] = "1"
        inherited["WTB_WRITABLE"] = str(self.folder)  # nodes of tests leave marks beside their code
        return {**inherited, **({"WTB_DATABASE_URL": self.url} if self.url else {}), **(extra or {})}

    def wtb(
        self,
        *args: str | Path,
        check: int | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = PATIENCE_S,
        stdin: str | None = None,
    ) -> Outcome:
        """Run the command in a process of its own. `check`: the exit code that it must have."""
        temporary = tempfile.TemporaryFile
        with temporary() as stdin_file, temporary() as stdout, temporary() as stderr:
            stdin_file.write((stdin or "").encode())
            stdin_file.seek(0)
            streams = {"stdin": stdin_file, "stdout": stdout, "stderr": stderr}
            process = forkserver.start([*map(str, args)], cwd=self.folder, env=self.environment(env), **streams)
            try:
                code = process.wait(timeout)
            finally:
                process.kill()
            texts = []
            for file in (stdout, stderr):
                file.seek(0)
                texts.append(file.read().decode().replace("\r\n", "\n").replace("\r", "\n"))
        documents.check_printed(self.folder, list(map(str, args)), code, texts[0])
        return _checked(Outcome(code, *texts), check)

    def inside(
        self,
        *args: str | Path,
        check: int | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = PATIENCE_S,
        stdin: str = "",
    ) -> Outcome:
        """Run the command in this process, where a process is not the point."""
        done = run_inside(self.folder, self.environment(env), list(map(str, args)), timeout=timeout, stdin=stdin)
        return _checked(done, check)

    def in_80_columns(self, *args: str, **environment: str) -> Outcome:
        """Run the command in this process, as in a terminal of 80 columns."""
        return self.inside(*args, env={"COLUMNS": "80", **environment})

    def json(self, *args: str | Path, **options: Any) -> Any:
        """Return the document that a command prints. `options` are those of `inside`."""
        return self.inside(*args, "--format", "json", check=0, **options).json

    def text(self, *args: str | Path, **options: Any) -> str:
        """Return what a command writes to stdout. `options` are those of `inside`."""
        return self.inside(*args, check=0, **options).stdout

    def refusal(self, *args: str | Path, **options: Any) -> str:
        """Return why a command refuses its input, in one line. `options` are those of `inside`."""
        return self.inside(*args, check=2, **options).output

    def start(self, *args: str | Path, env: Mapping[str, str] | None = None, own: bool = False) -> Running:
        """Start the command and go on. It is killed when the test ends, if it still runs then.

        own: as a child of this process, started as users do.
        """
        return Running(list(map(str, args)), self.folder, self.environment(env), own=own)

    def query(self, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Rows of this project's database; none where it is not there yet."""
        if self._database is None:
            database = Database(self.url or f"sqlite:///{self.file}")
            if not database.exists() or database.revision() is None:
                database.close()
                return []
            self._database = database
        with self._database.read() as connection:
            return [tuple(row) for row in connection.execute(sa.text(sql), parameters)]

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def change(self, sql: str) -> None:
        """Change the database behind WTB's back."""
        database = Database(self.url or f"sqlite:///{self.file}")
        with database.write() as connection:
            connection.execute(sa.text(sql))
        database.close()

    @staticmethod
    def until(condition: Callable[[], Any], what: str, patience: float = PATIENCE_S) -> Any:
        """Poll until a condition holds, and return its value."""
        return until(condition, what, patience, pause=0.02, share=0.25)

    def node_processes(self) -> list[int]:
        """Keepers and what they keep, of runs in this folder: they work in it, or in workspaces below it."""
        pids = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if "WTB_NODE_PROCESS" in process.environ() and Path(process.cwd()).is_relative_to(self.folder):
                    pids.append(process.pid)
        return pids

    def log(self, name: str = "log") -> list[str]:
        """Lines that nodes appended to a file."""
        path = self.folder / name
        return path.read_text("utf-8").splitlines() if path.exists() else []


def run_program(
    command: Sequence[str | Path], *, code: int | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. code: the exit code that it must have."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert code in (None, done.returncode), f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def run_inside(
    folder: Path,
    environment: Mapping[str, str],
    args: list[str],
    *,
    merge: bool = False,
    timeout: float = PATIENCE_S,
    stdin: str = "",
) -> Outcome:
    """Run `wtb` in this process, in a folder and an environment. merge: stderr goes to stdout."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="", write_through=True)
    err = out if merge else io.TextIOWrapper(io.BytesIO(), "utf-8", newline="", write_through=True)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        for name in os.environ.keys() - environment.keys():
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(sys, "path", [str(folder), *sys.path])
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setattr(sys, "argv", ["wtb", *args])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
        importlib.invalidate_caches()
        patch.setattr(typer.main, "get_command", _command)
        patch.setattr(credentials, "take", lambda: None)  # what this process has is not the command's
        patch.setattr(credentials, "_credentials", {})
        opened = _noting_databases(patch)
        before = set(sys.modules)
        with _fails_after(timeout, args), pytest.raises(SystemExit) as ended:
            main()
        for database in opened:  # what the end of a process would do
            database.close()
        if "kombu.pools" in sys.modules:
            sys.modules["kombu.pools"].reset()
        forget_modules_of(folder, sys.modules.keys() - before)
    code = ended.value.code
    assert isinstance(code, int | None), f"the command ended with {code!r} as its exit code"
    documents.check_printed(folder, args, code or 0, "" if merge else _written(out))
    return Outcome(code or 0, _written(out), "" if merge else _written(err))


def _written(stream: io.TextIOWrapper) -> str:
    written: bytes = stream.buffer.getvalue()  # type: ignore[attr-defined]
    return written.decode()


@contextmanager
def _fails_after(seconds: float, args: list[str]) -> Iterator[None]:
    """Fail where a command in this process takes longer: nobody else could end it."""

    def fail(number: int, frame: object) -> None:
        pytest.fail(f"still running after {seconds:g} s: wtb {' '.join(args)}")

    with alarm(seconds, fail):
        yield


def _checked(outcome: Outcome, check: int | None) -> Outcome:
    assert check in (None, outcome.code), f"exit code {outcome.code}, expected {check}:\n{outcome.stderr}"
    return outcome


def _noting_databases(patch: pytest.MonkeyPatch) -> list[Database]:
    opened: list[Database] = []
    original = Database.__init__

    def noting(self: Database, url: str) -> None:
        original(self, url)
        opened.append(self)

    patch.setattr(Database, "__init__", noting)
    return opened


def forget_modules_of(folder: Path, names: Iterable[str]) -> None:
    """Forget modules by name that were imported from a folder: other tests have some of the same name."""
    for name in names:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


def _project(folder: Path) -> Iterator[Project]:
    project = Project(folder)
    project.write({"flow.py": FLOW, "cases.jsonl": project.cases(10), "sweep.yaml": SWEEP})
    yield project
    project.close()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A folder with the workflow FLOW, ten cases and the sweep file SWEEP."""
    yield from _project(tmp_path / "project")


@pytest.fixture(scope="module")
def shared_project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The same, one for the tests of a module."""
    yield from _project(tmp_path_factory.mktemp("shared") / "project")


@pytest.fixture
def empty_project(tmp_path: Path) -> Iterator[Project]:
    """A folder with nothing in it."""
    project = Project(tmp_path / "project")
    yield project
    project.close()
