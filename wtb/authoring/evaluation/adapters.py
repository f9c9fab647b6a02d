"""Scorers of other tools as evaluators: of Inspect, DeepEval, Ragas, autoevals and scikit-learn, by their import path.

evaluate:
  - "inspect_ai.scorer:includes": {field: answer, arguments: {ignore_case: false}}

The input, output, reference and contexts of a tool are read from a case and its result, and its score becomes a
number. A tool is recognized by the class of its scorers, so that unused tools are not imported.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase, Unscored, evaluator
from wtb.authoring.evaluation.fields import expected_value, field_of, needs_expected
from wtb.core.errors import InputError, describe, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.scoring.measure import Better
from wtb.core.scoring.scores import PASS_OR_FAIL, Scale, Score
from wtb.core.values import Arguments, Options

_Scoring = Callable[[Any, "_Sample"], Any]


@frozen
class _Sample:
    """A case and its result as other tools score them. `expected` is None if the case has no expected value."""

    case_id: str
    input: Any
    output: Any
    expected: Any
    contexts: list[str] | None

    @property
    def question(self) -> str:
        return _text(self.input)


def adapted(path: str, source: Any) -> Any:
    """Return a scorer of another tool as an evaluator, and anything else as it is.

    Args:
        path: Its import path, for messages.
        source: A class or factory of scorers, which takes `arguments`; a scorer; or a metric of scikit-learn.

    Returns:
        An evaluator with the options `field`, `input` and `contexts` (keys of the input or the final state) and
        `arguments`; or the source, if it is of no known tool.
    """
    tool = _tool_of(source)
    if tool is None:
        return source
    score, scale = _TOOLS[tool]
    better: Better = "lower" if tool == "sklearn" and source.__name__.endswith(("_error", "_loss")) else "higher"

    @cache
    def scorer(arguments: str) -> Any:  # one for all cells of a process: it may load a model
        return _make_scorer(path, source, json.loads(arguments))

    # Which of two rows is better is what scikit-learn's names of functions end with, and what other tools agree on.
    @evaluator(better=better, scale=scale, name=getattr(source, "__name__", type(source).__name__))
    def scored(
        case: ScoredCase,
        result: CellResult,
        *,
        field: str,
        input: str | None = None,
        contexts: str | None = None,
        arguments: Arguments | None = None,
    ) -> Any:
        sample = _sample(case, result, field, input, contexts)
        return score(scorer(_key(arguments)), sample)

    def check(options: Options) -> None:
        if not isinstance(arguments := options.get("arguments") or {}, Mapping):
            raise InputError(f"'arguments' is {describe(arguments)}; expected a mapping")
        scorer(_key(arguments))

    scored.wtb_check = check  # type: ignore[attr-defined]
    return needs_expected()(scored) if _needs_reference(tool, source) else scored


def _needs_reference(tool: str, source: Any) -> bool:
    """Return whether a scorer compares with a reference, as its tool declares or documents it."""
    if tool == "sklearn":
        return True
    kind = source if isinstance(source, type) else type(source)
    if tool == "deepeval":
        return any(
            getattr(parameter, "value", None) == "expected_output"
            for parameter in getattr(kind, "_required_params", ())
        )
    if tool == "ragas":
        return _ragas_needs_reference(kind)
    name = getattr(getattr(source, "__registry_info__", None), "name", kind.__name__)
    return name.rpartition("/")[2] in _COMPARING.get(tool, ())


def _ragas_needs_reference(kind: type) -> bool:
    if hasattr(kind, "single_turn_ascore"):
        columns = getattr(kind, "__dataclass_fields__", {}).get("_required_columns")
        if columns is None or not callable(columns.default_factory):
            return False
        return any("reference" in names for names in columns.default_factory().values())
    reference = inspect.signature(getattr(kind, "ascore")).parameters.get("reference")  # noqa: B009 (no such attribute by its type)
    return reference is not None and reference.default is reference.empty


def _tool_of(source: Any) -> str | None:
    """Return the tool whose scorer, or class or factory of scorers, a source is; None if it is of no known tool."""
    if getattr(getattr(source, "__registry_info__", None), "type", None) == "scorer":
        return "inspect_ai"
    if inspect.isfunction(source):
        return "sklearn" if source.__module__.startswith("sklearn.metrics.") else None
    # Compared by name, so that tools which nobody uses are not imported.
    kinds = source.__mro__ if isinstance(source, type) else type(source).__mro__
    named = {(kind.__module__.partition(".")[0], kind.__name__) for kind in kinds}
    return next((tool for tool, kind in _KINDS if (tool, kind) in named), None)


def _make_scorer(path: str, source: Any, arguments: Arguments) -> Any:
    """Make a scorer with its arguments. Raises InputError if it does not take them."""
    if inspect.isfunction(source) and source.__module__.startswith("sklearn."):
        _check_arguments(path, source, arguments, "y_true", "y_pred")
        return lambda expected, observed: source(expected, observed, **arguments)
    if not isinstance(source, type) and (not inspect.isfunction(source) or inspect.iscoroutinefunction(source)):
        if arguments:
            raise InputError(f"'arguments' of {path!r}, which is a scorer already; expected a class or a function")
        return source
    _check_arguments(path, source, arguments)
    try:
        return source(**arguments)
    except Exception as error:  # noqa: BLE001 (whatever a tool raises, the sweep cannot be scored by it)
        raise InputError(f"{path!r} cannot be made: {type(error).__name__}: {error!s:.300}") from None


def _check_arguments(path: str, source: Any, arguments: Arguments, *positional: str) -> None:
    parameters = inspect.signature(source).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        for name in arguments:
            if name not in parameters or name in positional:
                names = [parameter for parameter in parameters if parameter not in positional]
                listed = ", ".join(names) or "none"
                raise InputError(f"{path!r} takes no argument {name!r}{did_you_mean(name, names)} (it takes: {listed})")


def _key(arguments: Arguments | None) -> str:
    try:
        return json.dumps(dict(arguments or {}), sort_keys=True)
    except TypeError:
        raise InputError("'arguments' are not JSON; expected texts, numbers, lists and mappings") from None


def _sample(case: ScoredCase, result: CellResult, field: str, key: str | None, contexts: str | None) -> _Sample:
    if key is not None and key not in case.input:
        raise InputError(f"the input of the case has no key {key!r}{did_you_mean(key, case.input)}")
    whole = next(iter(case.input.values())) if len(case.input) == 1 else case.input
    texts = None if contexts is None else field_of(result, contexts)
    if texts is not None and not (isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)):
        raise InputError(f"{contexts!r} of the final state is {describe(texts)}; expected a list of texts")
    return _Sample(
        case.id,
        whole if key is None else case.input[key],
        field_of(result, field),
        expected_value(case.expected, field),
        None if texts is None else list(texts),
    )


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)


def _optional_text(content: Any) -> str | None:
    return None if content is None else _text(content)


def _autoevals(scorer: Any, sample: _Sample) -> Any:
    outcome = scorer(output=sample.output, expected=sample.expected, input=sample.input)
    if outcome.score is None:
        return Unscored(f"{outcome.name} gave no score: {outcome.error}")
    return Score(outcome.score, _optional_text((getattr(outcome, "metadata", None) or {}).get("rationale")))


def _deepeval(metric: Any, sample: _Sample) -> Any:
    from deepeval.test_case import LLMTestCase

    case = LLMTestCase(
        input=sample.question,
        actual_output=_text(sample.output),
        expected_output=_optional_text(sample.expected),
        context=sample.contexts,
        retrieval_context=sample.contexts,
    )
    return Score(metric.measure(case), _optional_text(getattr(metric, "reason", None)))


async def _inspect(scorer: Any, sample: _Sample) -> Any:
    from inspect_ai.model import ChatMessageUser, ModelName, ModelOutput
    from inspect_ai.scorer import Target, value_to_float
    from inspect_ai.solver import TaskState

    expected = sample.expected if isinstance(sample.expected, list) else [sample.expected]
    output = ModelOutput.from_content("none/none", _text(sample.output))
    state = TaskState(
        model=ModelName("none/none"),
        sample_id=sample.case_id,
        epoch=1,
        input=sample.question,
        messages=[ChatMessageUser(content=sample.question), *(choice.message for choice in output.choices)],
        output=output,
        completed=True,
    )
    outcome = await scorer(state, Target([_text(answer) for answer in expected if answer is not None]))
    if outcome is None:
        return Unscored("the scorer gave no score")
    to_float = value_to_float()  # C, P, I and N, yes and no, as Inspect's own metrics read them
    if isinstance(outcome.value, Mapping):
        return {str(key): to_float(figure) for key, figure in outcome.value.items()}
    return Score(to_float(outcome.value), _optional_text(getattr(outcome, "explanation", None)))


async def _ragas(metric: Any, sample: _Sample) -> Any:
    fields = {
        "user_input": sample.question,
        "response": _text(sample.output),
        "reference": _optional_text(sample.expected),
        "retrieved_contexts": sample.contexts,
    }
    if hasattr(metric, "single_turn_ascore"):
        from ragas.dataset_schema import SingleTurnSample

        return await metric.single_turn_ascore(SingleTurnSample(**fields))
    # Metrics of newer versions declare the fields they take as parameters, and refuse others.
    parameters = inspect.signature(metric.ascore).parameters
    outcome = await metric.ascore(
        **{name: field for name, field in fields.items() if name in parameters and field is not None}
    )
    if outcome.value is None:
        return Unscored(outcome.reason or "the metric gave no score")
    return Score(outcome.value, _optional_text(getattr(outcome, "reason", None)))


def _sklearn(metric: Any, sample: _Sample) -> Any:
    return metric(sample.expected, sample.output)


# By tool: what scores a sample, and the scale that its documentation promises of every scorer.
_TOOLS: Mapping[str, tuple[_Scoring, Scale | None]] = {
    "autoevals": (_autoevals, PASS_OR_FAIL),
    "deepeval": (_deepeval, PASS_OR_FAIL),
    "inspect_ai": (_inspect, None),
    "ragas": (_ragas, None),
    "sklearn": (_sklearn, None),
}
# Scorers that compare with a reference. Without one, some of them give 0 and others raise.
_COMPARING: Mapping[str, Sequence[str]] = {
    "autoevals": (
        *("AnswerCorrectness", "AnswerSimilarity", "ContextEntityRecall", "ContextRecall", "EmbeddingSimilarity"),
        *("ExactMatch", "Factuality", "JSONDiff", "Levenshtein", "LevenshteinScorer", "ListContains", "NumericDiff"),
        *("Sql", "Translation"),
    ),
    "inspect_ai": (
        *("answer", "choice", "exact", "f1", "includes", "match", "math", "model_graded_fact", "model_graded_qa"),
        "pattern",
    ),
}
_KINDS = (("autoevals", "Scorer"), ("deepeval", "BaseMetric"), ("ragas", "Metric"), ("ragas", "SimpleBaseMetric"))
