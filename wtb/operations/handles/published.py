"""The part of `Bench` that is about workflows of workers: what they publish, planned and submitted without its code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wtb.core.arguments.approval import Approval
from wtb.core.documents.plan import PlanDocument
from wtb.core.documents.workflows.new_sweeps import CaseFileDocument, EvaluatorPreviewDocument
from wtb.core.documents.workflows.publications import PublicationsDocument, PublishedWorkflowDocument
from wtb.core.tree.stored_spec import Limits
from wtb.operations.context import Context
from wtb.operations.drafting.evaluator_preview import preview_evaluator
from wtb.operations.drafting.reading_cases import read_case_file
from wtb.operations.handles.documentation import documented_by
from wtb.operations.inspection.workflows import list_published, show_published
from wtb.operations.running import published as operations
from wtb.operations.running.submitting import Submitted
from wtb.planning.data.picking import Only
from wtb.planning.factors.parameter_files import read_level_files, with_file_texts


class Published:
    """Workflows that workers publish."""

    _context: Context

    @documented_by(list_published)
    def published(self) -> PublicationsDocument:
        """List the workflows and evaluators that workers publish.

        Returns:
            A document for each, by name.
        """
        return list_published(self._context)

    @documented_by(show_published)
    def published_workflow(self, name: str) -> PublishedWorkflowDocument:
        """Show what workers publish of a workflow.

        Args:
            name: Its registered name.

        Returns:
            The document, with its graph, variants, parameters and fingerprints.
        """
        return show_published(self._context, name)

    @documented_by(read_case_file)
    def read_case_file(
        self,
        cases: Any,
        *,
        workflow: str | None = None,
        sweep: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> CaseFileDocument:
        """Show how a sweep would read a file of cases."""
        return read_case_file(self._context, cases, workflow=workflow, sweep=sweep, columns=columns)

    @documented_by(preview_evaluator)
    def preview_evaluator(
        self,
        evaluator: str | Mapping[str, Any],
        state: Mapping[str, Any],
        *,
        expected: Any = None,
        input: Mapping[str, Any] | None = None,
    ) -> EvaluatorPreviewDocument:
        """Score an output with a built-in evaluator."""
        evaluator = with_file_texts(evaluator, "evaluator")
        return preview_evaluator(self._context, evaluator, state, expected=expected, input=input)

    @documented_by(operations.plan_published)
    def plan_published(
        self,
        keys: Mapping[str, Any],
        *,
        part: Only | None = None,
        max_cells: int | None = None,
        session: str | None = None,
    ) -> PlanDocument:
        """Tell what a sweep would run, by what workers publish of its workflow."""
        return operations.plan_published(self._context, keys, part=part, max_cells=max_cells, session=session)

    @documented_by(operations.submit_published)
    def submit_published(
        self,
        keys: Mapping[str, Any],
        *,
        part: Only | None = None,
        max_cells: int | None = None,
        session: str | None = None,
        priority: int | None = None,
        anyway: bool = False,
        breakpoints: Sequence[str] = (),
        until: str | None = None,
    ) -> Submitted:
        """Give a sweep of a workflow that workers publish to them, whole or not at all.

        Returns:
            Its id, by which `sweep` finds it, and whether it starts at once.
        """
        return operations.submit_published(
            self._context,
            keys,
            part=part,
            max_cells=max_cells,
            session=session,
            priority=priority,
            anyway=anyway,
            breakpoints=breakpoints,
            until=until,
        )

    @documented_by(operations.start_published)
    def start_published(
        self,
        workflow: str,
        input: Any,
        *,
        variants: Mapping[str, str] | None = None,
        from_node: str | None = None,
        breakpoints: Sequence[str] = (),
        until: str | None = None,
        mode: str | None = None,
        approval: Approval | None = None,
        project: str | None = None,
        session: str | None = None,
        limits: Limits | None = None,
        written: Mapping[str, str] | None = None,
        create_only: bool = False,
    ) -> Submitted:
        """Give one input for a workflow that workers publish to them.

        Returns:
            Its id, by which `execution` finds it, and whether it starts at once.
        """
        levels, texts = read_level_files(variants, "variants")
        return operations.start_published(
            self._context,
            workflow,
            input,
            variants=levels,
            texts=texts,
            from_node=from_node,
            breakpoints=breakpoints,
            until=until,
            mode=mode,
            approval=approval,
            project=project,
            session=session,
            limits=limits,
            written=written,
            create_only=create_only,
        )
