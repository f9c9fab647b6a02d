"""What people label: answers of cases drawn at random, without saying whose they are; or where raters disagree."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from wtb.analysis.judges.check import Label, LabelItem, LabelledCell, LabelQueue
from wtb.analysis.scores import Scores
from wtb.core.arguments.checking import checked
from wtb.core.errors import InputError, did_you_mean
from wtb.core.serialization.codec import decode
from wtb.operations.context import Context
from wtb.operations.inspection.cells import cell_documents
from wtb.operations.results.label_files import read_labels
from wtb.store.database import Database
from wtb.store.read import evidence, queries
from wtb.store.rows.sweeps import CaseRow, SweepRow

_Place = tuple[int, int, int]  # combination, case, repeat


@checked
def draw_labels(
    context: Context,
    ref: str,
    *,
    rater: str,
    labels: Path | None = None,
    metric: str | None = None,
    field: str | None = None,
    cases: int = 100,
    again: bool = False,
) -> LabelQueue:
    """Draw answers of a sweep at random for a rater to label.

    The order of cases is drawn once for a sweep, so that all raters label the same ones, and who stops or goes on has
    labels of cases drawn at random. The order of a case's answers is drawn for each rater.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        rater: Who is going to label.
        labels: The file of labels so far, where there is one: what the rater labelled is not asked again.
        metric: The scores that labels are to be held against; by default those that decide.
        field: The key of the final state that is labelled; by default the judge's, or the whole state.
        cases: How many cases are drawn.
        again: Ask for what other raters disagree about, in place of a draw.

    Returns:
        What to label, in order.

    Raises:
        InputError: If there is no such sweep, metric or key, or the labels cannot be read.
    """
    if cases < 1:
        raise InputError(f"cases is {cases}; expected at least 1")
    database = context.database
    sweep = queries.find_sweep(database, ref)
    scores = Scores(database, sweep)
    chosen = scores.chosen_metric(metric)
    ends = scores.measures[chosen].scale
    numbers = evidence.case_numbers(database, sweep.id)
    given = read_labels(labels, scores.choices, numbers, ends) if labels is not None and labels.exists() else []
    judge = _judge(sweep, chosen)
    order = Random(sweep.id).sample(sorted(numbers.values()), len(numbers))
    wanted = _disagreed(given) if again else None
    drawn = order[:cases] if wanted is None else [one for one in order if one in {case for _, case, _ in wanted}]
    mine = {(one.combination, one.case, one.repeat) for one in given if one.rater == rater}
    items, done = [], 0
    for case in _cases(database, sweep.id, drawn):
        found = list(_items(database, sweep, case, scores.choices, field or judge.get("field")))
        done += sum(mine.issuperset(places) for _, places in found)
        left = [item for item, places in found if not mine.issuperset(places) and _is_wanted(places, wanted)]
        items += Random(f"{sweep.id}/{rater}/{case.number}").sample(left, len(left))
    return LabelQueue(
        sweep.id,
        chosen,
        ends,
        str(judge.get("criteria") or ""),
        {str(level): str(text) for level, text in (judge.get("rubric") or {}).items()},
        "disagreement" if again else "random",
        None if again else len(drawn) / max(len(numbers), 1),
        tuple(items),
        done,
    )


def _judge(sweep: SweepRow, metric: str) -> Mapping[str, Any]:
    """The options of the evaluator that gives a metric."""
    found: Any = sweep.spec.get("evaluate") or {}
    pairs = found.items() if isinstance(found, Mapping) else (pair for one in found for pair in dict(one).items())
    return next((options or {} for name, options in pairs if metric in (name, (options or {}).get("name"))), {})


def _disagreed(labels: Sequence[Label]) -> set[_Place]:
    said: dict[_Place, set[float]] = defaultdict(set)
    for one in labels:
        said[one.combination, one.case, one.repeat].add(one.value)
    return {place for place, values in said.items() if len(values) > 1}


def _is_wanted(places: set[_Place], wanted: set[_Place] | None) -> bool:
    return wanted is None or not wanted.isdisjoint(places)


def _cases(database: Database, sweep_id: str, numbers: Sequence[int]) -> Iterator[CaseRow]:
    """The cases in this order, without those that somebody erased."""
    rows = queries.case_rows(database, sweep_id, numbers)
    yield from (rows[number] for number in numbers if rows[number].erased_at is None)


def _items(
    database: Database, sweep: SweepRow, case: CaseRow, choices: Sequence[Mapping[str, str]], field: str | None
) -> Iterator[tuple[LabelItem, set[_Place]]]:
    """The answers of a case, those that are the same once: who sees one twice knows that rows agree."""
    stored = queries.load_values(database, case.input.values())
    shown = _text({name: decode(stored[key].data) for name, key in case.input.items()})
    cells: dict[str, list[LabelledCell]] = defaultdict(list)
    places: dict[str, set[_Place]] = defaultdict(set)
    for cell in cell_documents(database, sweep.id, statuses=("succeeded",), case=case.id):
        state = cell["state"]
        if field is not None and field not in state:
            raise InputError(f"case {case.id!r}: no {field!r} in the final state{did_you_mean(field, state)}")
        answer = _text(state if field is None else state[field])
        cells[answer].append(LabelledCell(cell["combination"], cell["repeat"]))
        places[answer].add((choices.index(cell["combination"]), case.number, cell["repeat"]))
    yield from ((LabelItem(case.id, shown, answer, tuple(of)), places[answer]) for answer, of in cells.items())


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False, indent=2)
