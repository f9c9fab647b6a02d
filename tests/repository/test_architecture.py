"""ARCHITECTURE.md finds the file for a change, in one try: what it names is there, and it stays short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
MOST_LINES = 250

# What somebody wants to change -> words of the row that they would look for, the file, and what to change in it.
CHANGES = {
    "which combination the sweep names as best": ("best", "wtb/analysis/matrix/selection.py", "choose"),
    "a new column in the CSV of the matrix": ("CSV", "wtb/display/matrix/csv.py", "_COLUMNS"),
    "leases of two minutes": ("lease", "wtb/store/runs/slots.py", "LEASE_S"),
    "a new option of `wtb run`": ("option of `wtb run`", "wtb/cli/run/sweeps.py", "run"),
    "a fingerprint that covers variables of the environment, too": (
        "fingerprint",
        "wtb/authoring/code/walk.py",
        "Walk",
    ),
    "a trimmed mean beside the mean": ("figure of the matrix", "wtb/analysis/statistics/comparing.py", "compare"),
    "no retries after errors of the network": ("retry", "wtb/execution/attempts/failed_attempts.py", "FailedAttempts"),
    "`wtb doctor` looks at the time zone": ("doctor", "wtb/hosting/diagnostics/machine.py", "examine"),
    "`wtb gc` keeps what is tagged": ("gc", "wtb/operations/housekeeping/garbage_collection.py", "collect"),
    "an answer to interrupt() may be a file": (
        "interrupt",
        "wtb/integrations/langgraph/engine/interrupts.py",
        "resume_value",
    ),
    "a worker that is stopped tells whoever waits": ("worker stops", "workers/wtb_workers/session.py", "WorkerSession"),
    "cases from a Parquet file": ("case files", "wtb/planning/case_files.py", "READERS"),
    "another paired test for scores of 0 and 1": (
        "two rows are tested",
        "wtb/analysis/statistics/paired.py",
        "mcnemar",
    ),
    "a command with a name of its own": ("a command", "wtb/cli/commands.py", "GROUPS"),
    "a column in the table of node runs": ("table or column", "wtb/store/tables/node_runs.py", "NodeRunRow"),
    "SQLite waits a minute for a lock": ("how a database is opened", "wtb/store/engine.py", "make_engine"),
    "a schedule skips a fire while the last one runs": ("a schedule fires", "wtb/store/schedules.py", "make_due"),
    "another host's name in `wtb status`": ("wtb status", "wtb/display/views/sweeps.py", "status_document"),
    "RabbitMQ as a broker": ("brokers", "wtb/config/broker.py", "Broker"),
    "`wtb pause` of all sweeps at once": ("a verb", "wtb/operations/registry.py", "OPERATIONS"),
    "`wtb compare` tells of five cases": ("wtb compare", "wtb/cli/results/compare.py", "compare"),
    "access tokens end after 30 days": ("expiry", "wtb/operations/administration/tokens.py", "create_token"),
    "an export without the inputs of cases": ("wtb export", "wtb/operations/archive/exporter.py", "_write"),
    "bootstrapped intervals": ("interval of a mean", "wtb/analysis/statistics/intervals.py", "intervals"),
    "another class of channel of LangGraph": (
        "channels of LangGraph",
        "wtb/integrations/langgraph/engine/frames.py",
        "channel_value",
    ),
    "a pattern that is always redacted": ("patterns", "wtb/config/keeping/redaction.py", "Redact"),
    "the audit log tells who read a report": ("audit log notes", "wtb/operations/auditing.py", "audited"),
    "one more server in `wtb up`": ("what `wtb up` starts", "wtb/hosting/stack/up.py", "run_stack"),
    "alerts of a finished sweep name its best row": ("what is sent", "wtb/execution/runtime/alerts.py", "_message"),
}


def section(heading: str) -> str:
    return re.split(r"(?m)^## ", PAGE.partition(f"\n## {heading}\n")[2])[0]


def rows(heading: str) -> list[tuple[str, str]]:
    """The first two columns of the table in a section, its heading left out."""
    cells = re.findall(r"(?m)^\| (.+?) \| (.+?) \|", section(heading))
    return [(first, second) for first, second in cells[1:] if not first.startswith("---")]


def names_in(file: Path) -> set[str]:
    """The functions, classes and constants at the top of a module."""
    names: set[str] = set()
    for one in ast.parse(file.read_text("utf-8")).body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(one.name)
        elif isinstance(one, ast.Assign | ast.AnnAssign):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def named_changes() -> Iterator[tuple[str, list[str], str]]:
    """What the rows of "Where to change what" say: "`a` and `b` in [file]" as (row, [a, b], file)."""
    for change, where in rows("Where to change what"):
        for names, file in re.findall(r"((?:`\w+`(?:, | and ))*`\w+`) in \[[^\]]+\]\(([^)]+\.py)\)", where):
            yield change, re.findall(r"`(\w+)`", names), file


@pytest.mark.parametrize("change", CHANGES)
def test_whoever_wants_a_change_finds_its_file_in_one_try(change: str) -> None:
    """Of all rows just one speaks of it; the file is the first that it names, with what is to be changed."""
    words, file, name = CHANGES[change]
    (where,) = [second for first, second in rows("Where to change what") if re.search(rf"\b{words}", first)]
    assert re.findall(r"\]\(([^)]+)\)", where)[0] == file
    assert f"`{name}`" in where.partition(f"({file})")[0]
    assert name in names_in(ROOT / file)


def test_every_name_is_in_the_file_that_is_named_with_it() -> None:
    named = list(named_changes())
    assert len(named) >= 25, "the rows are written in another way than they are read here"
    assert [
        f"{change}: {name} is not in {file}"
        for change, names, file in named
        for name in names
        if name not in names_in(ROOT / file)
    ] == []


def test_every_file_in_code_quotes_is_there() -> None:
    """Links are held by tests of all pages; paths of the table of rules, and of the pictures, here."""
    quoted = re.findall(r"`((?:wtb|workers|scheduler|tests|docs|deploy|examples|benchmarks)/[\w/.]+)`", PAGE)
    assert len(quoted) >= 30
    assert [path for path in quoted if not (ROOT / path).exists()] == []


def test_every_file_in_the_pictures_is_there() -> None:
    pictures = "\n".join(re.findall(r"(?ms)^```\n(.*?)^```$", PAGE))
    files = set(re.findall(r"[\w/]+\.py\b", pictures))
    modules = {
        str(path.relative_to(ROOT))
        for place in ("wtb", "workers", "scheduler")
        for path in (ROOT / place).rglob("*.py")
    }
    assert len(files) >= 20
    assert [file for file in files if not any(f"/{module}".endswith(f"/{file}") for module in modules)] == []


def test_the_picture_of_the_packages_names_all_of_them_in_their_order() -> None:
    """The order of the layers is that of the contract."""
    packages = {path.parent.name for path in (ROOT / "wtb").glob("*/__init__.py")}
    drawn = re.findall(r"(?m)^ (\w+)  ", section("Packages").partition("```\n")[2].partition("```")[0])
    assert set(drawn) == packages
    contract = (ROOT / "pyproject.toml").read_text("utf-8").partition('type = "layers"')[2].partition("]\n")[0]
    layers = [name for name in re.findall(r"wtb\.(\w+)", contract) if name in packages]
    assert drawn == layers


@pytest.mark.parametrize("word", ["workflow", "combination", "cell", "execution", "project", "team, role", "operation"])
def test_the_glossary_has_the_words(word: str) -> None:
    assert word in [first for first, _ in rows("Words")]


def test_the_page_is_short() -> None:
    assert len(PAGE.splitlines()) <= MOST_LINES
