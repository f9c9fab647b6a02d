"""Checks of a sweep that is bound to its code: names must exist, requests be possible, and redaction reach no name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wtb.authoring.evaluation.built_in import BUILT_IN
from wtb.authoring.evaluation.evaluators import Evaluator, beyond_scale
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.config.run_options import Rlimits, variables_of
from wtb.config.yaml_reader import Loc, Located
from wtb.core.errors import InputError, meant_or_known
from wtb.core.expressions import Name, parse_condition
from wtb.core.serialization.redaction import Redactor, marker
from wtb.planning.binding import Bound
from wtb.planning.cases import Case
from wtb.planning.metric_names import primary_of, unknown_figure, unknown_metric
from wtb.planning.sweep_spec import SweepSpec
from wtb.planning.variant_forms import parse_gate

if TYPE_CHECKING:
    from wtb.config.webhooks import Target


def check_nodes(workflow: WorkflowFacts, nodes: Iterable[str], located: Located) -> None:
    """Reject limits of nodes that the workflow does not have. Raises InputError with near matches."""
    unknown = [node for node in nodes if node not in workflow.nodes]
    if unknown:
        problem = f"workflow {workflow.name!r} has no such node"
        raise InputError(
            *(located.problem(("limits", "nodes", n), problem + meant_or_known(n, workflow.nodes)) for n in unknown)
        )


def check_pool(bound: Bound) -> None:
    """Reject settings that the pool of a sweep does not support, or that are missing here. Raises InputError."""
    run, problem = bound.spec.run, bound.spec.located.problem
    if run.pool == "process" and bound.not_importable_reason:
        text = (
            f"node processes cannot be used: {bound.not_importable_reason}; move it to a module, or use the thread pool"
        )
        raise InputError(problem(("run", "pool"), text))
    if bound.pool == "thread":
        # A thread cannot have an environment or limits of its own.
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
    """Yield a problem for each variable that servers of tools need and nodes do not have."""
    env, variables = spec.run.env, os.environ if spec.run.env is None else spec.run.env
    where = "not set in this environment" if env is None else "not among those of 'run.env'"
    for name, server in spec.mcp.items():
        for key, texts in (("env", server.env), ("headers", server.headers)):
            missing = [variable for variable in variables_of(texts) if variable not in variables]
            if missing:
                yield spec.located.problem(("mcp", name, key), f"{', '.join(missing)}: {where}")


def check_stop(bound: Bound) -> None:
    """Reject a rule to stop by if the deciding metric could never be known. Raises InputError."""
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
    """Return the targets of a sweep's notifications as they are stored; None if it has none.

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
    """Return evaluator names, and whether each gives one metric only; others may give any NAME.KEY."""
    only = (
        ref.name in BUILT_IN and not isinstance(evaluator.better, Mapping)
        for ref, evaluator in zip(spec.evaluate, evaluators, strict=True)
    )
    return dict(zip((evaluator.name for evaluator in evaluators), only, strict=True))


def margin_problems(bound: Bound, margin: Mapping[str, float]) -> dict[str, str]:
    """Return the problems of margins by metric: no evaluator gives it, or it exceeds the declared scale."""
    metrics = metrics_given(bound.spec, bound.evaluators)
    problems = {}
    for metric, loss in margin.items():
        wrong = unknown_metric(metric, metrics)
        for evaluator in bound.evaluators:
            # Several evaluators may give a metric: one problem of them is enough.
            if evaluator.gives(metric):
                wrong = wrong or beyond_scale(metric, loss, evaluator.measure(metric))
        if wrong is not None:
            problems[metric] = wrong
    return problems


def check_figures(bound: Bound) -> None:
    """Reject figures and metrics that no evaluator can give, and figures outside their scales.

    This is not part of `bind`, because an existing sweep may have been scored by further evaluators. Raises InputError.
    """
    spec, evaluators = bound.spec, metrics_given(bound.spec, bound.evaluators)
    # All are collected first, so that every wrong figure is reported at once.
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
    """Reject evaluators of keys that the final state cannot have. Raises InputError with near matches."""
    schema, problem = bound.workflow.schema, bound.spec.located.problem
    # An open state may get any key while it runs.
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
    """Reject figures over more repeats than a sweep has. Raises InputError."""
    problems = [
        bound.spec.located.problem(("evaluate", number), text)
        for number, evaluator in enumerate(bound.evaluators)
        if (text := evaluator.problem_of_repeats(bound.spec.repeats)) is not None
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


_NO_DATA = ("redact", "cases")  # of a sweep: the patterns themselves, and cases, which are redacted


def check_redaction(bound: Bound) -> None:
    """Reject a sweep that would store redacted values, or whose state could not hold a marker.

    Args:
        bound: The sweep with its code.

    Raises:
        InputError: With each parameter, and each key whose type is not text.
    """
    redactor = bound.spec.redact.redactor
    if not redactor:
        return
    # The spec is stored in full: a redacted one could not be run again.
    stored = {key: part for key, part in bound.spec.as_stored().items() if key not in _NO_DATA}
    problems = [
        bound.spec.located.problem(
            loc,
            f"{what}, and the sweep file is stored as it is, so that the sweep can be continued; pass secrets to nodes "
            f"in their environment (run.env)",
        )
        for loc, what in _spec_problems(redactor, stored, ())
    ]
    problems += _type_problems(bound)
    if problems:
        raise InputError(*problems)


def _spec_problems(redactor: Redactor, content: Any, loc: Loc) -> Iterator[tuple[Loc, str]]:
    """Yield the sweep's own texts that would have to be redacted, by place."""
    if isinstance(content, str):
        name = redactor.find_pattern(content)
        if name is not None:
            yield loc, f"the pattern {name!r} of 'redact' is found here"
    elif isinstance(content, list):
        for place, member in enumerate(content):
            yield from _spec_problems(redactor, member, (*loc, place))
    elif isinstance(content, dict):
        for key, member in content.items():
            if key in redactor.keys:
                yield (*loc, key), f"the key {key!r} is one of 'redact.keys'"
            else:
                yield from _spec_problems(redactor, member, (*loc, key))


def _type_problems(bound: Bound) -> list[str]:
    """Return problems for keys of the state whose values cannot be replaced by text."""
    schema, problems = bound.workflow.schema, []
    for name in bound.spec.redact.keys:
        key = schema.keys.get(name)
        if key is not None and not _takes_text(key.annotation, marker(name)):
            problems.append(
                bound.spec.located.problem(
                    ("redact", "keys"),
                    f"'{name}' is a key of the state that takes no text, and a marker is text; expected a key of type "
                    f"str, or one without a type",
                )
            )
    return problems


def _takes_text(annotation: Any, text: str) -> bool:
    import pydantic

    try:
        pydantic.TypeAdapter(annotation).validate_python(text)
    except pydantic.ValidationError:
        return False
    except (pydantic.PydanticUserError, NameError, TypeError):
        return True  # a type that only Python code can check
    return True


def names_problems(redactor: Redactor, case: Case) -> list[str]:
    """Return the problems of a case's names: its id, tags and cluster appear everywhere and are not redacted."""
    if not redactor.patterns:
        return []
    # Names cannot be redacted: rows, pages and commands refer to a case by them.
    named = (("its id", [case.id]), ("a tag", case.tags), ("its cluster", [case.cluster] if case.cluster else []))
    matches = ((what, redactor.find_pattern(text)) for what, texts in named for text in texts)
    return [
        f"{what} has what the pattern {name!r} of 'redact' is to keep out; expected one without it"
        for what, name in matches
        if name is not None
    ]
