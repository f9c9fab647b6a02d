"""What may not be stored: the section `redact` of a sweep file, and `[redact]` of a project's settings.

Patterns are those of RE2, whose searches take a time that grows with the text alone: a pattern of Python's `re` can
take for ever on a text of forty characters, and the runner with all its leases would stand still meanwhile. What RE2
lacks for that, look-around and back-references, is refused.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from wtb.config.distribution import pip_install
from wtb.config.field_types import Name, Strict
from wtb.config.project_settings import find_setting, table_of
from wtb.config.validation_messages import expected, lines, problem
from wtb.config.yaml_reader import Located
from wtb.core.errors import InputError
from wtb.core.serialization.redaction import Pattern, Redactor

MOST_PATTERNS = 100
LONGEST_PATTERN = 1_000
_MAX_MEMORY = 4 << 20  # bytes of a compiled pattern
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@lru_cache(maxsize=500)
def _compiled(pattern: str) -> Pattern:
    """Compile a pattern. Raises ValueError with what is wrong, in words."""
    try:
        re2: Any = import_module("re2")
    except ModuleNotFoundError:
        raise ValueError(f"patterns need RE2, which is not installed: {pip_install('redact')}") from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        compiled: Pattern = re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0]
        why = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise ValueError(f"{pattern!r:.100}, which is no regular expression of RE2 ({why})") from None
    if compiled.search("") is not None:
        raise ValueError(f"{pattern!r:.100}, which matches the empty text and so everywhere")
    return compiled


def _pattern(value: object) -> object:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_PATTERN:
        raise expected(f"a regular expression of 1 to {LONGEST_PATTERN:,} characters")
    try:
        _compiled(value)
    except ValueError as error:
        raise problem(str(error)) from None
    return value


def _pattern_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise expected("a name of letters, digits, '_', '-' and '.', of at most 64 characters")
    return value


_PatternName = Annotated[str, AfterValidator(_pattern_name)]
_Pattern = Annotated[str, BeforeValidator(_pattern)]


def _key(value: str) -> str:
    if re.search(r"[\[\]\s]", value):
        raise expected("the name of a key, without blanks and square brackets")
    return value


class Redact(Strict):
    """What is replaced by a marker before anything is stored.

    patterns: regular expressions by name. keys: names of keys, at any depth of states, arguments and events.
    """

    patterns: Annotated[dict[_PatternName, _Pattern], Field(max_length=MOST_PATTERNS)] = {}
    keys: tuple[Annotated[Name, AfterValidator(_key)], ...] = ()

    @cached_property
    def redactor(self) -> Redactor:
        """What does so."""
        return Redactor({name: _compiled(text) for name, text in self.patterns.items()}, frozenset(self.keys))

    def with_project(self, project: Redact) -> Redact:
        """Return it with what a project redacts, too. Raises InputError where a pattern is another one there."""
        for name, text in self.patterns.items():
            if project.patterns.get(name, text) != text:
                raise InputError(
                    f"redact.patterns.{name} is another pattern in the settings of the project: give it another name"
                )
        keys = dict.fromkeys((*project.keys, *self.keys))
        return Redact(patterns={**project.patterns, **self.patterns}, keys=tuple(keys))


NOTHING = Redact()


def read_project_redaction(start: Path | None = None) -> Redact:
    """Read what a project redacts: `[redact]` of the nearest wtb.toml, or `[tool.wtb.redact]` of pyproject.toml.

    Args:
        start: The folder to look from upwards; by default the working directory.

    Returns:
        What is redacted; nothing where the settings do not say.

    Raises:
        InputError: With all that is wrong there.
    """
    setting = find_setting("redact", start)
    if setting is None:
        return NOTHING
    try:
        return Redact.model_validate(dict(table_of(setting, tuple(Redact.model_fields))))
    except ValidationError as error:
        located = Located(where=f"{setting.file}: {setting.title}")
        raise InputError(*lines(error, located, {(): Redact})) from None


def redactor_of(stored: object) -> Redactor:
    """Return what redacts for a sweep, by what is stored of its section `redact`."""
    return NOTHING.redactor if not stored else Redact.model_validate(stored).redactor
