"""The check of the cases of a sweep: whether they fit its code, and what they do to its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, StateError, did_you_mean
from wtb.core.ids import plain_id
from wtb.core.scoring.measure import MEASURED_NAMES
from wtb.core.serialization.codec import encode
from wtb.core.tree.stored_spec import DataFinding
from wtb.planning.binding import Bound
from wtb.planning.cases import Case, CaseSource
from wtb.planning.data import findings
from wtb.planning.data.case_problems import CaseProblems
from wtb.planning.data.classes import ClassCounts
from wtb.planning.data.equal_inputs import Inputs
from wtb.planning.data.ordering import Ordering
from wtb.planning.data.picking import Only, pick_cases
from wtb.planning.data.similar_inputs import Texts
from wtb.planning.redaction import names_problems
from wtb.planning.sweep_spec import SingleSpec, SweepSpec


@frozen
class CheckedCases:
    """The cases of a sweep.

    Attributes:
        clusters: The cluster of each.
        findings: What they do to the figures.
    """

    clusters: Sequence[str | None]
    findings: Sequence[DataFinding]


def check_cases(
    spec: SweepSpec, bound: Bound, source: CaseSource, only: Only, *, whole: bool, total: int
) -> CheckedCases:
    """Check the cases that run.

    Args:
        spec: The sweep.
        bound: The same with its code.
        source: Its cases.
        only: The part of them.
        whole: Whether a case is the workflow's input; else it is the state at a node further on.
        total: How many cases there are at most.

    Raises:
        InputError: With each case that does not fit, or if there is none.
    """
    problems = CaseProblems()
    ids: list[str] = []
    clusters: list[str | None] = []
    lacking, inputs, classes = Counter[str](), Inputs(), ClassCounts(bound.evaluators)
    texts = Texts(min(total, only.limit or total, only.sample or total), spec.seed)
    order = _order(spec, only)
    for number, case in enumerate(pick_cases(spec, source, only if order is None else replace(only, limit=None))):
        if order is not None:
            order.add(case)
            if number >= (only.limit or 0):
                continue
        ids.append(case.id)
        clusters.append(case.cluster)
        encoded, wrong = _encoded(bound.workflow, case, whole=whole)
        wrong += names_problems(bound.spec.redact.redactor, case)
        unfit = [problem for evaluator in bound.evaluators if (problem := evaluator.problem(case.expected)) is not None]
        # Where the state is the input schema too, both say the same.
        problems.add(f"{source.name}: case {case.id!r}", dict.fromkeys([*wrong, *unfit]))
        if not unfit:
            lacking.update(evaluator.name for evaluator in bound.evaluators if evaluator.lacks_expected(case.expected))
            classes.add(number, case.expected)
        if encoded is not None and not problems and spec.equal_inputs == "cluster":
            inputs.add(encoded, case.files)
            texts.add(number, case.id, case.input)
    if problems:
        raise InputError(*problems.texts())
    if not ids:
        raise _no_cases(spec, source, only)
    alike = inputs.equal(clusters)
    is_sweep = not isinstance(spec, SingleSpec)
    data_findings = [
        *findings.equal_inputs(alike, ids),
        *findings.similar_inputs(texts.groups(), clusters, alike.clusters, ids),
        *findings.dominant_cluster(alike.clusters, ids),
        *(findings.lacking_expected(metric, count, len(ids)) for metric, count in lacking.items()),
        *classes.findings(alike.clusters, spec.redact.redactor),
        *findings.no_scale([evaluator.name for evaluator in bound.evaluators if _leaves_out_failures(spec, evaluator)]),
        *(() if order is None else order.findings()),
    ]
    return CheckedCases(alike.clusters, data_findings if is_sweep else ())


def _order(spec: SweepSpec, only: Only) -> Ordering | None:
    """Return what looks at the order of all cases, if only the first ones run."""
    if only.limit is None or only.case is not None:
        return None
    return Ordering(only.limit, names_labels=not spec.redact.redactor)


def _leaves_out_failures(spec: SweepSpec, evaluator: Evaluator) -> bool:
    """Return whether a metric leaves out failed cells although nobody says so."""
    declared = spec.on_failure is not None or evaluator.on_failure is not None or evaluator.scale is not None
    return not declared and evaluator.figure is None and evaluator.name not in MEASURED_NAMES


def input_problems(workflow: WorkflowFacts, case: Case) -> list[str]:
    """Return what is wrong with a case as the input of a workflow."""
    return list(dict.fromkeys(_encoded(workflow, case, whole=True)[1]))


def _encoded(workflow: WorkflowFacts, case: Case, *, whole: bool) -> tuple[bytes | None, list[str]]:
    """Return the input and expected value of a case as they are stored, and what is wrong with it."""
    values, wrong = workflow.schema.read_input(case.input)
    if workflow.input is not None and whole:
        missing = workflow.input.missing(case.input)
        wrong += workflow.input.read_input(case.input)[1] if workflow.is_input_closed else []
        wrong += [f"key {name!r} is missing{did_you_mean(name, case.input)}" for name in missing]
        if workflow.input.is_model and not missing:
            wrong += workflow.input.read_input({n: v for n, v in case.input.items() if n in workflow.input.keys})[1]
    encoded = None
    try:
        encoded = encode({"input": values, "expected": case.expected})
    except StateError as error:
        wrong.append(str(error))
    return encoded, wrong


def _no_cases(spec: SweepSpec, source: CaseSource, only: Only) -> InputError:
    """Return what to raise if no case is left to run."""
    is_known = only.case is None or any(case.id == plain_id(only.case) for case in source)
    if spec.holdout is not None and is_known:
        return InputError(spec.located.problem(("holdout",), _describe_empty(spec, only)))
    if only.case is None:
        return InputError(spec.located.problem(("cases",), "no cases; expected at least one"))
    near = did_you_mean(only.case, (case.id for case in islice(source, 1000)))
    return InputError(f"there is no case {only.case!r} in {source.name}{near}", argument="case")


def _describe_empty(spec: SweepSpec, only: Only) -> str:
    """Describe why the holdout leaves no case to run."""
    part = f"{spec.holdout:g} of the cases are kept for the end"
    if only.case is not None:
        return f"{part}, and case {only.case!r} is {'not ' if only.final else ''}one of them"
    rest = "case for it" if only.final else "other"
    return f"{part}, which leaves no {rest}; expected more cases or another share"
