"""Preparation of a submission from a sweep's description: everything is checked before anything is written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import orjson

from wtb.authoring.breakpoints import Breakpoint, stops
from wtb.authoring.graph import graph_snapshot, queue_of
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.config.run_options import NOTHING, read_project_redaction
from wtb.core.arguments import Count, checked
from wtb.core.errors import InputError, StoreError, meant_or_known, quoted_names
from wtb.core.factors import label_columns, labels_of
from wtb.core.frozen import frozen
from wtb.core.ids import short_id
from wtb.core.serialization.codec import encode
from wtb.core.texts import plural
from wtb.core.tree.combinations import Combinations, Exclude, count, expand
from wtb.core.tree.stored_spec import DataFinding, StoredPolicies, StoredSpec, stored_evaluators
from wtb.core.values import SweepKeys, Value
from wtb.planning.binding import Bound, bind, effective_modes
from wtb.planning.case_checks import check_cases
from wtb.planning.cases import Case, CaseSource, read_cases
from wtb.planning.checks import (
    check_evaluated,
    check_figures,
    check_nodes,
    check_pool,
    check_redaction,
    check_repeats,
    check_stop,
    notification_targets,
)
from wtb.planning.environment import environment
from wtb.planning.level_references import is_step_of, matching_levels
from wtb.planning.metric_names import margins_of
from wtb.planning.picking import Only, draw_sample, pick_cases
from wtb.planning.publishing import IMPORTED, Code
from wtb.planning.sweep_spec import SingleSpec, SweepSpec, parse_single, parse_spec, read_variants
from wtb.planning.variant_forms import parse_gate, unquoted
from wtb.store.access.sessions import session_name
from wtb.store.database import Database
from wtb.store.files.locations import check_files
from wtb.store.files.workspaces import Workspaces
from wtb.store.runs.submission import NewCase, NewSweep
from wtb.store.runs.submit import Also, project_of_submission, submit
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.config.webhooks import Target

MAX_CELLS = 10_000_000


@frozen
class Prepared:
    """A sweep that was checked and can be submitted.

    Attributes:
        bound: The sweep with its code.
        choices: The combinations.
        baseline: The baseline, if it is one of them.
        source: The source of its cases.
        cases: How many cases it has.
        only: The part of the sweep that runs.
        starts_at: For a single execution, its first node, if it is not the workflow's entry.
        notify: The targets of notifications.
        clusters: The cluster of each case, if any has one.
        submitted_by: The submitter, as the sweep records.
        served: True if a server runs it itself.
        findings: The findings of the check of its cases.
        blank_rows: How many rows of the source are skipped.
        sampled_from: The number of cases that `only.sample` was drawn from.
        policies: The policies that its nodes are checked against, as the sweep records.
    """

    bound: Bound
    choices: Sequence[Mapping[str, str]]
    baseline: Mapping[str, str] | None
    source: CaseSource
    cases: int
    only: Only
    starts_at: str | None = None
    notify: Sequence[Target] | None = None
    clusters: Sequence[str | None] = ()
    submitted_by: str | None = None
    served: bool = False
    findings: Sequence[DataFinding] = ()
    blank_rows: int = 0
    sampled_from: int | None = None
    policies: StoredPolicies | None = None

    def __repr__(self) -> str:
        repeats, cells = self.bound.spec.repeats, plural(self.cells, "cell")
        counts = f"{plural(len(self.choices), 'combination')} x {plural(self.cases, 'case')}"
        return f"<prepared sweep {self.bound.spec.sweep}: {counts} x {plural(repeats, 'repeat')} = {cells}>"

    @property
    def notes(self) -> list[str]:
        """Sentences on its cases, and on skipped rows."""
        notes = [finding["sentence"] for finding in self.findings]
        if self.sampled_from is not None:
            seed = self.bound.spec.seed
            notes.insert(0, f"{self.cases:,} of {plural(self.sampled_from, 'case')}, drawn at random with seed {seed}")
        if self.blank_rows:
            notes.append(f"{plural(self.blank_rows, 'blank row')} of {self.source.name} skipped")
        return notes

    @property
    def cells(self) -> int:
        return len(self.choices) * self.cases * self.bound.spec.repeats

    @property
    def queues(self) -> set[str | None]:
        """Queues that its nodes name; None is the default one."""
        return {node.rules.queue for node in self.bound.workflow.nodes.values()}

    def submit(
        self,
        database: Database,
        workspaces: Workspaces,
        *,
        queued: bool = False,
        priority: int = 0,
        breakpoints: Sequence[Breakpoint] | None = None,
        hold_reason: str | None = None,
        also: Also | None = None,
    ) -> str:
        """Write the sweep to the database, whole or not at all.

        Args:
            database: The database.
            workspaces: The store of the files of its cases.
            queued: Submit to workers; otherwise this process runs it.
            priority: Workers take executions of the highest priority first.
            breakpoints: The places at which executions pause; by default those of the workflow.
            hold_reason: The reason why executions are paused from the beginning; None if they may start.
            also: Written in the same transaction.

        Returns:
            The id of the sweep.
        """
        check_files(database, workspaces)
        spec = self.bound.spec
        places = stops(self.bound.workflow, ()) if breakpoints is None else breakpoints
        graph = graph_snapshot(self.bound.workflow)
        sweep = NewSweep(
            id=short_id(),
            name=spec.sweep,
            session=session_name(spec.session),
            project=spec.project,
            spec=self._stored_spec(),
            graph_id=hashlib.sha256(orjson.dumps(graph)).hexdigest(),
            graph=graph,
            fingerprints=self.bound.fingerprints,
            choices=self.choices,
            repeats=spec.repeats,
            share=spec.run.share,
            cells=self.cells,
            queued=queued,
            priority=priority,
            queue=queue_of(self.bound.workflow, [self.starts_at] if self.starts_at else self.bound.workflow.entries),
            kind="single" if isinstance(spec, SingleSpec) else "sweep",
            notify=self.notify,
            breakpoints=[str(place) for place in places],
            starts_at=self.starts_at,
            pause_reason=hold_reason,
            clusters=self.clusters,
        )
        home = workspaces.of_project(project_of_submission(database, sweep.session, sweep.project))
        submit(database, sweep, self.encode(home), also)
        return sweep.id

    def _stored_spec(self) -> StoredSpec:
        """Return the sweep as submitted. Cases have rows of their own, so a list of them is not stored twice."""
        spec = self.bound.spec
        stored = spec.as_stored()
        if not isinstance(spec.cases, str):
            stored["cases"] = "inline"
        if self.only.final:
            stored["final"] = True
        stored["baseline_row"] = None if self.baseline is None else dict(self.baseline)
        stored["folder"] = str(spec.folder.absolute())
        stored["environment"] = environment()
        self._record_code(stored)
        if tools := self.tool_versions():
            stored["environment"] = {**stored["environment"], "tools": tools}
        if self.only.sample is not None:
            stored["sample"] = self.only.sample
        if self.findings:
            stored["data"] = list(self.findings)
        modes = effective_modes(spec, self.bound.workflow)
        if modes != ("manual",):
            stored["approval"] = [mode if isinstance(mode, str) else dict(mode) for mode in modes]
        if self.submitted_by is not None:
            stored["submitted_by"] = self.submitted_by
        if self.policies is not None:
            stored["policies"] = self.policies
        if self.served:
            stored["served"] = True
        return stored

    def _record_code(self, stored: StoredSpec) -> None:
        stored["code"] = self.bound.code
        if self.bound.evaluators:
            stored["evaluators"] = stored_evaluators(self.bound.evaluator_code)

    def tool_versions(self) -> dict[str, dict[str, str]]:
        """Ask the servers of the workflow for the versions of their tools, by server. Raises InputError."""
        return {name: self._versions(name) for name in self.bound.workflow.versions}

    def _versions(self, server: str) -> dict[str, str]:
        """Return the versions of a server's tools. Raises InputError."""
        spec = self.bound.spec
        try:
            return dict(self.bound.workflow.versions[server]())
        # Only servers that the sweep file defines have a place in it to report.
        except InputError as error:
            if server not in spec.mcp:
                raise
            raise InputError(*(spec.located.problem(("mcp", server), text) for text in error.problems)) from error

    def picked(self) -> Iterator[Case]:
        return pick_cases(self.bound.spec, self.source, self.only)

    def encode(self, workspaces: Workspaces) -> Iterator[NewCase]:
        """Yield the cases as they are stored, and add their files to the store of these workspaces."""
        clusters = iter(self.clusters)
        return (self._encode(case, next(clusters, case.cluster), workspaces) for case in self.picked())

    def _encode(self, case: Case, cluster: str | None, workspaces: Workspaces) -> NewCase:
        """Encode a case as it is stored, and add its files to the store."""
        values, _ = self.bound.workflow.schema.read_input(case.input)
        redactor = self.bound.spec.redact.redactor
        # Files are stored before the case that refers to them, so a stored case never lacks its files.
        try:
            files = workspaces.snapshot_of(case.files)
        except OSError as error:
            raise StoreError(
                f"the files of case {case.id!r} cannot be stored in {workspaces.files.root}: {error}"
            ) from error
        return NewCase(
            case.id,
            redactor.values({name: Value.of(content) for name, content in values.items()}),
            None if case.expected is None else redactor.typed(encode(case.expected)),
            case.tags,
            files.digest,
            files.new,
            cluster,
        )


_RECORDED = (
    "submitted_by",
    "served",
    "baseline_row",
    "folder",
    "environment",
    "code",
    "final",
    "added_rows",
    "extensions",
    "copied_from",
    "evaluators",
    "fork_variants",
    "data",
    "sample",
    "policies",
    "approval",
)


def as_written(stored: SweepKeys) -> dict[str, Any]:
    """Return the sweep-file keys of a stored spec under their current names, without recorded keys."""
    written = {key: content for key, content in stored.items() if key not in _RECORDED}
    if "tolerance" in written:  # in archives of earlier versions
        written["margin"] = written.pop("tolerance")
    best = written.get("best")
    # Earlier versions stored the margin of the objective within it.
    if best and "indifferent" in best:
        objective = {key: content for key, content in best.items() if key != "indifferent" and content is not None}
        written["best"] = objective or None
        metrics = [name for evaluator in written.get("evaluate") or () for name in evaluator]
        written["margin"] = margins_of(cast("StoredSpec", {**stored, "margin": written.get("margin") or {}}), metrics)
    return written


def stored_spec(row: SweepRow) -> SweepSpec:
    """Return the sweep as it was submitted, from its row in the database."""
    keys = as_written(row.spec)
    if keys.get("session") is not None:
        # The session may have been renamed since.
        keys["session"] = row.session
    parse, kind = (parse_single, "execution") if row.kind == "single" else (parse_spec, "sweep")
    spec = parse(keys, f"{kind} {row.id}", is_stored=True)
    return spec.with_fork_variants(read_variants(row.spec.get("fork_variants", {}), row.spec.get("texts")))


@checked
def prepare(
    spec: SweepSpec,
    *,
    workflow: Workflow | None = None,
    evaluators: Mapping[str, Callable[..., Any]] | None = None,
    source: CaseSource | None = None,
    only: Only | None = None,
    max_cells: Count = MAX_CELLS,
    starts_at: str | None = None,
    code: Code = IMPORTED,
) -> Prepared:
    """Check a sweep against its code and cases.

    Args:
        spec: The sweep.
        workflow: The workflow, if it is an object.
        evaluators: Evaluators that are objects, by name.
        source: Its cases, if they are read already.
        only: The part that runs.
        max_cells: The largest number of cells.
        starts_at: For a single execution, the node at which it starts, with the input as its state.
        code: The source of other code.

    Returns:
        The sweep, ready to be submitted.

    Raises:
        InputError: With all problems of the first check that fails.
    """
    only = only or Only()
    # Before anything else: messages about code and cases must not show what the project redacts.
    if (project := read_project_redaction(spec.folder)) != NOTHING:
        spec = spec.model_copy(update={"redact": spec.redact.with_project(project)})
    if only.final and spec.holdout is None:
        raise InputError(
            "the sweep has no final cases; expected 'holdout', which reserves some",
            argument="final",
        )
    bound = bind(spec, workflow, evaluators, code)
    spec = bound.spec
    check_pool(bound)
    check_figures(bound)
    check_evaluated(bound)
    check_repeats(bound)
    check_stop(bound)
    check_nodes(bound.workflow, spec.limits.nodes, spec.located)
    if starts_at is not None and starts_at not in bound.workflow.starts:
        near = meant_or_known(starts_at, bound.workflow.starts)
        within = any(f"{node}.".startswith(f"{starts_at}.") for node in bound.workflow.nodes)
        problem = f"cannot start at {starts_at!r}, which is a graph within it or in one"
        what = problem if within else f"has no node {starts_at!r} to start from"
        raise InputError(f"workflow {bound.workflow.name!r} {what}{near}")
    source = source or read_cases(
        spec.cases,
        spec.folder,
        spec.located,
        resolve=code.load,
        files_from=spec.files_from,
        columns=spec.columns,
    )
    source = of_workflow(source, bound.workflow)
    # All cases are read once before combinations are expanded, since the limit of cells needs their number.
    total, blank_rows = source.check()
    combinations = _expand(spec, bound, total, max_cells)
    _check_rows_of_gates(spec, list(combinations))
    choices, baseline = _pick_choices(combinations, only)
    check_redaction(bound)
    source, sampled_from = (source, None) if only.sample is None else draw_sample(spec, source, only)
    seen = check_cases(spec, bound, source, only, whole=starts_at is None, total=total)
    return Prepared(
        bound,
        choices,
        baseline,
        source,
        len(seen.clusters),
        only,
        starts_at,
        notification_targets(spec),
        seen.clusters if any(seen.clusters) else (),
        findings=seen.findings,
        blank_rows=blank_rows,
        sampled_from=sampled_from,
    )


def of_workflow(source: CaseSource, workflow: WorkflowFacts) -> CaseSource:
    """Return cases that are read by the keys that inputs of a workflow may have."""
    source = replace(source, state_key=workflow.state_key)
    if workflow.schema.open or workflow.state_key is not None:
        return source
    keys, inputs = tuple(workflow.schema.keys), tuple((workflow.input or workflow.schema).keys)
    return replace(source, columns=replace(source.columns, state=keys, inputs=inputs))


def _expand(spec: SweepSpec, bound: Bound, cases: int, max_cells: int) -> Combinations:
    """Return the combinations to run. Raises InputError if that makes more cells than allowed."""
    # Counting is arithmetic: a grid of billions is rejected without being expanded.
    combinations = count(bound.vary, spec.mode)
    cells = combinations * cases * spec.repeats
    if cells > max_cells:
        raise InputError(
            spec.located.problem(
                ("vary",),
                f"the sweep has {combinations:,} combinations x {cases:,} cases x {spec.repeats:,} repeats = "
                f"{cells:,} cells; at most {max_cells:,} are allowed, unless max_cells is more",
            ),
            argument="max_cells",
        )
    defaults = {name: bound.workflow.nodes[name].default for name in bound.vary}
    return expand(
        bound.vary,
        spec.mode,
        exclude=cast("Exclude", spec.exclude),
        baseline=cast("Mapping[str, str]", spec.baseline),
        defaults=defaults,
        is_step=is_step_of(spec.variants),
        report=spec.located.problem,
    )


def _check_rows_of_gates(spec: SweepSpec, every: Sequence[Mapping[str, str]]) -> None:
    """Reject gates on rows that no combination has. Raises InputError."""
    problems: list[str] = []
    for number, text in enumerate(spec.gates):
        if rows := parse_gate(text).rows:
            try:
                matching(every, rows, where="")
            except InputError as error:
                problems += [spec.located.problem(("gates", number), problem) for problem in error.problems]
    if problems:
        raise InputError(*problems)


def _pick_choices(
    combinations: Combinations, only: Only
) -> tuple[Sequence[Mapping[str, str]], Mapping[str, str] | None]:
    """Return the combinations that `only` selects, and the baseline if it is among them. Raises InputError."""
    every = list(combinations)
    if not only.choices:
        return every, combinations.baseline
    selected = [every[number] for number in matching(every, only.choices)]
    return selected, combinations.baseline if combinations.baseline in selected else None


def _with_commas(choices: Mapping[str, str], every: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    """Join a NODE=VARIANT after a comma to the variant before it, if only the joined text is a variant.

    For example, `answer=temp=0.1,top_p=0.9` chooses one variant of `answer` if there is no node `top_p`.
    """
    pairs = {choice for combination in every for choice in combination.items()}
    nodes, joined_choices, last = {node for node, _ in pairs}, dict[str, str](), ""
    for node, variant in choices.items():
        joined = (
            [f"{joined_choices[last]}{comma}{node}={variant}" for comma in (",", ", ")]
            if last and node not in nodes
            else []
        )
        whole = next(
            (candidate for candidate in joined if any(name.startswith(candidate) for at, name in pairs if at == last)),
            None,
        )
        if whole is None:
            last = node
        joined_choices[last] = variant if whole is None else whole
    return joined_choices


def matching(every: Sequence[Mapping[str, str]], choices: Mapping[str, str], where: str = "combination: ") -> list[int]:
    """Return the numbers of the combinations with these choices.

    Args:
        every: Combinations, node -> variant.
        choices: Node -> variant, or `node.parameter` -> level.
        where: The beginning of error messages.

    Raises:
        InputError: No combination has them, with near matches.
    """
    choices = _with_commas(choices, every)
    variants: dict[str, str] = {}
    labels: dict[str, str] = {}
    for key, text in choices.items():
        names = sorted({choice[key] for choice in every if key in choice})
        levels = None if names else matching_levels(every, key, text)
        if levels is not None:
            labels[key] = _one_level(every, key, text, levels, where)
        elif not names:
            near = meant_or_known(
                key, [*every[0], *(column for column in label_columns(every) if column not in every[0])]
            )
            raise InputError(f"{where}the sweep does not vary a node {key!r}{near}")
        elif text not in names and unquoted(text) not in names:
            near = _meant_level(every, key, text) or meant_or_known(text, names)
            raise InputError(f"{where}node {key!r} has no variant {text!r} in this sweep{near}")
        else:
            variants[key] = text if text in names else unquoted(text)
    numbers = [
        number
        for number, choice in enumerate(every)
        if variants.items() <= choice.items() and (not labels or labels.items() <= labels_of(choice).items())
    ]
    if not numbers:
        raise InputError(f"{where}no combination of the sweep chooses these together")
    return numbers


def _meant_level(every: Sequence[Mapping[str, str]], node: str, text: str) -> str:
    """Return a suggestion of the factor of a node that has a level of this name; empty if none or several have."""
    columns = [key for key in label_columns(every) if key.startswith(f"{node}.")]
    factors = [key for key in columns if key not in every[0] and matching_levels(every, key, text)]
    return f"; did you mean '{factors[0]}={text}'?" if len(factors) == 1 else ""


def _one_level(every: Sequence[Mapping[str, str]], key: str, text: str, levels: Sequence[str], where: str) -> str:
    """Return the label of the only level that a text names. Raises InputError."""
    if len(levels) == 1:
        return levels[0]
    if levels:
        raise InputError(f"{where}{text!r} of {key!r} is ambiguous; expected one of: {quoted_names(levels)}")
    labels = list(dict.fromkeys(label for choice in every if (label := labels_of(choice).get(key)) is not None))
    raise InputError(f"{where}{key!r} has no level {text!r} in this sweep{meant_or_known(text, labels)}")
