"""An extension of a sweep, checked against it before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError, InputError, meant_or_known
from wtb.core.texts import plural
from wtb.core.tree.added_rows import additions
from wtb.core.tree.combinations import in_words
from wtb.operations.archive.renamed_copies import check_copied
from wtb.operations.context import Context
from wtb.operations.control.pools import check_no_pool
from wtb.operations.growth.estimating import Amount, estimate_runs
from wtb.operations.growth.levels import Choices, Code, Levels, with_levels
from wtb.operations.growth.new_cases import NewCases, read_new_cases
from wtb.operations.growth.new_rows import Grown, count_at_most, new_rows
from wtb.operations.running.uploaded_cases import sent_cases
from wtb.planning.binding import Bound
from wtb.planning.factors.changes import with_changed_levels
from wtb.planning.factors.variant_forms import VariantRef
from wtb.planning.prepare import MAX_CELLS, matching, stored_spec
from wtb.planning.sweep_spec import Variant, read_variants
from wtb.store.growth.fork_points import NewRow
from wtb.store.growth.stopped import stopped_of
from wtb.store.read import baselines, evidence, queries
from wtb.store.tables.sweeps import SweepRow

_NOTHING = "nothing to add; expected cases, more repeats, variants or a stopped combination"


@frozen
class PlannedExtension:
    """What `extend` would add.

    Attributes:
        sweep: The id of the sweep.
        name: Its name.
        cases: How many cases are new.
        present: How many of the given cases are there already, with the same content.
        held_out: How many of them `holdout` leaves out.
        combinations: The new combinations.
        repeats: How many repeats there would be.
        cells: How many cells would be added.
        node_runs: How many node runs they take, at least and at most; None if there is no bound.
        usd: The same in US dollars, by what node runs of this sweep have cost; None if that is not known.
        notes: Sentences about the cases and variants.
    """

    sweep: str
    name: str
    cases: int
    present: int
    held_out: int
    combinations: tuple[Choices, ...]
    repeats: int
    cells: int
    node_runs: Amount
    usd: Amount | None
    notes: tuple[str, ...]


@frozen
class Draft:
    """An extension that is checked against the sweep."""

    sweep: SweepRow
    levels: Levels
    every: Sequence[Choices]
    rows: Sequence[NewRow]
    cases: NewCases
    repeats: int
    planned: PlannedExtension

    @property
    def is_empty(self) -> bool:
        return not self.planned.cells


def check_extensible(context: Context, sweep: SweepRow, new_name: str | None = None) -> None:
    """Reject a sweep that cannot be extended.

    Args:
        context: Where it is.
        sweep: Its row.
        new_name: The name of the copy that is extended instead; None if the sweep itself is.
    """
    database = context.database
    if sweep.kind == "single":
        raise InputError(f"{sweep.id} is a single execution; expected a sweep", argument="ref")
    if sweep.status == "cancelled":
        raise ConflictError(f"sweep {sweep.name} ({sweep.id}) is cancelled for good: nothing of it runs any more")
    check_no_pool(database, sweep, "extended")
    if new_name is not None:
        check_copied(sweep, new_name)
    elif names := baselines.names_of(database, sweep.id):
        raise ConflictError(
            f"sweep {sweep.name} ({sweep.id}) is the baseline {', '.join(map(repr, names))}: what others are compared "
            f"with must stay as it is. Extend a copy of it (`wtb extend {sweep.id} --new-name NAME`) "
            f"or name another sweep with `wtb baseline set`",
            argument="new_name",
        )


@frozen
class Asked:
    """What is to be added to a sweep.

    Attributes:
        cases: Cases, or what names an upload.
        columns: Which heading of a table of cases is which key; by default as the sweep has it.
        repeats: How many repeats there are to be.
        vary: Node, or node and parameter -> further variants, or levels.
        typed: The same as text, as it was typed.
        restarts: Whether stopped combinations are to run again.
    """

    cases: Sequence[Any] | Mapping[str, Any] | None = None
    columns: Mapping[str, Any] | None = None
    repeats: int | None = None
    vary: Mapping[str, Sequence[Any]] | None = None
    typed: Mapping[str, Sequence[str]] | None = None
    restarts: bool = False


def stopped_to_restart(context: Context, sweep: SweepRow, combination: Choices) -> list[int]:
    """Return the numbers of the stopped combinations that choose so."""
    stopped = stopped_of(context.database, sweep.id)
    return [
        number for number in matching(queries.choices(context.database, sweep.id), combination) if number in stopped
    ]


def draft_extension(context: Context, sweep: SweepRow, request: Asked, code: Code) -> Draft:
    """Check an extension against the sweep. Raises InputError or ConflictError."""
    repeats = request.repeats
    if request.cases is None and repeats is None and not request.vary and not request.typed and not request.restarts:
        raise InputError(_NOTHING)
    cases = None if request.cases is None else sent_cases(context.database, request.cases)
    before = sweep.spec["repeats"]
    if repeats is not None and repeats < before:
        raise InputError(
            f"sweep {sweep.id} has {plural(before, 'repeat')}; expected at least as many", argument="repeats"
        )
    present = code(stored_spec(sweep))
    every = queries.choices(context.database, sweep.id)
    added, notes = _new_levels(sweep, present, request, every)
    if added:
        _check_varies(sweep)
    levels = with_levels(sweep, present, code, added)
    spec = levels.bound.spec
    present_rows = [{**levels.defaults, **row} for row in every]
    baseline = sweep.spec.get("baseline_row")
    grown = Grown(spec, present_rows, None if baseline is None else {**levels.defaults, **baseline}, levels.names)
    has = evidence.case_count(context.database, sweep.id)
    _check_size(sweep, (len(every) + count_at_most(grown), has + len(cases or ()), repeats or before))
    rows = new_rows(grown)
    new_cases = NewCases() if cases is None else read_new_cases(context, sweep, levels.bound, cases, request.columns)
    after = repeats or before
    cells = (len(every) + len(rows)) * (has + len(new_cases.cases)) * after - len(every) * has * before
    runs, usd = estimate_runs(
        context.database,
        sweep,
        levels.bound.workflow,
        (present_rows, [row.choices for row in rows]),
        (has * before, (has + len(new_cases.cases)) * after - has * before),
    )
    planned = PlannedExtension(
        sweep.id,
        sweep.name,
        len(new_cases.cases),
        new_cases.present,
        new_cases.held_out,
        tuple(row.choices for row in rows),
        after,
        cells,
        runs,
        usd,
        (*notes, *new_cases.notes),
    )
    return Draft(sweep, levels, every, rows, new_cases, after, planned)


def _check_varies(sweep: SweepRow) -> None:
    """Reject new combinations where they cannot be planned."""
    if additions(sweep.spec):
        raise ConflictError(
            f"sweep {sweep.name} ({sweep.id}) has exploratory rows, which stand after those that were planned: add "
            f"cases and repeats only, or submit a new sweep with these variants"
        )


def _new_levels(
    sweep: SweepRow, present: Bound, request: Asked, every: Sequence[Choices]
) -> tuple[dict[str, list[Variant]], list[str]]:
    """Return the variants that the sweep does not have yet, by node, and sentences about the others."""
    nodes = present.workflow.nodes
    vary = _with_points(present, request, every)
    if unknown := [node for node in vary if node not in nodes]:
        raise InputError(
            *(f"the workflow has no node {node!r}{meant_or_known(node, nodes)}" for node in unknown), argument="vary"
        )
    added: dict[str, list[Variant]] = {}
    notes: list[str] = []
    for node, refs in read_variants(vary, present.spec.texts).items():
        listed = present.spec.variants.get(node, ())
        listed_refs = {ref.name: ref for ref in listed if isinstance(ref, VariantRef)}
        recorded = {*listed_refs, *(sweep.fingerprints.get(node, {}) if listed == "all" else ())}
        if node not in present.spec.variants:
            recorded = {nodes[node].default}
        for ref in refs:
            if ref.name not in recorded:
                added.setdefault(node, []).append(ref.name if ref.is_own else ref.model_dump(mode="json"))
                continue
            _check_same(node, ref, listed_refs.get(ref.name))
            notes.append(f"the sweep has {in_words({node: ref.name})} already")
    return added, notes


def _with_points(present: Bound, request: Asked, every: Sequence[Choices]) -> dict[str, list[Variant]]:
    """Replace `node.parameter: levels` by the variants that have these levels beside the others of each combination."""
    nodes = present.workflow.nodes
    variants: dict[str, list[Variant]] = {}
    for typed, key, forms in [
        *((False, *pair) for pair in (request.vary or {}).items()),
        *((True, *pair) for pair in (request.typed or {}).items()),
    ]:
        node, _, _ = key.rpartition(".")
        if key in nodes or node not in nodes:
            variants.setdefault(key, []).extend(forms)
            continue
        points = variants.setdefault(node, [])
        for name in dict.fromkeys(choices.get(node, nodes[node].default) for choices in every):
            for level in forms:
                point = with_changed_levels(present, {key: level}, [{node: name}], typed=typed)[node]
                if point not in points:
                    points.append(point)
    return variants


def _check_same(node: str, ref: VariantRef, recorded: VariantRef | None) -> None:
    if not ref.is_own and ref != recorded:
        raise InputError(
            f"node {node!r} has another variant {ref.name!r} in this sweep: give this one a name of its own",
            argument="vary",
        )


def _check_size(sweep: SweepRow, sizes: tuple[int, int, int]) -> None:
    combinations, cases, repeats = sizes
    if (cells := combinations * cases * repeats) > MAX_CELLS:
        raise InputError(
            f"sweep {sweep.id} would have {combinations:,} combinations x {cases:,} cases x {repeats:,} repeats = "
            f"{cells:,} cells; at most {MAX_CELLS:,} are allowed"
        )
