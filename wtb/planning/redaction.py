"""What a sweep redacts, held against what it is made of: names and parameters are stored as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wtb.config.yaml_reader import Loc
from wtb.core.errors import InputError
from wtb.core.serialization.redaction import Redactor, marker
from wtb.planning.binding import Bound
from wtb.planning.cases import Case

_NO_DATA = ("redact", "cases")  # of a sweep: the patterns themselves, and cases, which are redacted


def check_redaction(bound: Bound) -> None:
    """Refuse a sweep that would store what it is to redact, or whose state could not hold a marker.

    Args:
        bound: The sweep with its code.

    Raises:
        InputError: With each parameter, and each key whose type takes no text.
    """
    redactor = bound.spec.redact.redactor
    if not redactor:
        return
    stored = {key: part for key, part in bound.spec.as_stored().items() if key not in _NO_DATA}
    problems = [
        bound.spec.located.problem(
            loc,
            f"{what}, and what a sweep says is stored as it is, so that it can be continued: give nodes a secret by "
            f"their environment (run.env)",
        )
        for loc, what in _spec_problems(redactor, stored, ())
    ]
    problems += _type_problems(bound)
    if problems:
        raise InputError(*problems)


def _spec_problems(redactor: Redactor, value: Any, loc: Loc) -> Iterator[tuple[Loc, str]]:
    """What of a sweep's own words would have to be redacted, by place."""
    if isinstance(value, str):
        name = redactor.find_pattern(value)
        if name is not None:
            yield loc, f"the pattern {name!r} of 'redact' is found here"
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _spec_problems(redactor, item, (*loc, place))
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in redactor.keys:
                yield (*loc, key), f"the key {key!r} is one of 'redact.keys'"
            else:
                yield from _spec_problems(redactor, item, (*loc, key))


def _type_problems(bound: Bound) -> list[str]:
    """Keys of the state whose values could not be replaced by text."""
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
    """What is wrong with the names of a case: its id, tags and cluster are shown everywhere, and stay as they are."""
    if not redactor.patterns:
        return []
    named = (("its id", [case.id]), ("a tag", case.tags), ("its cluster", [case.cluster] if case.cluster else []))
    matches = ((what, redactor.find_pattern(text)) for what, texts in named for text in texts)
    return [
        f"{what} has what the pattern {name!r} of 'redact' is to keep out; expected one that says nothing of it"
        for what, name in matches
        if name is not None
    ]
