"""Check of a sweep's cases: whether they fit its code, and how they affect its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.errors import InputError, StateError, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.ids import plain_id
from wtb.core.scoring.measure import FEWEST_OF_CLASS, MEASURED_NAMES, OF_CLASSES, Label, OfClass, class_sentence
from wtb.core.serialization.codec import encode
from wtb.core.serialization.redaction import Redactor
from wtb.core.tree.stored_spec import DataFinding
from wtb.planning import findings
from wtb.planning.binding import Bound
from wtb.planning.case_columns import CaseProblems
from wtb.planning.cases import Case, CaseSource
from wtb.planning.checks import names_problems
from wtb.planning.equal_inputs import Inputs, Texts
from wtb.planning.findings import Ordering
from wtb.planning.picking import Only, pick_cases
from wtb.planning.sweep_spec import SingleSpec, SweepSpec

_NAMES = {1: "positive", 0: "other"}  # as figures of one class call them


class ClassCounts:
    """The class of each case by each evaluator whose figure depends on it."""

    def __init__(self, evaluators: Sequence[Evaluator]) -> None:
        # The precision of a class rests on the cases in which a row finds it, which nobody knows yet.
        self._evaluators = [
            evaluator
            for evaluator in evaluators
            if evaluator.class_of is not None and evaluator.figure != "class_precision"
        ]
        self._cases: list[dict[Label, list[int]]] = [{} for _ in self._evaluators]

    def add(self, number: int, expected: Any) -> None:
        """Add the expected value of a case. The evaluator itself rejects values that are no class."""
        for evaluator, cases in zip(self._evaluators, self._cases, strict=True):
            if evaluator.class_of is None or evaluator.lacks_expected(expected):
                continue
            try:
                label = evaluator.class_of(expected)
            except InputError:
                continue
            cases.setdefault(label, []).append(number)

    def findings(self, clusters: Sequence[str | None], redactor: Redactor) -> Iterator[DataFinding]:
        """Yield findings on metrics that have too few cases of a class for an interval.

        Args:
            clusters: The cluster of each case.
            redactor: Of the names of classes.
        """
        unit = "clusters" if any(clusters) else "cases"
        for evaluator, cases in zip(self._evaluators, self._cases, strict=True):
            units = {label: len({clusters[n] or n for n in numbers}) for label, numbers in cases.items()}
            if not units or evaluator.figure is None:
                continue
            count, label = _counted(evaluator, units)
            if count >= FEWEST_OF_CLASS:
                continue
            name = str(label) if evaluator.figure in OF_CLASSES else _NAMES.get(int(label or 0))
            of = OfClass(count, count, None if label is None or name is None else redactor.text(name), unit=unit)
            sentence = class_sentence(evaluator.name, evaluator.figure, of)
            yield {"kind": "rare_class", "cases": count, "sentence": sentence, "key": "cases"}


def _counted(evaluator: Evaluator, units: dict[Label, int]) -> tuple[int, Label]:
    """Return the number of cases that the interval of a figure depends on, with their class, None for several."""
    if evaluator.figure in ("class_recall", "class_f1"):
        return units.get(1, 0), 1
    if evaluator.figure == "cohen_kappa":
        return sum(units.values()) - max(units.values()), None
    count, label = min((count, str(label)) for label, count in units.items())
    named = next(key for key in units if str(key) == label)
    return (count if len(units) > 1 else 0), named


@frozen
class CheckedCases:
    """The checked cases of a sweep.

    Attributes:
        clusters: The cluster of each.
        findings: Their effects on the figures.
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
    # The order of labels shows only over all cases, so the limit is applied here instead of in `pick_cases`.
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
        # With any problem the sweep is rejected, so the expensive comparison of inputs stops.
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
    """Return the check of the order of all cases, if only the first ones run."""
    if only.limit is None or only.case is not None:
        return None
    return Ordering(only.limit, names_labels=not spec.redact.redactor)


def _leaves_out_failures(spec: SweepSpec, evaluator: Evaluator) -> bool:
    """Return whether a metric leaves out failed cells without a setting that asks for it."""
    declared = spec.on_failure is not None or evaluator.on_failure is not None or evaluator.scale is not None
    return not declared and evaluator.figure is None and evaluator.name not in MEASURED_NAMES


def input_problems(workflow: WorkflowFacts, case: Case) -> list[str]:
    """Return the problems of a case as the input of a workflow."""
    return list(dict.fromkeys(_encoded(workflow, case, whole=True)[1]))


def _encoded(workflow: WorkflowFacts, case: Case, *, whole: bool) -> tuple[bytes | None, list[str]]:
    """Return the input and expected value of a case as they are stored, and the problems of the case."""
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
    """Return the error for a sweep without any case left to run."""
    is_known = only.case is None or any(case.id == plain_id(only.case) for case in source)
    if spec.holdout is not None and is_known:
        return InputError(spec.located.problem(("holdout",), _describe_empty(spec, only)))
    if only.case is None:
        return InputError(spec.located.problem(("cases",), "no cases; expected at least one"))
    # The first thousand ids suffice for a suggestion; a source may be endless.
    near = did_you_mean(only.case, (case.id for case in islice(source, 1000)))
    return InputError(f"there is no case {only.case!r} in {source.name}{near}", argument="case")


def _describe_empty(spec: SweepSpec, only: Only) -> str:
    """Describe why the holdout leaves no case to run."""
    part = f"{spec.holdout:g} of the cases are kept for the end"
    if only.case is not None:
        return f"{part}, and case {only.case!r} is {'not ' if only.final else ''}one of them"
    rest = "case for it" if only.final else "other"
    return f"{part}, which leaves no {rest}; expected more cases or another share"
