"""A user's folder: files written there, and the `wtb` command run in it as a user runs it."""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from wtb.cli.main import main
from wtb.store.database import Database

COMMAND = (sys.executable, "-m", "wtb")
PATIENCE_S = 60.0

# A(4) -> B(4) -> C(4). The figures are powers of two, so that sums of money are exact.
FLOW = """
from typing import TypedDict

from wtb import END, Workflow, evaluator


class State(TypedDict, total=False):
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


@dataclass(frozen=True)
class Outcome:
    """What a command came to."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """All of stdout as JSON."""
        return json.loads(self.stdout)

    @property
    def said(self) -> str:
        """Stderr with its line breaks as spaces, to look for sentences in."""
        return " ".join(self.stderr.split())


class Project:
    """A folder with a user's files, and a database of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url: str | None = None

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")

    @staticmethod
    def cases(count: int, **same: Any) -> str:
        """Cases c0, c1, ... with x = 0, 10,000, ... as JSON lines."""
        cases = ({"id": f"c{n}", "input": {"x": 10_000 * n}, **same} for n in range(count))
        return "".join(json.dumps(case) + "\n" for case in cases)

    @property
    def file(self) -> Path:
        """The database file that is made where none is named."""
        return self.folder / ".wtb" / "wtb.db"

    def environment(self, given: Mapping[str, str] | None = None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("WTB_", "COLUMNS"))}
        return {**kept, **({"WTB_DATABASE_URL": self.url} if self.url else {}), **(given or {})}

    def wtb(
        self,
        *args: str | Path,
        check: int | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = PATIENCE_S,
        stdin: str | None = None,
    ) -> Outcome:
        """Run the command in a process of its own. `check`: the exit code that it must have."""
        done = subprocess.run(
            [*COMMAND, *map(str, args)],
            cwd=self.folder,
            env=self.environment(env),
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return _checked(Outcome(done.returncode, done.stdout, done.stderr), check)

    def inside(self, *args: str | Path, check: int | None = None, env: Mapping[str, str] | None = None) -> Outcome:
        """Run the command in this process, where a process is not the point."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self.folder)
            for name in os.environ.keys() - self.environment(env).keys():
                patch.delenv(name)
            for name, value in self.environment(env).items():
                patch.setenv(name, value)
            patch.setattr(sys, "path", [str(self.folder), *sys.path])
            patch.setattr(sys, "argv", ["wtb", *map(str, args)])
            importlib.invalidate_caches()
            with pytest.raises(SystemExit) as ended:
                main()
            _forget_modules_of(self.folder)
        code = ended.value.code
        assert isinstance(code, int | None), f"the command ended with {code!r} as its exit code"
        return _checked(Outcome(code or 0, out.getvalue(), err.getvalue()), check)

    def start(self, *args: str | Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start the command and go on; its output is read with `communicate`."""
        return subprocess.Popen(
            [*COMMAND, *map(str, args)],
            cwd=self.folder,
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def query(self, sql: str, url: str | None = None, **parameters: Any) -> list[tuple[Any, ...]]:
        """Rows of this project's database; none where it is not there yet."""
        database = Database(url or self.url or f"sqlite:///{self.file}")
        try:
            if not database.exists():
                return []
            with database.read() as connection:
                return [tuple(row) for row in connection.execute(sa.text(sql), parameters)]
        finally:
            database.close()

    def change(self, sql: str) -> None:
        """Change the database behind WTB's back."""
        database = Database(self.url or f"sqlite:///{self.file}")
        with database.write() as connection:
            connection.execute(sa.text(sql))
        database.close()

    @staticmethod
    def until(condition: Callable[[], Any], what: str, patience: float = PATIENCE_S) -> Any:
        """Poll until a condition holds, and return what it gave."""
        ends = time.monotonic() + patience
        while not (found := condition()):
            assert time.monotonic() < ends, f"still waiting after {patience:g} s: {what}"
            time.sleep(0.01)
        return found

    def log(self, name: str = "log") -> list[str]:
        """Lines that nodes appended to a file."""
        path = self.folder / name
        return path.read_text("utf-8").splitlines() if path.exists() else []


def _checked(outcome: Outcome, check: int | None) -> Outcome:
    assert check in (None, outcome.code), f"exit code {outcome.code}, expected {check}:\n{outcome.stderr}"
    return outcome


def _forget_modules_of(folder: Path) -> None:
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A folder with the workflow FLOW, ten cases and the sweep file SWEEP."""
    made = Project(tmp_path / "project")
    made.write({"flow.py": FLOW, "cases.jsonl": made.cases(10), "sweep.yaml": SWEEP})
    yield made


@pytest.fixture
def empty_project(tmp_path: Path) -> Project:
    """A folder with nothing in it."""
    (tmp_path / "project").mkdir()
    return Project(tmp_path / "project")
