"""Columns of a table of cases: the key of a case that each one is; and problems of many cases, each named once.

`id`, `expected`, `cluster`, `tags` and `files` are these keys of a case, and `expected.x` is a key of its expected
value. Any other column, also with the prefix `input.`, is a key of the input. Headings match keys regardless of case
and of surrounding spaces. `columns` of a sweep maps headings that match nothing, and names columns to ignore.
"""

from __future__ import annotations

import difflib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from wtb.config.field_types import Name, Strict, expected, problem
from wtb.config.yaml_reader import Located
from wtb.core.errors import InputError, describe, meant_or_known
from wtb.core.frozen import frozen
from wtb.core.texts import listed_names, plural
from wtb.planning.case_files import Headings, Wrong

OF_A_CASE = ("id", "expected", "cluster", "tags", "files")
IGNORE = "ignore"
MAX_SHOWN = 10  # headings in a message
_MAX_COMPARED = 200  # headings that are compared with keys, each with each
_NESTED = ("input", "expected")
_EXPECTED_WORDS = frozenset({"expected", "target", "reference", "gold", "truth"})

Meaning = tuple[str, str | None]  # a key of a case, and the key within it
_UNNAMED: Meaning = ("", None)
_IGNORED: Meaning = (IGNORE, None)


def key_text(meaning: Meaning) -> str | None:
    """Return the key of a column as `columns` of a sweep writes it; None for a column without a heading."""
    key, inner = meaning
    if inner is None:
        return key or None
    return inner if key == "input" and inner not in (*OF_A_CASE, IGNORE) else f"{key}.{inner}"


class BlankRow:
    """A row of a table in which every cell is blank."""


def _headings_of(written_headings: object) -> tuple[str, ...]:
    headings = [written_headings] if isinstance(written_headings, str) else written_headings
    if isinstance(headings, list | tuple) and headings and all(map(_is_heading, headings)):
        return tuple(headings)
    raise expected(f"the heading of a column, or a list of headings for '{IGNORE}'")


def _is_heading(heading: object) -> bool:
    return isinstance(heading, str) and heading.strip() != ""


def _one_each(columns: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    for key, headings in columns.items():
        if len(headings) > 1 and key != IGNORE:
            raise problem(f"{len(headings)} headings; expected 1: only '{IGNORE}' takes several", at=(key,))
    return columns


ColumnNames = Annotated[
    dict[Name, Annotated[tuple[str, ...], BeforeValidator(_headings_of)]], AfterValidator(_one_each)
]


def read_columns(columns: object) -> Mapping[str, Sequence[str]]:
    """Validate a mapping of columns that a client sent. Raises InputError."""
    try:
        return TypeAdapter(ColumnNames).validate_python(columns)
    except ValidationError:
        text = f"{describe(columns)}; expected a mapping from keys to headings, such as {{question: Question}}"
        raise InputError(f"columns: {text}", argument="columns") from None


class CaseTable(Strict):
    """Cases as a table: texts in columns, read as a CSV file is."""

    headings: Annotated[tuple[str, ...], Field(min_length=1, description="a list of headings")]
    rows: Annotated[tuple[tuple[str, ...], ...], Field(description="a list of rows, each a list of texts")]


@frozen
class ColumnKeys:
    """The rules by which columns of tables become keys of cases.

    Attributes:
        columns: `columns` of the sweep: key -> headings.
        located: Names the place of `columns` in messages.
        state: The keys that an input may have; None for any.
        inputs: The keys that inputs are expected to have, for suggestions.
    """

    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    located: Located = field(default_factory=Located)
    state: Sequence[str] | None = None
    inputs: Sequence[str] = ()

    def read(self, headings: Headings) -> list[Meaning]:
        """Return the key of a case that each column is. Raises InputError with each problem once."""
        names, meanings, unknown = self.find(headings)
        problems = [f"{headings.place}: {text}" for text in _repeated(names, meanings)]
        if unknown:
            problems.append(f"{headings.place}: {self._describe_unknown(unknown, meanings)}")
        if problems:
            raise InputError(*problems)
        return meanings

    def offer(self, headings: Headings) -> dict[str, tuple[str, ...]]:
        """Return a mapping by which every column is read.

        It is `columns` of the sweep, plus the nearest key of every column that is no key, or an entry to ignore it.
        Raises InputError for problems of `columns`.
        """
        _, meanings, unknown = self.find(headings)
        offered = self._offer(unknown, meanings)
        rest = [name for name in unknown if not any(name in of_key for of_key in offered.values())]
        return {key: tuple(of_key) for key, of_key in offered.items()} | (
            {IGNORE: (*offered.get(IGNORE, ()), *rest)} if rest else {}
        )

    def find(self, headings: Headings) -> tuple[list[str], list[Meaning], list[str]]:
        """Return the normalized headings, the key that each is, and the headings that are not keys.

        Raises InputError for problems of `columns`.
        """
        names = [_plain(name) for name in headings.names]
        exact = frozenset(self.state or ())
        by_fold: dict[str, list[str]] = {}
        for key in self.state or ():
            by_fold.setdefault(key.casefold(), []).append(key)
        mapped, problems = self._mapped(names, exact, headings.place)
        if problems:
            raise InputError(*problems)
        meanings, unknown = list[Meaning](), list[str]()
        for position, name in enumerate(names):
            meaning = mapped.get(position) or self._meaning(name, exact, by_fold)
            meanings.append(meaning or _IGNORED)
            if meaning is None:
                unknown.append(name)
        return names, meanings, unknown

    def _mapped(self, names: Sequence[str], exact: frozenset[str], place: str) -> tuple[dict[int, Meaning], list[str]]:
        """Return the columns that the sweep maps, by position, and the problems of its mapping."""
        mapped, problems = dict[int, Meaning](), list[str]()
        positions: dict[str, list[int]] = {}
        for position, name in enumerate(names):
            positions.setdefault(name, []).append(position)
        for key, headings in self.columns.items():
            meaning = self._target(key, exact)
            if meaning is None:
                wrong = f"'columns.{key}' maps to a key that is not in the state{meant_or_known(key, self.state or ())}"
                problems.append(self.located.problem(("columns", key), wrong))
                continue
            for heading in headings:
                at = positions.get(_plain(heading)) or _without_case(_plain(heading), names)
                if at and key == IGNORE:
                    mapped |= dict.fromkeys(at, meaning)
                elif len(at) != 1 or at[0] in mapped:
                    wrong = "twice" if at else f"not in {place}{meant_or_known(_plain(heading), filter(None, names))}"
                    text = f"'columns.{key}' is {describe(heading)}, a heading that is {wrong}"
                    problems.append(self.located.problem(("columns", key), text))
                else:
                    mapped[at[0]] = meaning
        return mapped, problems

    def _target(self, key: str, exact: frozenset[str]) -> Meaning | None:
        if key in OF_A_CASE or key == IGNORE:
            return key, None
        whole, dot, inner = key.partition(".")
        if dot and inner and whole in _NESTED and key not in exact:
            return (whole, inner) if whole == "expected" or self.state is None or inner in exact else None
        return ("input", key) if self.state is None or key in exact else None

    def _meaning(self, name: str, exact: frozenset[str], by_fold: Mapping[str, list[str]]) -> Meaning | None:
        """Return the key of a column by its heading; None if it is none."""
        if not name:
            return _UNNAMED
        folded = name.casefold()
        # An exact match wins over one without case: a state may have both `ID` and an id of the case.
        if name in OF_A_CASE:
            return name, None
        if name in exact:
            return "input", name
        if folded in OF_A_CASE:
            return folded, None
        whole, dot, inner = name.partition(".")
        if dot and inner and whole.casefold() in _NESTED:
            if whole.casefold() == "expected":
                return "expected", inner
            name, folded = inner, inner.casefold()
        if self.state is None or name in exact:
            return "input", name
        keys = by_fold.get(folded, [])
        return ("input", keys[0]) if len(keys) == 1 else None

    def _describe_unknown(self, unknown: Sequence[str], meanings: Sequence[Meaning]) -> str:
        """Name columns that are not keys, and the mapping by which they may be read."""
        quoted = [repr(name if len(name) <= 40 else name[:37] + "...") for name in unknown[:MAX_SHOWN]]
        more = len(unknown) - len(quoted)
        names = listed_names(quoted) if not more else f"{', '.join(quoted)} and {more:,} more"
        verb = f"column {names} is no key" if len(unknown) == 1 else f"columns {names} are no keys"
        inputs = list(self.state or ())
        keys = ", ".join(inputs[:MAX_SHOWN]) + (", ..." if len(inputs) > MAX_SHOWN else "")
        return f"{verb} of the state ({keys}); map in the sweep file, such as {self._suggest(unknown, meanings)}"

    def _suggest(self, unknown: Sequence[str], meanings: Sequence[Meaning]) -> str:
        """Return a mapping for columns that are not keys, as a sweep file writes it."""
        offered = self._offer(unknown, meanings)
        ignored = list(map(_quoted, offered.pop(IGNORE, ())))
        pairs = [f"{key}: {_quoted(headings[0])}" for key, headings in offered.items()]
        if len(ignored) > MAX_SHOWN:
            ignored = [*ignored[:MAX_SHOWN], "..."]
        if ignored:
            pairs.append(f"{IGNORE}: [{', '.join(ignored)}]")
        return f"columns: {{{', '.join(pairs)}}}"

    def _offer(self, unknown: Sequence[str], meanings: Sequence[Meaning]) -> dict[str, list[str]]:
        """Return a mapping for columns that are not keys: to the nearest free key, else to be ignored."""
        used_keys = {inner if key == "input" else key for key, inner in meanings}
        free = [key for key in ("expected", "id", *self.inputs) if key not in used_keys]
        offered = {key: list(headings) for key, headings in self.columns.items()}
        rest: list[str] = []
        for name in dict.fromkeys(unknown[:_MAX_COMPARED]):
            key = _nearest(name, free)
            if key is None:
                rest.append(name)
            else:
                free.remove(key)
                offered.setdefault(key, []).append(name)
        only = self.inputs[0] if len(self.inputs) == 1 else None
        # One input is left for the one column that is left.
        if only in free and len(rest) == 1:
            offered.setdefault(only, []).append(rest.pop())
        if rest:
            offered.setdefault(IGNORE, []).extend(rest)
        return offered


def case_of(meanings: Sequence[Meaning], values: Sequence[str]) -> dict[str, object] | BlankRow | Wrong:
    """Return the case of a row, or the row's problem."""
    if not any(cell.strip() for cell in values):
        return BlankRow()
    if len(values) != len(meanings):
        return Wrong(f"{plural(len(values), 'value')}; expected {len(meanings)}, one for each column")
    nested: dict[str, dict[str, str]] = {"input": {}}
    row: dict[str, object] = {}
    for number, ((key, inner), cell) in enumerate(zip(meanings, values, strict=True), start=1):
        if inner is not None:
            # A blank cell is an empty text of an input, but no expected value: cases without one are not scored by it.
            if key == "input" or cell.strip():
                nested.setdefault(key, {})[inner] = cell
        elif not key and cell.strip():
            return Wrong(f"a value in column {number}, which has no heading; expected a heading for each column")
        elif key in _READ and cell.strip():
            row[key] = _READ[key](cell)
    return {**nested, **row}


_READ: Mapping[str, Callable[[str], object]] = {
    "id": str.strip,
    "cluster": str.strip,
    "expected": str,
    "tags": lambda text: re.split(r"[\s;]+", text.strip(" ;")) if text.strip(" ;") else [],
    "files": lambda text: [name.strip() for name in text.split(";") if name.strip()],
}


def names_files(table: CaseTable, columns: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a case of a table names files."""
    try:
        meanings = ColumnKeys(columns).read(Headings(table.headings, ""))
    except InputError:
        # Reading the cases rejects such headings, with the reason.
        return False
    at = [number for number, meaning in enumerate(meanings) if meaning[0] == "files"]
    return any(row[number].strip() for row in table.rows for number in at if number < len(row))


def _plain(heading: str) -> str:
    """Return a heading as it is compared: one line, normalized."""
    return unicodedata.normalize("NFC", " ".join(heading.split()))


def _without_case(heading: str, names: Sequence[str]) -> list[int]:
    return [position for position, name in enumerate(names) if name.casefold() == heading.casefold()]


def _repeated(names: Sequence[str], meanings: Sequence[Meaning]) -> Iterator[str]:
    """Yield problems of columns that are the same key as an earlier one, or part of another column's key."""
    whole = {key: name for name, (key, inner) in zip(names, meanings, strict=True) if inner is None}
    seen: dict[Meaning, str] = {}
    for name, meaning in zip(names, meanings, strict=True):
        key, inner = meaning
        if key in ("", IGNORE):
            continue
        before = seen.get(meaning, whole.get(key) if inner else None)
        if before == name:
            yield f"column {describe(name)} a second time; expected each column once"
        elif before is not None:
            text = f"columns {describe(before)} and {describe(name)} are both '{inner if key == 'input' else key}'"
            yield f"{text}; expected one of them, and the other one in 'columns.{IGNORE}' of the sweep file"
        seen.setdefault(meaning, name)


def _nearest(heading: str, keys: Sequence[str]) -> str | None:
    """Return the key that a heading seems to name, if any."""
    folded = heading.casefold()
    words = re.findall(r"\w+", folded.replace("_", " "))
    best: tuple[float, str] | None = None
    for key in keys[:_MAX_COMPARED]:
        parts = key.casefold().replace("_", " ").split()
        if (key == "expected" and not _EXPECTED_WORDS.isdisjoint(words)) or (parts and set(parts) <= set(words)):
            score = 2.0
        else:
            # Cut, because `SequenceMatcher` may take quadratic time.
            score = difflib.SequenceMatcher(None, folded[:100], key.casefold()[:100]).ratio()
        if score >= 0.6 and (best is None or score > best[0]):
            best = score, key
    return None if best is None else best[1]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


MAX_PROBLEMS = 10
_VALUE = re.compile(r", found .*| is .*?(?=; expected)")  # the part of a problem that differs from case to case


@dataclass
class _Problem:
    place: str
    text: str
    cases: int = 0


@dataclass
class CaseProblems:
    """Problems in order of appearance. Those that differ only in the value of the case count as one."""

    _problems: dict[str, _Problem] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._problems)

    def add(self, place: str, texts: Iterable[str]) -> None:
        """Add the problems of the case at `place`."""
        for text in texts:
            kind = _VALUE.sub("", text)
            # Known kinds are still counted after the limit, so "and N more" is right.
            if kind not in self._problems and len(self._problems) == MAX_PROBLEMS:
                continue
            self._problems.setdefault(kind, _Problem(place, text)).cases += 1

    def texts(self) -> list[str]:
        """Return a line for each problem."""
        return [_line(problem) for problem in self._problems.values()]


def _line(problem: _Problem) -> str:
    more = f" and {problem.cases - 1:,} more" if problem.cases > 1 else ""
    return f"{problem.place}{more}: {problem.text}"
