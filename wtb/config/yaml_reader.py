"""Strict reading of one YAML mapping, with the line of every key.

The file is untrusted: it is read up to a cap, parsed as a flat run of events without recursion, and
only strings, numbers, booleans, nulls, lists and mappings come out. Aliases, anchors, tags and merge
keys are refused where they stand, so nothing can expand; duplicate keys are refused because one of the
two would silently win. Plain scalars follow the core schema of YAML 1.2: `on`, `no`, `12:30` and
`2024-01-01` are text. JSON is a subset and needs nothing of its own.
"""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from wtb.core.errors import InputError, describe, did_you_mean

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 50

Loc = tuple[str | int, ...]

# libyaml is about ten times as fast; PyYAML built from source may lack it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"([-+]?)\.(inf|Inf|INF)")
_NAN = (".nan", ".NaN", ".NAN")


def key_text(loc: Loc) -> str:
    """How messages write a key path: `("vary", "answer", 2, "name")` is `vary.answer[2].name`."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@dataclass(slots=True)
class _Lines:
    """The line of a value, and those of what it holds."""

    line: int
    inner: dict[str | int, _Lines] = field(default_factory=dict)


@dataclass(frozen=True)
class Document:
    """A mapping that was read, with the line of each key."""

    file: str
    data: dict[str, Any]
    _lines: _Lines = field(repr=False, compare=False)

    def line(self, loc: Loc) -> int:
        """The 1-based line of a key path, or of its nearest ancestor that is there."""
        here = self._lines
        for part in loc:
            if part not in here.inner:
                break
            here = here.inner[part]
        return here.line


@dataclass(frozen=True)
class Located:
    """Prefixes problems with their place: file and line if the source is a file, else the key.

    All of them are equal, so that values which carry one compare by their content.
    """

    document: Document | None = field(default=None, compare=False)
    where: str = field(default="", compare=False)

    def place(self, loc: Loc) -> str:
        """`FILE:LINE` if the source is a file, else `WHERE: KEY`."""
        if self.document is not None:
            return f"{self.document.file}:{self.document.line(loc)}"
        return ": ".join(part for part in (self.where, key_text(loc)) if part)

    def problem(self, loc: Loc, text: str) -> str:
        """One line for an InputError: the place, then `text`."""
        # A text that names the key itself does not need it a second time.
        place = self.place(() if self.document is None and f"'{key_text(loc)}'" in text else loc)
        return f"{place}: {text}" if place else text


def read(path: Path) -> Document:
    """Read one YAML (or JSON) mapping from a file of at most 1 MiB; InputError says what is wrong where."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path}: not a regular file; expected a YAML file")
        if status.st_size > MAX_BYTES:
            _refuse(str(path), 1, f"the file has {status.st_size:,} bytes", f"at most {MAX_BYTES:,}")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        near = did_you_mean(path.name, _neighbours(path))
        raise InputError(f"{path}: no such file; expected a YAML file{near}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); expected a YAML file") from None
    except ValueError:
        raise InputError(f"{str(path)!r}: not a path; expected a YAML file") from None
    return parse(content, str(path))


def parse(content: bytes, file: str) -> Document:
    """Read one mapping from the bytes of a YAML document; `file` is what messages call it."""
    if len(content) > MAX_BYTES:
        _refuse(file, 1, f"more than {MAX_BYTES:,} bytes", f"at most {MAX_BYTES:,}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        _refuse(file, line, f"byte 0x{content[error.start]:02x} is not UTF-8", "a text file in UTF-8")
    try:
        return _Builder(file).build(yaml.parse(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        found = " ".join(f"{error.context or ''} {error.problem or ''}".split())
        _refuse(file, mark.line + 1 if mark else 1, f"not YAML: {found}", "one YAML mapping")
    except yaml.reader.ReaderError as error:
        bad = re.search(f"[^{_PRINTABLE}]", text)
        line = text.count("\n", 0, bad.start()) + 1 if bad else 1
        found = f"character U+{ord(bad.group()):04X}" if bad else error.reason
        _refuse(file, line, f"not YAML: {found}", "printable text")


# What YAML lets stand in a file, as PyYAML has it.
_PRINTABLE = "\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff"


class _Builder:
    """Builds the values from the parser's events, on a stack of its own, and refuses what is not plain."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._root: _Open | None = None
        self._open: list[_Open] = []

    def build(self, events: Iterator[Any]) -> Document:
        for event in events:
            line = event.start_mark.line + 1
            if isinstance(event, yaml.NodeEvent):
                self._refuse_extras(event, line)
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event, line)
            elif isinstance(event, yaml.MappingStartEvent):
                self._enter({}, line)
            elif isinstance(event, yaml.SequenceStartEvent):
                self._enter([], line)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._open.pop()
            elif isinstance(event, yaml.DocumentStartEvent) and self._root is not None:
                _refuse(self._file, line, "a second document", "one document")
        if self._root is None:
            _refuse(self._file, 1, "the file is empty", "a mapping of keys to values")
        return Document(self._file, self._root.value, self._root.lines)

    def _refuse_extras(self, event: Any, line: int) -> None:
        if isinstance(event, yaml.AliasEvent):
            _refuse(self._file, line, f"alias '*{event.anchor}'", "the value written out")
        if event.anchor is not None:
            _refuse(self._file, line, f"anchor '&{event.anchor}'", "a value without an anchor")
        if event.tag is not None:
            _refuse(self._file, line, f"tag {describe(event.tag)}", "a plain value")

    def _scalar(self, event: Any, line: int) -> None:
        value: Any = event.value
        if event.implicit[0]:  # plain, without quotes
            if value == "<<" and self._key_is_next():
                _refuse(self._file, line, "merge key '<<'", "the keys written out")
            value = self._plain(value, line)
        if "\0" in event.value:  # no database stores it in text
            _refuse(self._file, line, "a NUL character in text", "text without it")
        self._put(value, _Lines(line))

    def _plain(self, text: str, line: int) -> Any:
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        try:
            if _DECIMAL.fullmatch(text):
                return int(text)
        except ValueError:  # Python converts at most 4,300 digits
            _refuse(self._file, line, f"a number of {len(text):,} digits", "a shorter one, or text in quotes")
        if _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text):
            if math.isinf(float(text)):
                _refuse(self._file, line, f"{text} is too large for a number", "a smaller one")
            return float(text)
        if infinity := _INFINITY.fullmatch(text):
            return float(f"{infinity[1]}inf")
        return math.nan if text in _NAN else text

    def _enter(self, value: Any, line: int) -> None:
        opened = _Open(value, _Lines(line))
        if self._root is None and isinstance(value, dict):
            self._root = opened
        else:
            self._put(value, opened.lines)
        self._open.append(opened)
        if len(self._open) > MAX_DEPTH:
            _refuse(self._file, line, f"nesting deeper than {MAX_DEPTH} levels", "a flatter file")

    def _key_is_next(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].value, dict) and self._open[-1].key is None

    def _put(self, value: Any, lines: _Lines) -> None:
        if not self._open:
            _refuse(self._file, lines.line, _kind(value), "a mapping of keys to values at the top")
        into = self._open[-1]
        if isinstance(into.value, list):
            into.lines.inner[len(into.value)] = lines
            into.value.append(value)
        elif into.key is None:
            self._new_key(into, value, lines)
        else:
            lines.line = into.lines.inner[into.key].line  # a value is found by the line of its key
            into.lines.inner[into.key] = lines
            into.value[into.key] = value
            into.key = None

    def _new_key(self, into: _Open, key: Any, lines: _Lines) -> None:
        if not isinstance(key, str):
            _refuse(self._file, lines.line, f"{_kind(key)} as a key", "text; put it in quotes")
        if not key.isprintable():  # it would break the lines of messages and tables
            _refuse(self._file, lines.line, f"key {describe(key)}", "printable characters only")
        if first := into.lines.inner.get(key):
            _refuse(self._file, lines.line, f"key '{key}' twice (first in line {first.line})", "each key once")
        into.lines.inner[key] = lines
        into.key = key


@dataclass(slots=True)
class _Open:
    """A list or mapping that is still being filled, and the key whose value comes next."""

    value: Any
    lines: _Lines
    key: str | None = None


def _kind(value: object) -> str:
    """What was found, where lists and mappings are not yet filled."""
    return "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else describe(value)


def _refuse(file: str, line: int, found: str, expected: str) -> NoReturn:
    raise InputError(f"{file}:{line}: {found}; expected {expected}")


def _neighbours(path: Path) -> list[str]:
    try:
        return [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return []
