"""The shape of a workflow's state: its keys, their reducers, and the checks of values for them."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import cached_property
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from wtb.authoring.boundary import check_key
from wtb.core.errors import InputError, StateError, describe, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.tree.checkpoints import is_hidden
from wtb.core.values import State

Reducer = Callable[[Any, Any], Any]

_EMPTY: dict[Any, Callable[[], Any]] = {t: t for t in (list, dict, set, tuple, frozenset, str, int, float, bytes)}


class InputRead(NamedTuple):
    """A case's input as values of the state, by key, and its problems, as messages."""

    values: dict[str, Any]
    problems: list[str]


@frozen
class Key:
    """One key of the state. `reducer(current, update)` joins writes; without one the last write replaces.

    `type_name` is the name of its type, if only that is known.
    """

    name: str
    annotation: Any = Any
    reducer: Reducer | None = None
    required: bool = False
    type_name: str | None = None

    def reduce(self, current: Any, update: Any) -> Any:
        """Join `update` into `current`; a key never written starts from its type's empty value, as in LangGraph."""
        return update if self.reducer is None else self.reducer(current, update)

    def empty(self) -> Any:
        """Return the value that a reducer starts from, or `MISSING` if the type has no empty value."""
        make = _EMPTY.get(get_origin(self.annotation) or self.annotation)
        return make() if make else MISSING


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


@frozen
class Schema:
    """The keys of a TypedDict, dataclass or pydantic model. An `open` schema takes any key."""

    cls: type | None
    keys: Mapping[str, Key] = field(default_factory=dict)
    open: bool = False

    @classmethod
    def of(cls, shape: type | None) -> Schema:
        """Read the keys of `shape`; `None` or `dict` make an open schema. Raises InputError for other types."""
        if shape is None or shape is dict:
            return cls(None, {}, open=True)
        if not (is_typed_dict(shape) or dataclasses.is_dataclass(shape) or _is_model(shape)):
            raise InputError(
                f"state {shape!r}: expected a TypedDict, a dataclass or a pydantic model, found {type(shape).__name__}"
            )
        hints = typing.get_type_hints(shape, include_extras=True)
        required = _required(shape)
        return cls(shape, {n: _key(n, h, n in required) for n, h in hints.items() if _is_field(shape, n)})

    @cached_property
    def is_model(self) -> bool:
        return self.cls is not None and _is_model(self.cls)

    def check_key(self, key: object, who: str) -> str:
        """Return a key that a node wrote, as plain text. Raises StateError with `who` and a key that is not allowed."""
        if type(key) is str and key in self.keys:
            return key
        name = check_key(key, who)
        if is_hidden(name):
            raise StateError(f"{who} wrote key {name!r}: keys that begin with ~ are the engine's own")
        if not self.open and name not in self.keys:
            raise StateError(f"{who} wrote key {name!r}, which the state does not have{did_you_mean(name, self.keys)}")
        return name

    def view(self, values: State) -> Any:
        """Return the state as a node gets it: the dict itself, or an instance of the dataclass or model."""
        if self.cls is None or is_typed_dict(self.cls):
            return values
        if self.is_model:
            # Without validation: values were checked when they were written, and required keys may not be written yet.
            return self.cls.model_construct(**values)  # type: ignore[attr-defined]
        return _dataclass_view(self.cls, values)

    def check_value(self, name: str, value: Any, who: str) -> None:
        """Check a write against the annotation of a pydantic state; other shapes are not checked."""
        if not self.is_model or name not in self.keys:
            return
        import pydantic

        try:
            pydantic.TypeAdapter(self.keys[name].annotation).validate_python(value, strict=True)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            raise StateError(f"{who} wrote key {name!r}: {first['msg']}, found {first['input']!r}") from error

    def read_input(self, case_input: State) -> InputRead:
        """Convert a case's input to state values, or return its problems."""
        unknown = [] if self.open else [name for name in case_input if name not in self.keys]
        problems = [f"key {describe(name)} is not in the state{did_you_mean(name, self.keys)}" for name in unknown[:10]]
        problems += [
            f"key {describe(name)} begins with ~: those are the engine's own" for name in case_input if is_hidden(name)
        ]
        if problems:
            return InputRead({}, problems)
        if self.is_model:
            return self._read_model(case_input)
        return InputRead(dict(case_input), [])

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the names of required keys that `names` lacks."""
        have = set(names)
        return [key.name for key in self.keys.values() if key.required and key.name not in have]

    def _read_model(self, case_input: State) -> InputRead:
        import pydantic

        values, problems = InputRead({}, [])
        for name, content in case_input.items():
            try:
                values[name] = pydantic.TypeAdapter(self.keys[name].annotation).validate_python(content)
            except pydantic.ValidationError as error:
                first = error.errors()[0]
                where = ".".join(str(part) for part in (name, *first["loc"]))
                problems.append(f"key {where!r}: {first['msg']}, found {first['input']!r}")
        return InputRead(values, problems)


def is_typed_dict(kind: Any) -> bool:
    """Return whether it is a TypedDict: before Python 3.13, `typing` does not know those of `typing_extensions`."""
    # Anyone who has such a class has imported the module, so there is no need to import it here.
    extensions = sys.modules.get("typing_extensions")
    return typing.is_typeddict(kind) or (extensions is not None and extensions.is_typeddict(kind))


def unqualified(hint: Any) -> tuple[Any, set[str], list[Any]]:
    """Split the annotation of a key into its type, its qualifiers (such as Required) and its metadata."""
    qualifiers: set[str] = set()
    metadata: list[Any] = []
    while True:
        origin = get_origin(hint)
        if origin is Annotated:
            hint, *inner = get_args(hint)
            metadata = [*inner, *metadata]
        elif (name := getattr(origin, "_name", None)) in ("Required", "NotRequired", "ReadOnly"):
            qualifiers.add(name)
            (hint,) = get_args(hint)
        else:
            return hint, qualifiers, metadata


def _is_model(shape: type) -> bool:
    return hasattr(shape, "model_fields") and hasattr(shape, "model_validate")


def _is_field(shape: type, name: str) -> bool:
    if dataclasses.is_dataclass(shape):
        return any(f.name == name for f in dataclasses.fields(shape))
    return not _is_model(shape) or name in shape.model_fields  # type: ignore[attr-defined]


def _required(shape: type) -> frozenset[str]:
    if is_typed_dict(shape):
        return frozenset(shape.__required_keys__)  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(shape):
        missing = dataclasses.MISSING
        fields = dataclasses.fields(shape)
        return frozenset(f.name for f in fields if f.default is missing and f.default_factory is missing)
    return frozenset(n for n, f in shape.model_fields.items() if f.is_required())  # type: ignore[attr-defined]


def _key(name: str, hint: Any, required: bool) -> Key:
    annotation, qualifiers, metadata = unqualified(hint)
    reducers = [m for m in metadata if callable(m) and not isinstance(m, type) and _takes_two(m)]
    # A class does not know qualifiers in quotes, or under `from __future__ import annotations`, so hints are read, too.
    needed = "NotRequired" not in qualifiers and (required or "Required" in qualifiers)
    return Key(name, annotation, reducers[-1] if reducers else None, needed)


def _takes_two(fn: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except ValueError:  # some builtins have no signature; they are taken at their word
        return True
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in positional if p.default is p.empty]
    return len(needed) <= 2 and (len(positional) >= 2 or any(p.kind is p.VAR_POSITIONAL for p in parameters))


def _dataclass_view(shape: type, values: State) -> Any:
    try:
        return shape(**values)
    except TypeError as error:
        missing = [n for n in sorted(_required(shape)) if n not in values]
        if missing:
            raise StateError(
                f"state has no {missing[0]!r} yet: give the field of {shape.__name__} a default, or write it earlier"
            ) from error
        raise
