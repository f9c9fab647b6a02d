"""Import of promptfoo tests as cases with assertions. Parts without a counterpart are listed."""

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
from wtb.features.importers import promptfoo_files
from wtb.features.importers.promptfoo_assertions import (
    Evaluator,
    Expected,
    Grader,
    grader_of,
    has_template,
    read_assertion,
    text_of,
)

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
    """An imported configuration.

    Attributes:
        cases: Rows of a cases file.
        prompts: Templates by name, with `{{name}}` for a key of the input: text, or messages as JSON.
        providers: Models with their settings.
        left_out: The parts that were not imported, each with its place.
    """

    cases: list[CaseRow] = field(default_factory=list)
    prompts: dict[str, str] = field(default_factory=dict)
    providers: list[promptfoo_files.Provider] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def import_promptfoo(file: Path, grader: Grader | None = None) -> Imported:
    """Import a configuration of promptfoo, in YAML or JSON.

    Args:
        file: The configuration.
        grader: The model for assertions that name none.

    Returns:
        Its tests as cases, its prompts, and the parts without a counterpart.

    Raises:
        InputError: The file cannot be read, or none of its tests can be imported.
    """
    document, folder = read(file, aliases=True).data, file.parent
    imported = Imported(left_out=[key for key in document if key not in _READ])
    tests = list(_tests(document, folder, imported.left_out))
    if not tests and (document.get("tests") or document.get("scenarios")):
        raise InputError(f"{file}: no test that can be imported: {'; '.join(imported.left_out)}")
    if not tests:
        raise InputError(
            f"{file}: 'tests' is {describe(document.get('tests'))}; expected a list of tests, or a file of one"
        )
    prompts, common = document.get("prompts"), document.get("defaultTest")
    imported.prompts = _named(_prompts(prompts, folder, imported.left_out), imported.left_out)
    imported.providers = promptfoo_files.read_providers(
        document.get("providers", document.get("targets")), imported.left_out
    )
    shared = _Test("defaultTest", common, imported.left_out) if isinstance(common, Mapping) else None
    if common is not None and shared is None:
        imported.left_out.append(f"defaultTest: {describe(common)}")
    for number, (place, test) in enumerate(tests):
        if isinstance(test, Mapping):
            parsed_test = _Test(place, _with_files(test, folder), imported.left_out)
            imported.cases += _cases(number, parsed_test, shared, grader, imported.left_out)
        else:
            imported.left_out.append(f"{place}: {describe(test)}")
    if not imported.cases:
        raise InputError(f"{file}: no test that can be imported; expected mappings with 'vars' and 'assert'")
    imported.left_out = list(dict.fromkeys(imported.left_out))  # what several cases share is named once
    return imported


def _tests(document: Mapping[str, Json], folder: Path, left_out: list[str]) -> Iterator[tuple[str, Json]]:
    """Yield the tests of a configuration with their places: its own, those of files, and those of scenarios."""
    yield from _listed("tests", document.get("tests"), folder, left_out)
    scenarios = document.get("scenarios") or []
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


def _listed(place: str, written: Json, folder: Path, left_out: list[str]) -> Iterator[tuple[str, Json]]:
    """Yield listed entries, with those of files in their place."""
    for number, written_test in enumerate(written if isinstance(written, list) else [written] if written else []):
        where = f"{place}[{number}]" if isinstance(written, list) else place
        if not promptfoo_files.is_file(written_test):
            yield where, written_test
            continue
        try:
            for row, test in enumerate(promptfoo_files.read_tests(str(written_test), folder)):
                yield f"{where}[{row}]", test
        except InputError as error:
            left_out.append(f"{where}: {error}")


def _joined(config: Json, test: Json) -> Json:
    """Return a test of a scenario with one of its configurations; variables of the test win."""
    if not isinstance(config, Mapping) or not isinstance(test, Mapping):
        return test
    joined = {**config, **test}
    for key, empty in (("vars", {}), ("assert", [])):
        of_config, of_test = config.get(key) or empty, test.get(key) or empty
        if isinstance(of_config, dict) and isinstance(of_test, dict):
            joined[key] = {**of_config, **of_test}
        elif isinstance(of_config, list) and isinstance(of_test, list):
            joined[key] = [*of_config, *of_test]
    return joined


def _with_files(test: Mapping[str, Json], folder: Path) -> Mapping[str, Json]:
    """Return a test with the texts of files as values of its variables; unreadable files stay and are listed later."""
    variables = test.get("vars")
    if promptfoo_files.is_file(variables):
        variables = _value(variables, folder)
    if isinstance(variables, dict):
        variables = {name: _value(variable, folder) for name, variable in variables.items()}
    return {**test, "vars": variables} if "vars" in test else test


def _value(written: Json, folder: Path) -> Json:
    try:
        return (
            promptfoo_files.read_value(written, folder)
            if isinstance(written, str) and promptfoo_files.is_file(written)
            else written
        )
    except InputError:
        return written


class _Test:
    """A test with its variables and assertions; other keys are listed as left out."""

    def __init__(self, place: str, fields: Mapping[str, Json], left_out: list[str]) -> None:
        self.place = place
        variables, assertions = fields.get("vars") or {}, fields.get("assert") or []
        self.variables: Variables = variables if isinstance(variables, dict) else {}
        self.assertions: Sequence[Json] = assertions if isinstance(assertions, list) else []
        self.has_variables = self.variables == variables
        options = fields.get("options")
        self.grader: Grader | None = None
        if isinstance(options, Mapping) and options.keys() == {"provider"}:
            self.grader = grader_of(options["provider"])
        is_read = {
            "vars": self.has_variables,
            "assert": self.assertions == assertions,
            "options": self.grader is not None or isinstance(options, Mapping),
        }
        left_out += [f"{place}.{key}" for key in fields if not is_read.get(key)]
        if isinstance(options, Mapping) and self.grader is None:
            left_out += [f"{place}.options.{key}" for key in options]


def _named(prompts: Iterable[tuple[str, str]], left_out: list[str]) -> dict[str, str]:
    """Return texts of prompts by names that are valid file names, each text once."""
    texts_by_name: dict[str, str] = {}
    for written, text in prompts:
        if same := next((name for name, other in texts_by_name.items() if other == text), None):
            left_out.append(f"prompts: {describe(written or text)} has the same text as {same}")
            continue
        name = _NOT_IN_NAMES.sub("_", written).strip("_")[:60] or f"prompt_{len(texts_by_name) + 1}"
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        texts_by_name[
            next(candidate for candidate in itertools.chain([name], numbered) if candidate not in texts_by_name)
        ] = text
    return texts_by_name


def _prompts(listed: object, folder: Path, left_out: list[str]) -> Iterator[tuple[str, str]]:
    """Yield names and texts of prompts. Entries that are not prompts, and keys beside a text, are listed."""
    if not listed:
        left_out.append("prompts: nothing")
    elif isinstance(listed, Mapping) and not listed.keys() & {"raw", "id"}:  # texts or paths, with a label for each
        for text, label in listed.items():
            yield from _of_text(f"prompts.{text}", text, str(label), label, left_out)
    else:
        for number, prompt in enumerate(listed if isinstance(listed, list) else [listed]):
            place, own = f"prompts[{number}]", prompt if isinstance(prompt, Mapping) else {}
            text = own.get("raw", own.get("id")) if isinstance(prompt, Mapping) else prompt
            if text is not None:
                left_out += [f"{place}.{key}" for key in own if key not in ("raw", "id", "label")]
            if isinstance(text, str) and promptfoo_files.is_file(text):
                yield from _of_file(place, text, own.get("label"), folder, left_out)
            else:
                yield from _of_text(
                    place, text, str(own.get("label") or ""), prompt if text is None else text, left_out
                )


def _of_text(place: str, text: object, label: str, written: object, left_out: list[str]) -> Iterator[tuple[str, str]]:
    try:
        chat = promptfoo_files.chat_of(text) if isinstance(text, str) else None
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
        texts = promptfoo_files.read_prompts(written, folder)
    except InputError as error:
        left_out.append(f"{place}: {describe(written)} ({error})")
        return
    for text in texts:
        if has_template(VARIABLE.sub("", text)):
            left_out.append(f"{place}: {describe(text)} of {written}")
        else:
            yield str(label or Path(written).stem), text


def _is_prompt(text: object) -> TypeGuard[str]:
    """Return whether this is a text whose templates are all variables. A text with a variable is no path."""
    if not isinstance(text, str) or not text.strip() or has_template(VARIABLE.sub("", text)):
        return False
    return bool(VARIABLE.search(text)) or not _PATH.fullmatch(text.strip())


def _cases(
    number: int, test: _Test, shared: _Test | None, grader: Grader | None, left_out: list[str]
) -> Iterator[CaseRow]:
    """Yield the cases of a test: a variable that is a list makes one case for each of its values."""
    variables = {**(shared.variables if shared else {}), **test.variables}
    unknown = [
        f"{test.place}.vars.{name}: {describe(variable)}"
        for name, variable in variables.items()
        if has_template(variable) or variable == []
    ]
    left_out += unknown
    if unknown or not test.has_variables:
        return
    each = [variable if isinstance(variable, list) else [variable] for variable in variables.values()]
    combinations = list(itertools.product(*each))
    for place, values in enumerate(combinations):
        name = f"{number + 1}" if len(combinations) == 1 else f"{number + 1}-{place + 1}"
        bound_variables = dict(zip(variables, values, strict=True))
        yield _case(name, bound_variables, [part for part in (shared, test) if part], grader, left_out)


def _case(
    name: str, variables: Variables, tests: Sequence[_Test], grader: Grader | None, left_out: list[str]
) -> CaseRow:
    case: CaseRow = {"id": name, "input": variables}
    expected: Expected = {}
    assertions = []
    # The grader of the test itself comes last, and wins over that of `defaultTest`.
    grader = next((test.grader for test in reversed(tests) if test.grader is not None), grader)
    for test in tests:
        for place, assertion in enumerate(test.assertions):
            where = f"{test.place}.assert[{place}]"
            if not isinstance(assertion, dict):
                left_out.append(f"{where}: {describe(assertion)}")
                continue
            evaluator, omitted = read_assertion(_filled_in(assertion, variables), expected, grader)
            left_out += [where + words for words in omitted]
            assertions += [] if evaluator is None else [evaluator]
    if expected:
        case["expected"] = expected
    if assertions:
        case["assert"] = assertions
    return case


def _rendered(written: Json, variables: Variables) -> Json:
    """Return the written value with `{{name}}` replaced by the values of variables."""
    if isinstance(written, str):
        return VARIABLE.sub(lambda match: text_of(variables.get(match[1], match[0])), written)
    if isinstance(written, list):
        return [_rendered(part, variables) for part in written]
    return _filled_in(written, variables) if isinstance(written, dict) else written


def _filled_in(written: Mapping[str, Json], variables: Variables) -> dict[str, Json]:
    return {key: _rendered(template, variables) for key, template in written.items()}
