"""Spans of a sweep: a root execution is a trace, and holds executions that forked off, attempts and their calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from wtb.core.telemetry.spans import Attribute, Span, SpanEvent, SpanLink, span_id_of, trace_id_of
from wtb.store.database import Database
from wtb.store.rows import SweepRow
from wtb.store.telemetry.attempts import (
    TracedAttempt,
    TracedCall,
    TracedExecution,
    TracedScore,
    traced_attempts,
    traced_calls,
    traced_executions,
    traced_scores,
)

AT_A_TIME = 200  # executions whose rows are held
_LINKS = 64  # of one span, the last ones


class SweepSpans:
    """Makes the spans of a sweep, a part at a time."""

    def __init__(self, database: Database, sweep: SweepRow) -> None:
        """Look at the executions of a sweep.

        Args:
            database: Where it is.
            sweep: It.
        """
        self._database = database
        self._sweep = sweep
        self._executions = traced_executions(database, sweep.id)
        self._roots: dict[str, str] = {}
        for one in self._executions:  # parents come first
            self._roots[one.id] = self._roots.get(one.parent_id or "", one.id)
        self._accepted: dict[str, list[str]] = {}  # ids of the spans of what executions ran, those before them included

    def parts(self) -> Iterator[list[Span]]:
        """Yield the spans of some executions after the other."""
        for start in range(0, len(self._executions), AT_A_TIME):
            some = self._executions[start : start + AT_A_TIME]
            ids = [one.id for one in some]
            calls: dict[tuple[str, int], list[TracedCall]] = defaultdict(list)
            for call in traced_calls(self._database, ids):
                calls[call.node_run_id, call.attempt].append(call)
            attempts: dict[str, list[TracedAttempt]] = defaultdict(list)
            for attempt in traced_attempts(self._database, ids):
                attempts[attempt.execution_id].append(attempt)
            scores: dict[str, list[TracedScore]] = defaultdict(list)
            for score in traced_scores(self._database, self._sweep.id, ids):
                scores[score.execution_id].append(score)
            yield [
                span for one in some for span in self._of(one, attempts.get(one.id, []), calls, scores.get(one.id, []))
            ]

    def _of(
        self,
        execution: TracedExecution,
        attempts: Sequence[TracedAttempt],
        calls: Mapping[tuple[str, int], Sequence[TracedCall]],
        scores: Sequence[TracedScore],
    ) -> Iterator[Span]:
        trace_id = trace_id_of(self._roots[execution.id])
        shared = self._accepted.get(execution.parent_id or "", [])
        mine = [_attempt_id(one) for one in attempts if one.is_accepted]
        self._accepted[execution.id] = (shared + mine)[-_LINKS:]
        if execution.finished_at is not None:
            yield self._execution(execution, trace_id, shared, scores)
        for attempt in attempts:
            yield _attempt(attempt, trace_id)
            for call in calls.get((attempt.node_run_id, attempt.number), ()):
                yield _call(call, attempt, trace_id)

    def _execution(
        self, execution: TracedExecution, trace_id: str, shared: Sequence[str], scores: Sequence[TracedScore]
    ) -> Span:
        assert execution.finished_at is not None
        parent, sweep = execution.parent_id, self._sweep
        about: dict[str, Attribute | None] = {
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
            parent_id=None if parent is None else span_id_of("execution", parent),
            name=f"invoke_workflow {sweep.name}",
            began=execution.created_at,
            ended=execution.finished_at,
            error=_error(execution.failure) if execution.status == "failed" else None,
            attributes=about,
            links=[SpanLink(trace_id, span_id) for span_id in shared],
            events=[_scored(one, execution.finished_at) for one in scores],
        )


def _attempt_id(attempt: TracedAttempt) -> str:
    return span_id_of("attempt", attempt.node_run_id, attempt.number)


def _attempt(attempt: TracedAttempt, trace_id: str) -> Span:
    about: dict[str, Attribute | None] = {
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
        span_id=_attempt_id(attempt),
        parent_id=span_id_of("execution", attempt.execution_id),
        name=f"{attempt.node} {attempt.variant}",
        began=attempt.started_at,
        ended=attempt.started_at + attempt.duration_s,
        error=_error(attempt.failure) if attempt.status == "failed" else None,
        attributes=about,
    )


def _call(call: TracedCall, attempt: TracedAttempt, trace_id: str) -> Span:
    tool = call.tool is not None
    about: dict[str, Attribute | None] = {
        "gen_ai.operation.name": "execute_tool" if tool else "chat",
        "gen_ai.tool.name": call.tool,
        "gen_ai.request.model": call.model,
        "gen_ai.usage.input_tokens": call.tokens_in,
        "gen_ai.usage.output_tokens": call.tokens_out,
        "wtb.cost.usd": float(call.usd),
    }
    return Span(
        trace_id=trace_id,
        span_id=span_id_of("call", call.id),
        parent_id=_attempt_id(attempt),
        name=f"execute_tool {call.tool}" if tool else f"chat {call.model or ''}".rstrip(),
        began=call.at - (call.duration_s or 0.0),
        ended=call.at,
        is_call=not tool,
        attributes=about,
    )


def _scored(score: TracedScore, at: float) -> SpanEvent:
    about: dict[str, Attribute] = {"gen_ai.evaluation.name": score.metric, "wtb.combination": score.combination}
    if score.value is not None:
        about["gen_ai.evaluation.score.value"] = float(score.value)
    if score.error is not None:
        about["error.type"] = "evaluator"
    return SpanEvent("gen_ai.evaluation.result", at, about)


def _error(failure: Mapping[str, object] | None) -> str:
    """Return the kind and the class of an error; its message may say what a node had read."""
    known = [str(failure[name]) for name in ("kind", "type") if failure and failure.get(name)]
    return " ".join(known) or "failed"
