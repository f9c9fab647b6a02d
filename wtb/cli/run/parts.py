"""The part of a sweep file that options choose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtb.cli.console import prints_to_stderr, read_choices
from wtb.operations.running import preparing
from wtb.planning import picking

if TYPE_CHECKING:
    from pathlib import Path

    from wtb.planning.picking import Only
    from wtb.planning.prepare import Prepared


def only(
    limit: int | None, case: str | None, choices: list[str] | None, *, final: bool = False, sample: int | None = None
) -> Only:
    """Return the part of a sweep that options choose."""
    return picking.Only(limit, case, read_choices(choices), final, sample)


def prepare(
    file: Path, part: Only, max_cells: int | None, session: str | None, concurrency: int | None = None
) -> Prepared:
    """Return a sweep file, checked and ready to be submitted. Raises InputError."""
    with prints_to_stderr():
        return preparing.prepare_file(file, part, max_cells=max_cells, session=session, concurrency=concurrency)
