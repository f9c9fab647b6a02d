"""The sentences that users read, as tests quote them from the catalogue in tests/prose."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_PROSE = Path(__file__).resolve().parent.parent / "prose"


def sentence(text: str, *values: object) -> str:
    """Return a text of the catalogue, or a part of one, with values in place of each `{}`.

    A sentence that was reworded is then one failure of `make check`, which names the tests that quote it.

    Args:
        text: The text as `make prose` wrote it, with `{}` for the values of an f-string.
        *values: What stands in these places, in their order; without values `{}` stays as it is.

    Raises:
        AssertionError: No text of the catalogue has it.
    """
    assert text.strip().replace("\n", "\\n") in _catalogue(), f"no text of tests/prose has {text!r}"
    if not values:
        return text
    pieces = text.split("{}")
    assert len(pieces) == len(values) + 1, f"{text!r} has {len(pieces) - 1} places, not {len(values)}"
    return pieces[0] + "".join(f"{value}{piece}" for value, piece in zip(values, pieces[1:], strict=True))


@cache
def _catalogue() -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted(_PROSE.glob("*.txt")))
