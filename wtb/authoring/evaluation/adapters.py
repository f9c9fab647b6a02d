"""Scorers of other tools as evaluators: of Inspect, DeepEval, Ragas, autoevals and scikit-learn, by their import path.

evaluate:
  - "inspect_ai.scorer:includes": {field: answer, arguments: {ignore_case: false}}

What a tool calls input, output, reference and contexts is read here from a case and its result, and what it returns
becomes a number. A tool is recognized by what it gives, without importing it: who names none pays for none.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase, Unscored, evaluator
from wtb.authoring.evaluation.fields import expected_value, field_of, needs_expected
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, describe, did_you_mean
from wtb.core.mappings import Arguments, Options
from wtb.core.scoring.measure import Better
from wtb.core.scoring.reasons import Score
from wtb.core.scoring.scales import PASS_OR_FAIL, Scale

_Scoring = Callable[[Any, "_Sample"], Any]


@frozen
class _Sample:
    """What other tools score. expected: None where a case says nothing."""

    case_id: str
    input: Any
    output: Any
    expected: Any
    contexts: list[str] | None

    @property
    def question(self) -> str:
        return _text(self.input)


def adapted(path: str, thing: Any) -> Any:
    """What stands at an import path as an evaluator, where it is a scorer of another tool; else the thing itself.

    Args:
        path: Its import path, for messages.
        thing: A class or factory of scorers, which takes `arguments`; a scorer; or a metric of scikit-learn.

    Returns:
        An evaluator with the options `field`, `input` and `contexts` (keys of the input or the final state) and
        `arguments`, or the thing.
    """
    tool = _tool_of(thing)
    if tool is None:
        return thing
    score, scale = _TOOLS[tool]
    better: Better = "lower" if tool == "sklearn" and thing.__name__.endswith(("_error", "_loss")) else "higher"

    @cache
    def scorer(arguments: str) -> Any:  # one for all cells of a process: it may load a model
        return _made(path, thing, json.loads(arguments))

    # Which of two rows is better is what scikit-learn's names of functions end with, and what other tools agree on.
    @evaluator(better=better, scale=scale, name=getattr(thing, "__name__", type(thing).__name__))
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
        if not isinstance(given := options.get("arguments") or {}, Mapping):
            raise InputError(f"'arguments' is {describe(given)}; expected a mapping")
        scorer(_key(given))

    scored.wtb_check = check  # type: ignore[attr-defined]
    return needs_expected()(scored) if _needs_reference(tool, thing) else scored


def _needs_reference(tool: str, thing: Any) -> bool:
    """Return whether a scorer compares with a reference, as its tool declares or documents it."""
    if tool == "sklearn":
        return True
    kind = thing if isinstance(thing, type) else type(thing)
    if tool == "deepeval":
        return any(getattr(one, "value", None) == "expected_output" for one in getattr(kind, "_required_params", ()))
    if tool == "ragas":
        return _ragas_needs_reference(kind)
    name = getattr(getattr(thing, "__registry_info__", None), "name", kind.__name__)
    return name.rpartition("/")[2] in _COMPARING.get(tool, ())


def _ragas_needs_reference(kind: type) -> bool:
    if hasattr(kind, "single_turn_ascore"):
        columns = getattr(kind, "__dataclass_fields__", {}).get("_required_columns")
        if columns is None or not callable(columns.default_factory):
            return False
        return any("reference" in names for names in columns.default_factory().values())
    reference = inspect.signature(getattr(kind, "ascore")).parameters.get("reference")  # noqa: B009 (no such attribute by its type)
    return reference is not None and reference.default is reference.empty


def _tool_of(thing: Any) -> str | None:
    """The tool whose scorer, or class or factory of scorers, a thing is."""
    if getattr(getattr(thing, "__registry_info__", None), "type", None) == "scorer":
        return "inspect_ai"
    if inspect.isfunction(thing):
        return "sklearn" if thing.__module__.startswith("sklearn.metrics.") else None
    kinds = thing.__mro__ if isinstance(thing, type) else type(thing).__mro__
    named = {(kind.__module__.partition(".")[0], kind.__name__) for kind in kinds}
    return next((tool for tool, kind in _KINDS if (tool, kind) in named), None)


def _made(path: str, thing: Any, arguments: Arguments) -> Any:
    """A scorer with its arguments. Raises InputError where it does not take them."""
    if inspect.isfunction(thing) and thing.__module__.startswith("sklearn."):
        _check_arguments(path, thing, arguments, "y_true", "y_pred")
        return lambda expected, found: thing(expected, found, **arguments)
    if not isinstance(thing, type) and (not inspect.isfunction(thing) or inspect.iscoroutinefunction(thing)):
        if arguments:
            raise InputError(f"'arguments' of {path!r}, which is a scorer already; expected a class or a function")
        return thing
    _check_arguments(path, thing, arguments)
    try:
        return thing(**arguments)
    except Exception as error:  # noqa: BLE001 (whatever a tool raises, the sweep cannot be scored by it)
        raise InputError(f"{path!r} cannot be made: {type(error).__name__}: {error!s:.300}") from None


def _check_arguments(path: str, thing: Any, arguments: Arguments, *positional: str) -> None:
    taken = inspect.signature(thing).parameters
    if not any(one.kind is one.VAR_KEYWORD for one in taken.values()):
        for name in arguments:
            if name not in taken or name in positional:
                known = [one for one in taken if one not in positional]
                listed = ", ".join(known) or "none"
                raise InputError(f"{path!r} takes no argument {name!r}{did_you_mean(name, known)} (it takes: {listed})")


def _key(arguments: Arguments | None) -> str:
    try:
        return json.dumps(dict(arguments or {}), sort_keys=True)
    except TypeError:
        raise InputError("'arguments' hold what is no JSON; expected texts, numbers, lists and mappings") from None


def _sample(case: ScoredCase, result: CellResult, field: str, key: str | None, contexts: str | None) -> _Sample:
    if key is not None and key not in case.input:
        raise InputError(f"the input of the case has no key {key!r}{did_you_mean(key, case.input)}")
    whole = next(iter(case.input.values())) if len(case.input) == 1 else case.input
    found = None if contexts is None else field_of(result, contexts)
    if found is not None and not (isinstance(found, list | tuple) and all(isinstance(one, str) for one in found)):
        raise InputError(f"{contexts!r} of the final state is {describe(found)}; expected a list of texts")
    return _Sample(
        case.id,
        whole if key is None else case.input[key],
        field_of(result, field),
        expected_value(case.expected, field),
        None if found is None else list(found),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _optional_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def _autoevals(scorer: Any, sample: _Sample) -> Any:
    found = scorer(output=sample.output, expected=sample.expected, input=sample.input)
    if found.score is None:
        return Unscored(f"{found.name} gave no score: {found.error}")
    return Score(found.score, _optional_text((getattr(found, "metadata", None) or {}).get("rationale")))


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
        messages=[ChatMessageUser(content=sample.question), *(one.message for one in output.choices)],
        output=output,
        completed=True,
    )
    found = await scorer(state, Target([_text(one) for one in expected if one is not None]))
    if found is None:
        return Unscored("the scorer gave no score")
    to_float = value_to_float()  # C, P, I and N, yes and no, as Inspect's own metrics read them
    if isinstance(found.value, Mapping):
        return {str(key): to_float(value) for key, value in found.value.items()}
    return Score(to_float(found.value), _optional_text(getattr(found, "explanation", None)))


async def _ragas(metric: Any, sample: _Sample) -> Any:
    given = {
        "user_input": sample.question,
        "response": _text(sample.output),
        "reference": _optional_text(sample.expected),
        "retrieved_contexts": sample.contexts,
    }
    if hasattr(metric, "single_turn_ascore"):
        from ragas.dataset_schema import SingleTurnSample

        return await metric.single_turn_ascore(SingleTurnSample(**given))
    taken = inspect.signature(metric.ascore).parameters
    found = await metric.ascore(**{name: value for name, value in given.items() if name in taken and value is not None})
    if found.value is None:
        return Unscored(found.reason or "the metric gave no score")
    return Score(found.value, _optional_text(getattr(found, "reason", None)))


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
_COMPARING: Mapping[str, tuple[str, ...]] = {
    "autoevals": (
        "AnswerCorrectness",
        "AnswerSimilarity",
        "ContextEntityRecall",
        "ContextRecall",
        "EmbeddingSimilarity",
        "ExactMatch",
        "Factuality",
        "JSONDiff",
        "Levenshtein",
        "LevenshteinScorer",
        "ListContains",
        "NumericDiff",
        "Sql",
        "Translation",
    ),
    "inspect_ai": (
        "answer",
        "choice",
        "exact",
        "f1",
        "includes",
        "match",
        "math",
        "model_graded_fact",
        "model_graded_qa",
        "pattern",
    ),
}
_KINDS = (
    ("autoevals", "Scorer"),
    ("deepeval", "BaseMetric"),
    ("ragas", "Metric"),
    ("ragas", "SimpleBaseMetric"),
)
