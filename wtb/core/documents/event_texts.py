"""Texts of events for people. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from wtb.core.documents import execution_events, node_events, sweep_events
from wtb.core.documents.shared_types import Scores
from wtb.core.provider_faults import describe
from wtb.core.scoring.scores import limit_name
from wtb.core.scoring.unknown_costs import UnknownCost, in_sentence
from wtb.core.texts import cut, describe_choices, listed_names, money, plural, printable, score, short, took

D = TypeVar("D")

_LONGEST_ERROR = 300


def _of(shape: type[D], say: Callable[[D], str]) -> Callable[[Any], str]:
    """Return the text of an event whose data has a shape, which type checkers compare with the words."""
    return say


# The text of each kind of event, given its data. Kinds that are not here show their data as it is.
_SAYS: dict[str, Callable[[Any], str]] = {
    "sweep.submitted": _of(
        sweep_events.SweepSubmittedData,
        lambda d: (
            f"sweep {d['name']} submitted: {plural(d['cells'], 'cell')} of {plural(d['combinations'], 'combination')}"
        ),
    ),
    "sweep.row_added": _of(
        sweep_events.SweepRowAddedData,
        lambda d: (
            f"{d['by']} added a row of {plural(d['cells'], 'cell')}, which case {d['case']} suggested"
            f"{_because(d.get('reason'))}"
        ),
    ),
    "sweep.copied": _of(
        sweep_events.SweepCopiedData,
        lambda d: f"copied from {printable(d['from'])} by {d['by']}, with the events before this",
    ),
    "sweep.extended": _of(
        sweep_events.SweepExtendedData,
        lambda d: f"{d['by']} added {plural(d['cells'], 'cell')}: {_added(d)}{_because(d.get('reason'))}",
    ),
    "sweep.combination_stopped": _of(
        sweep_events.CombinationsStoppedData,
        lambda d: f"stopped {', '.join(d['combinations'])} {d['reason']}: {plural(d['cells'], 'cell')} skipped",
    ),
    "sweep.combination_restarted": _of(
        sweep_events.CombinationsRestartedData,
        lambda d: f"{d['by']} lets {', '.join(d['combinations'])} run again: {plural(d['cells'], 'cell')}",
    ),
    "sweep.running": _of(sweep_events.Decision, lambda d: f"sweep running{_because(d.get('reason'))}"),
    "sweep.paused": _of(sweep_events.Decision, lambda d: f"sweep paused{_because(d.get('reason'))}"),
    "sweep.completed": _of(sweep_events.Decision, lambda d: f"sweep completed{_because(d.get('reason'))}"),
    "sweep.disk_full": _of(
        sweep_events.SweepDiskFullData, lambda d: f"waiting for room{_by_worker(d.get('worker'))}: {d['reason']}"
    ),
    "sweep.disk_has_room": _of(
        sweep_events.SweepDiskHasRoomData, lambda d: f"there is room again{_by_worker(d.get('worker'))}: continuing"
    ),
    "sweep.memory_full": _of(sweep_events.SweepMemoryFullData, lambda d: f"node runs wait: {d['reason']}"),
    "sweep.memory_has_room": _of(sweep_events.Nothing, lambda d: "the session has memory again: continuing"),
    "sweep.failed": _of(sweep_events.Decision, lambda d: f"sweep failed{_because(d.get('reason'))}"),
    "sweep.collected": _of(
        sweep_events.SweepCollectedData,
        lambda d: f"`wtb admin gc` removed {plural(d['checkpoints'], 'superseded checkpoint')}",
    ),
    "case.erased": _of(
        sweep_events.CaseErasedData,
        lambda d: f"{d['by']} erased case {d['case']}, with {plural(d['cells'], 'cell')}{_because(d.get('reason'))}",
    ),
    "comment.added": _of(
        sweep_events.CommentData, lambda d: f"{d['by']} wrote comment {d['number']} on case {d['case']}{_of_row(d)}"
    ),
    "comment.deleted": _of(
        sweep_events.CommentData, lambda d: f"{d['by']} deleted comment {d['number']} on case {d['case']}{_of_row(d)}"
    ),
    "policy.decided": _of(sweep_events.PolicyDecidedData, lambda d: _decided(d)),
    "sweep.pinned": _of(sweep_events.Nothing, lambda d: "sweep pinned: retention keeps it"),
    "sweep.unpinned": _of(sweep_events.Nothing, lambda d: "sweep unpinned"),
    "baseline.set": _of(sweep_events.BaselineSetData, lambda d: f"now the baseline {d['name']}: retention keeps it"),
    "baseline.removed": _of(sweep_events.BaselineSetData, lambda d: f"no longer the baseline {d['name']}"),
    "checkpoint.named": _of(
        execution_events.CheckpointNamedData,
        lambda d: f"{d['by']} named checkpoint {d['checkpoint']} {d['name']!r}{_because(d.get('note'))}",
    ),
    "checkpoint.pinned": _of(execution_events.CheckpointPinnedData, lambda d: "checkpoint pinned: retention keeps it"),
    "checkpoint.unpinned": _of(execution_events.CheckpointUnpinnedData, lambda d: "checkpoint unpinned"),
    "sweep.cancelled": _of(sweep_events.Decision, lambda d: f"sweep cancelled{_because(d.get('reason'))}"),
    "execution.started": _of(execution_events.ExecutionStartedData, lambda d: "execution started"),
    "execution.forked": _of(
        execution_events.ExecutionForkedData,
        lambda d: f"forked into {d['children']} by the variants of {_names(d['by'])}",
    ),
    "execution.completed": _of(
        execution_events.ExecutionCompletedData,
        lambda d: (
            f"execution completed: {plural(d['cells'], 'cell')}"
            if "cells" in d
            else f"fork completed{_scored(d['scores'])}"
        ),
    ),
    "execution.failed": _of(
        execution_events.ExecutionFailedData,
        lambda d: (
            f"execution failed: {plural(d['cells'], 'cell')}{_because(_error(d.get('error') or ''))}"
            if "cells" in d
            else f"fork failed: {_error(d['error'])}"
        ),
    ),
    "rollback.begun": _of(
        execution_events.RollbackBegunData,
        lambda d: (
            f"{d['by']} undoes its last rollback"
            if d.get("redo")
            else f"{d['by']} rolls it back to checkpoint {d['to']}"
        ),
    ),
    "execution.rolled_back": _of(
        execution_events.Rollback,
        lambda d: (
            f"rolled back to {d['words']} by {d['by']}{_because(d.get('reason'))}"
            + (f"; left: {_names(d['nodes'])}" if d["nodes"] else "")
            + _tools(d)
        ),
    ),
    "execution.redone": _of(
        execution_events.Rollback,
        lambda d: f"its rollback was undone by {d['by']}{_because(d.get('reason'))}{_tools(d)}",
    ),
    "execution.superseded": _of(
        execution_events.ExecutionSupersededData,
        lambda d: f"superseded by a rollback of execution {d['by_rollback_of']}",
    ),
    "fork.made": _of(
        execution_events.ForkMadeData,
        lambda d: (
            f"forked by {d['by']} from execution {d['from']}{_because(d.get('reason'))}"
            + (f"; changed: {_names(d['set'])}" if d["set"] else "")
        ),
    ),
    "execution.retried": _of(
        execution_events.ExecutionRetriedData, lambda d: f"{plural(d['cells'], 'cell')} tried again"
    ),
    "execution.rewound": _of(
        execution_events.ExecutionRewoundData,
        lambda d: f"stored values were damaged: {plural(d['cells'], 'cell')} back at an earlier checkpoint",
    ),
    "execution.imported": _of(
        execution_events.ExecutionImportedData,
        lambda d: f"imported from an archive made on {printable(d['host'])} by {d['by']}",
    ),
    "execution.taken_back": _of(
        execution_events.ExecutionTakenBackData, lambda d: "reclaimed: the lease of its worker expired"
    ),
    "execution.stalled": _of(
        execution_events.ExecutionStalledData, lambda d: f"{under(d)} has reported nothing for {took(d['silent_s'])}"
    ),
    "execution.unstalled": _of(execution_events.ExecutionUnstalledData, lambda d: f"{under(d)} reports progress again"),
    "execution.paused": _of(
        execution_events.ExecutionPausedData, lambda d: f"execution paused{_because(d.get('reason'))}"
    ),
    "execution.pausing": _of(
        execution_events.ExecutionPausingData,
        lambda d: f"asked to pause before its next step{_because(d.get('reason'))}",
    ),
    "execution.resumed": _of(
        execution_events.ExecutionResumedData,
        lambda d: f"resumed by {d['by']}" + (f"; changed: {_names(d['changed'])}" if d["changed"] else ""),
    ),
    "sweep.breakpoints": _of(
        sweep_events.SweepBreakpointsData,
        lambda d: f"breakpoints set by {d['by']}: {'; '.join(d['breakpoints']) or 'none'}",
    ),
    "execution.waiting": _of(
        execution_events.ExecutionWaitingData, lambda d: f"waits for a person{_because(d.get('reason'))}"
    ),
    "execution.cancelled": _of(
        execution_events.ExecutionCancelledData,
        lambda d: (
            f"execution cancelled{_because(d.get('reason'))}"
            + (f" ({plural(d['cells'], 'cell')})" if "cells" in d else "")
        ),
    ),
    "cell.cancelled": _of(
        sweep_events.CellCancelledData,
        lambda d: f"cell {d['combination']} cancelled: {_error(d['error']) if 'error' in d else d['reason']}",
    ),
    "approval.asked": _of(node_events.ApprovalAskedData, lambda d: f"question {d['approval']}: {d['question']}"),
    "approval.answered": _of(
        node_events.Answer,
        lambda d: (
            f"question {d['approval']} answered by {d['by']}: {d['choice'] or d['action']}"
            + (f" ({_names(d['keys'])})" if d["keys"] else "")
            + (f" with {d['value']}" if d.get("value") else "")
            + (f": {d['feedback']}" if d["feedback"] else "")
        ),
    ),
    "approval.expired": _of(
        node_events.Answer,
        lambda d: (
            f"question {d['approval']} was not answered in time" + (f": {d['choice']} counts" if d["choice"] else "")
        ),
    ),
    "approval.withdrawn": _of(
        node_events.ApprovalWithdrawnData, lambda d: f"question {d['approval']} withdrawn: its node no longer waits"
    ),
    "worker.refused": _of(sweep_events.WorkerRefusedData, lambda d: f"refused by {d['worker']}: {d['reason']}"),
    "cell.succeeded": _of(
        sweep_events.CellSucceededData, lambda d: f"cell {d['combination']} succeeded{_scored(d.get('scores'))}"
    ),
    "cell.failed": _of(sweep_events.CellFailedData, lambda d: f"cell {d['combination']} failed: {_error(d['error'])}"),
    "cell.set_aside": _of(
        sweep_events.CellFailedData, lambda d: f"cell {d['combination']} set aside: {_error(d['error'])}"
    ),
    "checkpoint.created": _of(
        execution_events.CheckpointCreatedData,
        lambda d: (
            f"{under(d)}: checkpoint inside it, {d['name']}"
            if "node" in d
            else f"checkpoint after step {d['step']}, next: {_names(d['next']) or 'the end'}"
        ),
    ),
    "decision": _of(
        execution_events.DecisionMadeData, lambda d: f"{d['node']} → {shown_target(d['to'])}: {d['why']}{_rejected(d)}"
    ),
    "join.unmet": _of(
        execution_events.JoinUnmetData,
        lambda d: f"ended while {_names(d['joins'])} still waited for some of its sources",
    ),
    "node_run.started": _of(node_events.NodeRunStartedData, lambda d: f"{under(d)} started"),
    "variant.applied": _of(
        node_events.VariantAppliedData, lambda d: f"{d['node']}: variant {d['variant']} replaces {d['replaces']}"
    ),
    "model.called": _of(
        node_events.ModelCalledData, lambda d: f"{under(d)} called {d['model'] or 'a model'}{_call(d)}"
    ),
    "tool.called": _of(
        node_events.ToolCalledData,
        lambda d: f"{under(d)} called tool {d['tool']}{' again' if d.get('again') else ''}{_call(d)}",
    ),
    "tool.reversed": _of(
        node_events.ToolReversedData,
        lambda d: f"{under(d)}: call {d['number']} of tool {d['tool']} undone by its reverse",
    ),
    "node_run.succeeded": _of(node_events.NodeRunEnd, lambda d: f"{under(d)} done in {_spent(d)}"),
    "node_run.failed": _of(
        node_events.NodeRunEnd,
        lambda d: f"{under(d)} failed in attempt {d['attempt']} after {_spent(d)}: {_error(d['error'], d['node'])}",
    ),
    "node_run.skipped": _of(
        node_events.NodeRunEnd, lambda d: f"{under(d)} failed and was skipped: {_error(d['error'], d['node'])}"
    ),
    "attempt.failed": _of(
        node_events.AttemptFailedData,
        lambda d: f"{under(d)} failed in attempt {d['attempt']} of {d['of']}: {_error(d['error'], d['node'])}",
    ),
    "attempt.postponed": _of(
        node_events.AttemptPostponedData,
        lambda d: f"{under(d)} waits {d['wait_s']:.3g} s after attempt {d['attempt']}: {describe(d['fault'])}",
    ),
    "node.answered_after_failure": _of(
        node_events.AnsweredAfterFailureData,
        lambda d: f"{under(d)} answered after {plural(d['calls'], 'failed call')}: {d['message']}",
    ),
    "attempt.lost": _of(
        node_events.AttemptLostData,
        lambda d: f"{under(d)} lost attempt {d['attempt']}: {_error(d['error'], d['node'])}",
    ),
    "budget.threshold": _of(sweep_events.BudgetThresholdData, lambda d: f"{d['share']:.0%} of {_budget(d)}"),
    "budget.reached": _of(
        sweep_events.BudgetReachedData,
        lambda d: f"reached: {_budget(d)}" + (f", {d['wanted']:g} wanted" if d["wanted"] else ""),
    ),
    "cost.unknown": _of(UnknownCost, in_sentence),
    "node.log": _of(
        dict[str, Any],
        lambda d: f"{under(d)}: {d['message']}{_other_fields(d, 'message', 'level', 'node', 'task', 'variant')}",
    ),
    "node.progress": _of(node_events.NodeProgressData, lambda d: f"{under(d)}: {_done(d)}"),
    "node.metric": _of(node_events.NodeMetricData, lambda d: f"{under(d)}: {d['name']} = {d['value']:g}"),
    "node.stream": _of(
        node_events.NodeStreamData, lambda d: f"{under(d)}: {d['name']}: {short(d['data'], _LONGEST_ERROR)}"
    ),
    "node.sample": _of(
        node_events.NodeSampleData,
        lambda d: f"{under(d)}: {d['rss'] / 1e6:,.0f} MB, {d['cpu']:.0f}% of a core, {d['files']} files",
    ),
}


def event_text(kind: str, fields: Mapping[str, object], choices: Mapping[str, str] | None = None) -> str:
    """Return an event as one line of text. `choices` are those of the combination whose number it has."""
    if choices is not None:
        fields = {**fields, "combination": describe_choices(choices)}
    say = _SAYS.get(kind)
    try:
        text = say(fields) if say is not None else f"{kind}{_other_fields(fields)}"
    # A log must stay readable, whatever its events contain.
    except (LookupError, AttributeError, TypeError, ValueError):  # of another version of WTB, or from an archive
        text = f"{kind}{_other_fields(fields)}"
    return printable(" ".join(text.split()))


def _budget(fields: sweep_events.BudgetThresholdData | sweep_events.BudgetReachedData) -> str:
    name = limit_name(fields["node"], fields["kind"])
    return f"the budget of {fields['scope']} {fields['name']}: {name} = {fields['most']:g} (spent {fields['spent']:g})"


def _tools(fields: execution_events.Rollback) -> str:
    """Return the results of a rollback for tools."""
    labels = {"undone": "undone", "redone": "made again", "irreversible": "no reverse", "failed": "failed"}
    of_label = {label: calls for key, label in labels.items() if isinstance(calls := fields.get(key), list) and calls}
    return "".join(f"; {label}: {plural(len(calls), 'call')} ({_called(calls)})" for label, calls in of_label.items())


def _called(calls: Collection[Mapping[str, Any]]) -> str:
    """Name the tools of calls in their order, repeated ones once."""
    names = [f"{call['tool']} of {call['node']}" for call in calls]
    return _names([name for name, before in zip(names, [None, *names], strict=False) if name != before])


def _call(fields: node_events.ModelCalledData | node_events.ToolCalledData) -> str:
    """Return the duration of a call, or its error."""
    took_s = fields["duration_s"]
    parts = [] if took_s is None else [f"in {took(took_s)}"]
    if fields.get("tokens_in") or fields.get("tokens_out"):
        cached = f" ({fields['cached']:,} cached)" if fields.get("cached") else ""
        parts.append(f"{fields.get('tokens_in', 0):,}{cached} + {fields.get('tokens_out', 0):,} tokens")
    parts += [money(usd)] if (usd := fields.get("usd")) else []
    failed = f": failed: {_error(fields['error'])}" if "error" in fields else ""
    return (f" {', '.join(parts)}" if parts else "") + failed


def _rejected(fields: execution_events.DecisionMadeData) -> str:
    """Return the edges that were tried before the one that was taken."""
    rejected = [
        f"{shown_target(to)}" + (f" if {when}" if when else "")
        for to, when, is_taken in fields["tried"]
        if not is_taken
    ]
    return f" (not {', '.join(rejected)})" if rejected else ""


def shown_target(node: str) -> str:
    """Return the name of the node that an edge leads to, or words for the end."""
    return "the end" if node == "__end__" else node


def _error(error: object, node: str | None = None) -> str:
    """Return an error on one line, without the node, which is named before it."""
    text = " ".join(str(error).removeprefix(f"node {node!r}: ").split())
    return cut(text, _LONGEST_ERROR)


def _by_worker(worker: object) -> str:
    return f" on {worker}" if worker is not None else ""


def _decided(decision: sweep_events.PolicyDecidedData) -> str:
    why = _because(", ".join([*decision["rules"], *decision["errors"]]) or None)
    if "on" not in decision:
        return f"{decision['by']} {'may' if decision['allowed'] else 'may not'} {decision['operation']}{why}"
    answered = decision.get("answered_by")
    outcome = "allowed" if decision["allowed"] else "waits for approval" if decision.get("asked") else "denied"
    by = "" if answered is None else f" by {answered}"
    return f"{decision['operation']} ({decision['on']}): {outcome}{by}{why}"


def _added(fields: sweep_events.SweepExtendedData) -> str:
    """Return the contents of an extension: `40 cases, 2 combinations and 1 repeat`."""
    counts = (
        (fields["cases"], "case"),
        (len(fields["combinations"]), "combination"),
        (fields["repeats"], "repeat"),
    )
    return listed_names([plural(count, name) for count, name in counts if count] or ["nothing"])


def _of_row(fields: sweep_events.CommentData) -> str:
    return f", row {fields['combination']}" + (f", repeat {fields['repeat']}" if fields["repeat"] else "")


def _because(reason: object) -> str:
    return f": {reason}" if reason else ""


def under(run: Mapping[str, object]) -> str:
    """Return a node with its variant: `grade=terse`, or `grade=terse (1 of 3)` if the node has several tasks."""
    of = f" of {run['tasks']}" if "tasks" in run else ""
    task = f" ({int(str(run['task']).rpartition('|')[2]) + 1}{of})" if run.get("task") else ""
    return f"{run['node']}={run['variant']}{task}"


def _names(names: Collection[str]) -> str:
    return ", ".join(names)


def _spent(fields: node_events.NodeRunEnd) -> str:
    return took(fields["duration_s"]) + (f" for {money(usd)}" if (usd := fields.get("usd")) else "")


def _done(fields: node_events.NodeProgressData) -> str:
    of = f" of {total:g} ({fields['done'] / total:.0%})" if (total := fields.get("total")) else ""
    return f"{fields['done']:g}{of}" + (f" {fields['note']}" if fields.get("note") else "")


def _scored(scores: Scores | None) -> str:
    return f": {', '.join(f'{name} {score(figure)}' for name, figure in scores.items())}" if scores else ""


def _other_fields(fields: Mapping[str, object], *names: str) -> str:
    rest = {key: field for key, field in fields.items() if key not in names}
    return " " + " ".join(f"{key}={short(field, 40)}" for key, field in rest.items()) if rest else ""
