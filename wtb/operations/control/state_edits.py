"""State edits by people: `key=value`, read as YAML and validated by the workflow's schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wtb.config.yaml_reader import MAX_BYTES, parse
from wtb.core.errors import InputError, StateError, describe, did_you_mean
from wtb.core.tree.checkpoints import is_hidden, visible_state
from wtb.core.values import State, Value
from wtb.store.read.queries import checkpoint_states

if TYPE_CHECKING:
    from wtb.authoring.state_schema import Key, Schema
    from wtb.planning.binding import Bound
    from wtb.store.database import Database

_LINE = re.compile(r":[0-9]+: ")  # of the text around a value
_OPENING = "[{\"'&*!|>%@`"  # what begins a YAML value that is not simply text


def as_written(texts: Sequence[str]) -> dict[str, str]:
    """Return each value of texts KEY=VALUE as it was typed, by key."""
    return {text.partition("=")[0]: text.partition("=")[2] for text in texts}


def parse_changes(texts: Sequence[str]) -> dict[str, Any]:
    """Return the values of such texts by key, not yet checked against a schema.

    A value is YAML, and so is a file whose name ends in .json, .yaml or .yml; any other file is text.
    """
    changes: dict[str, Any] = {}
    problems: list[str] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            problems.append(f"set {text!r}: expected key=value, or key=@file")
        elif name in changes:
            problems.append(f"set {name}: given twice; expected each key once")
        else:
            try:
                changes[name] = _from_file(name, value[1:]) if value.startswith("@") else _from_text(name, value)
            except InputError as error:
                problems += error.problems
    if problems:
        raise InputError(*problems)
    return changes


def checked_changes(bound: Bound, changes: State, written: Mapping[str, str] | None = None) -> dict[str, Value]:
    """Check values that a person gives to keys of the state.

    Args:
        bound: The sweep's code, whose schema decides.
        changes: Values by key.
        written: Those that were typed, as text: `42` is the text "42" if the key holds text.

    Returns:
        The values as they are stored, by key.

    Raises:
        InputError: With each unknown key and each value that does not fit, and what was expected.
    """
    schema = bound.workflow.schema
    checked: dict[str, Value] = {}
    problems: list[str] = []
    for name, value in changes.items():
        if is_hidden(name):
            problems.append(f"key {name!r} is the engine's own; expected a key that `wtb show` lists")
            continue
        within = bound.workflow.within(name)
        key = schema.keys.get(within or name)
        if key is None and not schema.open:
            key_names = ", ".join(schema.keys)
            near = did_you_mean(name, schema.keys) or f" (it has: {key_names})"
            problems.append(f"key {name!r} is not in the state{near}")
            continue
        try:
            # A `Value` was validated by an earlier edit or comes from the store.
            if isinstance(value, Value):  # checked already
                checked[name] = value
                continue
            coerced = value if key is None else _fitting(replace(key, name=name), value, (written or {}).get(name))
            checked[name] = Value.of(coerced)
        except InputError as error:
            problems += error.problems
        except StateError as error:
            problems.append(f"key {name!r} cannot be stored: {error}")
    if problems:
        raise InputError(*problems)
    # Redaction comes last, because a marker would not fit the types of keys.
    return bound.spec.redact.redactor.values(checked)


def check_reach(database: Database, bound: Bound, checkpoint_id: str | None, names: Iterable[str]) -> None:
    """Reject keys of inner graphs that are not running at a checkpoint.

    Args:
        database: The database that it is in.
        bound: The sweep's code.
        checkpoint_id: None for the beginning.
        names: The keys.

    Raises:
        InputError: With those that could be changed.
    """
    within = [name for name in names if bound.workflow.within(name)]
    if not within:
        return
    state = checkpoint_states(database, [checkpoint_id]).get(checkpoint_id, {}) if checkpoint_id else {}
    inner_keys = sorted(key for key in visible_state(state) if bound.workflow.within(key))
    frames = {key.rpartition(".")[0] for key in inner_keys}
    listed = ", ".join(inner_keys[:20]) + (", ..." if len(inner_keys) > 20 else "") or "none"
    if problems := [
        f"key {name!r} is of a graph that is not under way here (of those that are, there is: {listed}); expected one "
        f"of these, or a key of the graph around it"
        for name in within
        if name.rpartition(".")[0] not in frames
    ]:
        raise InputError(*problems)


def coerce_values(schema: Schema, values: State, written: Mapping[str, str]) -> dict[str, Any]:
    """Convert typed values to the types of their keys.

    Args:
        schema: The state's.
        values: By key; keys that the state does not have stay as they are.
        written: Each value as it was typed.

    Raises:
        InputError: For values that do not fit.
    """
    coerced: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in values.items():
        key = schema.keys.get(name)
        try:
            coerced[name] = value if key is None else _fitting(key, value, written.get(name))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(*problems)
    return coerced


def _from_text(name: str, text: str) -> Any:
    try:
        return _parsed(text.encode("utf-8", "surrogatepass"), f"set {name}", opening=b"value: ")
    except InputError:
        if text and text[0] not in _OPENING:
            return text  # such as `note=What next: this?`
        raise


def _from_file(name: str, path: str) -> Any:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"set {name}: {path!r} cannot be read ({why}); expected a file") from None
    if len(content) > MAX_BYTES:
        raise InputError(f"set {name}: {path} has more than {MAX_BYTES:,} bytes; expected at most that many")
    if Path(path).suffix.lower() in (".json", ".yaml", ".yml"):
        return _parsed(content.removeprefix(b"\xef\xbb\xbf").removeprefix(b"---\n"), f"set {name}: {path}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"set {name}: {path}: byte 0x{content[error.start]:02x} is not UTF-8; expected a text file in UTF-8"
        ) from None


def _parsed(content: bytes, where: str, opening: bytes = b"value:\n  ") -> Any:
    """Parse any YAML value: as the indented value of a key, because the parser accepts mappings only."""
    try:
        return parse(opening + content.replace(b"\n", b"\n  "), where).data["value"]
    except InputError as error:
        raise InputError(*(_LINE.sub(": ", problem, count=1) for problem in error.problems)) from None


def _fitting(key: Key, value: Any, written: str | None) -> Any:
    """Return a value converted to the key's type. Raises InputError with the value and the expectation."""
    import pydantic

    try:
        adapter: Any = pydantic.TypeAdapter(key.annotation)
    except (pydantic.PydanticUserError, NameError, TypeError):
        return value  # a type that only Python code can check
    try:
        return adapter.validate_python(value)
    except TypeError as error:  # of a type that looks for itself, such as LangChain's messages
        raise InputError(f"key {key.name!r}: {error}") from None
    except pydantic.ValidationError as error:
        # `42` was read as a number; for a key of texts it is the text that was typed.
        if written is not None and not isinstance(value, str | list | dict) and not written.startswith("@"):
            try:
                return adapter.validate_python(written)
            except pydantic.ValidationError:
                pass
        first = error.errors()[0]
        where = ".".join(str(part) for part in (key.name, *first["loc"]))
        expected = key.annotation.__name__ if isinstance(key.annotation, type) else str(key.annotation)
        actual = describe(first["input"])
        raise InputError(
            f"key {where!r}: found {actual}; expected {expected.replace('typing.', '')}: {first['msg']}"
        ) from None
