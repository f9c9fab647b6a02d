"""What the neighbours of an attempt in a shared node process mean for its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.authoring import boundary
from wtb.core.classes.frozen import frozen


@frozen(slots=True)
class Verdict:
    """Whether the result of an attempt counts, as its process sees it.

    Attributes:
        lost: Why the result does not count, if it does not: the attempt is repeated alone.
        culprit: The number of the run to blame for that, which may be the attempt itself; None if it is unknown.
        is_apart: Whether runs of its node and variant share no process from now on, since they change globals.
    """

    lost: str | None = None
    culprit: int | None = None
    is_apart: bool = False

    def head(self) -> Mapping[str, str | int | bool]:
        """Return the fields that differ from their defaults, for a frame."""
        return {name: value for name in ("lost", "culprit", "is_apart") if (value := getattr(self, name))}

    @classmethod
    def read(cls, head: Any) -> Verdict:
        """Read what a node process sent. Raises Malformed."""
        return boundary.shaped(
            lambda: cls(
                boundary.optional(lambda text: boundary.text(text, 1_000), head.get("lost")),
                boundary.optional(boundary.count, head.get("culprit")),
                head.get("is_apart") is True,
            )
        )


CLEAN = Verdict()
