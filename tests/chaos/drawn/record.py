"""The record that nodes of drawn sweeps write themselves: a line when an attempt begins, and one at its end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.drawn.scenario import Scenario
from tests.support.project import Project


class Line(NamedTuple):
    """A line of an attempt. inputs: the marks in the state that it read. value: what it came to."""

    word: str
    mark: str
    node: str = ""
    by: int = 0
    case: str = ""
    repeat: int = 0
    visit: int = 0
    attempt: int = 0
    value: str = ""
    inputs: dict[str, list[str]] | None = None
    at: float = 0.0

    @property
    def pid(self) -> int:
        return int(self.mark.split()[0])


def read_record(folder: Path, name: str) -> Iterator[Line]:
    """The lines of the attempts of one sweep, in their order."""
    path = folder / f"{name}.log"
    for text in path.read_text("utf-8").splitlines() if path.exists() else ():
        line: dict[str, Any] = json.loads(text)
        if "mark" in line:
            yield Line(**line)


def attempt_starts(project: Project, scenarios: Iterable[Scenario]) -> dict[str, int]:
    """Mark -> process, of every attempt that has begun."""
    lines = (line for scenario in scenarios for line in read_record(project.folder, scenario.name))
    return {line.mark: line.pid for line in lines if line.word == "begun"}


def accepted(project: Project) -> Counter[str]:
    """The marks of the attempts that the database has accepted."""
    runs = project.query("SELECT node, writes FROM node_runs WHERE status = 'succeeded'")
    digests = [(json.loads(writes) if isinstance(writes, str) else writes)[f"m_{node}"] for node, writes in runs]
    stored = dict(project.query("""SELECT digest, data FROM "values" WHERE data LIKE '["%'"""))
    return Counter(json.loads(stored[digest])[-1] for digest in digests)
