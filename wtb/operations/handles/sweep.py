"""Sweeps as live objects: to be watched, steered, and read as a matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from msgspec import structs

from wtb.analysis.comparison.compare import LOOKED_INTO
from wtb.analysis.judges.check import JudgeCheck, LabelQueue
from wtb.analysis.judges.ranking import RowRanking
from wtb.analysis.statistics.raters.agreement import Scale
from wtb.config.distribution import pip_install
from wtb.core.arguments.checking import as_path
from wtb.core.documents.comparison import TELLING, ComparisonDocument, RowComparisonDocument
from wtb.core.documents.matrix import GateDocument, JudgedMatrixDocument
from wtb.core.documents.report import EvidenceDocument
from wtb.core.documents.results.outputs import CommentDocument, OutputsDocument
from wtb.core.documents.storage.copies import CopiedSweepDocument
from wtb.core.documents.sweeps import CellDocument
from wtb.core.errors import InputError
from wtb.core.scoring.judgement import CALLS_AT_ONCE, CASES_DRAWN
from wtb.core.scoring.scales import OnFailure
from wtb.core.tree.stored_spec import Limits
from wtb.display.cell_rows import cell_row
from wtb.display.listed_sweeps import sweep_document
from wtb.display.matrix.table import render
from wtb.display.notebook import matrix as notebook_view
from wtb.display.report.report_files import RENDERERS, form_of, page_with_outputs
from wtb.operations.archive.sweep_copies import copy_sweep
from wtb.operations.growth.extending import Extended, extend, plan_extension
from wtb.operations.growth.extension_draft import PlannedExtension
from wtb.operations.growth.new_cases import cases_to_send
from wtb.operations.growth.stopping import StoppedCombinations, stop_combination
from wtb.operations.handles.documentation import documented_by
from wtb.operations.handles.execution import ExecutionHandle
from wtb.operations.handles.records import ProgressCallback, SweepRecord, reporter, sweep_record
from wtb.operations.handles.shown_documents import shown_comparison, shown_rows
from wtb.operations.handles.target import TargetHandle
from wtb.operations.housekeeping.delete import Deleted, delete, preview_delete
from wtb.operations.inspection.sweeps import cells
from wtb.operations.outputs.commenting import add_comment, delete_comment, list_comments
from wtb.operations.outputs.side_by_side import PAGE, outputs, read_value
from wtb.operations.results.asking import Asking
from wtb.operations.results.baselines import BaselineSet, set_baseline
from wtb.operations.results.comparing import compare, compare_rows
from wtb.operations.results.judging import check_judge
from wtb.operations.results.label_files import GivenLabel
from wtb.operations.results.labelling import (
    ImportedLabels,
    Labelled,
    draw_labels,
    give_label,
    import_labels,
    list_labels,
)
from wtb.operations.results.matrix import gates, matrix, report
from wtb.operations.results.ranking import rank
from wtb.operations.results.scoring import Scored, score
from wtb.operations.running.continuing import Continued, resume, retry
from wtb.operations.running.preparing import bind_stored
from wtb.operations.running.published_scoring import Scoring, cancel_scoring, score_published, show_scoring
from wtb.operations.telemetry.export import ExportedTraces, export_traces
from wtb.planning.binding import Bound, bind
from wtb.planning.factors.parameter_files import read_level_files, with_file_texts
from wtb.store.read import queries
from wtb.store.rows.sweeps import ListedSweep
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from pandas import DataFrame

    from wtb.authoring.workflow import Workflow
    from wtb.operations.context import Context
    from wtb.planning.sweep_spec import SweepSpec


class SweepHandle(TargetHandle):
    """A sweep, read from its database each time. `Sweep.run`, `wtb.submit` and `Bench` return it; `print` shows it.

    Attributes:
        id: Its id, which commands such as `wtb show` take.

    Example:
        >>> from wtb import Sweep, Workflow
        >>> wf = Workflow("doubling")
        >>> wf.entry(wf.node(lambda state: {"y": 2 * state["x"]}, name="double"))
        >>> cases = [{"id": "two", "input": {"x": 2}}]
        >>> result = Sweep(workflow=wf, cases=cases, vary={"double": "all"}).run(db="sqlite:///:memory:")
        >>> result.status, [cell["state"]["y"] for cell in result.cells()]
        ('completed', [4])
    """

    def __init__(
        self,
        context: Context,
        id: str,
        workflow: Workflow | None = None,
        evaluators: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        super().__init__(context, id, workflow)
        self._evaluators = evaluators or {}

    def _bind(self, spec: SweepSpec) -> Bound:
        """Bind it to the objects that it was made of here, or to what its import path names."""
        if self._workflow is None:
            return bind_stored(self._context, spec)
        return bind(spec, self._workflow, self._evaluators)

    @property
    def _row(self) -> SweepRow:
        return queries.find_sweep(self.database, self.id)

    @property
    def record(self) -> SweepRecord:
        """What it is now."""
        row = self._row
        graph = queries.workflow_graph(self.database, row.workflow_id)
        counts = queries.cell_counts(self.database, self.id)
        listed = ListedSweep(
            *(
                *structs.astuple(row),
                graph["name"],
                graph.get("version"),
                graph.get("metadata"),
                row.status,
                None,
                None,
                None,
                counts,
            )
        )
        return sweep_record(sweep_document(listed))

    @property
    def status(self) -> str:
        """Its status: pending, running, paused, completed or cancelled."""
        return str(self._row.status)

    @property
    def reason(self) -> str | None:
        """Why it paused or was cancelled."""
        reason: str | None = self._row.reason
        return reason

    def _events_of(self) -> tuple[str, str | None]:
        return self.id, None

    # Running on

    @documented_by(resume)
    def resume(
        self,
        *,
        limits: Limits | None = None,
        allow_code_change: bool = False,
        progress: ProgressCallback | None = None,
    ) -> Self:
        """Continue it: here until it has ended or paused again, or at once by its workers.

        Args:
            progress: Called several times a second with how far a run here is.

        Returns:
            This object.
        """
        return self._continued(
            resume(
                self._context,
                self.id,
                limits=limits,
                allow_code_change=allow_code_change,
                progress=reporter(progress),
            )
        )

    @documented_by(retry)
    def retry(
        self,
        *,
        failed_only: bool = False,
        provider: bool = False,
        limits: Limits | None = None,
        progress: ProgressCallback | None = None,
    ) -> Self:
        """Run failed cells again, from their last good checkpoints: here until that has ended, or by its workers.

        Args:
            progress: Called several times a second with how far a run here is.

        Returns:
            This object.
        """
        return self._continued(
            retry(
                self._context,
                self.id,
                failed_only=failed_only,
                provider=provider,
                limits=limits,
                progress=reporter(progress),
            )
        )

    @documented_by(extend)
    def extend(
        self,
        *,
        cases: str | Path | Sequence[Any] | None = None,
        columns: Mapping[str, Any] | None = None,
        repeats: int | None = None,
        vary: Mapping[str, Sequence[Any]] | None = None,
        combination: Mapping[str, str] | None = None,
        new_name: str | None = None,
        allow_code_change: bool = False,
        reason: str | None = None,
        run: bool = True,
        progress: ProgressCallback | None = None,
    ) -> Extended:
        """Add cases, repeats or variants to it, and run only what is new.

        Args:
            cases: A file of cases, or the cases.
            progress: Called several times a second with how far a run here is.

        Example:
            >>> from wtb import Sweep, Workflow
            >>> wf = Workflow("doubling")
            >>> wf.entry(wf.node(lambda state: {"y": 2 * state["x"]}, name="double"))
            >>> cases = [{"id": "two", "input": {"x": 2}}]
            >>> result = Sweep(workflow=wf, cases=cases, vary={"double": "all"}).run(db="sqlite:///:memory:")
            >>> added = result.extend(cases=[{"id": "three", "input": {"x": 3}}])
            >>> added.cells, [cell["state"]["y"] for cell in result.cells()]
            (1, [4, 6])
        """
        rows = None if cases is None else cases_to_send(cases)
        levels, texts = read_level_files(vary, "vary")
        return extend(
            self._context,
            self.id,
            cases=rows,
            columns=columns,
            repeats=repeats,
            vary=levels,
            texts=texts,
            combination=combination,
            new_name=new_name,
            allow_code_change=allow_code_change,
            reason=reason,
            run=run,
            code=self._bind,
            progress=reporter(progress),
        )

    @documented_by(plan_extension)
    def plan_extension(
        self,
        *,
        cases: str | Path | Sequence[Any] | None = None,
        columns: Mapping[str, Any] | None = None,
        repeats: int | None = None,
        vary: Mapping[str, Sequence[Any]] | None = None,
        new_name: str | None = None,
    ) -> PlannedExtension:
        """Show what `extend` would add: cells, node runs and their price.

        Args:
            cases: A file of cases, or the cases.
        """
        rows = None if cases is None else cases_to_send(cases)
        levels, texts = read_level_files(vary, "vary")
        return plan_extension(
            self._context,
            self.id,
            cases=rows,
            columns=columns,
            repeats=repeats,
            vary=levels,
            texts=texts,
            new_name=new_name,
            code=self._bind,
        )

    @documented_by(stop_combination)
    def stop_combination(self, combination: Mapping[str, str], *, reason: str | None = None) -> StoppedCombinations:
        """Skip the open cells of the combinations that choose so, wherever it runs; the others go on."""
        return stop_combination(self._context, self.id, combination=combination, reason=reason)

    def _continued(self, continued: Continued) -> Self:
        self._warn(continued.problem)
        return self

    # Results

    @documented_by(matrix)
    def matrix(
        self,
        *,
        edited: bool = False,
        on_failure: OnFailure | None = None,
        baseline: int | str | None = None,
        where: Sequence[str] = (),
        within: bool = False,
        sort: str | None = None,
        group_by: Sequence[str] = (),
        pivot: Sequence[str] = (),
        metric: str | None = None,
    ) -> JudgedMatrixDocument:
        """Return its comparison matrix with its gates, finished or not.

        Example:
            >>> from wtb import Sweep, Workflow, evaluator
            >>> wf = Workflow("shop")
            >>> @wf.node
            ... def answer(state, *, model="mini", shots=0):
            ...     return {"y": len(model) + shots}
            >>> wf.entry(answer)
            >>> @evaluator(better="higher", scale=(0, 10))
            ... def length(case, result):
            ...     return result.state["y"]
            >>> levels = {"model": ["mini", "large"], "shots": [0, 2]}
            >>> sweep = Sweep(workflow=wf, cases=[{"id": "a", "input": {}}], vary={"answer": levels}, evaluate=[length])
            >>> result = sweep.run(db="sqlite:///:memory:")
            >>> view = result.matrix(where=["answer.shots=2"], sort="length")["view"]
            >>> [result.matrix()["rows"][number]["levels"] for number in view["rows"]]
            [{'answer.model': 'large', 'answer.shots': '2'}, {'answer.model': 'mini', 'answer.shots': '2'}]
            >>> pivot = result.matrix(pivot=["answer.model", "answer.shots"])["view"]["pivot"]
            >>> [[cell["mean"] for cell in line] for line in pivot["cells"]]
            [[4.0, 6.0], [5.0, 7.0]]
        """
        return matrix(
            self._context,
            self.id,
            edited=edited,
            on_failure=on_failure,
            baseline=baseline,
            where=where,
            within=within,
            sort=sort,
            group_by=group_by,
            pivot=pivot,
            metric=metric,
        )

    @documented_by(gates)
    def gates(self) -> list[GateDocument]:
        """Return its gates in their order.

        Returns:
            Of each: `gate`, `holds` (None if undecided), `values` and `because`.
        """
        return gates(self._context, self.id)

    @documented_by(cells)
    def cells(
        self, *, statuses: Sequence[str] = (), case: str | None = None, limit: int | None = None
    ) -> list[CellDocument]:
        """Return its cells with their states and scores.

        Returns:
            Of each: `combination`, `case`, `repeat`, `status`, `state`, `scores`, `execution`, `error`, and more.
        """
        return list(cells(self._context, self.id, statuses=statuses, case=case, limit=limit).cells)

    @documented_by(outputs)
    def outputs(
        self,
        *,
        rows: Sequence[int | str] = (),
        columns: Sequence[int | str] = (),
        keys: Sequence[str] = (),
        failed: bool = False,
        differ: Sequence[int | str] = (),
        worst: str | None = None,
        tag: str | None = None,
        text: str | None = None,
        wrong: Literal["all", "none"] | None = None,
        metric: str | None = None,
        cases: Sequence[str] = (),
        offset: int = 0,
        limit: int = PAGE,
    ) -> OutputsDocument:
        """Return the outputs of combinations side by side, a page of cases at a time.

        Returns:
            The page: `cases`, each with its input, what is expected, and a cell for each of `rows`.
        """
        return outputs(
            self._context,
            self.id,
            rows=rows,
            columns=columns,
            keys=keys,
            failed=failed,
            differ=differ,
            worst=worst,
            tag=tag,
            text=text,
            wrong=wrong,
            metric=metric,
            cases=cases,
            offset=offset,
            limit=limit,
        )

    @documented_by(read_value)
    def read_value(self, case: str, key: str | None = None) -> str:
        """Return a value of the input of a case, or its expected value, in full.

        Returns:
            The text, or JSON of what is no text.
        """
        return b"".join(read_value(self._context, self.id, case=case, key=key)).decode()

    def execution(
        self, case: str, choices: Mapping[str, str] | None = None, repeat: int | None = None
    ) -> ExecutionHandle:
        """Return the execution that holds a cell.

        Args:
            case: The id of the cell's case.
            choices: Variants by node that the cell's combination chooses; needed if there are several combinations.
            repeat: Its repeat, from 0; needed if there are several.

        Returns:
            The execution; cells whose combinations are alike so far share one.

        Raises:
            InputError: If there is no such cell, or several, or if it has not begun.
        """
        chosen = choices or {}
        found = [
            cell
            for cell in self.cells(case=case)
            if chosen.items() <= cell["combination"].items() and repeat in (None, cell["repeat"])
        ]
        if len(found) != 1:
            what = "several cells are" if found else "no cell is"
            raise InputError(f"{what} of case {case!r} with these variants and this repeat; expected one")
        if found[0]["execution"] is None:
            raise InputError(f"the cell of case {case!r} has not begun")
        return ExecutionHandle(self._context, found[0]["execution"])

    def to_pandas(self, state: Sequence[str] = ()) -> DataFrame:
        """Return a data frame with a row for each cell. Needs pandas.

        Its columns: the varied nodes; the factors, such as `answer.model`, with the labels of levels; `case`,
        `repeat`, `tags`, `expected`, `status`, `error` and `execution`; the metrics (a failed score is missing);
        `METRIC.counted`, the score that the matrix counts, which a failed cell can have, too; what the cell took as if
        alone: `latency_s` (seconds), `cost_usd` (not if a metric says the same), `tokens_in` and `tokens_out`; and keys
        of the final state. A column whose name is taken by one before it is prefixed by its kind: `cell.`, `metric.`,
        `counted.`, `spent.` or `state.`.

        Args:
            state: Keys of the final state to include.

        Returns:
            The data frame: as many rows as there are cells.

        Raises:
            InputError: If pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise InputError(f"pandas is not installed: {pip_install('pandas')}") from error
        found = cells(self._context, self.id)
        return pandas.DataFrame([cell_row(cell, found.metrics, state) for cell in found.cells])

    @overload
    def report(
        self,
        path: None = None,
        *,
        full: bool = False,
        where: Sequence[str] = (),
        within: bool = False,
        sort: str | None = None,
    ) -> EvidenceDocument: ...

    @overload
    def report(
        self,
        path: str | Path,
        *,
        full: bool = False,
        where: Sequence[str] = (),
        within: bool = False,
        sort: str | None = None,
    ) -> Path: ...

    @documented_by(report)
    def report(
        self,
        path: str | Path | None = None,
        *,
        full: bool = False,
        where: Sequence[str] = (),
        within: bool = False,
        sort: str | None = None,
    ) -> EvidenceDocument | Path:
        """Return everything that a report shows of it, whatever its status, or write the report to a file.

        Args:
            path: The file to write: `.html`, `.md`, `.csv`, `.json`, or `.xml` for JUnit.
            full: Open every case, with values as long as they are.
            where: Only rows that choose these variants or levels, as for `matrix`; in Markdown and CSV.
            within: Only rows that are shown to be within the margin of the best.
            sort: What orders the rows, as for `matrix`.

        Returns:
            The document; with a path, the path.

        Raises:
            InputError: If there is no report in such a file, or it cannot be written.
        """
        document = report(self._context, self.id, full=full, where=where, within=within, sort=sort)
        if path is None:
            return document
        file = as_path("path", path)
        form = form_of(file)
        is_page = form == "html"
        text = page_with_outputs(document, self.outputs) if is_page else RENDERERS[form](document)
        try:
            file.write_text(text, "utf-8")
        except OSError as error:
            raise InputError(f"{file}: cannot be written ({error.strerror})", argument="path") from None
        return file

    @documented_by(copy_sweep)
    def copy(
        self, to: str | None = None, *, session: str | None = None, new_name: str | None = None
    ) -> CopiedSweepDocument:
        """Copy it to another database, or under another name, with its files, history and scores."""
        return copy_sweep(self._context, self.id, to, session=session, new_name=new_name)

    @documented_by(export_traces)
    def export_traces(
        self,
        endpoint: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        content: bool = False,
        openinference: bool = False,
        protobuf: bool = False,
    ) -> ExportedTraces:
        """Send its traces to a collector of OpenTelemetry."""
        asked = {"content": content, "openinference": openinference, "protobuf": protobuf}
        return export_traces(self._context, self.id, endpoint, headers=headers, timeout=timeout, **asked)

    @documented_by(score)
    def score(
        self,
        evaluate: Sequence[str | Mapping[str, Any]] = (),
        *,
        file: str | Path | None = None,
        at_once: int = CALLS_AT_ONCE,
        limits: Limits | None = None,
    ) -> Scored:
        """Score every succeeded cell again, without running a node. Scores of the same name are replaced."""
        path = None if file is None else as_path("file", file)
        evaluate = with_file_texts(evaluate, "evaluate")
        return score(self._context, self.id, evaluate=evaluate, file=path, at_once=at_once, limits=limits)

    @documented_by(score_published)
    def score_published(
        self,
        evaluate: Sequence[str | Mapping[str, Any]] = (),
        *,
        limits: Limits | None = None,
        anyway: bool = False,
    ) -> Scoring:
        """Have workers score every succeeded cell again, without running a node."""
        evaluate = with_file_texts(evaluate, "evaluate")
        return score_published(self._context, self.id, evaluate=evaluate, limits=limits, anyway=anyway)

    @documented_by(show_scoring)
    def scoring(self, scoring: str) -> Scoring:
        """Say how far workers are with what they were asked to score."""
        return show_scoring(self._context, self.id, scoring)

    @documented_by(cancel_scoring)
    def cancel_scoring(self, scoring: str, *, reason: str | None = None) -> Scoring:
        """End what workers were asked to score. The scores that were written stay."""
        return cancel_scoring(self._context, self.id, scoring, reason=reason)

    @documented_by(check_judge)
    def check_judge(
        self,
        labels: str | Path | None = None,
        *,
        metric: str | None = None,
        scale: Scale = "ordinal",
        margin: float | None = None,
        own: Sequence[str] = (),
    ) -> JudgeCheck:
        """Hold the scores of a metric against labels of people."""
        file = None if labels is None else as_path("labels", labels)
        return check_judge(self._context, self.id, labels=file, metric=metric, scale=scale, margin=margin, own=own)

    @documented_by(rank)
    def rank(self, comparisons: str | Path, *, rater: str | None = None, asking: Asking | None = None) -> RowRanking:
        """Rank rows by comparisons of two at a time."""
        file = as_path("comparisons", comparisons)
        return rank(self._context, self.id, comparisons=file, rater=rater, asking=asking)

    @documented_by(draw_labels)
    def draw_labels(
        self,
        *,
        rater: str | None = None,
        metric: str | None = None,
        field: str | None = None,
        cases: int = CASES_DRAWN,
        again: bool = False,
    ) -> LabelQueue:
        """Draw answers of it at random for a rater to label."""
        asked = {"rater": rater, "metric": metric, "field": field}
        return draw_labels(self._context, self.id, cases=cases, again=again, **asked)

    @documented_by(give_label)
    def give_label(
        self,
        case: str,
        answer: str,
        label: float | None,
        *,
        rater: str | None = None,
        metric: str | None = None,
        field: str | None = None,
        cases: int = CASES_DRAWN,
        again: bool = False,
    ) -> Labelled:
        """Label an answer that was drawn, or take that back."""
        asked = {"rater": rater, "metric": metric, "field": field}
        return give_label(self._context, self.id, case, answer, label, cases=cases, again=again, **asked)

    @documented_by(import_labels)
    def import_labels(self, labels: str | Path, *, metric: str | None = None) -> ImportedLabels:
        """Take labels from a file, in the place of what the same raters said of the same cells."""
        return import_labels(self._context, self.id, labels=as_path("labels", labels), metric=metric)

    @documented_by(list_labels)
    def labels(self, *, metric: str | None = None) -> list[GivenLabel]:
        """List its labels."""
        return list_labels(self._context, self.id, metric=metric)

    @documented_by(add_comment)
    def add_comment(self, case: str, text: str, *, row: int = 0, repeat: int = 0) -> CommentDocument:
        """Write a comment on a cell, for everyone who may read it."""
        return add_comment(self._context, self.id, case, text, row=row, repeat=repeat)

    @documented_by(delete_comment)
    def delete_comment(self, number: int) -> CommentDocument:
        """Delete a comment. Only its author may do so, and the operator of the database."""
        return delete_comment(self._context, self.id, number)

    @documented_by(list_comments)
    def comments(self, *, case: str | None = None) -> list[CommentDocument]:
        """List the comments on its cells, the oldest first."""
        return list_comments(self._context, self.id, case=case)["comments"]

    @documented_by(compare)
    def compare(
        self,
        before: str | SweepHandle,
        *,
        margin: Mapping[str, float] | None = None,
        looked_into: int = LOOKED_INTO,
    ) -> ComparisonDocument:
        """Compare its results with those of an earlier sweep, case by case.

        Args:
            before: The earlier one; or a baseline, or a sweep's id, the beginning of it, or its name.
        """
        other = before if isinstance(before, str) else before.id
        return shown_comparison(compare(self._context, other, self.id, margin=margin, looked_into=looked_into))

    @documented_by(compare_rows)
    def compare_rows(
        self, row: int | str, other: int | str, *, metric: str | None = None, limit: int = TELLING
    ) -> RowComparisonDocument:
        """Compare two rows over all cases: which wins where, by how much, and whether that may be chance."""
        return shown_rows(compare_rows(self._context, self.id, row, other, metric=metric, limit=limit))

    @documented_by(set_baseline)
    def set_baseline(
        self, name: str, *, anyway: bool = False, repeat: int = 0, progress: ProgressCallback | None = None
    ) -> BaselineSet:
        """Make it the baseline of a name in its session. It is kept while it is one."""
        return set_baseline(self._context, name, self.id, anyway=anyway, repeat=repeat, progress=reporter(progress))

    @documented_by(preview_delete)
    def preview_delete(self) -> Deleted:
        """Return what `delete` would remove, and remove nothing.

        Returns:
            A `Deleted` with what `delete` would give.
        """
        return preview_delete(self._context, self.id)

    @documented_by(delete)
    def delete(self) -> Deleted:
        """Delete it with all that belongs to it, for good."""
        return delete(self._context, self.id)

    def _repr_html_(self) -> str:
        """The matrix with its intervals, for notebooks."""
        return notebook_view(self.matrix())

    def __str__(self) -> str:
        return render(self.matrix())

    def __repr__(self) -> str:
        return f"<sweep {self.id}: {self.status}>"
