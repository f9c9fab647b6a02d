"""Assertions of promptfoo as evaluators. What has no counterpart is named, and left out."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeGuard

from wtb.core.classes.frozen import frozen
from wtb.core.errors import describe
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
        """The judge that asks it by criteria, which an answer meets or not."""
        asked: dict[str, Json] = {"field": FIELD, "model": self.model, "criteria": criteria, **options}
        return {"judge": asked if self.protocol == "openai" else {**asked, "provider": self.protocol}}


def grader_of(given: Json) -> Grader | None:
    """The model of a provider of promptfoo, such as `openai:gpt-4o` or `{id: anthropic:messages:claude-sonnet-4-5}`.

    None where it is of no protocol that judges speak, or more is set of it.
    """
    if isinstance(given, Mapping) and given.keys() == {"id"}:
        given = given["id"]
    protocol, *parts = given.split(":") if isinstance(given, str) else [""]
    if len(parts) == 2 and parts[0] in _INTERFACES:
        parts = parts[1:]
    if protocol not in _PROTOCOLS or len(parts) != 1 or parts[0] in ("", *_INTERFACES):
        return None
    return Grader(parts[0], _PROTOCOLS[protocol])


def read_assertion(
    one: Mapping[str, Json], expected: Expected, grader: Grader | None
) -> tuple[Evaluator | None, Sequence[str]]:
    """An assertion as an evaluator.

    Args:
        one: As it is written, with its variables filled in.
        expected: What is expected of the case; what the assertion compares with is added.
        grader: The model that is asked where the assertion names none.

    Returns:
        The evaluator, None where it has none; and what is left out, in words that follow the assertion's place.
    """
    kind = str(one.get("type"))
    name, threshold, weight = kind.removeprefix("not-"), one.get("threshold"), one.get("weight", 1)
    nothing = f": {describe(one.get('type', one.get('$ref')))}"
    is_judge, keys = name in _JUDGES, _READ | ({"provider"} if name in _JUDGES else set())
    if not one.keys() <= keys or has_template(one.get("value")):
        return None, [nothing]
    if not (threshold is None or _is_number(threshold)) or not _is_number(weight) or weight <= 0:
        return None, [nothing]
    left_out = [f".metric: {describe(one['metric'])}"] if "metric" in one else []
    if is_judge:
        own = grader_of(one.get("provider"))
        asked = own or grader
        if asked is None:
            return None, [f"{nothing} ({_NO_GRADER})"]
        left_out += [".provider"] if "provider" in one and own is None else []
        evaluator = _JUDGES[name](one.get("value"), asked, expected)
        left_out += [] if threshold is None else [".threshold"]
    else:
        evaluator = _KINDS[name](one.get("value"), threshold, expected) if name in _KINDS else None
        left_out += [f": {_OWN_EMBEDDINGS}"] if name == _SIMILAR else []
    if evaluator is None:
        return None, [nothing]
    if kind.startswith("not-"):
        evaluator = {"not": dict(evaluator)}
    if weight != 1:
        ((what, options),) = evaluator.items()
        evaluator = {what: {**options, "weight": weight}}
    return evaluator, left_out


def has_template(value: object) -> bool:
    """Return whether something of a template is left, which only promptfoo can fill in, or a file."""
    if isinstance(value, Mapping | list):
        return any(map(has_template, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, str) and (bool(_TEMPLATE.search(value)) or value.startswith("file://"))


def text_of(value: object) -> str:
    """A value as promptfoo puts it into a text."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int | float)


Make = Callable[[Json, float | None, Expected], Evaluator | None]
MakeJudge = Callable[[Json, Grader, Expected], Evaluator | None]


def _of_text(name: str, option: str, change: Callable[[str], str] = str) -> Make:
    def make(value: Json, threshold: float | None, expected: Expected) -> Evaluator | None:
        is_filled = _is_scalar(value) and bool(text_of(value).strip())  # every answer has a blank text in it
        return {name: {"field": FIELD, option: change(text_of(value))}} if is_filled else None

    return make


def _of_texts(make_of: Callable[[list[str]], Evaluator]) -> Make:
    def make(value: Json, threshold: float | None, expected: Expected) -> Evaluator | None:
        texts = _separated(value) if isinstance(value, str) else value
        if (
            not isinstance(texts, list)
            or not texts
            or not all(_is_scalar(one) and text_of(one).strip() for one in texts)
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
    """The texts between commas, which may be in quotes; None if there are several lines."""
    try:
        (texts,) = csv.reader([text], skipinitialspace=True)
    except (csv.Error, ValueError):
        return None
    return [one.strip() for one in texts]


def _of_reference(name: str, least: float | None, **options: Json) -> Make:
    """least: the threshold that promptfoo has where none is given; None where the evaluator passes or fails."""

    def make(value: Json, threshold: float | None, expected: Expected) -> Evaluator | None:
        if not _is_scalar(value) or not _expects(expected, text_of(value)):
            return None
        passing: Mapping[str, Json] = {} if least is None else {"at_least": least if threshold is None else threshold}
        return {name: {"field": FIELD, **options, **passing}}

    return make


def _expects(expected: Expected, wanted: Json) -> bool:
    """Return whether a case can expect this: it expects one thing of a field."""
    return bool(expected.setdefault(FIELD, wanted) == wanted)


def _equals(value: Json, threshold: float | None, expected: Expected) -> Evaluator | None:
    if isinstance(value, dict | list):
        return {"json_equal": {"field": FIELD}} if _expects(expected, value) else None
    return _of_reference("exact_match", None)(value, threshold, expected)


def _is_json(value: Json, threshold: float | None, expected: Expected) -> Evaluator | None:
    schema = {} if value is None else value
    return {"json_schema": {"field": FIELD, "schema": schema}} if isinstance(schema, dict) else None


def _of_measure(name: str, unit: float) -> Make:
    def make(value: Json, threshold: float | None, expected: Expected) -> Evaluator | None:
        return None if threshold is None else {name: {"at_most": threshold / unit}}

    return make


def _ignoring_case(text: str) -> str:
    return "(?i)" + re.escape(text)


def _at_the_start(text: str) -> str:
    return "^" + re.escape(text)


def _by_criteria(value: Json, grader: Grader, expected: Expected) -> Evaluator | None:
    return grader.judge(value) if isinstance(value, str) and value.strip() else None


def _by_facts(value: Json, grader: Grader, expected: Expected) -> Evaluator | None:
    """As of promptfoo, an answer may say less or more than the reference, and differ in what makes no difference."""
    if not isinstance(value, str) or not value.strip() or not _expects(expected, value):
        return None
    return grader.judge(
        "Nothing in the answer contradicts the facts of the reference. It may say less than that, or more.",
        reference=True,
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
