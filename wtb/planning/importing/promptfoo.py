"""The tests of a promptfoo configuration as cases with assertions. What has no counterpart is named, and left out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NotRequired, TypedDict, TypeGuard

from wtb.config.yaml_reader import read
from wtb.core.errors import InputError, describe
from wtb.core.values import Json
from wtb.planning.importing.promptfoo_assertions import (
    Evaluator,
    Expected,
    Grader,
    grader_of,
    has_template,
    read_assertion,
    text_of,
)
from wtb.planning.importing.promptfoo_files import chat_of, is_file, read_prompts, read_tests, read_value
from wtb.planning.importing.promptfoo_providers import Provider, read_providers

VARIABLE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
# promptfoo reads a prompt as a file where it looks like a path: `:` precedes a function, `://` what a service keeps.
_PATH = re.compile(r"[^\n]*\.(txt|md|jsonl?|ya?ml|py|[cm]?[jt]s|csv|j2)(:\w+)?|\w+://.*|\S*[*?\[/\\]\S*")


Variables = Mapping[str, Json]
_READ = ("prompts", "providers", "targets", "tests", "scenarios", "defaultTest")
_NOT_IN_NAMES = re.compile(r"[^\w-]+")
CaseRow = TypedDict(
    "CaseRow",
    {"id": str, "input": Variables, "expected": NotRequired[Expected], "assert": NotRequired[Sequence[Evaluator]]},
)


@dataclass
class Imported:
    """What a configuration comes to.

    Attributes:
        cases: As of a cases file.
        prompts: Templates by name, with `{{name}}` for a key of the input: text, or messages as JSON.
        providers: Models with their settings.
        left_out: What was not brought over, in words, each with its place.
    """

    cases: list[CaseRow] = field(default_factory=list)
    prompts: dict[str, str] = field(default_factory=dict)
    providers: list[Provider] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def import_promptfoo(file: Path, grader: Grader | None = None) -> Imported:
    """Read a configuration of promptfoo, in YAML or JSON.

    Args:
        file: The configuration.
        grader: The model that assertions ask where it names none.

    Returns:
        Its tests as cases, its prompts, and what of it has no counterpart.

    Raises:
        InputError: The file cannot be read, or has no tests that can be brought over.
    """
    data, folder = read(file, aliases=True).data, file.parent
    imported = Imported(left_out=[key for key in data if key not in _READ])
    tests = list(_tests(data, folder, imported.left_out))
    if not tests and (data.get("tests") or data.get("scenarios")):
        raise InputError(f"{file}: no test that can be brought over: {'; '.join(imported.left_out)}")
    if not tests:
        raise InputError(
            f"{file}: 'tests' is {describe(data.get('tests'))}; expected a list of tests, or a file of one"
        )
    prompts, common = data.get("prompts"), data.get("defaultTest")
    imported.prompts = _named(_prompts(prompts, folder, imported.left_out), imported.left_out)
    imported.providers = read_providers(data.get("providers", data.get("targets")), imported.left_out)
    shared = _Test("defaultTest", common, imported.left_out) if isinstance(common, Mapping) else None
    if common is not None and shared is None:
        imported.left_out.append(f"defaultTest: {describe(common)}")
    for number, (place, test) in enumerate(tests):
        if isinstance(test, Mapping):
            one = _Test(place, _with_files(test, folder), imported.left_out)
            imported.cases += _cases(number, one, shared, grader, imported.left_out)
        else:
            imported.left_out.append(f"{place}: {describe(test)}")
    if not imported.cases:
        raise InputError(f"{file}: no test that can be brought over; expected mappings with 'vars' and 'assert'")
    imported.left_out = list(dict.fromkeys(imported.left_out))  # what several cases share is named once
    return imported


def _tests(data: Mapping[str, Json], folder: Path, left_out: list[str]) -> Iterator[tuple[str, Json]]:
    """The tests of a configuration with their places: its own, those of files, and those of scenarios."""
    yield from _listed("tests", data.get("tests"), folder, left_out)
    scenarios = data.get("scenarios") or []
    for number, scenario in enumerate(scenarios if isinstance(scenarios, list) else [scenarios]):
        place = f"scenarios[{number}]"
        if not isinstance(scenario, Mapping):
            left_out.append(f"{place}: {describe(scenario)}")
            continue
        left_out += [f"{place}.{key}" for key in scenario if key not in ("config", "tests")]
        configs = [*_listed(f"{place}.config", scenario.get("config"), folder, left_out)]
        for at, test in [*_listed(f"{place}.tests", scenario.get("tests"), folder, left_out)] or [(place, {})]:
            for _, config in configs or [("", {})]:
                yield at, _joined(config, test)


def _listed(place: str, given: Json, folder: Path, left_out: list[str]) -> Iterator[tuple[str, Json]]:
    """What is listed, with that of files in its place."""
    for number, entry in enumerate(given if isinstance(given, list) else [given] if given else []):
        where = f"{place}[{number}]" if isinstance(given, list) else place
        if not is_file(entry):
            yield where, entry
            continue
        try:
            for row, test in enumerate(read_tests(str(entry), folder)):
                yield f"{where}[{row}]", test
        except InputError as error:
            left_out.append(f"{where}: {error}")


def _joined(config: Json, test: Json) -> Json:
    """A test of a scenario with one of its configurations: the test's own variables count."""
    if not isinstance(config, Mapping) or not isinstance(test, Mapping):
        return test
    joined = {**config, **test}
    for key, empty in (("vars", {}), ("assert", [])):
        one, other = config.get(key) or empty, test.get(key) or empty
        if isinstance(one, dict) and isinstance(other, dict):
            joined[key] = {**one, **other}
        elif isinstance(one, list) and isinstance(other, list):
            joined[key] = [*one, *other]
    return joined


def _with_files(test: Mapping[str, Json], folder: Path) -> Mapping[str, Json]:
    """A test with the texts of files as values of its variables; what cannot be read stays and is left out."""
    variables = test.get("vars")
    if is_file(variables):
        variables = _value(variables, folder)
    if isinstance(variables, dict):
        variables = {name: _value(value, folder) for name, value in variables.items()}
    return {**test, "vars": variables} if "vars" in test else test


def _value(written: Json, folder: Path) -> Json:
    try:
        return read_value(written, folder) if isinstance(written, str) and is_file(written) else written
    except InputError:
        return written


class _Test:
    """A test as it is written: its variables and assertions; what else it has is named."""

    def __init__(self, place: str, given: Mapping[str, Json], left_out: list[str]) -> None:
        self.place = place
        variables, assertions = given.get("vars") or {}, given.get("assert") or []
        self.variables: Variables = variables if isinstance(variables, dict) else {}
        self.assertions: Sequence[Json] = assertions if isinstance(assertions, list) else []
        self.has_variables = self.variables == variables
        options = given.get("options")
        self.grader: Grader | None = None
        if isinstance(options, Mapping) and options.keys() == {"provider"}:
            self.grader = grader_of(options["provider"])
        known = {
            "vars": self.has_variables,
            "assert": self.assertions == assertions,
            "options": self.grader is not None or isinstance(options, Mapping),
        }
        left_out += [f"{place}.{key}" for key in given if not known.get(key)]
        if isinstance(options, Mapping) and self.grader is None:
            left_out += [f"{place}.options.{key}" for key in options]


def _named(prompts: Iterable[tuple[str, str]], left_out: list[str]) -> dict[str, str]:
    """Texts of prompts by names that files can have, each text once."""
    found: dict[str, str] = {}
    for written, text in prompts:
        if same := next((name for name, other in found.items() if other == text), None):
            left_out.append(f"prompts: {describe(written or text)} has the same text as {same}")
            continue
        name = _NOT_IN_NAMES.sub("_", written).strip("_")[:60] or f"prompt_{len(found) + 1}"
        others = (f"{name}_{number}" for number in itertools.count(2))
        found[next(one for one in itertools.chain([name], others) if one not in found)] = text
    return found


def _prompts(given: object, folder: Path, left_out: list[str]) -> Iterator[tuple[str, str]]:
    """Names and texts of prompts. Every entry that is none is named, and what else stands beside a text."""
    if not given:
        left_out.append("prompts: nothing")
    elif isinstance(given, Mapping) and not given.keys() & {"raw", "id"}:  # texts or paths, with a label for each
        for text, label in given.items():
            yield from _of_text(f"prompts.{text}", text, str(label), label, left_out)
    else:
        for number, prompt in enumerate(given if isinstance(given, list) else [given]):
            place, own = f"prompts[{number}]", prompt if isinstance(prompt, Mapping) else {}
            text = own.get("raw", own.get("id")) if isinstance(prompt, Mapping) else prompt
            if text is not None:
                left_out += [f"{place}.{key}" for key in own if key not in ("raw", "id", "label")]
            if isinstance(text, str) and is_file(text):
                yield from _of_file(place, text, own.get("label"), folder, left_out)
            else:
                yield from _of_text(
                    place, text, str(own.get("label") or ""), prompt if text is None else text, left_out
                )


def _of_text(place: str, text: object, label: str, written: object, left_out: list[str]) -> Iterator[tuple[str, str]]:
    try:
        chat = chat_of(text) if isinstance(text, str) else None
    except InputError as error:
        left_out.append(f"{place}: {describe(text)} ({error})")
        return
    if chat is not None and not has_template(VARIABLE.sub("", chat)):
        yield label, chat
    elif chat is None and _is_prompt(text):
        yield label, text
    else:
        left_out.append(f"{place}: {describe(written)}")


def _of_file(place: str, written: str, label: object, folder: Path, left_out: list[str]) -> Iterator[tuple[str, str]]:
    try:
        texts = read_prompts(written, folder)
    except InputError as error:
        left_out.append(f"{place}: {describe(written)} ({error})")
        return
    for text in texts:
        if has_template(VARIABLE.sub("", text)):
            left_out.append(f"{place}: {describe(text)} of {written}")
        else:
            yield str(label or Path(written).stem), text


def _is_prompt(text: object) -> TypeGuard[str]:
    """Return whether this is a text whose every template is a variable; what has a variable in it is no path."""
    if not isinstance(text, str) or not text.strip() or has_template(VARIABLE.sub("", text)):
        return False
    return bool(VARIABLE.search(text)) or not _PATH.fullmatch(text.strip())


def _cases(
    number: int, test: _Test, shared: _Test | None, grader: Grader | None, left_out: list[str]
) -> Iterator[CaseRow]:
    """The cases of a test: a variable that is a list stands for one with each of its values."""
    variables = {**(shared.variables if shared else {}), **test.variables}
    unknown = [
        f"{test.place}.vars.{name}: {describe(value)}"
        for name, value in variables.items()
        if has_template(value) or value == []
    ]
    left_out += unknown
    if unknown or not test.has_variables:
        return
    each = [value if isinstance(value, list) else [value] for value in variables.values()]
    chosen = list(itertools.product(*each))
    for place, values in enumerate(chosen):
        name = f"{number + 1}" if len(chosen) == 1 else f"{number + 1}-{place + 1}"
        given = dict(zip(variables, values, strict=True))
        yield _case(name, given, [one for one in (shared, test) if one], grader, left_out)


def _case(name: str, given: Variables, tests: Sequence[_Test], grader: Grader | None, left_out: list[str]) -> CaseRow:
    case: CaseRow = {"id": name, "input": given}
    expected: Expected = {}
    assertions = []
    grader = next((test.grader for test in reversed(tests) if test.grader is not None), grader)
    for test in tests:
        for place, one in enumerate(test.assertions):
            where = f"{test.place}.assert[{place}]"
            if not isinstance(one, dict):
                left_out.append(f"{where}: {describe(one)}")
                continue
            evaluator, left = read_assertion(_filled_in(one, given), expected, grader)
            left_out += [where + words for words in left]
            assertions += [] if evaluator is None else [evaluator]
    if expected:
        case["expected"] = expected
    if assertions:
        case["assert"] = assertions
    return case


def _rendered(written: Json, given: Variables) -> Json:
    """What is written, with the values of variables in place of `{{name}}`."""
    if isinstance(written, str):
        return VARIABLE.sub(lambda found: text_of(given.get(found[1], found[0])), written)
    if isinstance(written, list):
        return [_rendered(one, given) for one in written]
    return _filled_in(written, given) if isinstance(written, dict) else written


def _filled_in(written: Mapping[str, Json], given: Variables) -> dict[str, Json]:
    return {key: _rendered(value, given) for key, value in written.items()}
