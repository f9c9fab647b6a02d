"""Rankings of rows by comparisons of two at a time: those of a file, and those that a judge is asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import numpy as np

from wtb.analysis.judge_ranking import Asked, Comparisons, Ended, Pairs, RowRanking, race, ranking
from wtb.analysis.scores import Scores
from wtb.core.arguments import AnyPath, checked
from wtb.core.errors import InputError, describe, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.scoring.scores import CALLS_AT_ONCE, MOST_CALLS, Judgement
from wtb.core.serialization.plain_json import readable
from wtb.core.status import FAILED_CELLS
from wtb.core.tree.checkpoints import visible_state
from wtb.core.values import Json
from wtb.features.judging.label_files import SOMEBODY, rows_of
from wtb.operations.context import Context
from wtb.store.database import Database
from wtb.store.read import evidence, queries
from wtb.store.tables.sweeps import SweepRow

RESULTS: Mapping[str, int] = {"first": 1, "second": -1, "tie": 0}


@frozen
class Preference:
    """One comparison: the row that a rater preferred in a case.

    Attributes:
        case: The id of the case.
        first: The row that was shown first, such as `reply=curt`.
        second: The other.
        preferred: `first`, `second` or `tie`.
        rater: The person or judge who compared them.
        asked: Where a judge was asked: the digest of the question.
    """

    case: str
    first: str
    second: str
    preferred: str
    rater: str
    asked: str = ""


_COLUMNS = tuple(Preference.__dataclass_fields__)


def name_of(combination: Mapping[str, str], nodes: Sequence[str]) -> str:
    """Return the name of a row: its variants of the nodes in which the rows differ."""
    return ", ".join(f"{node}={combination[node]}" for node in nodes)


def read_preferences(file: Path) -> list[Preference]:
    """Read comparisons from a file with `case`, `first`, `second`, `preferred` and `rater`.

    Args:
        file: `.jsonl`, or CSV with a header.

    Raises:
        InputError: If the file cannot be read, or a line is no comparison.
    """
    preferences: list[Preference] = []
    problems: list[str] = []
    for place, row in rows_of(file):
        try:
            preferences.append(_preference(row))
        except InputError as error:
            # Lines are all read before anything is refused, so that a file is corrected in one go.
            problems += [f"{place}: {text}" for text in error.problems]
    if problems:
        raise InputError(*problems)
    return preferences


def append(file: Path, new: Sequence[Preference]) -> None:
    """Append comparisons to a file. Raises InputError."""
    try:
        with file.open("a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(asdict(preference), ensure_ascii=False) + "\n" for preference in new)
    except OSError as error:
        raise InputError(f"{file}: cannot be written ({error.strerror}); expected a file for comparisons") from None


def _preference(row: Mapping[str, Json]) -> Preference:
    if unknown := [key for key in row if key not in _COLUMNS]:
        raise InputError(f"unknown column {unknown[0]!r}{did_you_mean(unknown[0], _COLUMNS)}")
    texts = {key: str(row.get(key) or "") for key in _COLUMNS}
    for key in ("case", "first", "second"):
        if not texts[key]:
            raise InputError(f"no {key!r}; expected a case, the row shown first and the second")
    if texts["preferred"] not in RESULTS:
        raise InputError(f"'preferred' is {describe(row.get('preferred'))}; expected first, second or tie")
    if texts["first"] == texts["second"]:
        raise InputError(f"both rows are {texts['first']!r}; expected two")
    return Preference(**{**texts, "rater": texts["rater"] or SOMEBODY})


Job = tuple[int, int, int]  # a case, the row that is shown first, and the second

_ORDER = 20_261  # seeds the order of cases, which is alike whenever the sweep is ranked
_PREFERRED: Mapping[float, str] = {float(result): name for name, result in RESULTS.items()}


@frozen
class Asking:
    """A judge to ask for comparisons, with the limits of asking.

    Attributes:
        prefer: Is given JSON with `input`, `first` and `second`; its score is 1 where the first is better, -1 where the
            second is, 0 for a tie.
        field: The key of the final state to compare.
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
        for name, number in (("most", self.most), ("at_once", self.at_once)):
            if number < 1:
                raise InputError(f"{name!r} is {number}; expected at least 1")


class Table:
    """The rows and cases of a sweep that are compared."""

    def __init__(self, database: Database, sweep: SweepRow) -> None:
        self.database, self.sweep = database, sweep
        self.choices = Scores(database, sweep).choices
        # Nodes with one variant in all rows are left out: they would make names long, and tell nothing.
        nodes = [node for node in self.choices[0] if len({row[node] for row in self.choices}) > 1]
        self.names = [name_of(row, nodes) for row in self.choices]
        if len(self.names) < 2:
            raise InputError("the sweep has one row; expected two or more to compare")
        self.cases = evidence.case_numbers(database, sweep.id)
        self.clusters = evidence.clusters(database, sweep.id)

    def unit(self, case: int) -> str:
        """Return the unit that a case belongs to: its cluster, or the case itself."""
        return f"cluster {self.clusters[case]}" if case in self.clusters else f"case {case}"

    @cached_property
    def units(self) -> list[list[int]]:
        """The cases of each unit; the units are in a random order that is always the same."""
        by_unit: dict[str, list[int]] = {}
        for case in self.cases.values():
            by_unit.setdefault(self.unit(case), []).append(case)
        units = list(by_unit.values())
        # The same order in each call: what an earlier ranking paid for is then what the next wants first.
        return [units[place] for place in np.random.default_rng(_ORDER).permutation(len(units))]


class Asker:
    """The process of asking: it gets the comparisons that a race wants, stores the replies, and asks nothing twice.

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
        """Compare until the best row is known, no case is left, or no more calls are allowed.

        Returns:
            The comparisons, and whether the best row is known.
        """
        return race(len(self._table.names), range(len(self._table.units)), self._compare, np.random.default_rng(_ORDER))

    def _compare(self, unit: int, pairs: Pairs) -> Comparisons | None:
        """Return comparisons of each pair in both orders, in each case of a unit.

        Cases in which a row has no outcome are left out. None if the calls that are allowed do not suffice.
        """
        cases = self._table.units[unit]
        jobs = [(case, *pair) for case in cases for row, other in pairs for pair in ((row, other), (other, row))]
        jobs = [(case, row, other) for case, row, other in jobs if {(case, row), (case, other)} <= self._answers.keys()]
        questions = self._questions([job for job in jobs if self._without_asking(job) is None])
        new = {key: (job, text) for job, (key, text) in questions.items() if key not in self._outcomes}
        # A unit is asked about as a whole or not at all: half of its cases would count as all of them.
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
            (row, other, preference)
            for (case, row, other), preference in outcomes.items()
            if preference is not None and outcomes[case, other, row] is not None
        ]
        first, second, preference = np.array(both, dtype=np.int64).reshape(-1, 3).T
        return Comparisons(first, second, preference, np.full(len(both), unit))

    def _without_asking(self, job: Job) -> int | None:
        """Return the result of a comparison that needs no judge; None if one has to be asked.

        Equal answers tie, and an answer beats a failed cell.
        """
        case, first, second = job
        answer, other = self._answers[case, first], self._answers[case, second]
        if answer == other:
            return 0
        return None if answer and other else (1 if answer else -1)

    def _questions(self, jobs: list[Job]) -> dict[Job, tuple[str, str]]:
        """Return the text to send for each comparison, with the digest by which its reply is stored."""
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
            # The digest has the judge and the question besides: the replies of one judge are not those of another.
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
                # Each reply is written down as it comes, so that a crash or Ctrl-C loses none that was paid for.
                names = self._ids[case], self._table.names[first], self._table.names[second]
                preferred = _PREFERRED.get(reply.score)
                if preferred is None:
                    raise InputError(f"the judge gave {reply.score:g}; expected 1, -1 or 0")
                append(self._file, [Preference(*names, preferred, self._asking.rater, key)])
                self._outcomes[key] = RESULTS[preferred]


def _answers(table: Table, field: str) -> dict[tuple[int, int], str]:
    """Return the digest of each answer by case and row, in the first repeat; empty for a failed cell."""
    ended = evidence.first_outcomes(table.database, table.sweep.id)
    heads = {head for _, _, status, head in ended if status == "succeeded"}
    states = queries.checkpoint_states(table.database, heads)
    keys = {key for state in states.values() for key in visible_state(state)}
    if field not in keys:
        raise InputError(f"no final state has the key {field!r}{did_you_mean(field, sorted(keys))}")
    succeeded = {(case, row): states[head].get(field, "") for row, case, status, head in ended if status == "succeeded"}
    return succeeded | {(case, row): "" for row, case, status, _ in ended if status in FAILED_CELLS}


@checked
def rank(
    context: Context, ref: str, comparisons: AnyPath, *, rater: str | None = None, asking: Asking | None = None
) -> RowRanking:
    """Rank rows by comparisons of two at a time.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        comparisons: A CSV file, or `.jsonl`: `case`, `first`, `second`, `preferred` and `rater`. What a judge replies
            is written behind them, and is not asked again; `.jsonl` then.
        rater: Whose comparisons count; by default everybody's, where no judge is asked.
        asking: A judge to be asked about the most informative pairs, until the best row is known.

    Returns:
        The rows, strongest first.

    Raises:
        InputError: If there is no such sweep, or the file cannot be used.
    """
    comparisons = Path(comparisons)
    database = context.database
    sweep = queries.find_sweep(database, ref)
    table = Table(database, sweep)
    if asking is None:
        preferences = [preference for preference in read_preferences(comparisons) if rater in (None, preference.rater)]
        raters = tuple(sorted({preference.rater for preference in preferences}))
        return ranking(table.sweep.id, table.choices, _read_comparisons(table, comparisons, preferences), raters)
    # Replies are appended to the file as they come, and a line can be appended to JSON lines only.
    if comparisons.suffix != ".jsonl":
        raise InputError(
            f"{comparisons}: not a .jsonl name; expected one, because a judge's replies are written as JSON lines"
        )
    preferences = read_preferences(comparisons) if comparisons.exists() else []
    judge = Asker(
        table,
        comparisons,
        asking,
        {preference.asked: RESULTS[preference.preferred] for preference in preferences if preference.asked},
    )
    outcomes, is_known = judge.race()
    ended: Ended = "known" if is_known else "most" if judge.is_spent else "cases"
    summary = Asked(judge.call_count, judge.failed, judge.usd, ended)
    return ranking(table.sweep.id, table.choices, outcomes, (asking.rater,), summary)


def _read_comparisons(table: Table, file: Path, preferences: Sequence[Preference]) -> Comparisons:
    """Return the comparisons of a file by rows of a sweep. Raises InputError."""
    rows = {name: number for number, name in enumerate(table.names)}
    problems = [
        f"{file}: the sweep has no {what} {name!r}{did_you_mean(name, existing)}"
        for what, existing, names in (
            ("case", table.cases, {preference.case for preference in preferences}),
            ("row", rows, {name for preference in preferences for name in (preference.first, preference.second)}),
        )
        for name in sorted(names - set(existing))
    ]
    if problems:
        raise InputError(*problems)
    if not preferences:
        raise InputError(f"{file}: no comparisons; expected at least one")
    # Comparisons of cases of one cluster are not independent, so they share a unit.
    units: dict[str, int] = {}
    places = [units.setdefault(table.unit(table.cases[preference.case]), len(units)) for preference in preferences]
    columns = (
        [rows[preference.first] for preference in preferences],
        [rows[preference.second] for preference in preferences],
        [RESULTS[preference.preferred] for preference in preferences],
        places,
    )
    return Comparisons(*(np.array(column, dtype=np.int64) for column in columns))
