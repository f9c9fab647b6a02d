"""The questions of a maintainer in questions.md: each file of an answer is there, with the names to look for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = Path(__file__).with_name("questions.md")


def answers() -> dict[str, list[tuple[str, list[str]]]]:
    """Return the paths and names of each answer, by the question."""
    questions: dict[str, list[tuple[str, list[str]]]] = {}
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("## "):
            questions[line.removeprefix("## ")] = []
        elif line.startswith("- "):
            path, *names = re.findall(r"`([^`]+)`", line.partition("`:")[0] + "`")
            [*questions.values()][-1].append((path, names))
    return questions


def test_there_are_fourteen_questions_each_with_an_answer() -> None:
    assert len(answers()) == 14
    assert all(answers().values())


@pytest.mark.parametrize("question", answers())
def test_what_an_answer_names_is_there(question: str) -> None:
    named = [(ROOT / path, name) for path, names in answers()[question] for name in names]
    missing = [place for place in named if not place[0].is_file() or place[1] not in place[0].read_text("utf-8")]
    assert all(names for _, names in answers()[question])
    assert not missing


def main() -> None:
    """Print how many files and folders each answer names, and all together."""
    for question, paths in answers().items():
        print(f"{len(paths):3} files, {len({Path(path).parent for path, _ in paths}):2} folders: {question}")
    total = [path for paths in answers().values() for path, _ in paths]
    print(f"{len(total):3} files in all, {len(set(total))} different")


if __name__ == "__main__":
    main()
