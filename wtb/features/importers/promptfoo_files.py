"""Other files of a promptfoo configuration: tests, prompts and values of variables."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from wtb.config.yaml_reader import MAX_BYTES, parse
from wtb.core.errors import InputError, describe
from wtb.core.frozen import frozen
from wtb.core.values import Json
from wtb.features.importers.promptfoo_assertions import Grader, grader_of
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
    """Read the value of a variable: a text, or the content of a YAML or JSON file. Raises InputError."""
    path, text = _read(written, folder)
    return _value_of(path, text)


def _value_of(path: Path, text: str) -> Json:
    """Return the value of a file, by its suffix. Raises InputError."""
    if path.suffix in _TEXTS:
        return text.strip()
    if path.suffix == ".json":
        return _loaded(path, text)
    if path.suffix in _DATA:
        # The YAML reader accepts mappings only, so the value is read as that of a key.
        indented = "".join(f" {line}" for line in text.splitlines(keepends=True))
        document: Json = parse(f"value:\n{indented}".encode(), str(path), aliases=True).data["value"]
        return document
    raise InputError(f"{path}: expected a .txt, .md, .yaml or .json file")


def read_prompts(written: str, folder: Path) -> list[str]:
    """Read the prompts of a text file, separated by lines of `---`, or the messages of a YAML or JSON file.

    Messages are returned as JSON. Raises InputError.
    """
    path, text = _read(written, folder)
    if path.suffix in _DATA:
        document = _value_of(path, text)
        if not _are_messages(document):
            raise InputError(f"{path}: {_NO_CHAT}")
        return [_as_chat(document)]
    if path.suffix not in _TEXTS:
        raise InputError(f"{path}: expected a .txt, .md, .yaml or .json file")
    if (chat := chat_of(text)) is not None:
        return [chat]
    return [prompt.strip() for prompt in re.split(r"^---\s*$", text, flags=re.MULTILINE) if prompt.strip()]


def chat_of(text: str) -> str | None:
    """Return a prompt that is a list of messages as JSON; None if it is not JSON.

    Raises:
        InputError: It is JSON, or looks like messages, but is not a list of messages.
    """
    if not text.lstrip().startswith(("[", "{")):
        return None
    document: Json | Wrong = loads(text)
    if isinstance(document, Wrong):
        if '"role"' in text:
            raise InputError(f"no JSON until its variables are filled in; {_NO_CHAT}")
        return None
    if not _are_messages(document):
        raise InputError(_NO_CHAT)
    return _as_chat(document)


def _are_messages(document: Json) -> bool:
    return (
        isinstance(document, list)
        and bool(document)
        and all(
            isinstance(message, dict)
            and message.keys() == {"role", "content"}
            and all(isinstance(part, str) for part in message.values())
            for message in document
        )
    )


def _as_chat(messages: Json) -> str:
    return json.dumps(messages, ensure_ascii=False, indent=2)


def _read(written: str, folder: Path) -> tuple[Path, str]:
    path = folder / written.removeprefix(_PREFIX)
    try:
        # A configuration from elsewhere must not read files of its user.
        if not path.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{path}: outside of the folder of the configuration; expected a file in it")
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: more than {MAX_BYTES:,} bytes; expected a smaller file")
        return path, path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read ({why}); expected a text file") from None


def _loaded(path: Path, text: str) -> Json:
    document: Json | Wrong = loads(text)
    if isinstance(document, Wrong):
        raise InputError(f"{path}: {document}")
    return document


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
    """Return the test of a row. Other columns that begin with `__` become keys of the test, and are listed later."""
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


# Settings that both protocols take by these names.
_SETTINGS = ("temperature", "max_tokens", "top_p", "stop", "seed", "frequency_penalty", "presence_penalty")


@frozen
class Provider:
    """A model with its settings."""

    model: Grader
    settings: Mapping[str, Json]


def read_providers(written: Json, left_out: list[str]) -> list[Provider]:
    """Read the providers of a configuration. Those of other protocols, and unknown settings, are listed."""
    entries: Sequence[Json] = written if isinstance(written, list) else [] if written is None else [written]
    providers: list[Provider] = []
    for number, written_provider in enumerate(entries):
        place = f"providers[{number}]"
        id, options = _of_entry(written_provider)
        model = grader_of(id)
        if model is None:
            left_out.append(f"{place}: {describe(id if isinstance(id, str) else written_provider)}")
            continue
        left_out += [f"{place}.{key}" for key in options if key != "config"]
        config = options.get("config") or {}
        provider = Provider(model, dict(_settings(place, config, left_out)))
        if provider in providers:
            left_out.append(f"{place}: the same model and settings as those of another provider")
        else:
            providers.append(provider)
    return providers


def _of_entry(written_provider: Json) -> tuple[Json, Mapping[str, Json]]:
    """Return the id of a provider and its settings, from a text, `{id: ...}` or `{ID: {...}}`."""
    if not isinstance(written_provider, Mapping):
        return written_provider, {}
    if "id" in written_provider:
        return written_provider["id"], {key: option for key, option in written_provider.items() if key != "id"}
    if len(written_provider) == 1:
        ((id, options),) = written_provider.items()
        return id, options if isinstance(options, Mapping) else {}
    return None, {}


def _settings(place: str, config: Json, left_out: list[str]) -> Iterator[tuple[str, Json]]:
    if not isinstance(config, Mapping):
        left_out.append(f"{place}.config: {describe(config)}")
        return
    for key, setting in config.items():
        if key in _SETTINGS and setting is not None:
            yield key, setting
        else:
            left_out.append(f"{place}.config.{key}")


def grids(prompts: Sequence[str], providers: Sequence[Provider]) -> list[dict[str, list[Json]]]:
    """Return the variation: a grid of prompts and models for each group of models with equal settings.

    Args:
        prompts: `file://PATH` of each.
        providers: The models with their settings.
    """
    every: dict[str, list[Json]] = {"prompt": [*prompts]}
    if not providers:
        return [every]
    groups: list[tuple[Mapping[str, Json], list[Json]]] = []
    for provider in providers:
        models = next((models for settings, models in groups if settings == provider.settings), None)
        if models is None:
            groups.append((provider.settings, [provider.model.model]))
        elif provider.model.model not in models:
            models.append(provider.model.model)
    return [{**every, "model": models, **{key: [setting] for key, setting in s.items()}} for s, models in groups]
