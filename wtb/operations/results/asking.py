"""Asking a judge which of two rows did better in a case, about what tells most."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import numpy as np

from wtb.analysis.scores import Scores
from wtb.analysis.statistics.raters.bradley_terry import Comparisons
from wtb.analysis.statistics.raters.racing import Pairs, race
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, did_you_mean
from wtb.core.scoring.judgement import CALLS_AT_ONCE, MOST_CALLS, Judgement
from wtb.core.serialization.plain_json import readable
from wtb.core.status import FAILED_CELLS
from wtb.core.tree.checkpoints import shown
from wtb.operations.results.preference_files import RESULTS, Preference, append, name_of
from wtb.store.database import Database
from wtb.store.read import evidence, outcomes, queries
from wtb.store.tables.sweeps import SweepRow

Job = tuple[int, int, int]  # a case, the row that is shown first, and the second

_ORDER = 20_261  # seeds the order of cases, which is alike whenever the sweep is ranked
_PREFERRED: Mapping[float, str] = {float(result): name for name, result in RESULTS.items()}


@frozen
class Asking:
    """A judge to be asked for comparisons.

    Attributes:
        prefer: Is given JSON with `input`, `first` and `second`; its score is 1 where the first is better, -1 where the
            second is, 0 for a tie.
        field: The key of the final state that is compared.
        rater: The name of the judge.
        question: All that its replies depend on besides; what was asked with the same is not asked again.
        most: The most calls.
        at_once: How many calls at a time.
    """

    prefer: Callable[[str], Judgement]
    field: str
    rater: str
    question: str = ""
    most: int = MOST_CALLS
    at_once: int = CALLS_AT_ONCE

    def __post_init__(self) -> None:
        for name, value in (("most", self.most), ("at_once", self.at_once)):
            if value < 1:
                raise InputError(f"{name!r} is {value}; expected at least 1")


class Table:
    """The rows and cases of a sweep."""

    def __init__(self, database: Database, sweep: SweepRow) -> None:
        self.database, self.sweep = database, sweep
        self.choices = Scores(database, sweep).choices
        nodes = [node for node in self.choices[0] if len({row[node] for row in self.choices}) > 1]
        self.names = [name_of(row, nodes) for row in self.choices]
        if len(self.names) < 2:
            raise InputError("the sweep has one row; expected two or more to compare")
        self.cases = evidence.case_numbers(database, sweep.id)
        self.clusters = outcomes.clusters(database, sweep.id)

    def unit(self, case: int) -> str:
        """What a case belongs to: its cluster, or itself."""
        return f"cluster {self.clusters[case]}" if case in self.clusters else f"case {case}"

    @cached_property
    def units(self) -> list[list[int]]:
        """The cases of each unit, in a drawn order."""
        by_unit: dict[str, list[int]] = {}
        for case in self.cases.values():
            by_unit.setdefault(self.unit(case), []).append(case)
        units = list(by_unit.values())
        return [units[place] for place in np.random.default_rng(_ORDER).permutation(len(units))]


class Asker:
    """Asks for the comparisons that a race wants, writes down the replies, and asks for none twice.

    Attributes:
        call_count: How often it asked.
        failed: How often it got no usable reply.
        usd: What that cost; None where a price is not known.
        is_spent: Whether it stopped before it would have asked too often.
    """

    def __init__(self, table: Table, file: Path, asking: Asking, outcomes: Mapping[str, int]) -> None:
        self.call_count, self.failed, self.is_spent = 0, 0, False
        self.usd: float | None = 0.0
        self._table, self._file, self._asking, self._outcomes = table, file, asking, dict(outcomes)
        self._answers = _answers(table, asking.field)
        self._ids = {number: name for name, number in table.cases.items()}

    def race(self) -> tuple[Comparisons, bool]:
        """Compare until the best is known, or no case is left, or no call. Returns whether it is known, too."""
        return race(len(self._table.names), range(len(self._table.units)), self._compare, np.random.default_rng(_ORDER))

    def _compare(self, unit: int, pairs: Pairs) -> Comparisons | None:
        """Both orders of each pair, in each case of a unit. What the two have no answer to is left out."""
        cases = self._table.units[unit]
        jobs = [(case, *pair) for case in cases for row, other in pairs for pair in ((row, other), (other, row))]
        jobs = [(case, row, other) for case, row, other in jobs if {(case, row), (case, other)} <= self._answers.keys()]
        questions = self._questions([job for job in jobs if self._without_asking(job) is None])
        new = {key: (job, text) for job, (key, text) in questions.items() if key not in self._outcomes}
        if self.call_count + len(new) > self._asking.most:
            self.is_spent = True
            return None
        self._ask(new)
        outcomes = {
            job: self._outcomes.get(questions[job][0]) if job in questions else self._without_asking(job)
            for job in jobs
        }
        # Of a pair that was judged in one order only, nobody knows how much of it is the order.
        both = [
            (row, other, result)
            for (case, row, other), result in outcomes.items()
            if result is not None and outcomes[case, other, row] is not None
        ]
        first, second, result = np.array(both, dtype=np.int64).reshape(-1, 3).T
        return Comparisons(first, second, result, np.full(len(both), unit))

    def _without_asking(self, job: Job) -> int | None:
        """The same is a tie, and any answer is better than none."""
        case, first, second = job
        answer, other = self._answers[case, first], self._answers[case, second]
        if answer == other:
            return 0
        return None if answer and other else (1 if answer else -1)

    def _questions(self, jobs: list[Job]) -> dict[Job, tuple[str, str]]:
        """What is sent for each job, with the digest by which its reply is kept."""
        inputs = queries.case_rows(self._table.database, self._table.sweep.id, {case for case, _, _ in jobs})
        digests = {digest for row in inputs.values() for digest in row.input.values()}
        digests |= {self._answers[case, row] for case, *rows in jobs for row in rows}
        values = queries.load_values(self._table.database, digests)
        plain = {digest: readable(value.data) for digest, value in values.items()}
        questions = {}
        for job in jobs:
            case, first, second = job
            plain_input = {name: plain[digest] for name, digest in inputs[case].input.items()}
            answers = {"first": plain[self._answers[case, first]], "second": plain[self._answers[case, second]]}
            text = json.dumps({"input": plain_input, **answers}, ensure_ascii=False)
            whole = json.dumps([self._asking.rater, self._asking.question, text])
            questions[job] = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest(), text
        return questions

    def _ask(self, new: Mapping[str, tuple[Job, str]]) -> None:
        with ThreadPoolExecutor(self._asking.at_once) as threads:
            replies = threads.map(self._asking.prefer, [text for _, text in new.values()])
            for (key, ((case, first, second), _)), reply in zip(new.items(), replies, strict=True):
                self.call_count += 1
                self.usd = None if self.usd is None or reply.usd is None else self.usd + reply.usd
                if reply.score is None:
                    self.failed += 1
                    continue
                names = self._ids[case], self._table.names[first], self._table.names[second]
                preferred = _PREFERRED.get(reply.score)
                if preferred is None:
                    raise InputError(f"the judge gave {reply.score:g}; expected 1, -1 or 0")
                append(self._file, [Preference(*names, preferred, self._asking.rater, key)])
                self._outcomes[key] = RESULTS[preferred]


def _answers(table: Table, field: str) -> dict[tuple[int, int], str]:
    """(case, row) -> the digest of its answer, in the first repeat; empty where its cell failed."""
    ended = outcomes.first_outcomes(table.database, table.sweep.id)
    heads = {head for _, _, status, head in ended if status == "succeeded"}
    states = queries.checkpoint_states(table.database, heads)
    keys = {key for state in states.values() for key in shown(state)}
    if field not in keys:
        raise InputError(f"no final state has the key {field!r}{did_you_mean(field, sorted(keys))}")
    succeeded = {(case, row): states[head].get(field, "") for row, case, status, head in ended if status == "succeeded"}
    return succeeded | {(case, row): "" for row, case, status, _ in ended if status in FAILED_CELLS}
