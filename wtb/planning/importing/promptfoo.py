"""The tests of a promptfoo configuration as cases with assertions. What has no counterpart is named, and left out."""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NotRequired, TypedDict, TypeGuard

from wtb.config.yaml_reader import read
from wtb.core.errors import InputError, describe
from wtb.core.values import Json

FIELD = "answer"  # the key of the state that the workflow has to write
_MILLISECONDS = 1000
VARIABLE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_TEMPLATE = re.compile(r"\{[{%#]")
# promptfoo reads a prompt as a file where it looks like a path: `:` precedes a function, `://` what a service keeps.
_PATH = re.compile(r"[^\n]*\.(txt|md|jsonl?|ya?ml|py|[cm]?[jt]s|csv|j2)(:\w+)?|\w+://.*|\S*[*?\[/\\]\S*")
_READ = {"type", "value", "threshold", "weight", "metric"}  # keys of an assertion


Variables = Mapping[str, Json]
Expected = dict[str, Json]  # of each field of the state
Evaluator = dict[str, dict[str, Json]]  # its options by its one name
CaseRow = TypedDict(
    "CaseRow",
    {"id": str, "input": Variables, "expected": NotRequired[Expected], "assert": NotRequired[Sequence[Evaluator]]},
)


@dataclass
class Imported:
    """What a configuration comes to.

    Attributes:
        cases: As of a cases file.
        prompts: Templates, with `{{name}}` for a key of the input.
        left_out: What was not brought over, in words, each with its place.
    """

    cases: list[CaseRow] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def import_promptfoo(file: Path) -> Imported:
    """Read a configuration of promptfoo, in YAML or JSON.

    Args:
        file: The configuration.

    Returns:
        Its tests as cases, its prompts, and what of it has no counterpart.

    Raises:
        InputError: The file cannot be read, has no tests in it, or has prompts of which none can be brought over.
    """
    data = read(file).data
    tests = data.get("tests")
    if not isinstance(tests, list) or not tests:
        raise InputError(f"{file}: 'tests' is {describe(tests)}; expected a list of tests")
    made = Imported(left_out=[key for key in data if key not in ("prompts", "tests", "defaultTest")])
    prompts, common = data.get("prompts"), data.get("defaultTest")
    made.prompts = list(_prompts(prompts, made.left_out))
    if prompts and not made.prompts:
        raise InputError(f"{file}: no prompt that can be brought over; expected texts: {'; '.join(made.left_out)}")
    shared = _Test("defaultTest", common, made.left_out) if isinstance(common, Mapping) else None
    if common is not None and shared is None:
        made.left_out.append(f"defaultTest: {describe(common)}")
    for number, test in enumerate(tests):
        if isinstance(test, Mapping):
            made.cases += _cases(number, _Test(f"tests[{number}]", test, made.left_out), shared, made.left_out)
        else:
            made.left_out.append(f"tests[{number}]: {describe(test)}")
    if not made.cases:
        raise InputError(f"{file}: no test that can be brought over; expected mappings with 'vars' and 'assert'")
    made.left_out = list(dict.fromkeys(made.left_out))  # what several cases share is named once
    return made


class _Test:
    """A test as it is written: its variables and assertions; what else it has is named."""

    def __init__(self, place: str, given: Mapping[str, Json], left_out: list[str]) -> None:
        self.place = place
        variables, assertions = given.get("vars") or {}, given.get("assert") or []
        self.variables: Variables = variables if isinstance(variables, dict) else {}
        self.assertions: Sequence[Json] = assertions if isinstance(assertions, list) else []
        self.has_variables = self.variables == variables
        known = {"vars": self.has_variables, "assert": self.assertions == assertions}
        left_out += [f"{place}.{key}" for key in given if not known.get(key)]


def _prompts(given: object, left_out: list[str]) -> Iterator[str]:
    """The texts of prompts. Every entry that is none is named, and what else stands beside a text."""
    if not given:
        left_out.append("prompts: nothing")
    elif isinstance(given, Mapping) and not given.keys() & {"raw", "id"}:  # texts or paths, with a label for each
        left_out += [f"prompts.{text}: {describe(label)}" for text, label in given.items()]
        yield from filter(_is_prompt, given)
    else:
        for number, prompt in enumerate(given if isinstance(given, list) else [given]):
            text = prompt.get("raw") if isinstance(prompt, Mapping) else prompt
            if not _is_prompt(text):
                left_out.append(f"prompts[{number}]: {describe(prompt if text is None else text)}")
                continue
            if isinstance(prompt, Mapping):
                left_out += [f"prompts[{number}].{key}" for key in prompt if key != "raw"]
            yield text


def _is_prompt(text: object) -> TypeGuard[str]:
    """Return whether this is a text whose every template is a variable; what has a variable in it is no path."""
    if not isinstance(text, str) or not text.strip() or _has_template(VARIABLE.sub("", text)):
        return False
    return bool(VARIABLE.search(text)) or not _PATH.fullmatch(text.strip())


def _cases(number: int, test: _Test, shared: _Test | None, left_out: list[str]) -> Iterator[CaseRow]:
    """The cases of a test: a variable that is a list stands for one with each of its values."""
    variables = {**(shared.variables if shared else {}), **test.variables}
    unknown = [
        f"{test.place}.vars.{name}: {describe(value)}"
        for name, value in variables.items()
        if _has_template(value) or value == []
    ]
    left_out += unknown
    if unknown or not test.has_variables:
        return
    each = [value if isinstance(value, list) else [value] for value in variables.values()]
    chosen = list(itertools.product(*each))
    for place, values in enumerate(chosen):
        name = f"{number + 1}" if len(chosen) == 1 else f"{number + 1}-{place + 1}"
        given = dict(zip(variables, values, strict=True))
        yield _case(name, given, [one for one in (shared, test) if one], left_out)


def _case(name: str, given: Variables, tests: Sequence[_Test], left_out: list[str]) -> CaseRow:
    case: CaseRow = {"id": name, "input": given}
    expected: Expected = {}
    assertions = []
    for test in tests:
        for place, one in enumerate(test.assertions):
            where = f"{test.place}.assert[{place}]"
            if not isinstance(one, dict):
                left_out.append(f"{where}: {describe(one)}")
            elif (evaluator := _assertion(_filled_in(one, given), expected)) is None:
                left_out.append(f"{where}: {describe(one.get('type'))}")
            else:
                assertions.append(evaluator)
                left_out += [f"{where}.metric: {describe(one['metric'])}"] if "metric" in one else []
    if expected:
        case["expected"] = expected
    if assertions:
        case["assert"] = assertions
    return case


def _rendered(written: Json, given: Variables) -> Json:
    """What is written, with the values of variables in place of `{{name}}`."""
    if isinstance(written, str):
        return VARIABLE.sub(lambda found: _text(given.get(found[1], found[0])), written)
    if isinstance(written, list):
        return [_rendered(one, given) for one in written]
    return _filled_in(written, given) if isinstance(written, dict) else written


def _filled_in(written: Mapping[str, Json], given: Variables) -> dict[str, Json]:
    return {key: _rendered(value, given) for key, value in written.items()}


def _assertion(one: Mapping[str, Json], expected: Expected) -> Evaluator | None:
    """An assertion as an evaluator; None where it has none. What it is compared with is added to what is expected."""
    kind = str(one.get("type"))
    make = _KINDS.get(kind.removeprefix("not-"))
    value, threshold, weight = one.get("value"), one.get("threshold"), one.get("weight", 1)
    if make is None or not one.keys() <= _READ or _has_template(value):
        return None
    if not (threshold is None or _is_number(threshold)) or not _is_number(weight) or weight <= 0:
        return None
    made = make(value, threshold, expected)
    if made is not None and kind.startswith("not-"):
        made = {"not": dict(made)}
    if made is None or weight == 1:
        return made
    ((name, options),) = made.items()
    return {name: {**options, "weight": weight}}


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_template(value: object) -> bool:
    """Return whether something of a template is left, which only promptfoo can fill in, or a file."""
    if isinstance(value, Mapping | list):
        return any(map(_has_template, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, str) and (bool(_TEMPLATE.search(value)) or value.startswith("file://"))


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int | float)


def _text(value: object) -> str:
    """A value as promptfoo puts it into a text."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


Make = Callable[[Json, float | None, Expected], Evaluator | None]


def _of_text(name: str, option: str, change: Callable[[str], str] = str) -> Make:
    def make(value: Json, threshold: float | None, expected: Expected) -> Evaluator | None:
        return {name: {"field": FIELD, option: change(_text(value))}} if _is_scalar(value) else None

    return make


def _of_texts(name: str) -> Make:
    def make(value: Json, threshold: float | None, expected: Expected) -> Evaluator | None:
        texts = _separated(value) if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not all(map(_is_scalar, texts)):
            return None
        return {name: {"field": FIELD, "text": list(map(_text, texts))}}

    return make


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
        if not _is_scalar(value) or not _expects(expected, _text(value)):
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


_KINDS: Mapping[str, Make] = {
    "equals": _equals,
    "contains": _of_text("contains", "text"),
    "icontains": _of_text("regex", "pattern", _ignoring_case),
    "starts-with": _of_text("regex", "pattern", _at_the_start),
    "regex": _of_text("regex", "pattern"),
    "contains-any": _of_texts("contains_any"),
    "contains-all": _of_texts("contains"),
    "is-json": _is_json,
    "rouge-n": _of_reference("rouge", 0.75, variant="1"),
    "bleu": _of_reference("bleu", 0.5),
    "latency": _of_measure("latency", _MILLISECONDS),
    "cost": _of_measure("cost", 1),
}
