"""Stopping combinations of a sweep, and letting them run again."""

from __future__ import annotations

from collections.abc import Mapping

from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Reason
from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError, InputError
from wtb.core.tree.combinations import in_words
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.control.pools import check_no_pool
from wtb.planning.prepare import matching
from wtb.store.growth.stopped import Stop, stop_combinations, stopped_of
from wtb.store.read import queries
from wtb.store.tables.sweeps import SweepRow

Choices = Mapping[str, str]


@frozen
class StoppedCombinations:
    """What `stop_combination` did.

    Attributes:
        sweep: The id of the sweep.
        name: Its name.
        combinations: The combinations that were stopped.
        already: How many that match had been stopped before.
        cells: How many cells were skipped.
    """

    sweep: str
    name: str
    combinations: tuple[Choices, ...]
    already: int
    cells: int


@checked
@audited
def stop_combination(
    context: Context, ref: str, *, combination: Mapping[str, str], reason: Reason | None = None
) -> StoppedCombinations:
    """Skip the open cells of the combinations that choose so, wherever the sweep runs; the others go on.

    What they share with others goes on for those; a node run that no other cell needs is stopped. `extend` lets them
    run again.

    Args:
        context: Where, and who stops them.
        ref: The sweep: its id, the beginning of it, or its name.
        combination: Node -> variant; combinations that choose all of these are meant.
        reason: A reason for people.

    Returns:
        The combinations, and how many cells were skipped.

    Raises:
        InputError: If there is no such sweep or combination.
        ConflictError: If the sweep has ended, it is the baseline that others are compared with, or none would be left.
    """
    database = context.database
    sweep = queries.find_sweep(database, ref)
    if sweep.kind == "single":
        raise InputError(f"{sweep.id} is a single execution; expected a sweep", argument="ref")
    check_no_pool(database, sweep, "stopped in part")
    every = queries.choices(database, sweep.id)
    numbers = matching(every, combination)
    before = stopped_of(database, sweep.id)
    new = [number for number in numbers if number not in before]
    _check_left(sweep, every, new, len(every) - len(before))
    cells = 0
    if new:
        cells = stop_combinations(database, sweep, Stop(new, context.by, context.because(reason)))
    return StoppedCombinations(
        sweep.id, sweep.name, tuple(every[number] for number in new), len(numbers) - len(new), cells
    )


def _check_left(sweep: SweepRow, every: list[dict[str, str]], new: list[int], running: int) -> None:
    """Reject to stop the baseline, or all that is left."""
    baseline = sweep.spec.get("baseline_row")
    if any(every[number] == baseline for number in new):
        raise ConflictError(
            f"sweep {sweep.name} ({sweep.id}): {in_words(baseline or {})} is the baseline that others are compared "
            "with, so it cannot be stopped"
        )
    if new and len(new) == running:
        raise ConflictError(
            f"sweep {sweep.name} ({sweep.id}): no other combination would be left; `wtb cancel {sweep.id}` ends it"
        )
