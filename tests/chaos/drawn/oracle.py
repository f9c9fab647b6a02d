"""The expected outcome of a cell, computed from its case, repeat and combination alone. Imports nothing of WTB."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.chaos.drawn.scenario import Branch, Fan, Loop, Node, Scenario, Step

Values = dict[str, list[str]]  # node -> what its visits came to


# The workflows have some of these functions as they are here: see source.py.


def value_of(case: str, repeat: int, node: str, variant: int, visit: int, seen: dict[str, list[str]], word: str) -> str:
    text = json.dumps([case, repeat, node, variant, visit, seen, word], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def is_odd(text: str) -> bool:
    return int(text[-1], 16) % 2 == 1


def loops_again(values: list[str]) -> bool:
    return len(values) <= int(values[0][-1], 16) % 3


def bulk_of(text: str, size: int) -> str:
    return (text * (size // len(text) + 1))[:size]


def answer_to(scenario: str, node: str) -> str:
    """Return the answer of the storm's person to the question of a node."""
    return f"answer to {scenario}/{node}"


def question_of(scenario: str, node: str) -> str:
    return f"What of {scenario}/{node}?"


def tool_text(case: str, node: str, visit: int) -> str:
    """Return the text that a node passes to its tool."""
    return f"{case}/{node}/{visit}"


def case_number(case: str) -> int:
    """Its number: cases are c0, c1, ..."""
    return int(case[1:])


@dataclass(frozen=True)
class Visit:
    """A node run that a cell must have taken part in.

    Attributes:
        before: What it found in the state.
        step: The number of its step, from 0.
    """

    node: Node
    variant: int
    visit: int
    value: str
    before: Mapping[str, list[str]]
    step: int


@dataclass
class Expected:
    """The expected outcome of a cell. failed: the node that must fail it, if one must."""

    visits: list[Visit] = field(default_factory=list)
    failed: str | None = None
    state: Values = field(default_factory=dict)

    @property
    def trail(self) -> list[str]:
        """The texts that the nodes append to one key, in the order of the path."""
        return [f"{visit.node.name}={visit.value}" for visit in self.visits]

    @property
    def steps(self) -> list[list[str]]:
        """The nodes of each step."""
        steps: list[list[str]] = [[] for _ in range(1 + max((visit.step for visit in self.visits), default=-1))]
        for visit in self.visits:
            steps[visit.step].append(visit.node.name)
        return steps

    @property
    def usd(self) -> float:
        return sum(visit.node.usd for visit in self.visits)

    def bulk(self) -> dict[str, str]:
        """Node -> the text that it writes beside its value."""
        return {visit.node.name: bulk_of(visit.value, visit.node.bulk) for visit in self.visits if visit.node.bulk}

    @property
    def nodes_with_files(self) -> set[str]:
        return {visit.node.name for visit in self.visits if visit.node.file}


def expect(scenario: Scenario, case: str, repeat: int, choices: Mapping[str, int]) -> Expected:
    """Walk through the blocks of a workflow as a cell must have done."""
    expected = Expected()
    for step, nodes in enumerate(_steps(scenario, expected.state)):
        before = {name: list(values) for name, values in expected.state.items()}
        for node in nodes:
            variant = choices.get(node.name, 0)
            if node.fatal == variant and case_number(case) % 2:
                expected.failed = node.name
                return expected
            visit = len(before.get(node.name, ()))
            word = answer_to(scenario.name, node.name) if node.asks else ""
            word += f"stamped {tool_text(case, node.name, visit)}" if node.tool else ""
            value = value_of(case, repeat, node.name, variant, visit, before, word)
            expected.visits.append(Visit(node, variant, visit, value, before, step))
            expected.state.setdefault(node.name, []).append(value)
    return expected


def _steps(scenario: Scenario, state: Values) -> Iterator[tuple[Node, ...]]:
    """The nodes of each step, chosen by what those before came to."""
    for block in scenario.blocks:
        match block:
            case Step(node):
                yield (node,)
            case Fan(arms, join):
                yield arms
                yield (join,)
            case Branch(chooser, even, odd):
                yield (chooser,)
                yield (odd if is_odd(state[chooser.name][-1]) else even,)
            case Loop(node, after):
                yield (node,)
                while loops_again(state[node.name]):
                    yield (node,)
                yield (after,)


def answers(scenario: Scenario) -> dict[str, str]:
    """Question -> answer, of all that a workflow asks."""
    return {question_of(scenario.name, node): answer_to(scenario.name, node) for node in scenario.asks}


def case_ids(scenario: Scenario) -> list[str]:
    return ["c1"] if scenario.single else [f"c{number}" for number in range(scenario.cases)]
