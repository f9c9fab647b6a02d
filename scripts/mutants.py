"""Apply each mutant of tests/structure/mutants.toml to a copy of the project, and check that its test fails.

    python -m scripts.mutants                  all of them: half an hour where others use the machine, too
    python -m scripts.mutants lease budget     those whose name contains one of these words
    python -m scripts.mutants --find           only look whether each text is there: seconds

A mutant is a change of behaviour: `old` is replaced by `new` in the one file below `package` that has `old`. It is
found by its text and not by its place, so that code may move; code that is rewritten needs its mutant rewritten. It is
killed if its test passes without it and fails with it. All tests run in the copy.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MUTANTS = ROOT / "tests" / "structure" / "mutants.toml"
PACKAGES = ("wtb", "workers", "scheduler")
COPIED = (*PACKAGES, "tests", "examples", "docs", "scripts", "simulations", "deploy", "pyproject.toml")
SUFFIXES = (".py", ".js", ".html")


@dataclass(frozen=True)
class Mutant:
    """A change of behaviour, and the test that kills it.

    Attributes:
        name: A short name.
        behaviour: What the mutant does in place of what is right.
        package: The folder below which it is looked for.
        old: The text that it replaces; it is once in one file.
        new: What it puts there.
        test: The test that fails with it, as pytest names it.
    """

    name: str
    behaviour: str
    package: str
    old: str
    new: str
    test: str


class Misplaced(Exception):
    """The text of a mutant is nowhere, or more than once."""


def read(path: Path = MUTANTS) -> list[Mutant]:
    """Return all mutants."""
    tables = tomllib.loads(path.read_text("utf-8"))["mutant"]
    return [Mutant(**table) for table in tables]


def find(mutant: Mutant, root: Path) -> Path:
    """Return the file that has the text of a mutant.

    Raises:
        Misplaced: Not exactly one file has it exactly once.
    """
    files = (path for path in sorted((root / mutant.package).rglob("*")) if path.suffix in SUFFIXES)
    counts = {path: path.read_text("utf-8").count(mutant.old) for path in files}
    places = [path for path, count in counts.items() if count]
    if len(places) != 1 or counts[places[0]] != 1:
        where = ", ".join(f"{path.relative_to(root)} ({counts[path]} times)" for path in places) or "no file"
        raise Misplaced(f"{mutant.name}: expected its text once below {mutant.package}; it is in {where}")
    return places[0]


def passes(tests: Iterable[str], root: Path) -> bool:
    """Return whether tests pass in a copy of the project."""
    # The folders of the copy come before those of the installed project.
    folders = [str(root / folder) for folder in (".", "workers", "scheduler")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    ended = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1):  # an error of pytest, such as a test that is not there, kills no mutant
        raise RuntimeError(f"{', '.join(tests)} did not run: {(ended.stdout + ended.stderr)[-2000:]}")
    return ended.returncode == 0


def survivors(mutants: Sequence[Mutant], root: Path) -> Iterator[str]:
    """Yield the problem of each mutant that is not killed, and print how each one ended.

    Args:
        mutants: The mutants to try, one after the other.
        root: A copy of the project, which is as it was when this ends.
    """
    all_pass = passes(dict.fromkeys(mutant.test for mutant in mutants), root)
    for mutant in mutants:
        path = find(mutant, root)
        source, started = path.read_text("utf-8"), time.monotonic()
        if not all_pass and not passes([mutant.test], root):
            yield f"{mutant.name}: {mutant.test} fails without the mutant, too"
            continue
        path.write_text(source.replace(mutant.old, mutant.new), "utf-8")
        try:
            survived = passes([mutant.test], root)
        finally:
            path.write_text(source, "utf-8")
        ended = "SURVIVED" if survived else "killed"
        print(f"{ended:8} {time.monotonic() - started:5.1f} s  {mutant.name}: {mutant.behaviour}", flush=True)
        if survived:
            yield f"{mutant.name}: {mutant.test} passes with the mutant in {path.relative_to(root)}"


def copied(root: Path) -> None:
    """Copy the project to a folder, without what was built."""
    ignored = shutil.ignore_patterns("__pycache__", "node_modules", ".hypothesis")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=ignored)
        else:
            shutil.copy2(ROOT / name, root / name)
    for path in ROOT.glob("*.md"):
        shutil.copy2(path, root / path.name)
    # By their content: two versions of a file can have the same size and second.
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", *PACKAGES]
    subprocess.run(command, cwd=root, check=True)


def misplaced(mutants: Sequence[Mutant]) -> Iterator[str]:
    """Yield the problem of each mutant whose text or test is not in the project."""
    for mutant in mutants:
        try:
            find(mutant, ROOT)
        except Misplaced as error:
            yield str(error)
        path = ROOT / mutant.test.partition("::")[0]
        name = mutant.test.partition("[")[0].rpartition("::")[2]
        if not path.is_file() or f"def {name}(" not in path.read_text("utf-8"):
            yield f"{mutant.name}: there is no test {mutant.test}"


def main() -> int:
    """Try the mutants, print those that are not killed, and return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="Try only those whose name contains one of these words.")
    parser.add_argument("--find", action="store_true", help="Only look whether texts and tests are there.")
    options = parser.parse_args()
    mutants = [mutant for mutant in read() if not options.names or any(name in mutant.name for name in options.names)]
    problems = [*misplaced(mutants)]
    if not options.find and not problems:
        with tempfile.TemporaryDirectory(prefix="wtb-mutants-") as folder:
            copied(Path(folder))
            problems = [*survivors(mutants, Path(folder))]
    print("\n".join([*problems, f"{len(mutants)} mutants, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
