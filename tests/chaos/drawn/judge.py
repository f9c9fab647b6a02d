"""Judges a drawn sweep from outside: compares database and files with what each cell must come to.

Nothing of WTB is imported. Everything is computed anew from case, repeat and combination, and what nodes wrote into a
record of their own proves which attempt a value is of.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.chaos.drawn.oracle import Expected, Visit, case_ids, expect
from tests.chaos.drawn.record import Line, read_record
from tests.chaos.drawn.rows import Cell, Checkpoint, NodeRun, Rows, stored_values
from tests.chaos.drawn.scenario import Choices, Scenario
from tests.chaos.drawn.source import variant_name
from tests.support.attempts import ATTEMPTS
from tests.support.project import Project

EXAMPLES = 5  # of each kind of finding that are named
ROUNDING = 1e-9

About = tuple[str, int, Choices]  # case, repeat, variants


@dataclass
class Verdict:
    """The faults: lost cells (no outcome), records that exist twice, and values that differ from the computed ones.

    Each text names a sweep and a cell, node run or row.
    """

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Verdict) -> None:
        self.lost += other.lost
        self.doubled += other.doubled
        self.wrong += other.wrong

    def examples(self) -> list[str]:
        """The first findings of each kind."""
        kinds = {"lost": self.lost, "doubled": self.doubled, "wrong": self.wrong}
        return [f"{kind}: {text}" for kind, texts in kinds.items() for text in texts[:EXAMPLES]]


def judge_all(project: Project, scenarios: Mapping[str, Scenario], *, missing: int = 0) -> Verdict:
    """Judge sweeps that have ended, and what no sweep may leave in a database.

    Args:
        scenarios: By the ids of their sweeps.
        missing: Cells of sweeps that were never submitted.
    """
    verdict = Verdict(lost=["it was never submitted"] * missing)
    contents = stored_values(project)
    for sweep_id, scenario in scenarios.items():
        ended = {line.mark: line for line in read_record(project.folder, scenario.name) if line.word == "ended"}
        verdict.add(_Trial(scenario, Rows(project, sweep_id, contents), ended).judge())
    verdict.add(_judge_database(project))
    return verdict


class _Trial:
    """The judgement of one sweep. record: the attempts that have ended, by their marks."""

    def __init__(self, scenario: Scenario, rows: Rows, record: Mapping[str, Line]) -> None:
        self._scenario = scenario
        self._rows = rows
        self._record = record
        self._verdict = Verdict()
        # What cells must share -> the checkpoints or node runs that they have for it.
        self._shared: dict[tuple[object, ...], set[str]] = defaultdict(set)

    def judge(self) -> Verdict:
        self._judge_cells()
        for run in self._rows.node_runs.values():
            self._judge_attempts(run)
        for subject, ids in self._shared.items() if self._scenario.share else ():
            if len(ids) > 1:
                self._verdict.doubled.append(f"{self._scenario.name}: {subject} was made {len(ids)} times: {ids}")
        return self._verdict

    def _judge_cells(self) -> None:
        expected = {
            self._key(case, repeat, choices): (case, repeat, choices)
            for case in case_ids(self._scenario)
            for repeat in range(self._scenario.repeats)
            for choices in self._scenario.combinations
        }
        seen = Counter[str]()
        for cell in self._rows.cells:
            key = self._key_of(cell)
            seen[key] += 1
            if key not in expected:
                self._verdict.wrong.append(f"{key}: no such cell was submitted")
            elif cell.status in ("pending", "running", "waiting"):
                self._verdict.lost.append(f"{key}: {cell.status}")
            else:
                self._note(key, lambda: self._problem_of_cell(expected[key], cell))  # noqa: B023
        self._verdict.lost += [f"{key}: there is no such cell" for key in expected.keys() - seen.keys()]
        self._verdict.doubled += [f"{key}: {count} times" for key, count in seen.items() if count > 1]

    def _key_of(self, cell: Cell) -> str:
        case = case_ids(self._scenario)[0] if self._scenario.single else self._rows.cases[cell.case_number]
        names = self._rows.combinations[cell.combination]
        # Of a single execution only those are recorded that differ from the default.
        defaults = dict.fromkeys(self._scenario.combinations[0], 0)
        return self._key(case, cell.repeat, defaults | {node: _variant_number(name) for node, name in names.items()})

    def _key(self, case: str, repeat: int, choices: Choices) -> str:
        variants = " ".join(f"{node}={number}" for node, number in sorted(choices.items()))
        return f"{self._scenario.name} {case}/{repeat} {variants}".rstrip()

    def _note(self, key: str, look: Callable[[], str | None]) -> None:
        """Note the problem that a look returns, or that rows and files did not let it look."""
        try:
            problem = look()
        except (KeyError, ValueError, IndexError, OSError, TypeError) as error:
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            self._verdict.wrong.append(f"{key}: {problem}")

    def _problem_of_cell(self, about: About, cell: Cell) -> str | None:
        """The first problem of a cell that has ended."""
        expected = expect(self._scenario, *about)
        failure = str(cell.failure)[:200]
        if cell.status != ("failed" if expected.failed else "succeeded"):
            return f"{cell.status} ({failure}), expected {expected.failed or 'success'}"
        if expected.failed and not (expected.failed in str(cell.failure) and "drawn to fail" in str(cell.failure)):
            return f"failed by {failure}, expected it of {expected.failed}"
        status, head_id = self._rows.heads[cell.execution_id]
        if status != ("failed" if expected.failed else "completed"):
            return f"its execution is {status}"
        lineage = self._rows.lineage(head_id)
        steps = [sorted(writer[0] for writer in checkpoint.writers) for checkpoint in lineage[1:]]
        if steps != [sorted(nodes) for nodes in expected.steps]:
            return f"its head is {head_id} after {steps}, expected {expected.steps}"
        if not expected.failed and (following := lineage[-1].position["next"]):
            return f"it has ended before {following}"
        if not expected.failed and (abs(cell.usd - expected.usd) > ROUNDING or cell.node_runs != len(expected.visits)):
            cost = f"{cell.usd} USD and {cell.node_runs} node runs"
            return f"it cost {cost}, expected {expected.usd} and {len(expected.visits)}"
        self._shared["root", *about[:2]].add(lineage[0].id)
        return self._problem_of_state(lineage[-1], expected) or self._problem_of_lineage(about, lineage, expected)

    def _problem_of_state(self, head: Checkpoint, expected: Expected) -> str | None:
        state = {key: self._rows.value(digest) for key, digest in head.state.items() if key[:2] in ("w_", "b_", "tr")}
        expected_state = {f"w_{node}": values for node, values in expected.state.items()}
        expected_state |= {f"b_{node}": text for node, text in expected.bulk().items()}
        expected_state |= {"trail": expected.trail}
        if state != expected_state:
            keys = sorted(state.keys() | expected_state.keys())
            differing = [key for key in keys if state.get(key) != expected_state.get(key)]
            return "; ".join(f"{key} is {state.get(key)}, expected {expected_state.get(key)}" for key in differing[:2])
        marks = self._marks(head)
        if {node: len(marks[node]) for node in marks} != {node: len(values) for node, values in expected.state.items()}:
            return f"its marks are {marks}"
        files = {name: text.splitlines() for name, text in self._rows.files(head.workspace).items()}
        expected_files = {
            f"{node}.txt": [f"{text} {mark}" for text, mark in zip(expected.state[node], marks[node], strict=True)]
            for node in expected.nodes_with_files
        }
        return None if files == expected_files else f"its files are {files}, expected {expected_files}"

    def _marks(self, head: Checkpoint) -> dict[str, list[str]]:
        """Node -> the marks of the attempts that its visits are of."""
        return {key[2:]: self._rows.value(digest) for key, digest in head.state.items() if key.startswith("m_")}

    def _problem_of_lineage(self, about: About, lineage: list[Checkpoint], expected: Expected) -> str | None:
        """The first problem of the node runs that led to a head."""
        case, repeat, _ = about
        marks = self._marks(lineage[-1])
        for visit in expected.visits:
            before, after = lineage[visit.step : visit.step + 2]
            ((variant, run_id),) = [writer[1:] for writer in after.writers if writer[0] == visit.node.name]
            run = self._rows.node_runs[run_id]
            where = f"{visit.node.name}, visit {visit.visit} (node run {run_id})"
            if run.status != "succeeded" or run.checkpoint_id != before.id or run.node != visit.node.name:
                return f"{where}: {run.status} {run.node} at {run.checkpoint_id}, expected it at {before.id}"
            if {variant, run.variant} != {variant_name(visit.variant)} or run.visit != visit.visit:
                return f"{where}: its variant is {variant}, its visit {run.visit}"
            if problem := self._problem_of_attempt(case, repeat, visit, run, marks):
                return f"{where}: {problem}"
            earlier = {other.node.name: other.variant for other in expected.visits if other.step < visit.step}
            self._shared[case, repeat, visit.node.name, visit.variant, visit.visit, *earlier.items()].add(run_id)
        return None

    def _problem_of_attempt(
        self, case: str, repeat: int, visit: Visit, run: NodeRun, marks: Mapping[str, list[str]]
    ) -> str | None:
        """Return a problem unless the state is of the accepted attempt, and that attempt read the state before it."""
        name = visit.node.name
        mark = marks[name][visit.visit]
        assert run.writes is not None, "it succeeded"
        if self._rows.value(run.writes[f"m_{name}"])[-1] != mark:
            return "another attempt wrote the state than the accepted one"
        line = self._record.get(mark)
        if line is None:
            return f"no attempt {mark} has ended"
        identity = (line.node, line.by, line.case, line.repeat, line.visit, line.value)
        if identity != (name, visit.variant, case, repeat, visit.visit, visit.value):
            return f"the record of its attempt differs: {line}"
        if line.inputs != {node: marks[node][: len(values)] for node, values in visit.before.items()}:
            return f"its attempt read the state of other attempts: {line.inputs}"
        is_stamped = any(text.startswith("stamped") for text in self._rows.tool_results[run.id])
        return "its tool call was not recorded" if visit.node.tool and not is_stamped else None

    def _judge_attempts(self, run: NodeRun) -> None:
        subject = f"{self._scenario.name}: {run.node}={run.variant}, visit {run.visit} (node run {run.id})"
        failures = [failure for failure in self._rows.attempts[run.id] if failure is not None]
        succeeded = len(self._rows.attempts[run.id]) - len(failures)
        fails = next(node.fails for node in self._scenario.nodes if node.name == run.node)
        drawn = sum("drawn to fail" in failure for failure in failures)
        if run.status == "running":
            self._verdict.wrong.append(f"{subject}: it is still running")
        elif run.status == "succeeded" and succeeded != 1:
            self._verdict.doubled.append(f"{subject}: {succeeded} accepted attempts")
        elif run.status == "succeeded" and not drawn <= fails <= len(failures):  # those that were killed count, too
            self._verdict.wrong.append(f"{subject}: {fails} attempts were to fail: {failures}")


def _judge_database(project: Project) -> Verdict:
    """Judge what is not of one cell: doubled steps and outcomes, and holds that nobody releases any more."""
    verdict = Verdict()
    for subject, query in _UNIQUE.items():
        counts = Counter(json.dumps(row, default=str) for row in project.query(query))
        verdict.doubled += [f"{subject}: {count} times {row[:200]}" for row, count in counts.items() if count > 1]
    for subject, query in _NONE.items():
        verdict.wrong += [f"{subject}: {row}" for row in project.query(query)]
    counts = Counter(map(str, _cells_of_ended_executions(project)))
    verdict.doubled += [f"cell {cell}: {count} executions ended for it" for cell, count in counts.items() if count > 1]
    return verdict


_UNIQUE = {
    "outcome": "SELECT execution_id, kind, CAST(data AS text) FROM events WHERE kind LIKE 'cell.%'",
    "node run": "SELECT checkpoint_id, task, variant FROM node_runs",
    "step": "SELECT parent_id, CAST(writers AS text) FROM checkpoints WHERE parent_id IS NOT NULL AND inside IS NULL",
    "completed sweep": "SELECT sweep_id FROM events WHERE kind = 'sweep.completed'",
}
_OPEN = "('pending', 'running', 'waiting', 'paused')"
_ATTEMPTS_USD = (
    f"SELECT SUM(usd) FROM {ATTEMPTS} WHERE node_run_id IN (SELECT id FROM node_runs WHERE sweep_id = b.key)"
)
_NONE = {
    "open execution": f"SELECT id, status, reason FROM executions WHERE status IN {_OPEN}",
    "lease": "SELECT id FROM executions WHERE owner_id IS NOT NULL OR lease_until IS NOT NULL",
    "open question": "SELECT id, question FROM approvals WHERE status = 'open'",
    "open sweep": "SELECT id, status, reason FROM sweeps WHERE status <> 'completed'",
    "reservation": (
        "SELECT v.id FROM reservations v JOIN runners r ON r.id = v.runner_id "
        "JOIN executions e ON e.id = v.execution_id WHERE r.ended_at IS NULL"
    ),
    "spent less than its attempts cost": (
        "SELECT key, spent FROM budgets b WHERE scope = 'sweep' AND kind = 'usd' AND node = '' "
        f"AND spent < ({_ATTEMPTS_USD}) - 0.001"
    ),
}  # fmt: skip


_COMPLETED = "ended_event IS NOT NULL AND children IS NULL"


def _cells_of_ended_executions(project: Project) -> Iterator[tuple[object, ...]]:
    columns = "sweep_id, case_number, repeat, CAST(combinations AS text)"
    for *cell, numbers in project.query(f"SELECT {columns} FROM executions WHERE {_COMPLETED}"):
        yield from ((*cell, number) for number in json.loads(numbers))


def _variant_number(name: str) -> int:
    return int(name.removeprefix("v")) if name != "default" else 0
