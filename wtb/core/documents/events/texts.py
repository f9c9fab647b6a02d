"""What events say, in words for people. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from wtb.core.documents.events import executions, nodes, sweeps
from wtb.core.documents.events.common import Scores
from wtb.core.providers.faults import describe
from wtb.core.scoring.judgement import limit_name
from wtb.core.scoring.unknown_costs import UnknownCost, in_sentence
from wtb.core.texts import cut, describe_choices, listed_names, money, plural, printable, score, short, took

D = TypeVar("D")

_LONGEST_ERROR = 300


def _of(shape: type[D], say: Callable[[D], str]) -> Callable[[Any], str]:
    """What an event says whose data has a shape, which type checkers hold the words against."""
    return say


# What each kind of event says, given its data. Kinds that are not here say their data as it is.
_SAYS: dict[str, Callable[[Any], str]] = {
    "sweep.submitted": _of(
        sweeps.SweepSubmittedData,
        lambda d: (
            f"sweep {d['name']} submitted: {plural(d['cells'], 'cell')} of {plural(d['combinations'], 'combination')}"
        ),
    ),
    "sweep.row_added": _of(
        sweeps.SweepRowAddedData,
        lambda d: (
            f"{d['by']} added a row of {plural(d['cells'], 'cell')}, which case {d['case']} suggested"
            f"{_because(d.get('reason'))}"
        ),
    ),
    "sweep.copied": _of(
        sweeps.SweepCopiedData,
        lambda d: f"copied from {printable(d['from'])} by {d['by']}, with the events before this",
    ),
    "sweep.extended": _of(
        sweeps.SweepExtendedData,
        lambda d: f"{d['by']} added {plural(d['cells'], 'cell')}: {_added(d)}{_because(d.get('reason'))}",
    ),
    "sweep.combination_stopped": _of(
        sweeps.CombinationsStoppedData,
        lambda d: f"stopped {', '.join(d['combinations'])} {d['reason']}: {plural(d['cells'], 'cell')} skipped",
    ),
    "sweep.combination_restarted": _of(
        sweeps.CombinationsRestartedData,
        lambda d: f"{d['by']} lets {', '.join(d['combinations'])} run again: {plural(d['cells'], 'cell')}",
    ),
    "sweep.running": _of(sweeps.Decision, lambda d: f"sweep running{_because(d.get('reason'))}"),
    "sweep.paused": _of(sweeps.Decision, lambda d: f"sweep paused{_because(d.get('reason'))}"),
    "sweep.completed": _of(sweeps.Decision, lambda d: f"sweep completed{_because(d.get('reason'))}"),
    "sweep.disk_full": _of(
        sweeps.SweepDiskFullData, lambda d: f"waiting for room{_by_worker(d.get('worker'))}: {d['reason']}"
    ),
    "sweep.disk_has_room": _of(
        sweeps.SweepDiskHasRoomData, lambda d: f"there is room again{_by_worker(d.get('worker'))}: continuing"
    ),
    "sweep.memory_full": _of(sweeps.SweepMemoryFullData, lambda d: f"node runs wait: {d['reason']}"),
    "sweep.memory_has_room": _of(sweeps.Nothing, lambda d: "the session has memory again: continuing"),
    "sweep.failed": _of(sweeps.Decision, lambda d: f"sweep failed{_because(d.get('reason'))}"),
    "sweep.collected": _of(
        sweeps.SweepCollectedData, lambda d: f"`wtb gc` removed {plural(d['checkpoints'], 'superseded checkpoint')}"
    ),
    "case.erased": _of(
        sweeps.CaseErasedData,
        lambda d: f"{d['by']} erased case {d['case']}, with {plural(d['cells'], 'cell')}{_because(d.get('reason'))}",
    ),
    "comment.added": _of(
        sweeps.CommentData, lambda d: f"{d['by']} wrote comment {d['number']} on case {d['case']}{_of_row(d)}"
    ),
    "comment.deleted": _of(
        sweeps.CommentData, lambda d: f"{d['by']} deleted comment {d['number']} on case {d['case']}{_of_row(d)}"
    ),
    "policy.decided": _of(sweeps.PolicyDecidedData, lambda d: _decided(d)),
    "sweep.pinned": _of(sweeps.Nothing, lambda d: "sweep pinned: retention keeps it"),
    "sweep.unpinned": _of(sweeps.Nothing, lambda d: "sweep unpinned"),
    "baseline.set": _of(sweeps.BaselineSetData, lambda d: f"now the baseline {d['name']}: retention keeps it"),
    "baseline.removed": _of(sweeps.BaselineSetData, lambda d: f"no longer the baseline {d['name']}"),
    "checkpoint.named": _of(
        executions.CheckpointNamedData,
        lambda d: f"{d['by']} named checkpoint {d['checkpoint']} {d['name']!r}{_because(d.get('note'))}",
    ),
    "checkpoint.pinned": _of(executions.CheckpointPinnedData, lambda d: "checkpoint pinned: retention keeps it"),
    "checkpoint.unpinned": _of(executions.CheckpointUnpinnedData, lambda d: "checkpoint unpinned"),
    "sweep.cancelled": _of(sweeps.Decision, lambda d: f"sweep cancelled{_because(d.get('reason'))}"),
    "execution.started": _of(executions.ExecutionStartedData, lambda d: "execution started"),
    "execution.forked": _of(
        executions.ExecutionForkedData, lambda d: f"forked into {d['children']} by the variants of {_names(d['by'])}"
    ),
    "execution.completed": _of(
        executions.ExecutionCompletedData,
        lambda d: (
            f"execution completed: {plural(d['cells'], 'cell')}"
            if "cells" in d
            else f"fork completed{_scored(d['scores'])}"
        ),
    ),
    "execution.failed": _of(
        executions.ExecutionFailedData,
        lambda d: (
            f"execution failed: {plural(d['cells'], 'cell')}{_because(_error(d.get('error') or ''))}"
            if "cells" in d
            else f"fork failed: {_error(d['error'])}"
        ),
    ),
    "rollback.begun": _of(
        executions.RollbackBegunData,
        lambda d: (
            f"{d['by']} undoes its last rollback"
            if d.get("redo")
            else f"{d['by']} rolls it back to checkpoint {d['to']}"
        ),
    ),
    "execution.rolled_back": _of(
        executions.Rollback,
        lambda d: (
            f"rolled back to {d['words']} by {d['by']}{_because(d.get('reason'))}"
            + (f"; left: {_names(d['nodes'])}" if d["nodes"] else "")
            + _tools(d)
        ),
    ),
    "execution.redone": _of(
        executions.Rollback, lambda d: f"its rollback was undone by {d['by']}{_because(d.get('reason'))}{_tools(d)}"
    ),
    "execution.superseded": _of(
        executions.ExecutionSupersededData, lambda d: f"superseded by a rollback of execution {d['by_rollback_of']}"
    ),
    "fork.made": _of(
        executions.ForkMadeData,
        lambda d: (
            f"forked by {d['by']} from execution {d['from']}{_because(d.get('reason'))}"
            + (f"; changed: {_names(d['set'])}" if d["set"] else "")
        ),
    ),
    "execution.retried": _of(executions.ExecutionRetriedData, lambda d: f"{plural(d['cells'], 'cell')} tried again"),
    "execution.rewound": _of(
        executions.ExecutionRewoundData,
        lambda d: f"stored values were damaged: {plural(d['cells'], 'cell')} back at an earlier checkpoint",
    ),
    "execution.imported": _of(
        executions.ExecutionImportedData,
        lambda d: f"imported from an archive made on {printable(d['host'])} by {d['by']}",
    ),
    "execution.taken_back": _of(
        executions.ExecutionTakenBackData, lambda d: "reclaimed: the lease of its worker expired"
    ),
    "execution.stalled": _of(
        executions.ExecutionStalledData, lambda d: f"{under(d)} has reported nothing for {took(d['silent_s'])}"
    ),
    "execution.unstalled": _of(executions.ExecutionUnstalledData, lambda d: f"{under(d)} reports progress again"),
    "execution.paused": _of(executions.ExecutionPausedData, lambda d: f"execution paused{_because(d.get('reason'))}"),
    "execution.pausing": _of(
        executions.ExecutionPausingData, lambda d: f"asked to pause before its next step{_because(d.get('reason'))}"
    ),
    "execution.resumed": _of(
        executions.ExecutionResumedData,
        lambda d: f"resumed by {d['by']}" + (f"; changed: {_names(d['changed'])}" if d["changed"] else ""),
    ),
    "sweep.breakpoints": _of(
        sweeps.SweepBreakpointsData, lambda d: f"breakpoints set by {d['by']}: {'; '.join(d['breakpoints']) or 'none'}"
    ),
    "execution.waiting": _of(
        executions.ExecutionWaitingData, lambda d: f"waits for a person{_because(d.get('reason'))}"
    ),
    "execution.cancelled": _of(
        executions.ExecutionCancelledData,
        lambda d: (
            f"execution cancelled{_because(d.get('reason'))}"
            + (f" ({plural(d['cells'], 'cell')})" if "cells" in d else "")
        ),
    ),
    "cell.cancelled": _of(
        sweeps.CellCancelledData,
        lambda d: f"cell {d['combination']} cancelled: {_error(d['error']) if 'error' in d else d['reason']}",
    ),
    "approval.asked": _of(nodes.ApprovalAskedData, lambda d: f"question {d['approval']}: {d['question']}"),
    "approval.answered": _of(
        nodes.Answer,
        lambda d: (
            f"question {d['approval']} answered by {d['by']}: {d['choice'] or d['action']}"
            + (f" ({_names(d['keys'])})" if d["keys"] else "")
            + (f" with {d['value']}" if d.get("value") else "")
            + (f": {d['feedback']}" if d["feedback"] else "")
        ),
    ),
    "approval.expired": _of(
        nodes.Answer,
        lambda d: (
            f"nobody answered question {d['approval']} in time" + (f": {d['choice']} counts" if d["choice"] else "")
        ),
    ),
    "approval.withdrawn": _of(
        nodes.ApprovalWithdrawnData, lambda d: f"question {d['approval']} withdrawn: nobody waits for it any more"
    ),
    "worker.refused": _of(sweeps.WorkerRefusedData, lambda d: f"refused by {d['worker']}: {d['reason']}"),
    "cell.succeeded": _of(
        sweeps.CellSucceededData, lambda d: f"cell {d['combination']} succeeded{_scored(d.get('scores'))}"
    ),
    "cell.failed": _of(sweeps.CellFailedData, lambda d: f"cell {d['combination']} failed: {_error(d['error'])}"),
    "cell.set_aside": _of(sweeps.CellFailedData, lambda d: f"cell {d['combination']} set aside: {_error(d['error'])}"),
    "checkpoint.created": _of(
        executions.CheckpointCreatedData,
        lambda d: (
            f"{under(d)}: checkpoint inside it, {d['name']}"
            if "node" in d
            else f"checkpoint after step {d['step']}, next: {_names(d['next']) or 'the end'}"
        ),
    ),
    "decision": _of(executions.DecisionMadeData, lambda d: f"{d['node']} → {_end(d['to'])}: {d['why']}{_rejected(d)}"),
    "join.unmet": _of(
        executions.JoinUnmetData, lambda d: f"ended while {_names(d['joins'])} still waited for some of its sources"
    ),
    "node_run.started": _of(nodes.NodeRunStartedData, lambda d: f"{under(d)} started"),
    "variant.applied": _of(
        nodes.VariantAppliedData, lambda d: f"{d['node']}: variant {d['variant']} replaces {d['replaces']}"
    ),
    "model.called": _of(nodes.ModelCalledData, lambda d: f"{under(d)} called {d['model'] or 'a model'}{_call(d)}"),
    "tool.called": _of(
        nodes.ToolCalledData,
        lambda d: f"{under(d)} called tool {d['tool']}{' again' if d.get('again') else ''}{_call(d)}",
    ),
    "tool.reversed": _of(
        nodes.ToolReversedData, lambda d: f"{under(d)}: call {d['number']} of tool {d['tool']} undone by its reverse"
    ),
    "node_run.succeeded": _of(nodes.NodeRunEnd, lambda d: f"{under(d)} done in {_spent(d)}"),
    "node_run.failed": _of(
        nodes.NodeRunEnd,
        lambda d: f"{under(d)} failed in attempt {d['attempt']} after {_spent(d)}: {_error(d['error'], d['node'])}",
    ),
    "node_run.skipped": _of(
        nodes.NodeRunEnd, lambda d: f"{under(d)} failed and was skipped: {_error(d['error'], d['node'])}"
    ),
    "attempt.failed": _of(
        nodes.AttemptFailedData,
        lambda d: f"{under(d)} failed in attempt {d['attempt']} of {d['of']}: {_error(d['error'], d['node'])}",
    ),
    "attempt.postponed": _of(
        nodes.AttemptPostponedData,
        lambda d: f"{under(d)} waits {d['wait_s']:.3g} s after attempt {d['attempt']}: {describe(d['fault'])}",
    ),
    "node.answered_after_failure": _of(
        nodes.AnsweredAfterFailureData,
        lambda d: f"{under(d)} answered after {plural(d['calls'], 'failed call')}: {d['message']}",
    ),
    "attempt.lost": _of(
        nodes.AttemptLostData, lambda d: f"{under(d)} lost attempt {d['attempt']}: {_error(d['error'], d['node'])}"
    ),
    "budget.threshold": _of(sweeps.BudgetThresholdData, lambda d: f"{d['share']:.0%} of {_budget(d)}"),
    "budget.reached": _of(
        sweeps.BudgetReachedData,
        lambda d: f"reached: {_budget(d)}" + (f", {d['wanted']:g} wanted" if d["wanted"] else ""),
    ),
    "cost.unknown": _of(UnknownCost, in_sentence),
    "node.log": _of(
        dict[str, Any],
        lambda d: f"{under(d)}: {d['message']}{_other_fields(d, 'message', 'level', 'node', 'task', 'variant')}",
    ),
    "node.progress": _of(nodes.NodeProgressData, lambda d: f"{under(d)}: {_done(d)}"),
    "node.metric": _of(nodes.NodeMetricData, lambda d: f"{under(d)}: {d['name']} = {d['value']:g}"),
    "node.stream": _of(nodes.NodeStreamData, lambda d: f"{under(d)}: {d['name']}: {short(d['data'], _LONGEST_ERROR)}"),
    "node.sample": _of(
        nodes.NodeSampleData,
        lambda d: f"{under(d)}: {d['rss'] / 1e6:,.0f} MB, {d['cpu']:.0f}% of a core, {d['files']} files",
    ),
}


def event_text(kind: str, data: Mapping[str, object], choices: Mapping[str, str] | None = None) -> str:
    """What an event says, on one line. `choices`: those of the combination whose number it has."""
    if choices is not None:
        data = {**data, "combination": describe_choices(choices)}
    say = _SAYS.get(kind)
    try:
        text = say(data) if say is not None else f"{kind}{_other_fields(data)}"
    except (LookupError, AttributeError, TypeError, ValueError):  # of another version of WTB, or from an archive
        text = f"{kind}{_other_fields(data)}"
    return printable(" ".join(text.split()))


def _budget(data: sweeps.BudgetThresholdData | sweeps.BudgetReachedData) -> str:
    name = limit_name(data["node"], data["kind"])
    return f"the budget of {data['scope']} {data['name']}: {name} = {data['most']:g} (spent {data['spent']:g})"


def _tools(data: executions.Rollback) -> str:
    """What a rollback did to tools."""
    labels = {"undone": "undone", "redone": "made again", "irreversible": "no reverse", "failed": "failed"}
    of_label = {label: calls for key, label in labels.items() if isinstance(calls := data.get(key), list) and calls}
    return "".join(f"; {label}: {plural(len(calls), 'call')} ({_called(calls)})" for label, calls in of_label.items())


def _called(calls: Collection[Mapping[str, Any]]) -> str:
    """Name the tools of calls in their order, those in a row once."""
    names = [f"{call['tool']} of {call['node']}" for call in calls]
    return _names([name for name, before in zip(names, [None, *names], strict=False) if name != before])


def _call(data: nodes.ModelCalledData | nodes.ToolCalledData) -> str:
    """What a call took, or why it failed."""
    took_s = data["duration_s"]
    parts = [] if took_s is None else [f"in {took(took_s)}"]
    if data.get("tokens_in") or data.get("tokens_out"):
        cached = f" ({data['cached']:,} cached)" if data.get("cached") else ""
        parts.append(f"{data.get('tokens_in', 0):,}{cached} + {data.get('tokens_out', 0):,} tokens")
    parts += [money(usd)] if (usd := data.get("usd")) else []
    failed = f": failed: {_error(data['error'])}" if "error" in data else ""
    return (f" {', '.join(parts)}" if parts else "") + failed


def _rejected(data: executions.DecisionMadeData) -> str:
    """The edges that were tried before the one that was taken."""
    rejected = [f"{_end(to)}" + (f" if {when}" if when else "") for to, when, is_taken in data["tried"] if not is_taken]
    return f" (not {', '.join(rejected)})" if rejected else ""


def _end(node: str) -> str:
    return "the end" if node == "__end__" else node


def _error(error: object, node: str | None = None) -> str:
    """An error on one line, without the node, which stands before it."""
    text = " ".join(str(error).removeprefix(f"node {node!r}: ").split())
    return cut(text, _LONGEST_ERROR)


def _by_worker(worker: object) -> str:
    return f" on {worker}" if worker is not None else ""


def _decided(decision: sweeps.PolicyDecidedData) -> str:
    why = _because(", ".join([*decision["rules"], *decision["errors"]]) or None)
    if "on" not in decision:
        return f"{decision['by']} {'may' if decision['allowed'] else 'may not'} {decision['operation']}{why}"
    answered = decision.get("answered_by")
    outcome = "allowed" if decision["allowed"] else "waits for approval" if decision.get("asked") else "denied"
    by = "" if answered is None else f" by {answered}"
    return f"{decision['operation']} ({decision['on']}): {outcome}{by}{why}"


def _added(data: sweeps.SweepExtendedData) -> str:
    """What an extension has: `40 cases, 2 combinations and 1 repeat`."""
    counts = (
        (data["cases"], "case"),
        (len(data["combinations"]), "combination"),
        (data["repeats"], "repeat"),
    )
    return listed_names([plural(count, name) for count, name in counts if count] or ["nothing"])


def _of_row(data: sweeps.CommentData) -> str:
    return f", row {data['combination']}" + (f", repeat {data['repeat']}" if data["repeat"] else "")


def _because(reason: object) -> str:
    return f": {reason}" if reason else ""


def under(run: Mapping[str, object]) -> str:
    """A node under its variant: `grade=terse`, or `grade=terse (1 of 3)` where the node has several tasks."""
    of = f" of {run['tasks']}" if "tasks" in run else ""
    task = f" ({int(str(run['task']).rpartition('|')[2]) + 1}{of})" if run.get("task") else ""
    return f"{run['node']}={run['variant']}{task}"


def _names(names: Collection[str]) -> str:
    return ", ".join(names)


def _spent(data: nodes.NodeRunEnd) -> str:
    return took(data["duration_s"]) + (f" for {money(usd)}" if (usd := data.get("usd")) else "")


def _done(data: nodes.NodeProgressData) -> str:
    of = f" of {total:g} ({data['done'] / total:.0%})" if (total := data.get("total")) else ""
    return f"{data['done']:g}{of}" + (f" {data['note']}" if data.get("note") else "")


def _scored(scores: Scores | None) -> str:
    return f": {', '.join(f'{name} {score(value)}' for name, value in scores.items())}" if scores else ""


def _other_fields(data: Mapping[str, object], *names: str) -> str:
    rest = {key: value for key, value in data.items() if key not in names}
    return " " + " ".join(f"{key}={short(value, 40)}" for key, value in rest.items()) if rest else ""
