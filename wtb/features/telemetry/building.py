"""Spans of executions: attempts within their execution, calls within their attempt, and links to what a fork shares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeVar

from wtb.core.failures import StoredFailure
from wtb.core.frozen import frozen
from wtb.core.ids import attempt_span_id, span_id_of, trace_id_of
from wtb.features.telemetry import queries
from wtb.features.telemetry.spans import (
    Attribute,
    Attributes,
    Span,
    SpanEvent,
    SpanLink,
    model_content,
    openinference,
    tool_content,
)
from wtb.store.database import Database
from wtb.store.tables.sweeps import SweepRow

AT_A_TIME: Final = 500  # executions whose rows are held
_LINKS = 64  # of one span, the last ones

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Kind = Literal["CHAIN", "LLM", "TOOL"]


@frozen
class SpanOptions:
    """The optional content of spans.

    Attributes:
        content: What calls read and answered.
        openinference: Their attributes as OpenInference calls them, too.
    """

    content: bool = False
    openinference: bool = False


def make_spans(
    database: Database, sweep: SweepRow, ids: Collection[str], options: SpanOptions | None = None
) -> list[Span]:
    """Make the spans of executions of a sweep.

    Args:
        database: Where they are.
        sweep: It.
        ids: Those of the executions, `AT_A_TIME` at most.
        options: The options of the contents of spans.
    """
    spans = _Spans(sweep, options or SpanOptions(), queries.traced_executions(database, ids))
    spans.share(database)
    return list(spans.make(database, ids))


class _Spans:
    """The spans of some executions. Their ancestors are looked up."""

    def __init__(self, sweep: SweepRow, options: SpanOptions, executions: Sequence[queries.TracedExecution]) -> None:
        self._sweep = sweep
        self._options = options
        self._executions = executions
        self._by_id = {execution.id: execution for execution in executions}
        self._accepted: Mapping[str, Sequence[tuple[str, str, int]]] = {}

    def share(self, database: Database) -> None:
        """Find the ancestors of these executions, and the attempts that ran in them."""
        # One query for each generation: forks of forks are rarely deep.
        while (
            unknown := {execution.parent_id for execution in self._by_id.values() if execution.parent_id}
            - self._by_id.keys()
        ):
            parents = queries.traced_executions(database, unknown)
            if not parents:
                break
            self._by_id |= {execution.id: execution for execution in parents}
        before = self._by_id.keys() - {execution.id for execution in self._executions}
        before |= {execution.parent_id for execution in self._executions if execution.parent_id}
        self._accepted = _grouped(queries.accepted_attempts(database, before), lambda row: row[0])

    def make(self, database: Database, ids: Collection[str]) -> Iterator[Span]:
        content = self._options.content
        attempts = _grouped(queries.traced_attempts(database, ids), lambda row: row.execution_id)
        scores = _grouped(queries.traced_scores(database, self._sweep.id, ids), lambda row: row.execution_id)
        calls = _grouped(
            queries.traced_calls(database, ids, with_content=content), lambda row: (row.node_run_id, row.attempt)
        )
        tools = _grouped(
            queries.traced_invocations(database, ids, with_content=content), lambda row: (row.node_run_id, row.attempt)
        )
        for execution in self._executions:
            trace_id = self._trace_of(execution)
            if execution.finished_at is not None:
                # A span has an end. An execution that still runs is sent once it has one.
                yield self._execution(execution, trace_id, scores.get(execution.id, ()), execution.finished_at)
            for attempt in attempts.get(execution.id, ()):
                yield self._attempt(attempt, trace_id)
                key = (attempt.node_run_id, attempt.number)
                yield from (self._call(call, trace_id) for call in calls.get(key, ()))
                yield from (self._invocation(call, trace_id) for call in tools.get(key, ()))

    def _trace_of(self, execution: queries.TracedExecution) -> str:
        # If executions share nodes, a trace is of a case and repeat: a fork is then in the trace of its parent.
        alone = not self._sweep.spec["run"]["share"] and execution.combinations
        combination = execution.combinations[0] if alone else None
        return trace_id_of(self._sweep.id, execution.case_number, execution.repeat, combination)

    def _shared(self, execution: queries.TracedExecution) -> list[SpanLink]:
        """Return links to the attempts with whose results an execution began, at most the last ones."""
        links: list[SpanLink] = []
        parent = self._by_id.get(execution.parent_id or "")
        while parent is not None and len(links) < _LINKS:
            trace_id = self._trace_of(parent)
            links[:0] = [
                SpanLink(trace_id, attempt_span_id(run, number)) for _, run, number in self._accepted.get(parent.id, ())
            ]
            parent = self._by_id.get(parent.parent_id or "")
        return links[-_LINKS:]

    def _execution(
        self, execution: queries.TracedExecution, trace_id: str, scores: Sequence[queries.TracedScore], ended: float
    ) -> Span:
        sweep = self._sweep
        parent = self._by_id.get(execution.parent_id or "")
        about: Attributes = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": sweep.name,
            "wtb.sweep": sweep.id,
            "wtb.execution": execution.id,
            "wtb.origin": execution.origin,
            "wtb.case": execution.case_id,
            "wtb.repeat": execution.repeat,
            "wtb.status": execution.status,
        }
        return Span(
            trace_id=trace_id,
            span_id=span_id_of("execution", execution.id),
            # Of another trace it is none: what people fork in a sweep that shares nothing is by itself.
            parent_id=span_id_of("execution", parent.id) if parent and self._trace_of(parent) == trace_id else None,
            name=f"invoke_workflow {sweep.name}",
            began=execution.created_at,
            ended=ended,
            error=_error(execution.failure) if execution.status == "failed" else None,
            attributes=self._about("CHAIN", about),
            links=self._shared(execution),
            events=[_scored(score, ended) for score in scores],
        )

    def _attempt(self, attempt: queries.TracedAttempt, trace_id: str) -> Span:
        about: Attributes = {
            "wtb.node": attempt.node,
            "wtb.variant": attempt.variant,
            "wtb.visit": attempt.visit,
            "wtb.attempt": attempt.number,
            "wtb.accepted": attempt.is_accepted,
            "wtb.cost.usd": float(attempt.usd),
            "gen_ai.usage.input_tokens": attempt.tokens_in,
            "gen_ai.usage.output_tokens": attempt.tokens_out,
        }
        return Span(
            trace_id=trace_id,
            span_id=attempt_span_id(attempt.node_run_id, attempt.number),
            parent_id=span_id_of("execution", attempt.execution_id),
            name=f"{attempt.node} {attempt.variant}",
            began=attempt.started_at,
            ended=attempt.started_at + attempt.duration_s,
            error=_error(attempt.failure) if attempt.status == "failed" else None,
            attributes=self._about("CHAIN", about),
        )

    def _call(self, call: queries.TracedCall, trace_id: str) -> Span:
        is_tool = call.tool is not None
        about: Attributes = {
            "gen_ai.operation.name": "execute_tool" if is_tool else "chat",
            "gen_ai.tool.name": call.tool,
            "gen_ai.request.model": call.model,
            "gen_ai.usage.input_tokens": call.tokens_in,
            "gen_ai.usage.output_tokens": call.tokens_out,
            "wtb.cost.usd": float(call.usd),
        }
        content = (tool_content if is_tool else model_content)(call.prompt, call.response)
        return Span(
            trace_id=trace_id,
            span_id=span_id_of("call", call.id),
            parent_id=attempt_span_id(call.node_run_id, call.attempt),
            name=f"execute_tool {call.tool}" if is_tool else f"chat {call.model or ''}".rstrip(),
            began=call.at - (call.duration_s or 0.0),
            ended=call.at,
            is_call=not is_tool,
            attributes=self._about("TOOL" if is_tool else "LLM", about | content),
        )

    def _invocation(self, call: queries.TracedInvocation, trace_id: str) -> Span:
        about: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool,
            "wtb.status": call.status,
            **tool_content(call.arguments, call.result),
        }
        return Span(
            trace_id=trace_id,
            span_id=span_id_of("tool", call.node_run_id, call.attempt, call.number),
            parent_id=attempt_span_id(call.node_run_id, call.attempt),
            name=f"execute_tool {call.tool}",
            began=call.at,
            ended=call.at + call.duration_s,
            error="failed" if call.status == "failed" else None,
            attributes=self._about("TOOL", about),
        )

    def _about(self, kind: Kind, about: Attributes) -> Attributes:
        return about | openinference(kind, about) if self._options.openinference else about


def _grouped(rows: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _scored(score: queries.TracedScore, at: float) -> SpanEvent:
    about: dict[str, Attribute] = {"gen_ai.evaluation.name": score.metric, "wtb.combination": score.combination}
    if score.value is not None:
        about["gen_ai.evaluation.score.value"] = float(score.value)
    if score.error is not None:
        about["error.type"] = "evaluator"
    return SpanEvent("gen_ai.evaluation.result", at, about)


def _error(failure: StoredFailure | None) -> str:
    """Return the kind and class of an error. Its message is left out: it may quote what a node read."""
    parts = [str(failure[name]) for name in ("kind", "type") if failure and failure.get(name)]
    return " ".join(parts) or "failed"
