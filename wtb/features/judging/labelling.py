"""Labels by people: of answers drawn at random, shown without the rows that gave them, or where raters disagree."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random

from wtb.analysis.human_labels import judge_of, rubric_of, stored_labels
from wtb.analysis.judge_check import Label, LabelItem, LabelledCell, LabelQueue, Selection, draw_order
from wtb.analysis.scores import Scores
from wtb.core.arguments import AnyPath, Count, checked
from wtb.core.errors import InputError, describe, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.ids import plain_id
from wtb.core.scoring.scores import CASES_DRAWN
from wtb.core.serialization.plain_json import storable
from wtb.features.judging.label_files import read_labels
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.inspection.cells import cell_documents, value_or_plain
from wtb.operations.results.pools import check_no_pool
from wtb.store.control.labels import GivenLabel, NewLabel, label_rows, write_labels
from wtb.store.read import evidence, queries
from wtb.store.tables.sweeps import CaseRow

RATER = 255  # characters

_Place = tuple[int, int, int]  # combination, case, repeat


@frozen
class Labelled:
    """A label that was given, or taken back.

    Attributes:
        sweep: The id of the sweep.
        metric: The scores that it is held against.
        case: The id of the case.
        answer: Which of its answers.
        rater: Who gave it.
        label: What they said; None where they took it back.
        cells: How many cells gave this answer, of each of which it is a label.
    """

    sweep: str
    metric: str
    case: str
    answer: str
    rater: str
    label: float | None
    cells: int


@frozen
class ImportedLabels:
    """The result of `import_labels`.

    Attributes:
        sweep: The id of the sweep.
        metric: The scores that the labels are held against.
        labels: How many.
    """

    sweep: str
    metric: str
    labels: int


@checked
def draw_labels(
    context: Context,
    ref: str,
    *,
    rater: str | None = None,
    metric: str | None = None,
    field: str | None = None,
    cases: Count = CASES_DRAWN,
    again: bool = False,
) -> LabelQueue:
    """Draw answers of a sweep at random for a rater to label.

    The order of cases is drawn once for a sweep, so that all raters label the same ones, and who stops or goes on has
    labels of cases drawn at random. The order of a case's answers is drawn for each rater.

    Args:
        context: Where, and who labels.
        ref: A sweep: its id, the beginning of it, or its name.
        rater: Who labels, where it is not who asks.
        metric: The scores that labels are to be held against; by default those that decide.
        field: The key of the final state that is labelled; by default the judge's, or the whole state.
        cases: Number of cases to draw.
        again: Ask for what other raters disagree about, in place of a draw.

    Returns:
        What to label, in order, without what the rater labelled already.

    Raises:
        InputError: If there is no such sweep, metric or key.
    """
    asking = _Asking(context, ref, rater, metric, field, cases, again)
    mine = {_place(label) for label in asking.labels if label.rater == asking.rater}
    drawn_items, done = [], 0
    for case in asking.cases(asking.drawn):
        answers = list(asking.items(case))
        done += sum(mine.issuperset(places) for _, places in answers)
        remaining = [item for item, places in answers if not mine.issuperset(places) and asking.is_wanted(places)]
        # Seeded by rater and case: the order differs from rater to rater, and stays when the page is loaded again.
        drawn_items += Random(f"{asking.sweep.id}/{asking.rater}/{case.number}").sample(remaining, len(remaining))
    return LabelQueue(
        asking.sweep.id,
        asking.rater,
        asking.metric,
        asking.ends,
        str(asking.judge.get("criteria") or ""),
        asking.rubric,
        asking.reason,
        asking.probability,
        tuple(drawn_items),
        done,
        asking.is_binary,
    )


@checked
@audited
def give_label(
    context: Context,
    ref: str,
    case: str,
    answer: str,
    label: float | None,
    *,
    rater: str | None = None,
    metric: str | None = None,
    field: str | None = None,
    cases: Count = CASES_DRAWN,
    again: bool = False,
) -> Labelled:
    """Label an answer that was drawn, or take that back. It is a label of all cells that gave this answer.

    Args:
        context: Where, and who labels.
        ref: A sweep: its id, the beginning of it, or its name.
        case: The id of the case.
        answer: The id of the answer, as it was drawn.
        label: A level of the rubric, or a number on the scale of the metric; None takes back what the rater said.
        rater: Who labels, where it is not who asks.
        metric: As it was drawn for.
        field: As it was drawn for.
        cases: How many cases were drawn.
        again: Whether it was asked for since other raters disagree.

    Returns:
        What was written.

    Raises:
        InputError: If nothing of the kind was drawn, or the label is not on the scale.
        ConflictError: If the sweep is being deleted.
    """
    asking = _Asking(context, ref, rater, metric, field, cases, again)
    check_no_pool(context.database, asking.sweep, "labelled")
    if label is not None and (problem := problem_of(label, asking.levels, asking.ends)):
        raise InputError(f"label is {describe(label)}; {problem}")
    number = asking.numbers.get(case, asking.numbers.get(plain_id(case)))
    if number is None:
        raise InputError(f"the sweep has no case {case!r}{did_you_mean(case, asking.numbers)}")
    if number not in asking.drawn:
        raise InputError(f"case {case!r} was not drawn; expected one of the cases to label")
    matches = (
        places for case_row in asking.cases([number]) for item, places in asking.items(case_row) if item.id == answer
    )
    places = next(matches, None)
    if places is None:
        raise InputError(f"case {case!r} has no answer {answer!r}; expected the id of one that was drawn")
    # A label that was asked for because of a disagreement is no random one: it must not replace a drawn one.
    if again:
        _check_not_drawn(asking.labels, asking.rater, places)
    labels = [
        NewLabel(place, repeat, row, asking.rater, label, asking.reason, asking.probability)
        for row, place, repeat in sorted(places)
    ]
    write_labels(context.database, asking.sweep.id, asking.metric, labels)
    return Labelled(asking.sweep.id, asking.metric, case, answer, asking.rater, label, len(labels))


@checked
@audited
def import_labels(context: Context, ref: str, labels: AnyPath, *, metric: str | None = None) -> ImportedLabels:
    """Take labels from a file, in the place of what the same raters said of the same cells. All of it or nothing.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        labels: A CSV file, or `.jsonl`: `case`, `label`, `repeat`, `rater`, `asked`, `probability` and the variants of
            varied nodes.
        metric: The scores that they are held against; by default those that decide.

    Returns:
        How many.

    Raises:
        InputError: If there is no such sweep or metric, or the labels cannot be used.
        ConflictError: If the sweep is being deleted.
    """
    labels = Path(labels)
    database = context.database
    sweep = queries.find_sweep(database, ref)
    check_no_pool(database, sweep, "labelled")
    scores = Scores(database, sweep)
    metric_name = scores.chosen_metric(metric)
    numbers = evidence.case_numbers(database, sweep.id)
    file_labels = read_labels(labels, scores.choices, numbers, scores.measures[metric_name].scale)
    stored = stored_labels(database, sweep.id, metric_name)
    # Checked before anything is written: a file is taken as a whole or not at all.
    for file_label in file_labels:
        if not file_label.drawn:
            _check_not_drawn(stored, file_label.rater, {_place(file_label)})
    new_labels = [
        NewLabel(
            label.case,
            label.repeat,
            label.combination,
            storable(label.rater, RATER),
            label.value,
            "random" if label.drawn else "disagreement",
            label.probability,
        )
        for label in file_labels
    ]
    write_labels(database, sweep.id, metric_name, new_labels)
    return ImportedLabels(sweep.id, metric_name, len(new_labels))


@checked
def list_labels(context: Context, ref: str, *, metric: str | None = None) -> list[GivenLabel]:
    """List the labels of a sweep.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        metric: Only those that are held against these scores.

    Returns:
        The labels, in the order of cells and raters.

    Raises:
        InputError: If there is no such sweep.
    """
    database = context.database
    sweep = queries.find_sweep(database, ref)
    choices = queries.choices(database, sweep.id)
    names = {number: name for name, number in evidence.case_numbers(database, sweep.id).items()}
    return [
        GivenLabel(
            row.metric,
            names[row.case_number],
            choices[row.combination],
            row.repeat,
            row.rater,
            row.value,
            row.asked,
            row.probability,
            row.at,
        )
        for row in label_rows(database, sweep.id, metric)
    ]


def problem_of(label: float, levels: Sequence[float], ends: tuple[float, float] | None) -> str | None:
    """Describe what is expected of a label, in words; None for a label that is fine."""
    low, high = ends or (-math.inf, math.inf)
    if label in levels if levels else math.isfinite(label) and low <= label <= high:
        return None
    if levels:
        return f"expected one of {', '.join(f'{level:g}' for level in levels)}"
    return "expected a number" + (f" from {low:g} to {high:g}" if ends else "")


@dataclass
class _Asking:
    """The draw of a sweep's answers for one rater."""

    context: Context
    ref: str
    given_rater: str | None
    given_metric: str | None
    given_field: str | None
    count: int
    on_disagreement: bool

    def __post_init__(self) -> None:
        self._database = self.context.database
        self.sweep = queries.find_sweep(self._database, self.ref)
        self.rater = storable(self.given_rater or self.context.identity.name or self.context.by, RATER)
        self._scores = Scores(self._database, self.sweep)
        self.metric = self._scores.chosen_metric(self.given_metric)
        self.ends = self._scores.measures[self.metric].scale
        _, self.judge = judge_of(self.sweep, self.metric)
        self.rubric = rubric_of(self.judge)
        self.levels = [float(level) for level in self.rubric]
        self._field = self.given_field or self.judge.get("field")
        self.numbers = evidence.case_numbers(self._database, self.sweep.id)
        self.labels = stored_labels(self._database, self.sweep.id, self.metric)
        order = draw_order(self.sweep.id, self.numbers.values())
        self.reason: Selection = "disagreement" if self.on_disagreement else "random"
        self._disagreements = (
            _disagreed([label for label in self.labels if label.rater != self.rater]) if self.on_disagreement else None
        )
        among = None if self._disagreements is None else {case for _, case, _ in self._disagreements}
        self.drawn = order[: self.count] if among is None else [number for number in order if number in among]
        # The share of cases that was drawn, which figures are later weighted by. Chosen cases have none.
        self.probability = None if self.on_disagreement else len(self.drawn) / max(len(self.numbers), 1)

    @property
    def is_binary(self) -> bool:
        """True if answers pass or fail, by the scores that there are."""
        is_scale = not self.levels and self.ends in (None, (0, 1))
        return is_scale and evidence.is_binary(self._database, self.sweep.id, self.metric)

    def is_wanted(self, places: set[_Place]) -> bool:
        """Return whether an answer is asked for: always in a draw, otherwise only if raters disagree about it."""
        return self._disagreements is None or not self._disagreements.isdisjoint(places)

    def cases(self, numbers: Sequence[int]) -> Iterator[CaseRow]:
        """Yield the cases in this order, without erased ones."""
        rows = queries.case_rows(self._database, self.sweep.id, numbers)
        yield from (rows[number] for number in numbers if rows[number].erased_at is None)

    def items(self, case: CaseRow) -> Iterator[tuple[LabelItem, set[_Place]]]:
        """Yield the answers of a case. Equal answers come once: a rater who sees one twice knows that rows agree."""
        stored = queries.load_values(self._database, case.input.values())
        input_text = text_of({name: value_or_plain(stored[key].data) for name, key in case.input.items()})
        cells: dict[str, list[LabelledCell]] = defaultdict(list)
        places: dict[str, set[_Place]] = defaultdict(set)
        choices, field = self._scores.choices, self._field
        for cell in cell_documents(self._database, self.sweep.id, statuses=("succeeded",), case=case.id):
            state = cell["state"]
            if field is not None and field not in state:
                raise InputError(f"case {case.id!r}: no {field!r} in the final state{did_you_mean(field, state)}")
            answer = text_of(state if field is None else state[field])
            cells[answer].append(LabelledCell(cell["combination"], cell["repeat"]))
            places[answer].add((choices.index(cell["combination"]), case.number, cell["repeat"]))
        for answer, of in cells.items():
            yield LabelItem(_id_of(case, answer), case.id, input_text, answer, tuple(of)), places[answer]


def _id_of(case: CaseRow, answer: str) -> str:
    return sha256(f"{case.number}/{answer}".encode()).hexdigest()[:16]


def _place(label: Label) -> _Place:
    return label.combination, label.case, label.repeat


def _check_not_drawn(labels: Sequence[Label], rater: str, places: Set[_Place]) -> None:
    """Refuse labels that would replace a drawn label by a chosen one, and so take it out of figures.

    It would be taken out just where raters disagree.
    """
    if any(label.drawn and label.rater == rater and _place(label) in places for label in labels):
        raise InputError(f"{rater!r} labelled it when it was drawn; expected another rater, or a change of that label")


def _disagreed(labels: Sequence[Label]) -> set[_Place]:
    values_by_place: dict[_Place, set[float]] = defaultdict(set)
    for label in labels:
        values_by_place[_place(label)].add(label.value)
    return {place for place, values in values_by_place.items() if len(values) > 1}


def text_of(content: object) -> str:
    """Return a value of a state as text for people and judges."""
    return content if isinstance(content, str) else json.dumps(content, default=str, ensure_ascii=False, indent=2)
