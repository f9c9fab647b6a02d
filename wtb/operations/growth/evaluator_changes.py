"""Whether the evaluators of a sweep have changed since they gave the scores that are there."""

from __future__ import annotations

from contextlib import suppress

from wtb.authoring.code.fingerprint import evaluator_code
from wtb.authoring.code.recipe import NamedEvaluator
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.core.errors import ConflictError, InputError
from wtb.core.factors.file_levels import with_texts
from wtb.core.texts import listed_names
from wtb.core.tree.stored_code import EVALUATORS, RecordedCode, why
from wtb.core.tree.stored_spec import recorded_evaluators
from wtb.operations.context import Context
from wtb.planning.binding import Bound
from wtb.store.tables.sweeps import SweepRow


def accept_evaluators(
    context: Context, sweep: SweepRow, bound: Bound, *, allow: bool, extends: bool = False
) -> RecordedCode | None:
    """Check that new cells would be scored as those that are there.

    Args:
        context: Where the sweep is; if no code is imported there, what workers publish counts.
        sweep: Its row.
        bound: Its code as it is now.
        allow: Go on although they have changed.
        extends: Whether the sweep is extended, which a baseline cannot be.

    Returns:
        The evaluators as they are now, if they have changed.

    Raises:
        ConflictError: If they have changed, and must not have.
    """
    recorded = recorded_evaluators(sweep.spec)
    if recorded is None:
        return None
    present = bound.evaluator_code if context.imports else _published(context, sweep)
    shared_names = [name for name in present.fingerprints[EVALUATORS] if name in recorded.fingerprints[EVALUATORS]]
    changed = [(EVALUATORS, name) for name in shared_names if not recorded.has_same(present, EVALUATORS, name)]
    if changed and not allow:
        raise _changed_error(sweep, recorded, present, [name for _, name in changed], extends=extends)
    return present if changed else None


def _published(context: Context, sweep: SweepRow) -> RecordedCode:
    """Return the evaluators that are built in, or that workers publish; of others nothing is known here."""
    named = []
    for written in sweep.spec["evaluate"]:
        for name, options in written.items():
            filled = with_texts(options if isinstance(options, dict) else {}, sweep.spec.get("texts", {}))
            with suppress(InputError):
                named.append((NamedEvaluator(name, filled, ""), make_evaluator(name, filled, context.code.load)))
    return evaluator_code(named)


def _changed_error(
    sweep: SweepRow, recorded: RecordedCode, present: RecordedCode, names: list[str], *, extends: bool
) -> ConflictError:
    causes = why(recorded.code, present.code, [(EVALUATORS, name) for name in names])
    which = (
        f"evaluator {names[0]!r} has" if len(names) == 1 else f"evaluators {listed_names(list(map(repr, names)))} have"
    )
    commands = listed_names([f"`wtb score {sweep.id} --evaluate {path}`" for path in _paths(sweep, names)])
    copied = f" (for a baseline `wtb copy {sweep.id} --new-name NAME`, then score and extend the copy)"
    return ConflictError(
        f"sweep {sweep.name} ({sweep.id}): {which} changed since the cells that are there were scored {causes}, so new "
        f"scores would not be comparable. Score those cells again first with {commands}{copied if extends else ''}, "
        f"bring the old code back, or allow the change of code",
        argument="allow_code_change",
    )


def _paths(sweep: SweepRow, names: list[str]) -> list[str]:
    """Return what the sweep file calls evaluators of these names."""
    recorded = recorded_evaluators(sweep.spec)
    assert recorded is not None
    every = [name for written in sweep.spec["evaluate"] for name in written]
    return [path for path, name in zip(every, recorded.fingerprints[EVALUATORS], strict=False) if name in names]
