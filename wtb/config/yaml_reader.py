"""Strict reading of one YAML mapping, with the line of every key.

The file is untrusted: it is read up to a limit, and results in strings, numbers, booleans, nulls, lists and mappings
only. A first pass over the parser's events rejects aliases, anchors, tags and deep nesting, so that nothing can expand,
and later code may recurse. Duplicate keys are rejected because one of the two would silently win.

A plain scalar is a number only if it is one in JSON, so that no value changes: `01234`, `0x10`, `1_000`, `12:30` and
`2024-01-01` are text, and so are `on` and `no`. Numbers of YAML that are none in JSON, but do not look like text
either, are rejected (`.5`, `+1`, `.inf`, `.nan`), and so are numbers that would be rounded or cut (integers over 64
bits, floats beyond the range). In quotes all of them are text. JSON is a subset.
"""

from __future__ import annotations

import math
import re
import stat
from dataclasses import field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from wtb.core.errors import InputError, describe, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.values import Json

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 50
MAX_VALUES = 200_000  # limit for a file with aliases, which can expand

Loc = tuple[str | int, ...]

# libyaml is about ten times as fast; PyYAML built from source may lack it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_NO_JSON = re.compile(
    r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_BITS = 63  # of integers, besides the sign


def key_text(loc: Loc) -> str:
    """Return a key path as messages write it: `("vary", "answer", 2, "name")` is `vary.answer[2].name`."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@frozen
class Document:
    """A mapping that was read, with the line of each key."""

    file: str
    data: dict[str, Any]
    _lines: dict[Loc, int] = field(repr=False, compare=False)

    def line(self, loc: Loc) -> int:
        """Return the line, from 1, of a key path, or of its nearest ancestor in the file."""
        while loc not in self._lines:
            loc = loc[:-1]
        return self._lines[loc]


@frozen
class Located:
    """Prefixes problems with their place: file and line if the source is a file, else the key.

    All of them are equal, so that values which carry one compare by their content.
    """

    document: Document | None = field(default=None, compare=False)
    where: str = field(default="", compare=False)

    def place(self, loc: Loc) -> str:
        """Return `FILE:LINE` if the source is a file, else `WHERE: KEY`."""
        if self.document is not None:
            return f"{self.document.file}:{self.document.line(loc)}"
        return ": ".join(part for part in (self.where, key_text(loc)) if part)

    def problem(self, loc: Loc, text: str) -> str:
        """Return one line for an InputError: the place, then `text`."""
        # A text that names the key itself does not need it a second time.
        place = self.place(() if self.document is None and f"'{key_text(loc)}'" in text else loc)
        return f"{place}: {text}" if place else text


def read(path: Path, *, aliases: bool = False) -> Document:
    """Read one YAML (or JSON) mapping from a file of at most 1 MiB.

    Args:
        path: The file.
        aliases: For files of other tools, accept anchors, aliases and merge keys.

    Raises:
        InputError: With the place of the problem.
    """
    try:
        status = path.stat()
        if path.suffix == ".py":
            raise InputError(f"{path}: a Python file; expected a YAML file, such as sweep.yaml")
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path}: not a regular file; expected a YAML file")
        if status.st_size > MAX_BYTES:
            _refuse(str(path), 1, f"the file has {status.st_size:,} bytes", f"at most {MAX_BYTES:,}")
        with path.open("rb") as file:
            # The size may have changed since `stat`, so the read is limited, too.
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        near = did_you_mean(path.name, _neighbours(path))
        raise InputError(f"{path}: no such file; expected a YAML file{near}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); expected a YAML file") from None
    except ValueError:
        raise InputError(f"{str(path)!r}: not a path; expected a YAML file") from None
    return parse(content, str(path), aliases=aliases)


def parse(content: bytes, file: str, *, aliases: bool = False) -> Document:
    """Read one mapping from the bytes of a YAML document; messages call it `file`. `aliases` is as for `read`."""
    if len(content) > MAX_BYTES:
        _refuse(file, 1, f"more than {MAX_BYTES:,} bytes", f"at most {MAX_BYTES:,}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        _refuse(file, line, f"byte 0x{content[error.start]:02x} is not UTF-8", "a text file in UTF-8")
    try:
        _check(file, text, aliases=aliases)
        root: Any = yaml.compose(text, Loader=_Loader)
        line = root.start_mark.line + 1
        reader = _Reader(file, aliases=aliases)
        document = reader.value(root, (), line)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        if "maximum nesting depth" in (
            error.problem or ""
        ):  # libyaml's own limit, which applies before its first event
            _refuse_depth(file, line)
        if _has_tab(text.split("\n"), line - 1, mark.column if mark else 0):
            _refuse(file, line, "a tab in the indentation", "spaces: YAML takes no tabs there")
        actual = " ".join(f"{error.context or ''} {error.problem or ''}".split())
        _refuse(file, line, f"not YAML: {actual}", "one YAML mapping")
    except yaml.reader.ReaderError as error:
        bad = re.search(f"[^{_PRINTABLE}]", text)
        line = text.count("\n", 0, bad.start()) + 1 if bad else 1
        actual = f"character U+{ord(bad.group()):04X}" if bad else error.reason
        _refuse(file, line, f"not YAML: {actual}", "printable text")
    if not isinstance(document, dict):
        actual = "a list" if isinstance(document, list) else describe(document)
        _refuse(file, line, actual, "a mapping of keys to values at the top")
    return Document(file, document, reader.lines)


def _has_tab(lines: list[str], line: int, column: int) -> bool:
    """Return whether a tab is at the position where YAML stopped, or before the text of that line."""
    text = lines[line] if line < len(lines) else ""
    return "\t" in text[: len(text) - len(text.lstrip())] or text[column : column + 1] == "\t"


# The characters that YAML allows in a file, according to PyYAML.
_PRINTABLE = "\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff"


def _check(file: str, text: str, *, aliases: bool) -> None:
    """Reject everything that could expand, recurse too deep or become an object, before any of it is built.

    Accepted aliases are counted when they are expanded.
    """
    depth = documents = 0
    event: Any
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.NodeEvent):
            _refuse_unplain(file, line, event, aliases=aliases)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if depth > MAX_DEPTH:
            _refuse_depth(file, line)
        if documents > 1:
            _refuse(file, line, "a second document", "one document")
    if not documents:
        _refuse(file, 1, "the file is empty", "a mapping of keys to values")


def _refuse_unplain(file: str, line: int, event: yaml.NodeEvent, *, aliases: bool) -> None:
    match event:
        case yaml.AliasEvent(anchor=name) if not aliases:
            _refuse(file, line, f"alias '*{name}'", "the value written out")
        case yaml.NodeEvent(anchor=str(name)) if not aliases:
            _refuse(file, line, f"anchor '&{name}'", "a value without an anchor")
        case yaml.ScalarEvent(tag=str(tag)) | yaml.CollectionStartEvent(tag=str(tag)):
            _refuse(file, line, f"tag {describe(tag)}", "a plain value")


class _Reader:
    """Converts nodes into plain values.

    Attributes:
        lines: The line of each value by its path; for a value of a mapping, the line of its key.
    """

    def __init__(self, file: str, *, aliases: bool = False) -> None:
        self._file, self._aliases = file, aliases
        self._values = 0
        self.lines: dict[Loc, int] = {}

    def value(self, node: Any, loc: Loc, line: int) -> Any:
        """Read the value of a node, whose line is given for messages."""
        self.lines[loc] = line
        self._values += 1
        if self._aliases and self._values > MAX_VALUES:
            _refuse(self._file, line, f"aliases that expand to more than {MAX_VALUES:,} values", "fewer")
        if len(loc) > MAX_DEPTH:  # only an alias within its own anchor gets there
            _refuse_depth(self._file, line)
        if isinstance(node, yaml.MappingNode):
            mapping: dict[str, Json] = {}
            for key_node, value_node in self._merged(node) if self._aliases else node.value:
                key = self._key(key_node, loc)
                mapping[key] = self.value(value_node, (*loc, key), key_node.start_mark.line + 1)
            return mapping
        if isinstance(node, yaml.SequenceNode):
            members = enumerate(node.value)
            return [self.value(member, (*loc, number), member.start_mark.line + 1) for number, member in members]
        return self._scalar(node)

    def _merged(self, node: Any, depth: int = 0) -> list[tuple[Any, Any]]:
        """Return the keys and values of a mapping with those of its merge keys, which its own keys override."""
        own, merged = list[tuple[Any, Any]](), list[tuple[Any, Any]]()
        for key, content in node.value:
            if key.value != "<<" or key.style:
                own.append((key, content))
                continue
            for source in content.value if isinstance(content, yaml.SequenceNode) else [content]:
                if not isinstance(source, yaml.MappingNode) or depth > MAX_DEPTH:
                    _refuse(self._file, key.start_mark.line + 1, "a merge key of no mapping", "an alias of one")
                merged += self._merged(source, depth + 1)
        names = {key.value for key, _ in own}
        by_name: dict[str, tuple[Any, Any]] = {}
        for key, content in merged:
            if key.value not in names:
                by_name.setdefault(key.value, (key, content))
        return [*by_name.values(), *own]

    def _key(self, node: Any, loc: Loc) -> str:
        line = node.start_mark.line + 1
        if not isinstance(node, yaml.ScalarNode):
            kind = "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
            _refuse(self._file, line, f"{kind} as a key", "text; put it in quotes")
        if node.value == "<<" and not node.style:
            _refuse(self._file, line, "merge key '<<'", "the keys written out")
        key = self._scalar(node)
        if not isinstance(key, str):
            _refuse(self._file, line, f"{describe(key)} as a key", "text; put it in quotes")
        if not key.isprintable():  # it would break the lines of messages and tables
            _refuse(self._file, line, f"key {describe(key)}", "printable characters only")
        if first := self.lines.get((*loc, key)):
            _refuse(self._file, line, f"key '{key}' twice (first in line {first})", "each key once")
        return key

    def _scalar(self, node: Any) -> Any:
        text, line = node.value, node.start_mark.line + 1
        if "\0" in text:  # no database stores it in text
            _refuse(self._file, line, "a NUL character in text", "text without it")
        if node.style:  # in quotes, or a block
            return text
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _INTEGER.fullmatch(text):
            return self._integer(text, line)
        if _NUMBER.fullmatch(text):
            if math.isinf(float(text)):
                _refuse(self._file, line, f"{text} is too large for a number", "a smaller one")
            return float(text)
        if _NO_JSON.fullmatch(text):
            _refuse(self._file, line, f"{text} is no number in JSON", "one such as 0.5, or text in quotes")
        return text

    def _integer(self, text: str, line: int) -> int:
        digits = text.lstrip("-")
        if len(digits) > 4_000:  # Python converts at most 4,300
            _refuse(self._file, line, f"a number of {len(digits):,} digits", "at most 64 bits, or text in quotes")
        number = int(text)
        if not -(2**_BITS) <= number < 2**_BITS:
            _refuse(self._file, line, f"{text} has more than 64 bits", "a smaller number, or text in quotes")
        return number


def _refuse_depth(file: str, line: int) -> NoReturn:
    _refuse(file, line, f"nesting deeper than {MAX_DEPTH} levels", "a flatter file")


def _refuse(file: str, line: int, actual: str, expected: str) -> NoReturn:
    raise InputError(f"{file}:{line}: {actual}; expected {expected}")


def _neighbours(path: Path) -> list[str]:
    try:
        return [file.name for file in path.parent.iterdir()]
    except OSError:
        return []
