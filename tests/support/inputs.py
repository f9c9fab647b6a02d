"""Tests of many inputs on one arrangement: an error names the input that it is about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def name_in_errors(tried: object) -> Iterator[None]:
    """Add an input to every error that is raised inside the block."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"with {tried!r}")
        raise
