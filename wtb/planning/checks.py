"""Checks of a sweep that is bound to its code: what it names must exist, and what it asks for must be possible."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from wtb.authoring.evaluation.built_in import BUILT_IN
from wtb.authoring.evaluation.evaluators import Evaluator, beyond_scale
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.config.run_options import Rlimits, variables_of
from wtb.config.yaml_reader import Located
from wtb.core.errors import InputError, meant_or_known
from wtb.core.expressions.figures import Name, parse_condition
from wtb.planning.binding import Bound
from wtb.planning.factors.gate_forms import parse_gate
from wtb.planning.metric_names import primary_of, unknown_figure, unknown_metric
from wtb.planning.sweep_spec import SweepSpec

if TYPE_CHECKING:
    from wtb.config.webhooks import Target


def check_nodes(workflow: WorkflowFacts, nodes: Iterable[str], located: Located) -> None:
    """Refuse limits of nodes that the workflow does not have. Raises InputError with near matches."""
    unknown = [node for node in nodes if node not in workflow.nodes]
    if unknown:
        problem = f"workflow {workflow.name!r} has no such node"
        raise InputError(
            *(located.problem(("limits", "nodes", n), problem + meant_or_known(n, workflow.nodes)) for n in unknown)
        )


def check_pool(bound: Bound) -> None:
    """Refuse what the pool of a sweep cannot give, or lacks here. Raises InputError."""
    run, problem = bound.spec.run, bound.spec.located.problem
    if run.pool == "process" and bound.not_importable_reason:
        text = (
            f"node processes cannot be used: {bound.not_importable_reason}; move it to a module, or use the thread pool"
        )
        raise InputError(problem(("run", "pool"), text))
    if bound.pool == "thread":
        own = {"env": run.env is not None, "rlimits": run.rlimits != Rlimits()}
        why = f" ({bound.not_importable_reason})" if bound.not_importable_reason else ""
        texts = [
            problem(("run", key), f"'run.{key}' needs node processes; the thread pool shares this process{why}")
            for key, setting in own.items()
            if setting
        ]
        if texts:
            raise InputError(*texts)
    missing = [name for name in run.env or () if name not in os.environ]
    if missing:
        raise InputError(problem(("run", "env"), f"not set in this environment: {', '.join(missing)}"))
    problems = list(_server_problems(bound.spec))
    if problems:
        raise InputError(*problems)


def _server_problems(spec: SweepSpec) -> Iterator[str]:
    """Yield which variables servers of tools are to get that nodes do not have."""
    env, variables = spec.run.env, os.environ if spec.run.env is None else spec.run.env
    where = "not set in this environment" if env is None else "not among those of 'run.env'"
    for name, server in spec.mcp.items():
        for key, texts in (("env", server.env), ("headers", server.headers)):
            missing = [variable for variable in variables_of(texts) if variable not in variables]
            if missing:
                yield spec.located.problem(("mcp", name, key), f"{', '.join(missing)}: {where}")


def check_stop(bound: Bound) -> None:
    """Refuse a rule to stop by if the metric that decides could never be known. Raises InputError."""
    spec = bound.spec
    if spec.stop is None:
        return
    metric = primary_of(spec.as_stored(), [evaluator.name for evaluator in bound.evaluators])
    by = next((evaluator for evaluator in bound.evaluators if metric is not None and evaluator.gives(metric)), None)
    measure = None if by is None or metric is None else by.measure(metric)
    if metric is None:
        wrong = "'when_known' needs a metric, and the sweep has no evaluator; expected one in 'evaluate'"
    elif measure is None or measure.low is None or measure.compare != "mean":
        wrong = (
            f"'when_known' needs a metric whose scale is declared, and {metric!r}, which decides, has none; expected "
            "'scale: [0, 1]' or the like among the options of its evaluator, or another metric in 'primary'"
        )
    else:
        return
    raise InputError(spec.located.problem(("stop",), wrong))


def notification_targets(spec: SweepSpec) -> list[Target] | None:
    """The targets of a sweep's notifications, as they are stored; None if it has none.

    A program with a relative path is looked up in the folder of the sweep file.

    Raises:
        InputError: A target cannot be used; each problem names its place in the file.
    """
    if not spec.notify:
        return None
    from wtb.config.webhooks import read_target  # which takes its time to import

    targets: list[Target] = []
    problems = []
    for number, notification in enumerate(spec.notify):
        try:
            target = read_target(
                notification.to,
                allow_private=notification.allow_private,
                folder=spec.folder,
                option="",
                payload=notification.payload,
            )
            target["on"] = list(notification.on)
            targets.append(target)
        except InputError as error:
            text = str(error).replace("allow_private allows it", "'allow_private: true' allows it")
            problems.append(spec.located.problem(("notify", number), text))
    if problems:
        raise InputError(*problems)
    return targets


def metrics_given(spec: SweepSpec, evaluators: Sequence[Evaluator]) -> dict[str, bool]:
    """The names of a sweep's evaluators, and whether each gives one metric only; others may give any NAME.KEY."""
    only = (
        ref.name in BUILT_IN and not isinstance(evaluator.better, Mapping)
        for ref, evaluator in zip(spec.evaluate, evaluators, strict=True)
    )
    return dict(zip((evaluator.name for evaluator in evaluators), only, strict=True))


def margin_problems(bound: Bound, margin: Mapping[str, float]) -> dict[str, str]:
    """What is wrong with margins, by metric: no evaluator gives it, or it is beyond the scale that was declared."""
    metrics = metrics_given(bound.spec, bound.evaluators)
    problems = {}
    for metric, loss in margin.items():
        wrong = unknown_metric(metric, metrics)
        for evaluator in bound.evaluators:
            if evaluator.gives(metric):
                wrong = wrong or beyond_scale(metric, loss, evaluator.measure(metric))
        if wrong is not None:
            problems[metric] = wrong
    return problems


def check_figures(bound: Bound) -> None:
    """Refuse figures and metrics that a sweep names and no evaluator can give, and figures outside their scales.

    Not part of `bind`: a sweep that is there may have been scored by more since. Raises InputError.
    """
    spec, evaluators = bound.spec, metrics_given(bound.spec, bound.evaluators)
    figures: list[tuple[tuple[str | int, ...], Name, bool]] = []
    for number, gate in enumerate(spec.gates):
        if (condition := parse_gate(gate).condition) is not None:
            of_sweep = not parse_gate(gate).rows
            figures += [(("gates", number), name, of_sweep) for name in condition.names]
    if spec.best is not None:
        direction = "maximize" if spec.best.maximize else "minimize"
        if spec.best.metric:
            figures.append((("best", direction), Name((spec.best.metric,)), False))
        if subject_to := spec.best.subject_to:
            figures += [(("best", "subject_to"), name, False) for name in parse_condition(subject_to).names]
    located_problems = [(loc, unknown_figure(name, evaluators, of_sweep=of_sweep)) for loc, name, of_sweep in figures]
    located_problems += [(("margin", metric), wrong) for metric, wrong in margin_problems(bound, spec.margin).items()]
    located_problems += [(("agreement", metric), unknown_metric(metric, evaluators)) for metric in spec.agreement]
    if spec.primary is not None:
        located_problems.append((("primary",), unknown_metric(spec.primary, evaluators)))
    located_problems += [(("on_failure",), text) for text in _failure_score_problems(spec, bound.evaluators)]
    problems = [spec.located.problem(loc, text) for loc, text in located_problems if text is not None]
    if problems:
        raise InputError(*problems)


def check_evaluated(bound: Bound) -> None:
    """Refuse evaluators of keys that the final state cannot have. Raises InputError with near matches."""
    schema, problem = bound.workflow.schema, bound.spec.located.problem
    if schema.open:
        return
    unknown = [
        (n, key) for n, evaluator in enumerate(bound.evaluators) for key in evaluator.reads if key not in schema.keys
    ]
    if unknown:
        what = f"the state of workflow {bound.workflow.name!r} has no key"
        raise InputError(
            *(problem(("evaluate", n), f"{what} {key!r}{meant_or_known(key, schema.keys)}") for n, key in unknown)
        )


def check_repeats(bound: Bound) -> None:
    """Refuse figures over more repeats than a sweep has. Raises InputError."""
    repeat_problems = [
        (number, evaluator.problem_of_repeats(bound.spec.repeats)) for number, evaluator in enumerate(bound.evaluators)
    ]
    problems = [
        bound.spec.located.problem(("evaluate", number), text) for number, text in repeat_problems if text is not None
    ]
    if problems:
        raise InputError(*problems)


def _failure_score_problems(spec: SweepSpec, evaluators: Sequence[Evaluator]) -> list[str]:
    problems: list[str] = []
    for evaluator in evaluators:
        try:
            evaluator.check_failure_scores(spec.on_failure)
        except InputError as error:
            problems += error.problems
    return problems
