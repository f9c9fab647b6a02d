"""Sweeps as live objects, which can be watched, steered, and read as a matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, overload

from wtb.analysis.comparison.compare import LOOKED_INTO
from wtb.config.distribution import pip_install
from wtb.core.arguments import as_path
from wtb.core.documents.comparison import ComparisonDocument, RowComparisonDocument
from wtb.core.documents.outputs import CommentDocument, CommentsDocument
from wtb.core.documents.report import EvidenceDocument
from wtb.core.documents.sweeps import CellDocument, StatusDocument
from wtb.core.errors import InputError
from wtb.core.tree.stored_spec import Limits
from wtb.display import notebook
from wtb.display.csv import cell_row
from wtb.display.matrix_table import render
from wtb.display.notebook import matrix as notebook_view
from wtb.display.report.report_files import RENDERERS, form_of, page_with_outputs
from wtb.display.text import comparisons
from wtb.display.text.added_cases import PlannedExtension
from wtb.features.archive.sweep_copies import copy_sweep
from wtb.features.judging.checking import check_judge
from wtb.features.judging.labelling import draw_labels, give_label, import_labels, list_labels
from wtb.features.judging.ranking import rank
from wtb.features.telemetry.operations import export_traces
from wtb.handles.execution import ExecutionHandle
from wtb.handles.records import ProgressCallback, SweepRecord, reporter, sweep_record
from wtb.handles.target import TargetHandle
from wtb.operations.context import Backend, Context
from wtb.operations.control.pause_cancel import stop_combination
from wtb.operations.deleting import delete, preview_delete
from wtb.operations.inspection.sweeps import Cells, cells, locate_sweep
from wtb.operations.methods import documented_by, target_method
from wtb.operations.results.commenting import add_comment, delete_comment, list_comments
from wtb.operations.results.comparing import BaselineSet, compare, compare_rows, repeat_baseline, set_baseline
from wtb.operations.results.matrix import gates, matrix, report
from wtb.operations.results.scoring import score
from wtb.operations.results.side_by_side import outputs, read_value
from wtb.operations.running.additions import cases_to_send
from wtb.operations.running.continuing import Continued, resume, retry
from wtb.operations.running.extending import Extended, extend, plan_extension
from wtb.operations.running.preparing import bind_stored
from wtb.operations.running.published import cancel_scoring, score_published, show_scoring
from wtb.planning.binding import Bound, bind

if TYPE_CHECKING:
    from pandas import DataFrame

    from wtb.authoring.workflow import Workflow
    from wtb.operations.running.additions import Code
    from wtb.planning.sweep_spec import SweepSpec

D = TypeVar("D")


class _Comparison(dict[str, Any]):
    """A comparison of two sweeps, by the keys of its document."""

    def _repr_html_(self) -> str:
        return notebook.comparison(cast(ComparisonDocument, self))

    def __str__(self) -> str:
        return comparisons.comparison(cast(ComparisonDocument, self), notebook.WIDTH)


class _RowComparison(dict[str, Any]):
    """A comparison of two rows, by the keys of its document."""

    def _repr_html_(self) -> str:
        return notebook.two_rows(cast(RowComparisonDocument, self))

    def __str__(self) -> str:
        return comparisons.two_rows(cast(RowComparisonDocument, self), notebook.WIDTH)


def shown_comparison(document: ComparisonDocument) -> ComparisonDocument:
    """Return a comparison that notebooks show as a table."""
    return cast(ComparisonDocument, _Comparison(document))


def shown_rows(document: RowComparisonDocument) -> RowComparisonDocument:
    """Return a comparison of two rows that notebooks show as a table."""
    return cast(RowComparisonDocument, _RowComparison(document))


def cell_list(listed: Cells) -> list[CellDocument]:
    """Return the cells that an operation lists.

    Returns:
        Of each: `combination`, `case`, `repeat`, `status`, `state`, `scores`, `execution`, `error`, and more.
    """
    return list(listed.cells)


def comment_list(document: CommentsDocument) -> list[CommentDocument]:
    """Return the comments of a document.

    Returns:
        The comments, the oldest first.
    """
    return document["comments"]


class SweepMethods:
    """Operations on sweeps."""

    stop_combination = target_method(stop_combination)
    matrix = target_method(matrix)
    gates = target_method(gates)
    cells = target_method(cells, cell_list)
    outputs = target_method(outputs)
    compare_rows = target_method(compare_rows, shown_rows)
    copy = target_method(copy_sweep)
    export_traces = target_method(export_traces)
    score = target_method(score)
    score_published = target_method(score_published)
    scoring = target_method(show_scoring)
    cancel_scoring = target_method(cancel_scoring)
    check_judge = target_method(check_judge)
    rank = target_method(rank)
    draw_labels = target_method(draw_labels)
    give_label = target_method(give_label)
    import_labels = target_method(import_labels)
    labels = target_method(list_labels)
    add_comment = target_method(add_comment)
    delete_comment = target_method(delete_comment)
    comments = target_method(list_comments, comment_list)
    preview_delete = target_method(preview_delete)
    delete = target_method(delete)


class SweepHandle(SweepMethods, TargetHandle):
    """A sweep, read from its database or server each time, which `Sweep.run`, `wtb.submit` and `Bench` return.

    `print` shows its matrix.

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
        backend: Backend,
        id: str,
        workflow: Workflow | None = None,
        evaluators: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        super().__init__(backend, id, workflow)
        self._evaluators = evaluators or {}

    def _bind(self, spec: SweepSpec) -> Bound:
        """Bind it to the objects that it was made of here, or to its import path."""
        if self._workflow is None:
            return bind_stored(self.backend.require_database(extend), spec)
        return bind(spec, self._workflow, self._evaluators)

    @property
    def _code(self) -> Code | None:
        """Function that binds it to its code; None for a server, which uses published code."""
        return self._bind if isinstance(self.backend, Context) else None

    @property
    def record(self) -> SweepRecord:
        """Its present record."""
        document = cast(StatusDocument, self.status_details())
        return sweep_record(document["sweep"], document["cells"])

    @property
    def status(self) -> str:
        """Its status: pending, running, paused, completed or cancelled."""
        return self.backend.call(locate_sweep, self.id).status

    @property
    def reason(self) -> str | None:
        """Reason why it paused or was cancelled."""
        return self.backend.call(locate_sweep, self.id).reason

    # Running on

    @documented_by(resume)
    def resume(
        self, *, limits: Limits | None = None, allow_code_change: bool = False, progress: ProgressCallback | None = None
    ) -> Self:
        """Continue it: here until it has ended or paused again, or at once by its workers.

        Args:
            progress: Called several times a second with how far a run here is.

        Returns:
            This object.
        """
        return self._continued(
            self.backend.call(
                resume, self.id, limits=limits, allow_code_change=allow_code_change, progress=reporter(progress)
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
            self.backend.call(
                retry, self.id, failed_only=failed_only, provider=provider, limits=limits, progress=reporter(progress)
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
        return self.backend.call(
            extend,
            self.id,
            cases=rows,
            columns=columns,
            repeats=repeats,
            vary=vary,
            combination=combination,
            new_name=new_name,
            allow_code_change=allow_code_change,
            reason=reason,
            run=run,
            code=self._code,
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
        return self.backend.call(
            plan_extension,
            self.id,
            cases=rows,
            columns=columns,
            repeats=repeats,
            vary=vary,
            new_name=new_name,
            code=self._code,
        )

    def _continued(self, continued: Continued) -> Self:
        self._warn(continued.problem)
        return self

    # Results

    @documented_by(read_value)
    def read_value(self, case: str, key: str | None = None) -> str:
        """Return a value of the input of a case, or its expected value, in full.

        Returns:
            The text, or JSON of what is no text.
        """
        return b"".join(self.backend.call(read_value, self.id, case=case, key=key)).decode()

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
        required = choices or {}
        matching = [
            cell
            for cell in self.cells(case=case)
            # A part of the choices is enough if only one cell has it.
            if required.items() <= cell["combination"].items() and repeat in (None, cell["repeat"])
        ]
        if len(matching) != 1:
            what = "several cells are" if matching else "no cell is"
            raise InputError(f"{what} of case {case!r} with these variants and this repeat; expected one")
        if matching[0]["execution"] is None:
            raise InputError(f"the cell of case {case!r} has not begun")
        return ExecutionHandle(self.backend, matching[0]["execution"])

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
            # Optional, and slow to import.
            import pandas
        except ImportError as error:
            raise InputError(f"pandas is not installed: {pip_install('pandas')}") from error
        listing = self.backend.call(cells, self.id)
        return pandas.DataFrame([cell_row(cell, listing.metrics, state) for cell in listing.cells])

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
            full: Expand every case, with untruncated values.
            where: Only rows that choose these variants or levels, as for `matrix`; in Markdown and CSV.
            within: Only rows shown to be within the margin of the best.
            sort: What orders the rows, as for `matrix`.

        Returns:
            The document; with a path, the path.

        Raises:
            InputError: If there is no report in such a file, or it cannot be written.
        """
        document = self.backend.call(report, self.id, full=full, where=where, within=within, sort=sort)
        if path is None:
            return document
        file = as_path("path", path)
        form = form_of(file)
        is_page = form == "html"
        # Only a page has outputs, which take further requests.
        text = page_with_outputs(document, self.outputs) if is_page else RENDERERS[form](document)
        try:
            file.write_text(text, "utf-8")
        except OSError as error:
            raise InputError(f"{file}: cannot be written ({error.strerror})", argument="path") from None
        return file

    @documented_by(compare)
    def compare(
        self, before: str | SweepHandle, *, margin: Mapping[str, float] | None = None, looked_into: int = LOOKED_INTO
    ) -> ComparisonDocument:
        """Compare its results with those of an earlier sweep, case by case.

        Args:
            before: The earlier one; or a baseline, or a sweep's id, the beginning of it, or its name.
        """
        other = before if isinstance(before, str) else before.id
        return shown_comparison(self.backend.call(compare, other, self.id, margin=margin, looked_into=looked_into))

    @documented_by(set_baseline)
    def set_baseline(
        self, name: str, *, anyway: bool = False, repeat: int | None = None, progress: ProgressCallback | None = None
    ) -> BaselineSet:
        """Make it the baseline of a name in its session. It is kept while it is one.

        Args:
            repeat: Run it so many more times first, to measure its noise.
            progress: Called several times a second with how far a repeat is.

        Returns:
            Which sweep is the baseline now, and which was it before; or a repeat that did not come to its end.
        """
        if repeat is None:
            return self.backend.call(set_baseline, name, self.id, anyway=anyway)
        show = reporter(progress)
        return self.backend.call(repeat_baseline, name, self.id, repeat=repeat, anyway=anyway, progress=show)

    def _repr_html_(self) -> str:
        """Return the matrix with its intervals, for notebooks."""
        return notebook_view(self.matrix())

    def __str__(self) -> str:
        return render(self.matrix())

    def __repr__(self) -> str:
        return f"<sweep {self.id}: {self.status}>"
