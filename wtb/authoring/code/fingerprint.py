"""One short name for the code behind a callable, so that changed code is noticed.

It covers source text, closure cells, defaults and the module globals that the code names, down through
the functions and classes of the same top-level package. What was installed from an index counts by the name and
version of its distribution. It holds no ids, addresses or bytecode: the same code has the same fingerprint in every
process and under every version of Python.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import linecache
import os
import sys
import textwrap
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import orjson

from wtb.authoring.code.described_function import DescribedFunction
from wtb.authoring.code.distributions import distribution_of
from wtb.authoring.code.langchain_parts import has_parts, is_foreign, parts_of
from wtb.authoring.nodes import Node, Variant
from wtb.core.errors import StateError
from wtb.core.serialization.codec import digest, encode

_KNOWN = sys.stdlib_module_names | {"wtb"}  # their source belongs to a version of Python or of WTB


def fingerprint(fn: Any) -> str:
    """The first 16 hex characters of the SHA-256 of the code behind `fn`, a callable or a list of what it is made of.

    Globals, cells and attributes count with the values they have now, and source as it is on disk now:
    call it when the workflow has just been loaded. Decorator lines of functions do not count.
    """
    if isinstance(fn, DescribedFunction):
        return fn.fingerprint
    walk = _Walk(fn)
    text = hashlib.sha256()
    for thing in walk.found:  # grows under way
        text.update("\0".join([*walk.describe(thing), "\n"]).encode("utf-8", "surrogatepass"))
    return text.hexdigest()[:16]


def fingerprints(nodes: Iterable[Node], vary: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """Node -> variant -> the code and parameters behind it, for the variants that a sweep can reach."""
    found: dict[str, dict[str, str]] = {}
    for node in nodes:
        codes: dict[int, str] = {}  # variants often share their function
        chosen = [node.variants[name] for name in vary.get(node.name, [node.default])]
        for variant in chosen:
            if id(variant.fn) not in codes:
                codes[id(variant.fn)] = fingerprint(node.code(variant))
        found[node.name] = {variant.name: _code(variant, codes[id(variant.fn)]) for variant in chosen}
    return found


def _code(variant: Variant, code: str) -> str:
    """The fingerprint of a variant: of its function and its parameters."""
    if not variant.params:
        return code
    try:
        words = orjson.dumps(dict(variant.params), option=orjson.OPT_SORT_KEYS, default=repr)
    except TypeError:  # what JSON does not have, such as a whole number of more than 64 bits
        words = repr(sorted(variant.params.items())).encode("utf-8", "surrogatepass")
    return hashlib.sha256(code.encode() + words).hexdigest()[:16]


class _Walk:
    """What a fingerprint covers: each function, class and object once, numbered in the order it was met."""

    def __init__(self, root: Any) -> None:
        self.found: list[Any] = [root]
        self.numbers = {id(root): 0}
        self.home: set[str] = set()
        roots, seen = [(root, False)], {id(root)}
        for one, is_captured in roots:  # what is wrapped or captured shows whose code it is
            package = _package(one)
            own = not _is_opaque(package)
            # Of what others wrote, only what stands there by itself is looked into: a node that is an object of theirs.
            if package != "None" and (own or not (is_captured or package in _KNOWN or is_foreign(package))):
                self.home.add(package)
            for part, is_part in _wrapped(one):
                counts = callable(part) or isinstance(part, list | tuple | dict) or parts_of(part) is not None
                if counts and id(part) not in seen:
                    seen.add(id(part))
                    roots.append((part, is_captured or is_part))

    def refer(self, value: Any, captured: bool = False) -> str:
        """What stands for `value` in a description. `captured`: it is in a cell, default or attribute."""
        kind, at_home = type(value), self.is_ours(value)
        if isinstance(value, ModuleType):
            return f"module {value.__name__}{_version(value)}"
        if isinstance(value, type | FunctionType):
            followed = at_home or (captured and kind is FunctionType)
            return self.number(value) if followed else f"named {_name(value)}"
        if isinstance(value, PurePath):
            return _name(kind)  # `Path(__file__).parent` differs between machines
        try:
            if has_parts(value):  # more than can be stored of it counts
                return self.number(value)
            return f"{digest(encode(value))} of {self.refer(kind)}"
        except (StateError, RecursionError):  # a list that holds itself, for one
            inside = kind in (functools.partial, MethodType, list, tuple, dict) or hasattr(value, "__wrapped__")
            if inside or (at_home and (captured or callable(value))):
                return self.number(value)
        return f"named {_name(value)}" if hasattr(value, "__qualname__") else f"a {self.refer(kind)}"

    def is_ours(self, value: Any) -> bool:
        return _package(value) in self.home

    def number(self, value: Any) -> str:
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.found)
            self.found.append(value)
        return f"#{self.numbers[id(value)]}"

    def describe(self, thing: Any) -> Iterator[str]:
        if isinstance(thing, FunctionType):
            yield from self.function(thing)
        elif isinstance(thing, type):
            yield from self.class_body(thing)
        elif isinstance(thing, list | tuple):
            captured = thing is self.found[0]
            yield from (self.refer(value, captured) for value in thing)
        elif isinstance(thing, dict):
            yield from (f"{self.refer(key)}: {self.refer(value)}" for key, value in thing.items())
        elif isinstance(thing, MethodType):
            yield from (self.refer(thing.__func__, captured=True), self.refer(thing.__self__, captured=True))
        else:
            yield from self.instance(thing)

    def class_body(self, thing: type[Any]) -> Iterator[str]:
        if _is_opaque(_package(thing)):
            yield _name(thing)
            return
        yield _class_source(thing) or _name(thing)
        yield from map(self.refer, thing.__bases__)
        for name, member in sorted(vars(thing).items()):
            code = getattr(member, "__func__", getattr(member, "fget", member))
            # Without source it was generated, as those of dataclasses are: by the version of Python.
            if isinstance(code, FunctionType) and _source(code):
                yield f"{name}: {self.refer(code)}"

    def instance(self, thing: Any) -> Iterator[str]:
        yield _name(thing) if hasattr(thing, "__qualname__") else self.refer(type(thing))
        inner = parts_of(thing)
        parts = dict(getattr(thing, "__dict__", {}) if inner is None else inner)
        if isinstance(thing, functools.partial):
            parts = {"": thing.func, **dict(enumerate(thing.args)), **thing.keywords}
        elif "__wrapped__" in parts:  # what else functools.wraps copies differs between versions
            parts = {"": parts["__wrapped__"]}
        for name in sorted(parts, key=str):
            yield f"{name}: {self.refer(parts[name], captured=True)}"

    def function(self, fn: FunctionType) -> Iterator[str]:
        source = _source(fn)
        yield source or _name(fn)
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                yield f"{name}: {self.refer(cell.cell_contents, captured=True)}"
            except ValueError:  # not filled yet
                yield f"{name}: empty"
        yield from (self.refer(value, captured=True) for value in fn.__defaults__ or ())
        for name, value in sorted((fn.__kwdefaults__ or {}).items()):
            yield f"{name}: {self.refer(value, captured=True)}"
        names = names_in(fn.__code__) if source else set()
        spaces = [fn.__globals__]
        for space in spaces:  # grows by modules of the same package, for `prompts.SYSTEM`
            for name in sorted(names & space.keys()):
                value = space[name]
                yield f"{name}: {self.refer(value)}"
                followed = isinstance(value, ModuleType) and self.is_ours(value)
                if followed and all(vars(value) is not known for known in spaces):
                    spaces.append(vars(value))


def _is_opaque(package: str) -> bool:
    """Return whether it is others' code: it counts by its name, and by the version of its distribution."""
    return package in _KNOWN or distribution_of(package) is not None


def _wrapped(value: Any) -> Iterator[tuple[Any, bool]]:
    """What says whose code something is that is not the user's itself: what it wraps, and (True) what it holds."""
    if isinstance(value, functools.partial):
        yield value.func, False
    elif isinstance(value, MethodType):
        yield from ((part, False) for part in (value.__func__, value.__self__))
    elif hasattr(value, "__wrapped__"):
        yield value.__wrapped__, False
    if isinstance(value, list | tuple):
        yield from ((part, False) for part in value)
    elif isinstance(value, dict):
        yield from ((part, False) for part in value.values())
    elif (captured := parts_of(value)) is not None:
        yield from ((part, True) for part in captured.values())
    elif isinstance(value, FunctionType):
        if _is_opaque(_package(value)):
            yield from ((part, True) for part in inspect.getclosurevars(value).nonlocals.values())
    elif _package(value) == "wtb" and not isinstance(value, type):
        yield from ((part, True) for part in getattr(value, "__dict__", {}).values() if callable(part))


def _package(value: Any) -> str:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return str(name).partition(".")[0]


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', None)}.{value.__qualname__}{_version(value)}"


def _version(value: Any) -> str:
    """The distribution that something is from, where it is not the project's own."""
    package = _package(value)
    found = None if package in _KNOWN else distribution_of(package)
    return "" if found is None else f" of {found}"


def names_in(code: CodeType) -> set[str]:
    """The names that `code` may look up in its module; not `__file__` and the like."""
    names = {name for name in code.co_names if not name.startswith("__")}
    return names.union(*(names_in(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def _class_source(kind: type) -> str | None:
    module = sys.modules.get(kind.__module__)
    if module is None or _is_opaque(_package(kind)):
        return None
    try:
        lines = inspect.findsource(module)[0]
        found = _definitions(str(module.__file__), lines).get(kind.__qualname__, [])
    except (OSError, TypeError, SyntaxError):  # not from a file
        return None
    return "".join(_text(lines, part) for node in found for part in (*node.decorator_list, node)) or None


def _source(fn: FunctionType) -> str | None:
    """The text of `fn` from `def` or `lambda` to its end; None where there is none, or it is opaque."""
    code = fn.__code__
    if _is_opaque(str(fn.__globals__.get("__name__")).partition(".")[0]):
        return None
    try:
        lines = _lines_of(code, fn.__globals__)
        found = _definitions(code.co_filename, lines).get((code.co_firstlineno, code.co_name), [])
    except (OSError, TypeError, SyntaxError):
        return None
    if len(found) > 1:  # lambdas on one line
        spans = set(code.co_positions())
        found = [node for node in found if _span(node.body) in spans] or found
    return "".join(_text(lines, node) for node in found) or None


def _lines_of(code: CodeType, namespace: dict[str, Any]) -> Sequence[str]:
    """The lines of the file that code is from. Raises OSError or TypeError where it is from none."""
    file = code.co_filename
    if not os.path.isfile(file):
        return inspect.findsource(code)[0]
    linecache.checkcache(file)  # `inspect` does the same, once it has resolved the paths of all modules: 0.1 s
    return linecache.getlines(file, namespace)


def _text(lines: Sequence[str], node: Any) -> str:
    """The lines of a definition as if it stood at the margin, without decorators. Offsets of `ast` are in bytes."""
    first, last = node.lineno - 1, node.end_lineno - 1
    start, end = node.col_offset, node.end_col_offset
    if first == last:
        return _cut(lines[first], start, end)
    padding = "".join(each if each in "\f\t" else " " for each in _cut(lines[first], 0, start))
    inner = "".join(lines[first + 1 : last])
    return textwrap.dedent(padding + _cut(lines[first], start) + inner + _cut(lines[last], 0, end))


def _cut(line: str, start: int, end: int | None = None) -> str:
    return line.encode()[start:end].decode()


def _span(node: Any) -> tuple[int, int, int, int]:
    return (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)


_Definitions = dict[Any, list[Any]]
_PARSED: dict[str, tuple[Sequence[str], _Definitions]] = {}
_PARSING = threading.Lock()


def _definitions(file: str, lines: Sequence[str]) -> _Definitions:
    """What a file defines. It is parsed once, and again when it has changed: `inspect` then gives another list."""
    with _PARSING:
        if file not in _PARSED or _PARSED[file][0] is not lines:
            _PARSED[file] = lines, _parsed("".join(lines))
        return _PARSED[file][1]


def _parsed(source: str) -> _Definitions:
    """Functions by the first line and name in their code objects, decorators included; classes by their names."""
    definitions: _Definitions = {}
    todo: list[tuple[Any, str]] = [(ast.parse(source), "")]
    for node, around in todo:  # grows
        if isinstance(node, ast.Lambda):
            definitions.setdefault((node.lineno, "<lambda>"), []).append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min(part.lineno for part in (node, *node.decorator_list))
            definitions.setdefault((first, node.name), []).append(node)
            around = f"{around}{node.name}.<locals>."
        elif isinstance(node, ast.ClassDef):
            definitions.setdefault(f"{around}{node.name}", []).append(node)
            around = f"{around}{node.name}."
        todo.extend((inner, around) for inner in ast.iter_child_nodes(node))
    return definitions
