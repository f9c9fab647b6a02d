"""Problems of many cases, each named once: the first case that has it, and how many more do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_PROBLEMS = 10
_VALUE = re.compile(r", found .*| is .*?(?=; expected)")  # the part of a problem that differs from case to case


@dataclass
class _Problem:
    place: str
    text: str
    cases: int = 0


@dataclass
class CaseProblems:
    """Problems in the order in which they are met. Equal ones, apart from the value of the case, count as one."""

    _problems: dict[str, _Problem] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._problems)

    def add(self, place: str, texts: Iterable[str]) -> None:
        """Add the problems of a case. place: names it."""
        for text in texts:
            kind = _VALUE.sub("", text)
            if kind not in self._problems and len(self._problems) == MAX_PROBLEMS:
                continue
            self._problems.setdefault(kind, _Problem(place, text)).cases += 1

    def texts(self) -> list[str]:
        """Return a line for each problem."""
        return [_line(problem) for problem in self._problems.values()]


def _line(problem: _Problem) -> str:
    more = f" and {problem.cases - 1:,} more" if problem.cases > 1 else ""
    return f"{problem.place}{more}: {problem.text}"
