"""Figures over all cells of a row: what a cell has of them is no score, but what was expected and what was found."""

from __future__ import annotations

import json
from typing import Final, Literal, get_args

from wtb.core.classes.frozen import frozen

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
FEWEST_OF_CLASS = 15  # cases of the class that counts; there is no interval for fewer


@frozen(slots=True)
class Observed:
    """What a cell tells of a figure.

    value: what is shown of the cell: whether it is right, or its score. truth: the class that is expected of it; of
    figures of scores 1 where it is positive, else 0. found: the class that it has, None for none.
    """

    value: float
    truth: str | int
    answer: Label = None


def write_observed(truth: Label, answer: Label) -> str:
    """What was expected and what was found, as it is kept beside the value of a score."""
    return json.dumps([truth, answer])


def read_observed(text: str) -> tuple[Label, Label]:
    """The same, read again. Raises ValueError."""
    pair = json.loads(text)
    if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(label, Label) for label in pair):
        raise ValueError(f"{text!r:.50} is nothing that a cell tells of a figure")
    return pair[0], pair[1]


@frozen(slots=True)
class OfClass:
    """The cases of a class that a figure over all cells of a row rests on.

    Attributes:
        smallest, largest: The numbers of the cases, of the rows with the fewest and the most.
        name: The name of the class; None for all classes but the most common one.
        is_found: Whether they are the cases in which a row finds the class, instead of those expected to be of it.
        unit: What is counted, `cases` or `clusters`.
    """

    smallest: int
    largest: int
    name: str | None
    is_found: bool = False
    unit: str = "cases"


def class_sentence(metric: str, figure: Figure, of: OfClass) -> str:
    """Return the words for how many cases of a class a metric rests on, and what follows if they are few."""
    many = f"{of.smallest:,}" if of.smallest == of.largest else f"{of.smallest:,} to {of.largest:,}"
    unit = of.unit.removesuffix("s") if of.smallest == of.largest == 1 else of.unit
    if figure.startswith("class_"):
        which = "in which a row finds the class" if of.is_found else "of the class"
    elif of.name is None:
        which = "that are not of its most common class"
    else:
        which = f"of {of.name}, its rarest class"
    if of.smallest >= FEWEST_OF_CLASS:
        consequence = ""
    elif of.largest >= FEWEST_OF_CLASS:
        consequence = f", and rows with less than {FEWEST_OF_CLASS} have no interval"
    else:
        consequence = f": there are no intervals below {FEWEST_OF_CLASS}"
    return f"{metric} rests on {many} {unit} {which}{consequence}"
