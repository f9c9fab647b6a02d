"""The source of one of the user's modules: its definitions, and the statements that make its globals."""

from __future__ import annotations

import ast
import io
import linecache
import os
import textwrap
import threading
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from wtb.authoring.code.mentions import Imported, Mentions, imports_of, mentions_of, names_bound_by

_CHANGING = (ast.Expr, ast.Assign, ast.Delete, ast.AugAssign)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(eq=False)
class Statement:
    """A statement at the top of a module, with those within it if it is an `if`, `try`, `for`, `with` or `while`.

    Attributes:
        source: Its file.
        node: Its syntax tree.
        binds: Names that it binds.
        changes: Names of objects that it may change in place: `random.shuffle(ROWS)`, `TABLE["a"] = 1`.
    """

    source: SourceFile
    node: ast.stmt
    binds: frozenset[str]
    changes: frozenset[str]

    @cached_property
    def mentions(self) -> Mentions:
        return mentions_of([self.node])

    @cached_property
    def text(self) -> str:
        decorators = getattr(self.node, "decorator_list", ())
        return "\n".join(self.source.text(part) for part in (*decorators, self.node))

    @cached_property
    def rebinds_when_run(self) -> frozenset[str]:
        """Globals that functions in it rebind."""
        # Few definitions have such a statement, and searching the text is faster than walking the tree.
        if "global " not in self.text:
            return frozenset()
        return frozenset(name for part in ast.walk(self.node) if isinstance(part, ast.Global) for name in part.names)

    @cached_property
    def changes_when_run(self) -> frozenset[str]:
        """Names of objects that functions in it may change in place."""
        statements = (part for part in ast.walk(self.node) if isinstance(part, _CHANGING))
        return frozenset(name for part in statements for name in _changed_in_place(part))

    @property
    def is_definition(self) -> bool:
        return isinstance(self.node, _DEFINITIONS)

    @cached_property
    def imports(self) -> Mapping[str, Imported]:
        """The imports in this statement, by the bound name."""
        return {
            name: imported
            for node in (self.node, *_inner_statements(self.node))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name, imported in imports_of(node)
        }


@dataclass
class SourceFile:
    """A file of source, parsed once.

    Attributes:
        lines: Its lines, each with its end.
        tree: Its syntax tree; None if Python cannot parse it.
    """

    lines: Sequence[str]
    tree: ast.Module | None
    _parsed: dict[int, _Definitions] = field(default_factory=dict)
    _changers: dict[str, Sequence[tuple[Statement, bool]]] = field(default_factory=dict)

    @classmethod
    def parse(cls, lines: Sequence[str]) -> SourceFile:
        """Parse lines."""
        try:
            return cls(lines, ast.parse("".join(lines)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return cls(lines, None)

    def function_at(self, line: int, name: str) -> Sequence[Any]:
        """Return the definitions of a function, or of lambdas, by the first line and the name of its code object."""
        for node in self.top_level:
            if _first_line(node) <= line <= (node.end_lineno or line):
                return self._definitions(node).get((line, name), ())
        return ()

    def class_named(self, qualified: str) -> Sequence[Any]:
        """Return the definitions of a class by its qualified name."""
        top = qualified.partition(".")[0]
        return [
            definition
            for statement in self.statements.get(top, ())
            for definition in self._definitions(statement.node).get(qualified, ())
        ]

    @cached_property
    def statements(self) -> Mapping[str, Sequence[Statement]]:
        """Name -> the statements that bind it or change it in place, in their order."""
        by_name: dict[str, list[Statement]] = {}
        for node in self.top_level:
            statement = Statement(self, node, frozenset(names_bound_by([node])), frozenset(_changed(node)))
            for name in statement.binds | statement.changes:
                by_name.setdefault(name, []).append(statement)
        return by_name

    @cached_property
    def _functions(self) -> Sequence[Statement]:
        """The functions and classes at its top."""
        return [
            statement
            for node in self.top_level
            if isinstance(node, _DEFINITIONS)
            for statement in self.statements[node.name]
            if statement.node is node
        ]

    @cached_property
    def stars(self) -> Sequence[Imported]:
        """The modules of which it imports all names."""
        return [
            imported
            for node in self.top_level
            for inner in ([node] if isinstance(node, ast.ImportFrom) else _inner_statements(node))
            if isinstance(inner, ast.ImportFrom)
            for _, imported in imports_of(inner)
            if imported.attributes == ("*",)
        ]

    def changers(self, name: str) -> Sequence[tuple[Statement, bool]]:
        """Return the functions and classes that change a global when they run, and whether they rebind it."""
        if name not in self._changers:
            self._changers[name] = [
                (statement, name in statement.rebinds_when_run)
                for statement in self._functions
                if name in statement.rebinds_when_run or name in statement.changes_when_run
            ]
        return self._changers[name]

    def text(self, node: Any) -> str:
        """Return the dedented lines of a definition, without decorators."""
        first, last = node.lineno - 1, node.end_lineno - 1
        start, end = node.col_offset, node.end_col_offset
        if first == last:
            return _cut(self.lines[first], start, end)
        # The text before the definition becomes blanks, so that `dedent` treats its first line like the others.
        padding = "".join(each if each in "\f\t" else " " for each in _cut(self.lines[first], 0, start))
        inner = "".join(self.lines[first + 1 : last])
        return textwrap.dedent(padding + _cut(self.lines[first], start) + inner + _cut(self.lines[last], 0, end))

    @cached_property
    def top_level(self) -> Sequence[ast.stmt]:
        """The statements at its top level, without those that run only if it is started as a script."""
        if self.tree is None:
            return ()
        return [node for node in self.tree.body if not _is_main_guard(node)]

    def _definitions(self, node: ast.stmt) -> _Definitions:
        if id(node) not in self._parsed:
            self._parsed[id(node)] = _definitions_in(node)
        return self._parsed[id(node)]


_Definitions = dict[Any, list[Any]]


def _definitions_in(statement: ast.stmt) -> _Definitions:
    """Map functions by first line and name of their code objects, including decorators; classes by their names."""
    definitions: _Definitions = {}
    todo: list[tuple[Any, str]] = [(statement, "")]
    for node, around in todo:  # grows
        if isinstance(node, ast.Lambda):
            definitions.setdefault((node.lineno, "<lambda>"), []).append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            definitions.setdefault((_first_line(node), node.name), []).append(node)
            around = f"{around}{node.name}.<locals>."
        elif isinstance(node, ast.ClassDef):
            definitions.setdefault(f"{around}{node.name}", []).append(node)
            around = f"{around}{node.name}."
        todo.extend((inner, around) for inner in ast.iter_child_nodes(node))
    return definitions


def _first_line(node: ast.stmt) -> int:
    # The code object of a decorated function starts at its first decorator.
    return min((part.lineno for part in getattr(node, "decorator_list", ())), default=node.lineno)


def _is_main_guard(node: ast.stmt) -> bool:
    """Return whether a statement is `if __name__ == "__main__":`, which does not run on import."""
    return isinstance(node, ast.If) and "__main__" in ast.dump(node.test) and "__name__" in ast.dump(node.test)


def _inner_statements(node: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the simple statements that run when a module is imported, of one of its statements."""
    if isinstance(node, _DEFINITIONS):
        return
    todo: list[Any] = [node]
    for part in todo:  # grows
        if isinstance(part, ast.stmt) and part is not node:
            yield part
        if not isinstance(part, (*_DEFINITIONS, ast.expr)):
            todo += ast.iter_child_nodes(part)


def _changed(node: ast.stmt) -> Iterator[str]:
    """Yield names of objects that a statement of a module may change in place."""
    for part in (node, *_inner_statements(node)):
        yield from _changed_in_place(part)


def _changed_in_place(node: ast.AST) -> Iterator[str]:
    """Yield names of objects that a simple statement may change in place.

    A call whose result is not used probably changes its arguments or its object. One whose result is
    used rarely changes them: `CHAIN = build(PROMPT)`.
    """
    targets: list[ast.AST] = []
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        targets = [node.value]
    elif isinstance(node, ast.Assign | ast.Delete):
        targets = [target for target in node.targets if isinstance(target, ast.Subscript | ast.Attribute)]
    elif isinstance(node, ast.AugAssign):
        targets = [node.target]
    yield from (part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))


def _cut(line: str, start: int, end: int | None = None) -> str:
    # Offsets of `ast` are in bytes.
    return line.encode()[start:end].decode()


_FILES: dict[str, tuple[Any, SourceFile]] = {}
_READING = threading.Lock()
_UNCHANGED: ContextVar[dict[str, SourceFile | None] | None] = ContextVar("unchanged", default=None)


@contextmanager
def unchanged_files() -> Iterator[None]:
    """Check each file only once during the block, because a walk needs the same files thousands of times."""
    token = _UNCHANGED.set({})
    try:
        yield
    finally:
        _UNCHANGED.reset(token)


def source_of(file: str, namespace: dict[str, Any] | None = None) -> SourceFile | None:
    """Read and parse a file; again if it has changed since.

    Args:
        file: Its path, or the name under which `linecache` has it, such as a cell of a notebook.
        namespace: The globals of its module, whose loader has the source of modules that are not files.

    Returns:
        The parsed file, or None if there is no source.
    """
    parsed = _UNCHANGED.get()
    if parsed is None:
        return _source_of(file, namespace)
    if file not in parsed:
        parsed[file] = _source_of(file, namespace)
    return parsed[file]


def _source_of(file: str, namespace: dict[str, Any] | None) -> SourceFile | None:
    with _READING:
        state, lines = _read(file, namespace)
        if not lines:
            return None
        if file not in _FILES or _FILES[file][0] != state:
            _FILES[file] = state, SourceFile.parse(lines() if callable(lines) else lines)
        return _FILES[file][1]


def _read(file: str, namespace: dict[str, Any] | None) -> tuple[Any, Any]:
    """Return what identifies a version of a file, and its lines, or a function that reads them."""
    try:
        status = os.stat(file)
    except (OSError, ValueError):  # in an archive, or in a cell of a notebook
        linecache.checkcache(file)
        lines = linecache.getlines(file, namespace)
        # `linecache` returns the same list until the source changes.
        return (id(lines), len(lines)), lines
    return (status.st_mtime_ns, status.st_size, status.st_ino), lambda: _lines_in(file)


def _lines_in(file: str) -> Sequence[str]:
    with open(file, "rb") as opened:
        content = opened.read()
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
    # Python accepts a stray byte in a comment. As Latin-1, every byte counts.
    except (SyntaxError, UnicodeDecodeError):
        text = content.decode("latin-1")
    return io.StringIO(text, newline=None).readlines()
