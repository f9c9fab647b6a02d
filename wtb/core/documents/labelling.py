"""What a rater has to label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Asked = Literal["random", "disagreement"]


@dataclass(frozen=True)
class LabelledCell:
    """A cell by the variant of each varied node, and its repeat."""

    combination: Mapping[str, str]
    repeat: int


@dataclass(frozen=True)
class LabelItem:
    """An answer to label.

    Attributes:
        case: The id of the case.
        input: Its input, as text.
        answer: What is labelled, as text.
        cells: Those that gave this answer: a label is of each of them.
    """

    case: str
    input: str
    answer: str
    cells: tuple[LabelledCell, ...]


@dataclass(frozen=True)
class LabelQueue:
    """What a rater has to label.

    Attributes:
        sweep: The id of the sweep.
        metric: The scores that labels are held against.
        ends: The scale of labels, where there is one.
        criteria: What is judged, in the words of the judge; empty where there are none.
        rubric: Level -> its description; empty where there is none.
        asked: Why: `random`, or `disagreement` of other raters.
        probability: The chance that each case had to be among those that are labelled; None where none was drawn.
        items: In the order in which they are asked.
        done: How many answers the rater has labelled already.
    """

    sweep: str
    metric: str
    ends: tuple[float, float] | None
    criteria: str
    rubric: Mapping[str, str]
    asked: Asked
    probability: float | None
    items: tuple[LabelItem, ...]
    done: int
