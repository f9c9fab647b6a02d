"""What a promptfoo configuration keeps in other files: tests, prompts and values of variables."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from wtb.config.yaml_reader import MAX_BYTES, parse
from wtb.core.errors import InputError
from wtb.core.values import Json
from wtb.planning.case_files import Wrong, loads

_PREFIX = "file://"
_TEXTS = (".txt", ".md")
_DATA = (".yaml", ".yml", ".json")
_NO_CHAT = "expected a list of messages, each with a role and a content that is text"
_EXPECTED = re.compile(r"__expected\d*")
# An assertion in a cell: `contains: yes`, `similar(0.8): a text`, `not-contains: no`, `is-json`; else the whole answer.
_ASSERTION = re.compile(r"(?P<type>(?:not-)?[a-z][a-z-]*)(?:\((?P<threshold>[0-9.]+)\))?(?::(?P<value>.*))?", re.DOTALL)
_SHORT = {"fn": "javascript", "eval": "javascript", "grade": "llm-rubric"}
_WITHOUT_VALUE = ("is-json", "contains-json", "is-valid-openai-tools-call", "moderation")
_WITH_VALUE = re.compile(
    r"(not-)?(equals|i?contains(-any|-all)?|starts-with|regex|is-json|contains-json|similar|llm-rubric|factuality"
    r"|model-graded-(closedqa|factuality)|g-eval|javascript|python|webhook|rouge-n|bleu|levenshtein|latency|cost)"
)


def is_file(written: object) -> bool:
    """Return whether a value names a file."""
    return isinstance(written, str) and written.startswith(_PREFIX)


def read_tests(written: str, folder: Path) -> list[Json]:
    """Read the tests of a file.

    Args:
        written: `file://PATH` of a CSV, YAML, JSON or JSONL file, relative to the folder.
        folder: That of the configuration, which the file may not leave.

    Raises:
        InputError: The file cannot be read, or has no list of tests.
    """
    path, text = _read(written, folder)
    if path.suffix == ".csv":
        return [*_csv_tests(path, text)]
    if path.suffix == ".jsonl":
        return [_loaded(path, line) for line in text.splitlines() if line.strip()]
    tests = _value_of(path, text) if path.suffix in _DATA else None
    if not isinstance(tests, list):
        raise InputError(f"{path}: no tests that can be read; expected a list in a .csv, .yaml, .json or .jsonl file")
    return tests


def read_value(written: str, folder: Path) -> Json:
    """Read the value of a variable: a text, or what a YAML or JSON file holds. Raises InputError."""
    path, text = _read(written, folder)
    return _value_of(path, text)


def _value_of(path: Path, text: str) -> Json:
    """Return the value that a file holds, by its suffix. Raises InputError."""
    if path.suffix in _TEXTS:
        return text.strip()
    if path.suffix == ".json":
        return _loaded(path, text)
    if path.suffix in _DATA:
        indented = "".join(f" {line}" for line in text.splitlines(keepends=True))
        value: Json = parse(f"value:\n{indented}".encode(), str(path), aliases=True).data["value"]
        return value
    raise InputError(f"{path}: expected a .txt, .md, .yaml or .json file")


def read_prompts(written: str, folder: Path) -> list[str]:
    """Read the prompts of a text file, which lines of `---` separate, or the messages of a YAML or JSON file.

    Messages are returned as JSON. Raises InputError.
    """
    path, text = _read(written, folder)
    if path.suffix in _DATA:
        value = _value_of(path, text)
        if not _are_messages(value):
            raise InputError(f"{path}: {_NO_CHAT}")
        return [_as_chat(value)]
    if path.suffix not in _TEXTS:
        raise InputError(f"{path}: expected a .txt, .md, .yaml or .json file")
    if (chat := chat_of(text)) is not None:
        return [chat]
    return [prompt.strip() for prompt in re.split(r"^---\s*$", text, flags=re.MULTILINE) if prompt.strip()]


def chat_of(text: str) -> str | None:
    """Return a prompt that is a list of messages as JSON; None if it is not JSON.

    Raises:
        InputError: If it is JSON, or looks like messages, and is no list of messages.
    """
    if not text.lstrip().startswith(("[", "{")):
        return None
    value: Json | Wrong = loads(text)
    if isinstance(value, Wrong):
        if '"role"' in text:
            raise InputError(f"no JSON until its variables are filled in; {_NO_CHAT}")
        return None
    if not _are_messages(value):
        raise InputError(_NO_CHAT)
    return _as_chat(value)


def _are_messages(value: Json) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(message, dict)
            and message.keys() == {"role", "content"}
            and all(isinstance(part, str) for part in message.values())
            for message in value
        )
    )


def _as_chat(messages: Json) -> str:
    return json.dumps(messages, ensure_ascii=False, indent=2)


def _read(written: str, folder: Path) -> tuple[Path, str]:
    path = folder / written.removeprefix(_PREFIX)
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{path}: outside of the folder of the configuration; expected a file in it")
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: more than {MAX_BYTES:,} bytes; expected a smaller file")
        return path, path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read ({why}); expected a text file") from None


def _loaded(path: Path, text: str) -> Json:
    value: Json | Wrong = loads(text)
    if isinstance(value, Wrong):
        raise InputError(f"{path}: {value}")
    return value


def _csv_tests(path: Path, text: str) -> Iterator[Json]:
    try:
        rows = [*csv.reader(io.StringIO(text), strict=True, skipinitialspace=True)]
    except csv.Error as error:
        raise InputError(f"{path}: not CSV: {error}; expected one row of values a test") from None
    header = [name.strip() for name in rows[0]] if rows else []
    for cells in rows[1:]:
        if any(cell.strip() for cell in cells):
            yield _csv_test(dict(zip(header, cells, strict=False)))


def _csv_test(row: Mapping[str, str]) -> Json:
    """The test of a row. Other columns that begin with `__` are keys of the test, and are named where it is read."""
    test: dict[str, Json] = {"vars": {name: cell for name, cell in row.items() if not name.startswith("__")}}
    cells = [cell.strip() for name, cell in row.items() if _EXPECTED.fullmatch(name) and cell.strip()]
    test["assert"] = [_assertion(cell) for cell in cells]
    extra_cells = {
        name.removeprefix("__"): cell for name, cell in row.items() if name.startswith("__") and cell.strip()
    }
    return test | {name: cell for name, cell in extra_cells.items() if not name.startswith("expected")}


def _assertion(cell: str) -> Json:
    match = _ASSERTION.fullmatch(cell)
    kind = "" if match is None else _SHORT.get(match["type"], match["type"])
    is_known = match is not None and (kind in _WITHOUT_VALUE if match["value"] is None else _WITH_VALUE.fullmatch(kind))
    if match is None or not is_known:
        return {"type": "equals", "value": cell}
    assertion: dict[str, Json] = {"type": kind}
    if match["value"] is not None:
        assertion["value"] = match["value"].strip()
    if match["threshold"] is not None:
        assertion["threshold"] = float(match["threshold"])
    return assertion
