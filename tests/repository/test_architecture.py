"""ARCHITECTURE.md leads to the file for a change: every name in it exists, and it stays short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
MOST_LINES = 220
MOST_ROWS = 25  # of "Where to change what"

# Intended change -> words of its row, the file, and the name to change in it.
CHANGES = {
    "which combination the sweep names as best": ("best", "wtb/analysis/matrix/selection.py", "choose"),
    "a new column in the CSV of the matrix": ("CSV", "wtb/display/csv.py", "_COLUMNS"),
    "leases of two minutes": ("lease", "wtb/store/runs/slots.py", "LEASE_S"),
    "a new option of `wtb run`": ("option of `wtb run`", "wtb/cli/run/sweeps.py", "run"),
    "a fingerprint that covers the environment, too": ("fingerprint", "wtb/authoring/code/walk.py", "Walk"),
    "a trimmed mean beside the mean": ("figure of the matrix", "wtb/analysis/statistics/comparing.py", "compare"),
    "no retries after errors of the network": ("retry", "wtb/execution/failed_attempts.py", "FailedAttempts"),
    "`wtb admin gc` keeps what is tagged": ("gc", "wtb/operations/garbage_collection.py", "collect"),
    "a worker that is stopped tells whoever waits": ("worker stops", "workers/wtb_workers/session.py", "WorkerSession"),
    "cases from a Parquet file": ("case files", "wtb/planning/case_files.py", "READERS"),
    "another test for scores of 0 and 1": ("two rows are tested", "wtb/analysis/statistics/paired.py", "mcnemar"),
    "a command with a name of its own": ("a command", "wtb/cli/commands.py", "GROUPS"),
    "a column in the table of node runs": ("table or column", "wtb/store/tables/node_runs.py", "NodeRunRow"),
    "SQLite waits a minute for a lock": ("how a database is opened", "wtb/store/engine.py", "make_engine"),
    "another host's name in `wtb status`": ("wtb status", "wtb/display/views/sweeps.py", "status_document"),
    "`wtb pause` of all sweeps at once": ("a verb", "wtb/operations/registry.py", "OPERATIONS"),
    "an export without the inputs of cases": ("wtb admin export", "wtb/features/archive/exporter.py", "_write"),
    "bootstrapped intervals": ("interval of a mean", "wtb/analysis/statistics/intervals.py", "intervals"),
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
    for statement in ast.parse(file.read_text("utf-8")).body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(statement.name)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def named_changes() -> Iterator[tuple[str, list[str], str]]:
    """Return the rows of "Where to change what": "`a` and `b` in [file]" as (row, [a, b], file)."""
    for change, where in rows("Where to change what"):
        for names, file in re.findall(r"((?:`\w+`(?:, | and ))*`\w+`) in \[[^\]]+\]\(([^)]+\.py)\)", where):
            yield change, re.findall(r"`(\w+)`", names), file


@pytest.mark.parametrize("change", CHANGES)
def test_whoever_wants_a_change_finds_its_file_in_one_try(change: str) -> None:
    """Exactly one row names it; the file is the first in that row, with the names to change."""
    words, file, name = CHANGES[change]
    (where,) = [second for first, second in rows("Where to change what") if re.search(rf"\b{words}", first)]
    assert re.findall(r"\]\(([^)]+)\)", where)[0] == file
    assert f"`{name}`" in where.partition(f"({file})")[0]
    assert name in names_in(ROOT / file)


def test_every_name_is_in_the_file_that_is_named_with_it() -> None:
    named = list(named_changes())
    assert len(named) >= 25, "the rows are written in another way than they are read here"
    for change, names, file in named:
        assert set(names) <= names_in(ROOT / file), f"{change}: not in {file}"


def test_every_file_in_code_quotes_is_there() -> None:
    """Links are held by tests of all pages; paths of the table of rules, and of the pictures, here."""
    quoted = re.findall(r"`((?:wtb|workers|scheduler|tests|docs|deploy|examples|benchmarks)/[\w/.]+)`", PAGE)
    assert len(quoted) >= 30
    assert [path for path in quoted if not (ROOT / path).exists()] == []


def test_every_file_in_the_pictures_is_there() -> None:
    pictures = "\n".join(re.findall(r"(?ms)^```\n(.*?)^```$", PAGE))
    files = set(re.findall(r"[\w/]+\.py\b", pictures))
    packages = [ROOT / place for place in ("wtb", "workers", "scheduler")]
    modules = {str(path.relative_to(ROOT)) for package in packages for path in package.rglob("*.py")}
    assert len(files) >= 20
    assert [file for file in files if not any(f"/{module}".endswith(f"/{file}") for module in modules)] == []


def test_the_picture_of_the_packages_names_all_of_them_in_their_order() -> None:
    """The order of the layers is that of the contract."""
    packages = {path.parent.name for path in (ROOT / "wtb").glob("*/__init__.py")}
    drawn = re.findall(r"(?m)^ (\w+)  ", section("Packages").partition("```\n")[2].partition("```")[0])
    assert set(drawn) == packages
    contract = (ROOT / "pyproject.toml").read_text("utf-8").partition('type = "layers"')[2].partition("]\n")[0]
    layers = dict.fromkeys(name for name in re.findall(r"wtb\.(\w+)", contract) if name in packages)
    assert drawn == [*layers]


@pytest.mark.parametrize("word", ["workflow", "combination", "cell", "execution", "project", "team, role", "operation"])
def test_the_glossary_has_the_words(word: str) -> None:
    assert word in [first for first, _ in rows("Words")]


def test_the_page_is_short() -> None:
    assert len(PAGE.splitlines()) <= MOST_LINES
    assert len(rows("Where to change what")) <= MOST_ROWS
