"""What an attempt is given by the process that it runs in: a private workspace, deadlines, resources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from wtb.authoring.context.attempt_record import OnEvent, Record
from wtb.store.files.workspaces import Snapshot


class AttemptWorkspace(Protocol):
    """The private directory of one attempt."""

    @property
    def path(self) -> Path: ...

    @property
    def is_open(self) -> bool:
        """Return whether the directory exists."""

    def take(self, *, allowed: int | None = None, until: float | None = None) -> Snapshot:
        """Take a snapshot of what is there now, and leave the directory as it is."""

    def close(self, *, keep: bool, allowed: int | None = None, until: float | None = None) -> Snapshot:
        """Take a snapshot where `keep` says so and something changed; remove the directory either way."""


class Surroundings(Protocol):
    """What an engine needs of the process that it runs in. own_process: it is user code's alone."""

    @property
    def own_process(self) -> bool: ...

    @property
    def judgements(self) -> Path | None:
        """Where replies of judges are kept; None where they are not."""

    @property
    def own_folders(self) -> Sequence[str]:
        """The folders in which WTB itself writes for attempts, their workspaces among them."""

    def record(self, on_event: OnEvent | None = None) -> Record:
        """The record of an attempt; `on_event` is called with each thing that it reports, as it happens."""

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        """Call a sync or async function. Raises NodeTimeout after `timeout` seconds."""

    def resources(self) -> Any:
        """What the workflow's factory made for this process."""

    def workspace(self, snapshot: str | None, *, enter: bool = False) -> AttemptWorkspace:
        """A private directory with the files of a snapshot. `enter`: work in it, where the process can."""
