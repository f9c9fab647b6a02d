"""The origins of a module's globals: their statements, and whether their values are the same in every process.

A fingerprint is compared between processes: the runner, its node processes, workers on other machines. The value of
`SESSION = uuid4().hex` differs in each of them, and so may everything that calls something while its module is
imported: shuffled examples, the time, a path on this machine, a key of the environment. Nothing distinguishes such a
call from one that always returns the same, not even running it in two processes: three shuffled examples agree in every
sixth pair. Therefore values count for globals that are made of literals alone (`LIMIT = 3`). A computed global
counts by its *cause*: the text of the statements that compute it, the code that they call, and the files that they
name. Equal causes are equal in every process, and a change of the code is a change of a cause.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from wtb.authoring.code.mentions import Chain, Imported, mentions_of
from wtb.authoring.code.modules import Module, module_of
from wtb.authoring.code.source_file import SourceFile, Statement
from wtb.core.frozen import frozen

_LITERALS = (
    *(ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp),
    *(ast.JoinedStr, ast.FormattedValue, ast.Subscript, ast.Slice, ast.Starred, ast.Lambda, ast.ListComp, ast.DictComp),
    *(ast.comprehension, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)
_MUTABLE = (ast.List, ast.Set, ast.Dict, ast.ListComp, ast.DictComp, ast.Name, ast.Attribute)
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.If, ast.Try)
_MOST_CAUSES = 100  # globals that are searched for the reason why a value differs
_VARYING_MODULES = frozenset({"uuid", "random", "secrets", "time", "tempfile", "socket", "getpass"})
_VARYING_NAMES = frozenset({"now", "today", "utcnow", "getpid", "urandom", "monotonic", "perf_counter", "default_rng"})


class Global(NamedTuple):
    """A name in the module that makes it, which is not the module that imports it from there."""

    module: Module
    name: str

    def __str__(self) -> str:
        return f"{self.module.name}:{self.name}"

    @property
    def statements(self) -> Sequence[Statement]:
        """The statements that bind it or change its value in place."""
        source = self.module.source
        return () if source is None else source.statements.get(self.name, ())

    @property
    def bindings(self) -> Sequence[Statement]:
        return [statement for statement in self.statements if self.name in statement.binds]

    @property
    def changers(self) -> Sequence[Statement]:
        """Functions of its module that change it when they run."""
        return [statement for statement, _ in self._changers]

    @property
    def is_rebound(self) -> bool:
        """True if functions rebind it: `global SESSION`."""
        return any(is_rebound for _, is_rebound in self._changers)

    @property
    def _changers(self) -> Sequence[tuple[Statement, bool]]:
        source = self.module.source
        return () if source is None else source.changers(self.name)

    @property
    def is_defined(self) -> bool:
        """True if it is bound by `def` or `class`."""
        return any(statement.is_definition for statement in self.bindings)


def origin_of(module: Module, name: str) -> Global | None:
    """Find the origin of a module's name: there, or in another module of the user's from which it is imported.

    Returns:
        None if its origin is others' code, if it is a module, or if no statement makes it, as in a notebook.
    """
    seen: set[tuple[str, str]] = set()
    while (module.name, name) not in seen:
        seen.add((module.name, name))
        # Others' code counts by the version of its distribution, so its files are not parsed.
        source = module.source if module.is_own else None
        if source is None:
            return None
        place = Global(module, name)
        if not place.bindings:
            return next(filter(None, (_origin_by(module, star, name) for star in source.stars)), None)
        imported = next(filter(None, (statement.imports.get(name) for statement in place.bindings)), None)
        if imported is None:
            return place
        target = module_of(module.absolute(imported))
        if target is None or len(imported.attributes) != 1:
            return None
        module, name = target, imported.attributes[0]
    return None


def _origin_by(module: Module, star: Imported, name: str) -> Global | None:
    target = module_of(module.absolute(star))
    return None if target is None or target.name == module.name else origin_of(target, name)


def is_literal(place: Global, seen: frozenset[tuple[str, str]] = frozenset()) -> bool:
    """Return whether a global is made of literals, functions and classes only, so that its value is all of it."""
    key = (place.module.name, place.name)
    # Within a cycle of globals, the others decide.
    if key in seen or place.is_defined:
        return True
    bindings = place.bindings
    if place.is_rebound or not all(isinstance(statement.node, _ASSIGNMENTS) for statement in bindings):
        return False
    values = [expression for statement in bindings for expression in _values(statement.node, place.name)]
    # An object that other statements change in place, or functions by varying values, is not what its literal shows.
    if any(map(_is_mutable, values)) and (len(bindings) < len(place.statements) or _are_varied(place)):
        return False
    return bool(values) and all(_is_literal(place.module, expression, seen | {key}) for expression in values)


def _are_varied(place: Global) -> bool:
    """Return whether functions change a global by values that differ between processes."""
    return bool(place.changers) and what_varies(place) is not None


def _is_mutable(node: ast.expr) -> bool:
    return any(isinstance(part, _MUTABLE) for part in ast.walk(node))


def _values(node: ast.AST, name: str) -> Iterator[ast.expr]:
    """Yield the expressions that a statement assigns to a name."""
    for part in ast.walk(node):
        if isinstance(part, ast.Assign | ast.AnnAssign) and part.value is not None:
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            if any(_names(target, name) for target in targets):
                yield part.value


def _names(target: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(target))


def is_literal_expression(module: Module, node: ast.AST) -> bool:
    """Return whether an expression has the same value in every process: see `is_literal`."""
    return _is_literal(module, node, frozenset())


def _is_literal(module: Module, node: ast.AST, seen: frozenset[tuple[str, str]]) -> bool:
    if isinstance(node, ast.Lambda):
        return True
    if isinstance(node, ast.Name):
        return _is_literal_name(module, node.id, seen)
    if isinstance(node, ast.Attribute):
        return _is_literal_attribute(module, node, seen)
    if not isinstance(node, _LITERALS):
        return False
    return all(_is_literal(module, inner, seen) for inner in ast.iter_child_nodes(node))


def _is_literal_name(module: Module, name: str, seen: frozenset[tuple[str, str]]) -> bool:
    # For example, `__file__` differs between machines.
    if name.startswith("__"):
        return False
    place = origin_of(module, name)
    if place is not None:
        return is_literal(place, seen)
    source = module.source
    return source is not None and name not in source.statements  # of Python, or the target of a comprehension


def _is_literal_attribute(module: Module, node: ast.Attribute, seen: frozenset[tuple[str, str]]) -> bool:
    """Return whether an attribute is one of the user's modules or classes, and is made of literals."""
    chain = chain_of(node)
    place = origin_of(module, chain[0]) if chain else None
    if place is not None:
        return place.is_defined
    return any(is_literal(target, seen) for target in globals_at(module, chain))


def chain_of(node: ast.expr) -> Chain:
    """Return the names of a chain of attributes, such as `a.b.c`; none if it begins with anything but a name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return (node.id, *names) if isinstance(node, ast.Name) else ()


def globals_at(module: Module, chain: Chain) -> Iterator[Global]:
    """Yield the globals that a chain of names may stand for, as seen from a module: `lib.prompts.ASK`."""
    if not chain:
        return
    place = origin_of(module, chain[0])
    if place is not None:
        yield place
        return
    imported = imported_as(module, chain[0])
    if imported is not None:
        yield from globals_in(module.absolute(imported), (*imported.attributes, *chain[1:]))


def imported_as(module: Module, name: str) -> Imported | None:
    """Return what a module imports under a name, at its top."""
    source = module.source
    statements = () if source is None else source.statements.get(name, ())
    return next(filter(None, (statement.imports.get(name) for statement in statements)), None)


def globals_in(name: str, attributes: Chain) -> Iterator[Global]:
    """Yield the globals that attributes of a module may stand for: its own, or those of its submodules."""
    module = module_of(name)
    if module is None or not module.is_own or not attributes:
        return
    place = origin_of(module, attributes[0])
    if place is not None:
        yield place
    elif (imported := imported_as(module, attributes[0])) is not None:
        yield from globals_in(module.absolute(imported), (*imported.attributes, *attributes[1:]))
    elif module.folders and module_of(f"{name}.{attributes[0]}") is not None:
        yield from globals_in(f"{name}.{attributes[0]}", attributes[1:])
    elif (lazy := origin_of(module, "__getattr__")) is not None:
        yield lazy


def module_at(module: Module, chain: Chain) -> Module | None:
    """Return the module that a chain of names stands for as a whole, as seen from another; None if it is no module."""
    imported = imported_as(module, chain[0])
    if imported is None:
        return None
    return submodule(module.absolute(imported), (*imported.attributes, *chain[1:]))


def submodule(name: str, attributes: Chain) -> Module | None:
    """Return the module at the end of attributes of a module; None if one of them is something else."""
    for attribute in attributes:
        module = module_of(name)
        if module is None or (module.is_own and origin_of(module, attribute) is not None):
            return None
        name = f"{name}.{attribute}"
    return module_of(name)


def what_varies(place: Global) -> str | None:
    """Return the call that makes a global differ between processes, if its code shows one.

    For messages only: fingerprints leave out all computed values.
    """
    return varying_call([(place.module, _mentioned_by(place))], {(place.module.name, place.name)})


def varying_call(pieces: Sequence[tuple[Module, Sequence[Chain]]], seen: set[tuple[str, str]]) -> str | None:
    """Find a call whose result differs between processes, in code that mentions these chains of names.

    Args:
        pieces: Modules, each with the chains of names that code in it mentions.
        seen: Globals to skip, as (module, name).
    """
    todo, limit = list(pieces), len(seen) + _MOST_CAUSES
    for module, chains in todo:  # grows
        # This is for a message only, so it may miss a call, but must not take long.
        if len(seen) > limit:
            return None
        for chain in chains:
            if _varies(module, chain):
                return ".".join(chain)
        for target in (target for chain in chains for target in globals_at(module, chain)):
            key = (target.module.name, target.name)
            if key not in seen:
                seen.add(key)
                todo.append((target.module, _mentioned_by(target)))
    return None


def _mentioned_by(place: Global) -> Sequence[Chain]:
    return [chain for statement in (*place.statements, *place.changers) for chain in statement.mentions.chains]


def _varies(module: Module, chain: Chain) -> bool:
    imported = imported_as(module, chain[0])
    # A relative import is a module of the user's, even if it is called `random`.
    top = imported.module.partition(".")[0] if imported is not None and not imported.level else ""
    return top in _VARYING_MODULES or (len(chain) > 1 and chain[-1] in _VARYING_NAMES)


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


@frozen
class ImportTime:
    """The code that runs when modules are imported.

    Attributes:
        modules: Their names.
        paths: Import paths of globals that are made or called on import, such as `flow:build`.
        run_later: Functions of nodes, as (module, name).
    """

    modules: tuple[str, ...]
    paths: tuple[str, ...] = ()
    run_later: frozenset[tuple[str, str]] = frozenset()


def import_time_nodes(module: Module) -> Iterator[ast.AST]:
    """Yield the statements and expressions that run when a module is imported, except its imports."""
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
    """Return whether a source contains a text or number literally, so that it is probably not computed."""
    if not isinstance(value, str | int | float | None):
        return False
    text = value if isinstance(value, str) else repr(value)
    return any(text in line for line in source.lines) or ("\n" in text and text in "".join(source.lines))
