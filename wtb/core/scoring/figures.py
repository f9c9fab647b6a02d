"""Figures over all cells of a row: what a cell has of them is no score, but what was expected and what was found."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, Literal, get_args

Figure = Literal[
    "macro_f1",
    "balanced_accuracy",
    "cohen_kappa",
    "class_f1",
    "class_precision",
    "class_recall",
    "auc",
    "calibration_error",
]
FIGURES: Final[tuple[Figure, ...]] = get_args(Figure)
OF_CLASSES: Final[frozenset[Figure]] = frozenset({"macro_f1", "balanced_accuracy", "cohen_kappa"})
OF_SCORES: Final[frozenset[Figure]] = frozenset({"auc", "calibration_error"})  # the rest is of one class
LABEL = 200  # characters of the name of a class
OBSERVED = 6 * 2 * LABEL + 10  # characters of what is kept of a cell
Label = str | int | None


@dataclass(frozen=True, slots=True)
class Observed:
    """What a cell tells of a figure.

    value: what is shown of the cell: whether it is right, or its score. truth: the class that is expected of it; of
    figures of scores 1 where it is positive, else 0. found: the class that it has, None for none.
    """

    value: float
    truth: str | int
    found: Label = None


def write_observed(truth: Label, found: Label) -> str:
    """What was expected and what was found, as it is kept beside the value of a score."""
    return json.dumps([truth, found])


def read_observed(text: str) -> tuple[Label, Label]:
    """The same, read again. Raises ValueError."""
    found = json.loads(text)
    if not isinstance(found, list) or len(found) != 2 or not all(isinstance(one, Label) for one in found):
        raise ValueError(f"{text!r:.50} is nothing that a cell tells of a figure")
    return found[0], found[1]
