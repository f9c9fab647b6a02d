"""How many cases are of each class, before any figure over all cells of a row rests on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.core.errors import InputError
from wtb.core.scoring.figures import FEWEST_OF_CLASS, OF_CLASSES, Label, OfClass, class_sentence
from wtb.core.serialization.redaction import Redactor
from wtb.core.tree.stored_spec import DataFinding

_NAMES = {1: "positive", 0: "other"}  # as figures of one class call them


class ClassCounts:
    """The class of each case by each evaluator whose figure depends on it."""

    def __init__(self, evaluators: Sequence[Evaluator]) -> None:
        # The precision of a class rests on the cases in which a row finds it, which nobody knows yet.
        self._evaluators = [
            evaluator
            for evaluator in evaluators
            if evaluator.class_of is not None and evaluator.figure != "class_precision"
        ]
        self._cases: list[dict[Label, list[int]]] = [{} for _ in self._evaluators]

    def add(self, number: int, expected: Any) -> None:
        """Add what is expected of the case of a number. What is no class is left to the evaluator to refuse."""
        for evaluator, cases in zip(self._evaluators, self._cases, strict=True):
            if evaluator.class_of is None or evaluator.lacks_expected(expected):
                continue
            try:
                label = evaluator.class_of(expected)
            except InputError:
                continue
            cases.setdefault(label, []).append(number)

    def findings(self, clusters: Sequence[str | None], redactor: Redactor) -> Iterator[DataFinding]:
        """Yield the metrics that rest on too few cases of a class for an interval.

        Args:
            clusters: The cluster of each case.
            redactor: Of the names of classes.
        """
        unit = "clusters" if any(clusters) else "cases"
        for evaluator, cases in zip(self._evaluators, self._cases, strict=True):
            units = {label: len({clusters[n] or n for n in numbers}) for label, numbers in cases.items()}
            if not units or evaluator.figure is None:
                continue
            count, label = _counted(evaluator, units)
            if count >= FEWEST_OF_CLASS:
                continue
            name = str(label) if evaluator.figure in OF_CLASSES else _NAMES.get(int(label or 0))
            of = OfClass(count, count, None if label is None or name is None else redactor.text(name), unit=unit)
            sentence = class_sentence(evaluator.name, evaluator.figure, of)
            yield {"kind": "rare_class", "cases": count, "sentence": sentence, "key": "cases"}


def _counted(evaluator: Evaluator, units: dict[Label, int]) -> tuple[int, Label]:
    """Count the cases that the interval of a figure rests on. Returns it with their class, None for several."""
    if evaluator.figure in ("class_recall", "class_f1"):
        return units.get(1, 0), 1
    if evaluator.figure == "cohen_kappa":
        return sum(units.values()) - max(units.values()), None
    count, label = min((count, str(label)) for label, count in units.items())
    named = next(key for key in units if str(key) == label)
    return (count if len(units) > 1 else 0), named
