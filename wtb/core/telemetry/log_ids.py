"""The ids of what a thread is busy with, for lines of the log to say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_ids: ContextVar[Mapping[str, str]] = ContextVar("log_ids", default={})  # noqa: B039 - nobody changes it


def current_log_ids() -> Mapping[str, str]:
    """Return the ids of what this thread or task is busy with, such as `sweep` and `execution`."""
    return _ids.get()


@contextmanager
def log_ids(**ids: str | None) -> Iterator[None]:
    """Have lines of the log say these ids, too, inside the block; None for one that is not known."""
    token = _ids.set({**_ids.get(), **{name: id for name, id in ids.items() if id is not None}})
    try:
        yield
    finally:
        _ids.reset(token)
