"""Which keys of the state functions read and write, as far as their source tells: for suggestions only."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def written_keys(fn: Callable[..., Any]) -> frozenset[str]:
    """Return the keys that a function returns in mappings that it writes out; none if its source is not there."""
    node = _parsed(fn)
    if node is None:
        return frozenset()
    if isinstance(node, ast.Lambda):
        return frozenset(_keys(node.body, {}))
    own = list(_own_nodes(node))
    assigned: dict[str, list[ast.expr]] = {}
    keys: set[str] = set()
    for inner in own:
        if isinstance(inner, ast.Assign):
            for target in inner.targets:
                if isinstance(target, ast.Name):
                    assigned.setdefault(target.id, []).append(inner.value)
    returned = [inner.value for inner in own if isinstance(inner, ast.Return) and inner.value is not None]
    for value in returned:
        keys.update(_keys(value, assigned))
    names = {value.id for value in returned if isinstance(value, ast.Name)}
    for inner in own:  # such as `update["answer"] = ...` of a mapping that is returned
        if isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Store) and _name(inner.value) in names:
            keys.update(_texts(inner.slice))
    return frozenset(keys)


def read_keys(fn: Callable[..., Any]) -> frozenset[str]:
    """Return the keys that a function cannot do without: `state["key"]` or `state.key`; none without its source."""
    node = _parsed(fn)
    arguments = [] if node is None else [*node.args.posonlyargs, *node.args.args]
    if node is None or not arguments:
        return frozenset()
    state = arguments[0].arg
    keys: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Load) and _name(inner.value) == state:
            keys.update(_texts(inner.slice))
        elif isinstance(inner, ast.Attribute) and _name(inner.value) == state:
            keys.add(inner.attr)
    return frozenset(keys)


def _parsed(fn: Callable[..., Any]) -> _Function | None:
    """Return the syntax of a function."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(fn))))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    name = getattr(fn, "__name__", "")
    if name == "<lambda>":
        functions: list[_Function] = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    else:
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return functions[0] if len(functions) == 1 else None


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield what a function consists of, without functions within it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _own_nodes(child)


def _keys(value: ast.expr | None, assigned: dict[str, list[ast.expr]]) -> Iterator[str]:
    """Yield the keys of a mapping that an expression makes; also of `Command(update={...})`."""
    match value:
        case ast.Dict():
            for key, part in zip(value.keys, value.values, strict=True):
                yield from _keys(part, assigned) if key is None else _texts(key)
        case ast.IfExp():
            yield from _keys(value.body, assigned)
            yield from _keys(value.orelse, assigned)
        case ast.BinOp():
            yield from _keys(value.left, assigned)
            yield from _keys(value.right, assigned)
        case ast.Call(func=ast.Name(id="dict")):
            yield from (keyword.arg for keyword in value.keywords if keyword.arg is not None)
        case ast.Call():
            parts = [keyword.value for keyword in value.keywords if keyword.arg == "update"]
            yield from chain.from_iterable(_keys(part, assigned) for part in parts)
        case ast.Name(id=name):
            parts = [expression for expression in assigned.get(name, ()) if not isinstance(expression, ast.Name)]
            yield from chain.from_iterable(_keys(part, assigned) for part in parts)


def _texts(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value


def _name(value: ast.expr) -> str | None:
    return value.id if isinstance(value, ast.Name) else None
