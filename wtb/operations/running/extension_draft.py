"""An extension of a sweep, checked against it before anything is written; and the combinations that it adds."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.errors import ConflictError, InputError, meant_or_known
from wtb.core.frozen import frozen
from wtb.core.texts import plural
from wtb.core.tree.combinations import in_words
from wtb.core.tree.stored_spec import additions
from wtb.core.values import Json
from wtb.display.text.added_cases import Amount, PlannedExtension
from wtb.operations.context import Context
from wtb.operations.results.pools import check_no_pool
from wtb.operations.running.additions import Choices, Code, Levels, NewCases, read_new_cases, with_levels
from wtb.operations.running.copying import check_copied
from wtb.operations.running.previews import sent_cases
from wtb.planning.binding import Bound, with_changed_levels
from wtb.planning.estimate import Estimate, estimate
from wtb.planning.prepare import MAX_CELLS, matching, stored_spec
from wtb.planning.sweep_spec import SweepSpec, Variant, read_variants
from wtb.planning.variant_forms import VariantRef
from wtb.store.control.fork_points import MOST_ORIGINS, NewRow, Origin
from wtb.store.control.stopped import stopped_of
from wtb.store.database import Database
from wtb.store.read import baselines, evidence, queries
from wtb.store.read.costs import mean_usd_by_node
from wtb.store.tables.sweeps import SweepRow


@frozen
class Grown:
    """A sweep and its additions.

    Attributes:
        spec: The sweep with its new variants.
        rows: Its combinations, each with a variant of every node that is varied now.
        baseline: Its baseline, if any.
        added: Node -> its new variants.
    """

    spec: SweepSpec
    rows: Sequence[Choices]
    baseline: Choices | None
    added: Mapping[str, Sequence[str]]


def new_rows(grown: Grown) -> list[NewRow]:
    """Return the combinations to add.

    In each existing combination, new variants replace those of their nodes, in every way; in a one-at-a-time sweep only
    in the baseline, one at a time. Excluded combinations are left out.
    """
    present = {tuple(sorted(row.items())) for row in grown.rows}
    origins: dict[tuple[tuple[str, str], ...], list[Origin]] = {}
    choices: dict[tuple[tuple[str, str], ...], Choices] = {}
    for number, row, changed in _changed(grown):
        choice = {**row, **changed}
        key = tuple(sorted(choice.items()))
        if key in present or _is_excluded(grown.spec, choice):
            continue
        choices.setdefault(key, choice)
        row_origins = origins.setdefault(key, [])
        row_origins.append(Origin(number, frozenset(changed)))
    return [
        # Of several origins, those with the fewest changes share the longest prefix.
        NewRow(choice, sorted(origins[key], key=lambda origin: len(origin.changed))[:MOST_ORIGINS])
        for key, choice in choices.items()
    ]


def count_at_most(grown: Grown) -> int:
    """Return an upper bound of the combinations that `new_rows` returns, by arithmetic only."""
    ways = 1
    for variants in grown.added.values():
        ways *= 1 + len(variants)
    return len(grown.rows) * (ways - 1)


def _changed(grown: Grown) -> Iterator[tuple[int, Choices, dict[str, str]]]:
    """Yield (number, row, node -> new variant) for each way to use new variants."""
    one_at_a_time = grown.spec.combinations == "one-at-a-time"
    for number, row in enumerate(grown.rows):
        if one_at_a_time and grown.baseline is not None and row != grown.baseline:
            continue
        for changed in _ways(grown.added, at_most=1 if one_at_a_time else len(grown.added)):
            yield number, row, changed


def _ways(added: Mapping[str, Sequence[str]], at_most: int) -> Iterator[dict[str, str]]:
    for size in range(1, at_most + 1):
        for nodes in itertools.combinations(added, size):
            for variants in itertools.product(*(added[node] for node in nodes)):
                yield dict(zip(nodes, variants, strict=True))


def _is_excluded(spec: SweepSpec, choice: Choices) -> bool:
    rules = cast("Iterable[Mapping[str, Sequence[str]]]", spec.exclude)  # of a sweep that is bound, they are settled
    return any(all(choice.get(node) in named for node, named in rule.items()) for rule in rules)


Combinations = Sequence[Mapping[str, str]]


def estimate_runs(
    database: Database,
    sweep: SweepRow,
    workflow: WorkflowFacts,
    combinations: tuple[Combinations, Combinations],
    times: tuple[int, int],
) -> tuple[Amount, Amount | None]:
    """Estimate the cost of an extension.

    Args:
        database: The place of the sweep.
        sweep: Its row.
        workflow: Its workflow.
        combinations: The existing and the new combinations.
        times: The numbers of existing and of new cases x repeats.

    Returns:
        Node runs and US dollars; None for the latter if a node has not run yet, so that its price is unknown.
    """
    (before, added), (old, new), share = combinations, times, sweep.spec["run"]["share"]
    every = estimate(workflow, [*before, *added], share=share)
    present = estimate(workflow, before, share=share)
    by_node = {node: _added(every, present, node, old if added else 0, new) for node in every.executed}
    runs = _sum(by_node.values())
    prices = mean_usd_by_node(database, sweep.id, sweep.spec.get("copied_from"))
    needed = [node for node, (_, high) in by_node.items() if high != 0]
    if not prices or any(node not in prices for node in needed):
        return runs, None
    priced = [
        (low * prices[node], None if high is None else high * prices[node])
        for node, (low, high) in by_node.items()
        if node in prices
    ]
    return runs, _sum(priced)


def _added(every: Estimate, present: Estimate, node: str, old: int, new: int) -> Amount:
    """Return the node runs of a node: for existing cases those of new combinations, for new cases all."""
    whole, before = every.executed[node], present.executed[node]
    low = max(0, whole.low - before.low) * old + whole.low * new
    if (whole.high is None or before.high is None) and (old or new):
        return low, None
    high = max(0, (whole.high or 0) - (before.high or 0)) * old + (whole.high or 0) * new
    return low, high


def _sum(amounts: Collection[Amount]) -> Amount:
    highs = [high for _, high in amounts if high is not None]
    return sum(low for low, _ in amounts), sum(highs) if len(highs) == len(amounts) else None


_NOTHING = "nothing to add; expected cases, more repeats, variants or a stopped combination"


@frozen
class Draft:
    """An extension that was checked against the sweep."""

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
        raise ConflictError(f"sweep {sweep.name} ({sweep.id}) is cancelled: none of its cells runs again")
    check_no_pool(database, sweep, "extended")
    if new_name is not None:
        check_copied(sweep, new_name)
    elif names := baselines.names_of(database, sweep.id):
        raise ConflictError(
            f"sweep {sweep.name} ({sweep.id}) is the baseline {', '.join(map(repr, names))}: a baseline cannot be "
            f"changed. Extend a copy of it (`wtb extend {sweep.id} --new-name NAME`) "
            f"or name another sweep with `wtb baseline set`",
            argument="new_name",
        )


@frozen
class Asked:
    """The requested additions to a sweep.

    Attributes:
        cases: Cases, or the name of an upload.
        columns: Headings of a table of cases by key; by default those of the sweep.
        repeats: The new number of repeats.
        vary: Node, or node and parameter -> further variants, or levels.
        typed: The same as typed text.
        restarts: True if stopped combinations are to run again.
    """

    cases: Sequence[Any] | Mapping[str, Json] | None = None
    columns: Mapping[str, Any] | None = None
    repeats: int | None = None
    vary: Mapping[str, Sequence[Any]] | None = None
    typed: Mapping[str, Sequence[str]] | None = None
    restarts: bool = False


def stopped_to_restart(context: Context, sweep: SweepRow, combination: Choices) -> list[int]:
    """Return the numbers of the stopped combinations with these choices."""
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
    # Exploratory rows come last, and planned ones would have to follow them.
    if added:
        _check_varies(sweep)
    levels = with_levels(sweep, present, code, added)
    spec = levels.bound.spec
    present_rows = [{**levels.defaults, **row} for row in every]
    baseline = sweep.spec.get("baseline_row")
    grown = Grown(spec, present_rows, None if baseline is None else {**levels.defaults, **baseline}, levels.names)
    has = evidence.case_count(context.database, sweep.id)
    # Arithmetic first: the rows of a large grid are expanded only if the sweep stays below the limit of cells.
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
    """Reject new combinations if the sweep has exploratory rows."""
    if additions(sweep.spec):
        raise ConflictError(
            f"sweep {sweep.name} ({sweep.id}) has exploratory rows, which stand after those that were planned: add "
            f"cases and repeats only, or submit a new sweep with these variants"
        )


def _new_levels(
    sweep: SweepRow, present: Bound, request: Asked, every: Sequence[Choices]
) -> tuple[dict[str, list[Variant]], list[str]]:
    """Return the new variants by node, and sentences on those that the sweep has already."""
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
    """Replace `node.parameter: levels` by variants with these levels, one for each combination's other levels."""
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
