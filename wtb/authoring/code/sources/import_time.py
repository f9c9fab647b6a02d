"""Find the code that runs when a module is imported: it makes the values that nodes hold as they are registered.

Such a value may differ between processes: `wf.node(Agent(id=uuid4()).run)`. It counts as changed only if this code
changed, too. The functions of nodes themselves run later, and are left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from wtb.authoring.code.sources.globals import varying_call
from wtb.authoring.code.sources.mentions import mentions_of
from wtb.authoring.code.sources.modules import Module, module_of
from wtb.authoring.code.sources.source_file import SourceFile
from wtb.core.classes.frozen import frozen

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


@frozen
class ImportTime:
    """The code that runs when modules are imported.

    Attributes:
        modules: Their names.
        paths: Import paths of globals that are made then, or called, such as `flow:build`.
        run_later: Functions of nodes, as (module, name).
    """

    modules: tuple[str, ...]
    paths: tuple[str, ...] = ()
    run_later: frozenset[tuple[str, str]] = frozenset()


def import_time_nodes(module: Module) -> Iterator[ast.AST]:
    """Yield the statements and expressions that run when a module is imported, but for its imports."""
    source = module.source
    for statement in () if source is None else source.top_level:
        yield from _run_by(statement)


def has_varying_call(code: ImportTime) -> bool:
    """Return whether code that runs at import calls something whose result differs between processes."""
    pieces = []
    for name in code.modules:
        if (module := module_of(name)) is not None:
            pieces.append((module, list(mentions_of(import_time_nodes(module)).chains)))
    for path in code.paths:
        name, _, attributes = path.partition(":")
        if (module := module_of(name)) is not None:
            pieces.append((module, [tuple(attributes.split("."))]))
    return varying_call(pieces, set(code.run_later)) is not None


def _run_by(statement: Any) -> Iterator[ast.AST]:
    if not isinstance(statement, _DEFINITIONS):
        if not isinstance(statement, _IMPORTS) and not _is_docstring(statement):
            yield statement
        return
    yield from statement.decorator_list
    if isinstance(statement, ast.ClassDef):
        yield from (*statement.bases, *(keyword.value for keyword in statement.keywords))
        for inner in statement.body:
            yield from _run_by(inner)
    else:
        yield from (*statement.args.defaults, *filter(None, statement.args.kw_defaults))


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def is_written_in(source: SourceFile, value: Any) -> bool:
    """Return whether a text or number stands in a source as it is, so that it is hardly computed."""
    if not isinstance(value, str | int | float | None):
        return False
    text = value if isinstance(value, str) else repr(value)
    return any(text in line for line in source.lines) or ("\n" in text and text in "".join(source.lines))
