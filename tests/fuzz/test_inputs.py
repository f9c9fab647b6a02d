"""Hostile input of every kind: each is taken or refused as documented, soon, and leaves nothing half done."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from tests.fuzz import nasty
from tests.support.deadlines import alarm
from tests.support.project import FLOW, Outcome, Project
from wtb.cli.main import app

SEED = 20_261_122
SLICE = 20
CPU_S, WALL_S = 10, 60
SCREEN = 24

FULL: dict[str, Any] = {
    "sweep": "full",
    "project": "fuzz",
    "workflow": "flow:wf",
    "params": {"q": 1, "deep": {"a": [1, "x", None]}},
    "cases": "cases.jsonl",
    "columns": {},
    "files_from": ["more"],
    "vary": {"A": ["default", {"name": "w", "by": 3}, {"name": "z", "of": "v1"}], "B": ["default", "v1"]},
    "exclude": [{"A": "w", "B": ["v1"]}],
    "combinations": "grid",
    "repeats": 1,
    "seed": 5,
    "baseline": {"A": "default", "B": "default"},
    "evaluate": [
        "flow:total",
        {"numeric_close": {"field": "x", "abs": 0.5}},
        {"json_schema": {"field": "x", "schema": {"type": "integer", "maximum": 9, "allOf": [{"$ref": "#/$defs/a"}]}}},
        {"regex": {"field": "x", "pattern": "1+"}},
        "latency",
    ],
    "best": {"maximize": "total", "subject_to": "latency.mean < 100"},
    "gates": ["total.mean >= 0 and not latency.mean > 100"],
    "margin": {"total": 0.5},
    "agreement": {"total": "by hand", "latency": "by hand"},
    "limits": {"cell_timeout": "20s", "node_runs": 1000, "usd": 100, "tokens": 10_000, "nodes": {"A": {"usd": 50}}},
    "run": {"pool": "thread", "concurrency": 2, "share": True, "grace": "1s", "durability": 0.02},
}
FULL["run"]["checkpoints"] = "fine"
FULL["evaluate"][2]["json_schema"]["schema"]["$defs"] = {"a": {"minimum": 0}}
CASE: dict[str, Any] = {"id": "one", "input": {"x": 1}, "expected": {"x": 2}, "tags": ["a"]}
CASE["files"] = {"data/a.txt": "a.txt"}
SETTINGS = """
[workflows]
flow = "flow:wf"

[files]
shared = "shared"
cache = "1GB"

[retention]
keep = "30d"
events = "7d"
"""
URLS = (
    "sqlite:///other.db",
    "postgresql://user:sesame@127.0.0.1:1/name?sslmode=prefer&application_name=x",
    "postgresql+psycopg://127.0.0.1:1/name?password=sesame",
    "redis://:sesame@127.0.0.1:1/0?socket_timeout=1",
    "rediss://user:sesame@127.0.0.1:1/0",
)
VARIABLES = (
    "WTB_DATABASE_URL", "WTB_BROKER_URL", "WTB_SESSION", "WTB_FILES", "WTB_FILES_CACHE", "COLUMNS", "LINES", "TZ",
)  # fmt: skip
TOKENS = (
    "total", "x", "latency", "mean", "max", "min", "baseline", ".", ".", ".", "(", ")", "[", "]", "+", "-", "*", "/",
    "<", ">=", "==", "and", "or", "not", "in", "if", "else", "lambda:", "0", "1e309", ",", ":", "**", "@", "%", "~",
    "#", "\\", "é", "yield", "await", "x:=1", "9" * 400, '"a"', "'b'", "None", "\u2028", "f'{x}'", "len(", "max(",
)  # fmt: skip
MANY = (b"a: ", b"[", b"{", b"- ", b"? ")  # each of them is repeated
# Those that end by themselves, without a server.
COMMANDS = (
    "plan", "run", "start", "resume", "retry", "pause", "cancel", "breakpoint", "compare", "regress", "matrix",
    "score", "report", "list", "status", "show", "log", "history", "tree", "diff", "series", "rollback", "fork",
    "approvals", "answer", "answer-all", "doctor", "costs", "files", "submit", "baseline", "workflow", "schedule",
    "pilot", "label", "comment", "combination", "admin export", "admin import", "admin gc", "admin pin",
    "admin unpin", "admin db", "admin session", "admin budget", "admin scoring",
)  # fmt: skip


# One input: what stands in the files, what the command is, and what a refusal has to name.


class Input:
    def __init__(self, *args: str) -> None:
        self.args = list(args)
        self.files: dict[str, bytes] = {}
        self.env: dict[str, str] = {}
        self.named: tuple[str, ...] = ()
        self.codes = (0, 1, 2)


def _sweep_file(dice: random.Random) -> Input:
    sample = Input(dice.choice(("run", "run", "plan")), "sweep.yaml")
    document: Any = FULL
    for _ in range(dice.choice((1, 1, 2))):
        key = dice.choice([*FULL, None])
        if isinstance(document, dict) and isinstance(document.get(key), dict | list) and document[key]:
            document = {**document, key: nasty.mutated(document[key], dice)}
        elif isinstance(document, dict) and key in document:
            document = {**document, key: nasty.odd_value(dice)}
        else:
            document = nasty.mutated(document, dice) if document else document
    sample.files["sweep.yaml"] = _written(document, dice)
    sample.named = ("sweep.yaml", "cases", "'flow", "workflow")
    return sample


def _written(document: Any, dice: random.Random) -> bytes:
    text = json.dumps(document, ensure_ascii=dice.random() < 0.7)
    content = text.encode("utf-8", "surrogatepass")
    if dice.random() < 0.3:
        try:
            content = yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "surrogatepass")
        except (yaml.YAMLError, RecursionError):
            return content
    return content


def _sweep_text(dice: random.Random) -> Input:
    """A file that is nearly YAML, or is YAML of a kind that is refused."""
    sample = Input("run", "sweep.yaml")
    content = yaml.safe_dump(FULL).encode()
    odd = dice.choice(
        (
            *(b"\xef\xbb\xbf" + content, content.decode().encode("utf-16"), content.replace(b"\n", b"\r\n")),
            *(b"", b"\n\n"),
            *(b"---\n...\n", b"&a " * 50, b"a: |\n" + b" x\n" * 1000, *(many * 3000 for many in MANY)),
            *(b"<<: {a: 1}\n" + content, b"x: &a 1\ny: *a\n", b"x: !!python/object:os.system 1\n"),
            *(b"%YAML 9.9\n---\n" + content, content + b"\nrepeats: " + b"9" * 5000 + b"\n", content + content),
            *(content + b"\0", b"\x85\xe2\x80\xa8".join((content, content)), content.replace(b"full", b"\xff")),
            *(b"sweep: \xed\xa0\x80\n" + content, b'"\\ud800": 1\n' + content, b'"\\0": 1\n' + content),
            *(content + b"\nx" * 5000 + b": 1\n", b"!" + content, b"@", b"`", b"%", b"\t"),
            *(b"!!binary aGk=", b"2024-01-01: 1"),
        )
    )
    sample.files["sweep.yaml"] = odd if dice.random() < 0.5 else nasty.mangled(content, dice)
    sample.named = ("sweep.yaml", "cases", "'flow", "workflow")
    return sample


def _cases(dice: random.Random) -> Input:
    kind = dice.choice(("jsonl", "jsonl", "csv", "json"))
    sample = Input("run", "sweep.yaml")
    rows = [{**CASE, "id": f"c{number}"} for number in range(2)]
    if dice.random() < 0.8:
        rows[dice.randrange(2)] = nasty.mutated(dice.choice(rows), dice)
    ascii_only = dice.random() < 0.7
    if kind == "csv":
        cells = ["id,x,expected,tags,files", "one,1,2,a b,a.txt"]
        for _ in range(dice.choice((1, 2))):
            parts = cells[(line := dice.randrange(2))].split(",")
            parts[dice.randrange(len(parts))] = str(nasty.odd_value(dice))[:30_000]
            cells[line] = ",".join(parts)
        text = "\n".join(cells) + "\n"
    elif kind == "json":
        text = json.dumps(rows, ensure_ascii=ascii_only)
    else:
        text = "\n".join(json.dumps(row, ensure_ascii=ascii_only) for row in rows) + "\n"
    content = text.encode("utf-8", "surrogatepass")
    if dice.random() < 0.4:
        content = nasty.mangled(content, dice)
    elif dice.random() < 0.1:
        content = dice.choice(
            (b"\xef\xbb\xbf" + content, text.encode("utf-16", "surrogatepass"), b"[" * 5000, b'"' * 999, b"\0" * 99)
        )
    sample.files[f"odd.{kind}"] = content
    sample.files["sweep.yaml"] = json.dumps({**FULL, "cases": f"odd.{kind}"}).encode()
    sample.named = (f"odd.{kind}",)
    return sample


def _settings(dice: random.Random) -> Input:
    sample = Input(
        *dice.choice(
            (("workflow", "list"), ("run", "sweep.yaml"), ("admin", "gc", "--dry-run"), ("doctor",), ("start", "flow"))
        )
    )
    text = SETTINGS
    name = dice.choice(("wtb.toml", "pyproject.toml"))
    for _ in range(dice.choice((1, 2))):
        line = dice.choice([line for line in text.splitlines() if "=" in line])
        odds = ('""', '"\\u0000"', f'"{"a" * 9000}"', "9" * 30, "1", "-1", "[]", "{}", "true", "1e400", "nan", "2**70")
        odd = dice.choice((*odds, "[1,"))
        text = text.replace(
            line, dice.choice((f"{line.partition('=')[0]}= {odd}", f"{line}x", f"x{line}", f"{line}\n{line}", "")), 1
        )
    if name == "pyproject.toml":
        text = text.replace("\n[", "\n[tool.wtb.")
    sample.files[name] = text.encode() if dice.random() < 0.7 else nasty.mangled(text.encode(), dice)
    sample.files["sweep.yaml"] = json.dumps({**FULL, "workflow": "flow"}).encode()
    sample.named = (name, "workflow", "files", "shared", "input")
    sample.codes = (0, 1, 2, 4)  # a shared directory that is not there is out of reach
    return sample


def _command_line(dice: random.Random) -> Input:
    words = dice.choice(COMMANDS).split()
    command: Any = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    while hasattr(command, "commands"):
        words.append(dice.choice(sorted(command.commands)))
        command = command.commands[words[-1]]
    options: list[list[str]] = []
    for parameter in command.params:
        usual = _usual(parameter, dice)
        if parameter.param_type_name == "argument":
            options.append([usual])
        elif parameter.opts[0] not in ("--help", "--follow", "--pdb", "--db") and dice.random() < 0.15:
            options.append([parameter.opts[0]] if parameter.is_flag else [parameter.opts[0], usual])
    for _ in range(dice.choice((1, 1, 2))):
        if options:
            dice.choice(options)[-1] = _word(dice)
    sample = Input(*words, *itertools.chain(*options))
    sample.codes = (0, 1, 2, 4)
    return sample


def _usual(parameter: Any, dice: random.Random) -> str:
    name = (parameter.name or "").lower()
    for part, values in (
        ("file", ("sweep.yaml", "cases.jsonl", "one.wtb")),
        ("sweep", ("full", "sweep.yaml")),
        ("combination", ("A=v1", "A=w,B=v1")),
        ("limit", ("3", "usd=5")),
        ("set", ("x=1",)),
    ):
        if part in name:
            return dice.choice(values)
    return dice.choice(("full", "flow:wf", "1", "A", "default", "x=1", "2h", "A=v1", "@EXECUTION@", "@EXECUTION@"))


def _word(dice: random.Random) -> str:
    words = (
        "", " ", "9" * 30, "a" * 300, "a" * 20_000, "é" * 50, "\x1b[31m", "\n", "\udcff", "\u202e", "-", "--", "-1",
        "0", "1e999", "nan", "a=b=c", "=", "x=", "=x", "x={", "x=[1", "*", "%", "../x", "nowhere/x", ".", "before",
        "1/0", "99999d", "1e5d", "-3h", "@", "@x", "'; DROP TABLE cells; --", "after A", "A if", "A if x >",
        "x=" + "[" * 500, "x=" + "9" * 5000,
    )  # fmt: skip
    return dice.choice(words)


def _url(dice: random.Random) -> Input:
    url = dice.choice(URLS)
    for _ in range(dice.choice((0, 1, 1, 2))):
        place = dice.randrange(len(url))
        odd = dice.choice(
            (":", "/", "@", "?", "#", "%", "%zz", "[", "]", "é", " ", "\x1b", "&", "=", "port", "99999", "::")
        )
        url = url[:place] + odd + url[place + dice.choice((0, 1, 3)) :]
    sample = Input(*dice.choice((("list",), ("run", "sweep.yaml"), ("doctor",), ("admin", "db", "version"))))
    if dice.random() < 0.5 and sample.args[0] != "doctor":
        sample.args += ["--db", url]
    else:
        sample.env = {dice.choice(VARIABLES[:2]): url}
    sample.files["sweep.yaml"] = json.dumps(FULL).encode()
    sample.codes = (0, 1, 2, 4)
    return sample


def _expression(dice: random.Random) -> Input:
    text = dice.choice(("", " ")).join(dice.choice(TOKENS) for _ in range(dice.choice((1, 3, 6, 20, 200))))
    if dice.random() < 0.5:
        sample = Input("run", "sweep.yaml")
        key = dice.choice(("gates", "best"))
        condition: Any = [text] if key == "gates" else {"maximize": "total", "subject_to": text}
        sample.files["sweep.yaml"] = json.dumps({**FULL, key: condition}).encode()
        sample.named = ("sweep.yaml",)
    else:
        sample = Input("run", "sweep.yaml", "--break", f"A if {text}")
        sample.files["sweep.yaml"] = json.dumps(FULL).encode()
        sample.named = ("breakpoint", "--break")
    return sample


def _environment(dice: random.Random) -> Input:
    sample = Input(*dice.choice((("run", "sweep.yaml"), ("list",), ("matrix", "full"))))
    for name in dice.sample(VARIABLES, 2):
        sample.env[name] = _word(dice)
    sample.files["sweep.yaml"] = json.dumps(FULL).encode()
    sample.codes = (0, 1, 2, 4)
    return sample


KINDS = {
    _sweep_file: 8, _sweep_text: 3, _cases: 6, _settings: 2,
    _command_line: 8, _url: 3, _expression: 3, _environment: 1,
}  # fmt: skip


def make_input(dice: random.Random) -> Input:
    (kind,) = dice.choices([*KINDS], [*KINDS.values()])
    return kind(dice)


# Holding an input against what is promised of all.


class TooLong(BaseException):
    """Not an Exception, so that no code catches it on the way."""


@contextmanager
def bounded() -> Iterator[None]:
    """Stop a block that takes too long, in processor time or wall time."""

    def end(number: int, frame: Any) -> None:
        raise TooLong(f"more than {CPU_S if number == signal.SIGPROF else WALL_S} s")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    try:
        with alarm(WALL_S, end):
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def made_ready(project: Project) -> str:
    """Run one sweep in a project and return the id of one of its executions."""
    usual(project)
    project.inside("run", "sweep.yaml", "--quiet", check=0)
    cells = project.inside("show", "full", "--cells", "--format", "json", check=0).json["cells"]
    project.inside("admin", "export", cells[0]["execution"], "-o", "one.wtb", check=0)
    return str(cells[0]["execution"])


def usual(project: Project) -> None:
    """The project's files as they should be, and no others of a test."""
    for name in ("wtb.toml", "pyproject.toml", "odd.jsonl", "odd.csv", "odd.json"):
        (project.folder / name).unlink(missing_ok=True)
    project.write(
        {"flow.py": FLOW, "a.txt": "a", "cases.jsonl": json.dumps(CASE) + "\n", "sweep.yaml": json.dumps(FULL)}
    )


def fares_well(project: Project, sample: Input) -> None:
    usual(project)
    for name, content in sample.files.items():
        (project.folder / name).write_bytes(content)
    before = project.query("SELECT count(*) FROM sweeps")
    with bounded():
        done = project.inside(*sample.args, env=sample.env)
    assert done.code in sample.codes, f"exit code {done.code}: {done.stderr}"
    assert "Traceback" not in done.stderr
    assert "sesame" not in done.stdout + done.stderr
    if done.code == 2:
        is_short(done, sample)
        assert project.query("SELECT count(*) FROM sweeps") == before, "something was submitted"
    elif sample.args[0] == "run" and not sample.env and "--db" not in sample.args:
        usual(project)
        with bounded():
            for command in (("show", "--format", "json"), ("matrix", "--format", "json"), ("matrix",), ("log",)):
                (newest,) = project.query("SELECT id FROM sweeps ORDER BY created_at DESC LIMIT 1")[0]
                read = project.inside(command[0], newest, *command[1:])
                assert read.code == 0, f"{command}: {read.stderr}"


def is_short(done: Outcome, sample: Input) -> None:
    """A refusal is on one screen, and says where."""
    assert done.stderr.strip()
    if "Usage:" not in done.stderr:  # the words of the command line's own reader quote what they were given
        assert len(done.stderr.splitlines()) <= SCREEN, done.stderr
        assert len(done.stderr) <= 6_000, done.stderr[:500]
    assert not sample.named or any(name in done.stderr for name in sample.named), done.stderr


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("start", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(SLICE, 600, SLICE))])
def test_hostile_input_is_taken_or_refused_as_documented(
    request: pytest.FixtureRequest, tmp_path: Path, start: int, kind: str
) -> None:
    project = Project(tmp_path / "project")
    if kind == "postgresql":
        project.url = request.getfixturevalue("fresh_postgres_url")
    execution = made_ready(project)
    for number in range(start, start + SLICE):
        sample = make_input(random.Random(f"{SEED} {kind} {number}"))
        sample.args = [word.replace("@EXECUTION@", execution) for word in sample.args]
        try:
            fares_well(project, sample)
        except BaseException as error:
            error.add_note(
                f"input {number} of {kind}: wtb {' '.join(word[:60] for word in sample.args)!r} {sample.env!r:.200}"
            )
            shutil.copytree(project.folder, tmp_path / "as it was", dirs_exist_ok=True)
            raise
    project.close()
