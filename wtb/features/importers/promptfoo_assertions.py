"""Assertions of promptfoo as evaluators. Those without a counterpart are listed."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeGuard

from wtb.core.errors import describe
from wtb.core.frozen import frozen
from wtb.core.values import Json

FIELD = "answer"  # the key of the state that the workflow has to write
_MILLISECONDS = 1000
_TEMPLATE = re.compile(r"\{[{%#]")
_READ = {"type", "value", "threshold", "weight", "metric"}  # keys of an assertion
_PROTOCOLS: Mapping[str, Literal["openai", "anthropic"]] = {"openai": "openai", "anthropic": "anthropic"}
_INTERFACES = ("chat", "responses", "messages")  # of providers, as promptfoo names them before a model
_NO_GRADER = "it names no model that can be asked; name one that judges"
_OWN_EMBEDDINGS = "its embedding model; embedding_similarity has its own, so look at 'at_least' again"

Expected = dict[str, Json]  # of each field of the state
Evaluator = dict[str, dict[str, Json]]  # its options by its one name


@frozen
class Grader:
    """A model that judges."""

    model: str
    protocol: Literal["openai", "anthropic"] = "openai"

    def judge(self, criteria: str, **options: Json) -> Evaluator:
        """Return the judge that asks this model by criteria, which an answer meets or not."""
        judge_options: dict[str, Json] = {"field": FIELD, "model": self.model, "criteria": criteria, **options}
        return {"judge": judge_options if self.protocol == "openai" else {**judge_options, "provider": self.protocol}}


def grader_of(provider: Json) -> Grader | None:
    """Return the model of a promptfoo provider, such as `openai:gpt-4o` or `{id:
    anthropic:messages:claude-sonnet-4-5}`.

    None if judges do not support its protocol, or it has further settings.
    """
    if isinstance(provider, Mapping) and provider.keys() == {"id"}:
        provider = provider["id"]
    protocol, *parts = provider.split(":") if isinstance(provider, str) else [""]
    if len(parts) == 2 and parts[0] in _INTERFACES:
        parts = parts[1:]
    if protocol not in _PROTOCOLS or len(parts) != 1 or parts[0] in ("", *_INTERFACES):
        return None
    return Grader(parts[0], _PROTOCOLS[protocol])


def read_assertion(
    assertion: Mapping[str, Json], expected: Expected, grader: Grader | None
) -> tuple[Evaluator | None, Sequence[str]]:
    """Return an assertion as an evaluator.

    Args:
        assertion: The assertion, with its variables filled in.
        expected: The expected value of the case, to which the value of the assertion is added.
        grader: The model for assertions that name none.

    Returns:
        The evaluator, None without a counterpart, and the parts left out, as texts that follow the assertion's place.
    """
    kind = str(assertion.get("type"))
    name, threshold, weight = kind.removeprefix("not-"), assertion.get("threshold"), assertion.get("weight", 1)
    nothing = f": {describe(assertion.get('type', assertion.get('$ref')))}"
    is_judge, keys = name in _JUDGES, _READ | ({"provider"} if name in _JUDGES else set())
    # An unknown key may change what an assertion means, so it is left out as a whole.
    if not assertion.keys() <= keys or has_template(assertion.get("value")):
        return None, [nothing]
    if not (threshold is None or _is_number(threshold)) or not _is_number(weight) or weight <= 0:
        return None, [nothing]
    left_out = [f".metric: {describe(assertion['metric'])}"] if "metric" in assertion else []
    if is_judge:
        own = grader_of(assertion.get("provider"))
        model = own or grader
        if model is None:
            return None, [f"{nothing} ({_NO_GRADER})"]
        left_out += [".provider"] if "provider" in assertion and own is None else []
        evaluator = _JUDGES[name](assertion.get("value"), model, expected)
        left_out += [] if threshold is None else [".threshold"]
    else:
        evaluator = _KINDS[name](assertion.get("value"), threshold, expected) if name in _KINDS else None
        left_out += [f": {_OWN_EMBEDDINGS}"] if name == _SIMILAR else []
    if evaluator is None:
        return None, [nothing]
    # Before the weight, which is an option of the outermost evaluator.
    if kind.startswith("not-"):
        evaluator = {"not": dict(evaluator)}
    if weight != 1:
        ((what, options),) = evaluator.items()
        evaluator = {what: {**options, "weight": weight}}
    return evaluator, left_out


def has_template(content: object) -> bool:
    """Return whether a template remains that only promptfoo can fill in, or a file."""
    if isinstance(content, Mapping | list):
        return any(map(has_template, content.values() if isinstance(content, Mapping) else content))
    return isinstance(content, str) and (bool(_TEMPLATE.search(content)) or content.startswith("file://"))


def text_of(content: object) -> str:
    """Return a value as promptfoo inserts it into a text."""
    # promptfoo runs on JavaScript, which writes 2.0 as 2.
    if isinstance(content, float) and content.is_integer():
        content = int(content)
    return content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)


def _is_number(content: object) -> TypeGuard[float]:
    return isinstance(content, int | float) and not isinstance(content, bool)


def _is_scalar(content: object) -> bool:
    return isinstance(content, str | int | float)


Make = Callable[[Json, float | None, Expected], Evaluator | None]
MakeJudge = Callable[[Json, Grader, Expected], Evaluator | None]


def _of_text(name: str, option: str, change: Callable[[str], str] = str) -> Make:
    def make(argument: Json, threshold: float | None, expected: Expected) -> Evaluator | None:
        is_filled = _is_scalar(argument) and bool(text_of(argument).strip())  # every answer has a blank text in it
        return {name: {"field": FIELD, option: change(text_of(argument))}} if is_filled else None

    return make


def _of_texts(make_of: Callable[[list[str]], Evaluator]) -> Make:
    def make(argument: Json, threshold: float | None, expected: Expected) -> Evaluator | None:
        texts = _separated(argument) if isinstance(argument, str) else argument
        if (
            not isinstance(texts, list)
            or not texts
            or not all(_is_scalar(text) and text_of(text).strip() for text in texts)
        ):
            return None
        return make_of(list(map(text_of, texts)))

    return make


def _contains_any(texts: list[str]) -> Evaluator:
    return {"contains_any": {"field": FIELD, "text": [*texts]}}


def _contains_all(texts: list[str]) -> Evaluator:
    return {"contains": {"field": FIELD, "text": [*texts]}}


def _any_ignoring_case(texts: list[str]) -> Evaluator:
    return {"regex": {"field": FIELD, "pattern": f"(?i){'|'.join(map(re.escape, texts))}"}}


def _all_ignoring_case(texts: list[str]) -> Evaluator:
    return {"all_of": {"of": [{"regex": {"field": FIELD, "pattern": _ignoring_case(text)}} for text in texts]}}


def _separated(text: str) -> list[str] | None:
    """Return the texts between commas, which may be in quotes; None for several lines."""
    try:
        (texts,) = csv.reader([text], skipinitialspace=True)
    except (csv.Error, ValueError):
        return None
    return [part.strip() for part in texts]


def _of_reference(name: str, least: float | None, **options: Json) -> Make:
    """Return a maker. `least` is promptfoo's default threshold; None for an evaluator that passes or fails."""

    def make(argument: Json, threshold: float | None, expected: Expected) -> Evaluator | None:
        if not _is_scalar(argument) or not _expects(expected, text_of(argument)):
            return None
        passing: Mapping[str, Json] = {} if least is None else {"at_least": least if threshold is None else threshold}
        return {name: {"field": FIELD, **options, **passing}}

    return make


def _expects(expected: Expected, target: Json) -> bool:
    """Return whether a case can expect this as well: a field has one expected value."""
    return bool(expected.setdefault(FIELD, target) == target)


def _equals(argument: Json, threshold: float | None, expected: Expected) -> Evaluator | None:
    if isinstance(argument, dict | list):
        return {"json_equal": {"field": FIELD}} if _expects(expected, argument) else None
    return _of_reference("exact_match", None)(argument, threshold, expected)


def _is_json(argument: Json, threshold: float | None, expected: Expected) -> Evaluator | None:
    schema = {} if argument is None else argument
    return {"json_schema": {"field": FIELD, "schema": schema}} if isinstance(schema, dict) else None


def _of_measure(name: str, unit: float) -> Make:
    def make(argument: Json, threshold: float | None, expected: Expected) -> Evaluator | None:
        return None if threshold is None else {name: {"at_most": threshold / unit}}

    return make


def _ignoring_case(text: str) -> str:
    return "(?i)" + re.escape(text)


def _at_the_start(text: str) -> str:
    return "^" + re.escape(text)


def _by_criteria(argument: Json, grader: Grader, expected: Expected) -> Evaluator | None:
    return grader.judge(argument) if isinstance(argument, str) and argument.strip() else None


def _by_facts(argument: Json, grader: Grader, expected: Expected) -> Evaluator | None:
    """Judge by facts as promptfoo does: an answer may state less or more than the reference, and differ in wording."""
    if not isinstance(argument, str) or not argument.strip() or not _expects(expected, argument):
        return None
    return grader.judge(
        "Nothing in the answer contradicts the facts of the reference. It may contain less, or more.", reference=True
    )


_SIMILAR = "similar"
_KINDS: Mapping[str, Make] = {
    "equals": _equals,
    "contains": _of_text("contains", "text"),
    "icontains": _of_text("regex", "pattern", _ignoring_case),
    "starts-with": _of_text("regex", "pattern", _at_the_start),
    "regex": _of_text("regex", "pattern"),
    "contains-any": _of_texts(_contains_any),
    "contains-all": _of_texts(_contains_all),
    "icontains-any": _of_texts(_any_ignoring_case),
    "icontains-all": _of_texts(_all_ignoring_case),
    "is-json": _is_json,
    "rouge-n": _of_reference("rouge", 0.75, variant="1"),
    "bleu": _of_reference("bleu", 0.5),
    _SIMILAR: _of_reference("embedding_similarity", 0.75),
    "latency": _of_measure("latency", _MILLISECONDS),
    "cost": _of_measure("cost", 1),
}
_JUDGES: Mapping[str, MakeJudge] = {
    "llm-rubric": _by_criteria,
    "model-graded-closedqa": _by_criteria,
    "g-eval": _by_criteria,
    "factuality": _by_facts,
    "model-graded-factuality": _by_facts,
}
