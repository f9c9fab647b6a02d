"""The mutants: each is a change of one place that is there, and one that no test kills is reported."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from scripts import mutants
from scripts.mutants import Misplaced, Mutant

CODE = "def double(x):\n    return x + x\n"
TESTS = """
from doubling.double import double

def test_two(): assert double(2) == 4
def test_three(): assert double(3) == 6
def test_one(): assert double(1) == 3
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a function and tests of it, of which one fails."""
    for path, source in {"doubling/double.py": CODE, "test_double.py": TESTS}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(source)
    return tmp_path


def square(test: str, old: str = "x + x") -> Mutant:
    """Return the mutant that squares a number instead of doubling it."""
    return Mutant("square", "a number is squared", "doubling", old, "x * x", f"test_double.py::{test}")


def test_all_texts_and_tests_are_there() -> None:
    assert not [*mutants.misplaced(mutants.read())]


def test_there_are_fifty_mutants_in_all_packages_with_names_of_their_own() -> None:
    every = mutants.read()
    assert len(every) >= 50
    assert max(Counter(mutant.name for mutant in every).values()) == 1
    packages = {path.name for path in (mutants.ROOT / "wtb").iterdir() if (path / "__init__.py").is_file()}
    assert {mutant.package for mutant in every} >= {f"wtb/{name}" for name in packages} | {"workers", "scheduler"}


def test_a_mutant_that_its_test_does_not_notice_is_reported(project: Path) -> None:
    assert [*mutants.survivors([square("test_three")], project)] == []
    (problem,) = mutants.survivors([square("test_two")], project)
    assert problem == "square: test_double.py::test_two passes with the mutant in doubling/double.py"
    assert (project / "doubling" / "double.py").read_text() == CODE


def test_a_test_that_fails_anyway_kills_no_mutant(project: Path) -> None:
    (problem,) = mutants.survivors([square("test_one")], project)
    assert problem == "square: test_double.py::test_one fails without the mutant, too"


def test_a_test_that_cannot_run_kills_no_mutant(project: Path) -> None:
    with pytest.raises(RuntimeError, match=r"test_double\.py::test_none did not run"):
        [*mutants.survivors([square("test_none")], project)]


@pytest.mark.parametrize(("old", "where"), [("x - x", "no file"), ("x", r"doubling/double.py \(3 times\)")])
def test_a_mutant_whose_text_is_not_once_there_is_reported(project: Path, old: str, where: str) -> None:
    with pytest.raises(Misplaced, match=f"square: expected its text once below doubling; it is in {where}"):
        mutants.find(square("test_two", old), project)


def test_a_mutant_is_found_where_its_code_has_moved(project: Path) -> None:
    (project / "doubling" / "inner").mkdir()
    (project / "doubling" / "double.py").rename(project / "doubling" / "inner" / "twice.py")
    assert mutants.find(square("test_two"), project) == project / "doubling" / "inner" / "twice.py"
