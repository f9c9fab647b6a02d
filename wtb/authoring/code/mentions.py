"""Find the names, imports and strings that a piece of code refers to, and the files that a script names.

It reads the tree instead of bytecode, because bytecode differs between versions of Python, and `co_names` mixes
globals with attributes and with modules that the function imports itself.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wtb.core.frozen import frozen

Chain = tuple[str, ...]  # `lib.prompts.ASK` is ("lib", "prompts", "ASK")

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NAMESPACES = frozenset({"globals", "vars", "eval", "exec"})  # they reach any name of the module


@frozen
class Imported:
    """A module that code imports itself, with the used attributes. `level` counts the dots of a relative import."""

    level: int
    module: str
    attributes: Chain = ()

    def at(self, attributes: Chain) -> Imported:
        """Return an attribute of this import."""
        return Imported(self.level, self.module, (*self.attributes, *attributes))


@dataclass
class Mentions:
    """The references of a piece of code, in the order of the text, without repetitions.

    Attributes:
        chains: Names that are not bound within the code, with their attributes.
        imports: Modules that it imports itself and uses.
        computed: Lines on which it imports a module by a name that is not a literal.
        reaches_all: Whether it may reach any name of its module, as `globals()` and `eval` do.
    """

    chains: dict[Chain, None] = field(default_factory=dict)
    imports: dict[Imported, None] = field(default_factory=dict)
    computed: list[int] = field(default_factory=list)
    reaches_all: bool = False


def mentions_of(nodes: Iterable[ast.AST], bound: Iterable[str] = ()) -> Mentions:
    """Find the references of code.

    Args:
        nodes: Syntax trees of definitions, statements or expressions.
        bound: Names that are bound around them, such as the free variables of a closure.

    Returns:
        The references; annotations of functions do not count.
    """
    reader = _Reader()
    for node in nodes:
        reader.read(node, frozenset(bound), {})
    return reader.mentions


def mentions_of_body(functions: Iterable[ast.AST], bound: Iterable[str] = ()) -> Mentions:
    """Find the references of functions' bodies, without decorators and defaults, which run at the definition."""
    reader = _Reader()
    for node in functions:
        reader.read_body(node, frozenset(bound), {})
    return reader.mentions


def names_bound_by(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that statements bind in their own scope."""
    names: set[str] = set()
    todo = list(nodes)
    for node in todo:  # grows
        names.update(_bound_here(node))
        # The targets of a comprehension are its own, but a walrus in it binds outside of it.
        if isinstance(node, _COMPREHENSIONS):
            todo += (inner for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr))
        elif not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            todo += ast.iter_child_nodes(node)
    return names


def _bound_here(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
    elif isinstance(node, ast.NamedExpr):
        yield node.target.id


def imports_of(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Imported]]:
    """Yield the names that an import statement binds, each with the module and the imported attribute."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, Imported(node.level, node.module or "", (alias.name,))
        elif alias.asname:
            yield alias.asname, Imported(0, alias.name)
        else:
            top = alias.name.partition(".")[0]
            yield top, Imported(0, top)


class _Reader:
    """Reads trees. `bound` are names of the surrounding functions; `imports` are imported modules among them."""

    def __init__(self) -> None:
        self.mentions = Mentions()

    def read(self, node: ast.AST, bound: frozenset[str], imports: Mapping[str, Imported]) -> None:
        if isinstance(node, _FUNCTIONS):
            self._function(node, bound, imports)
        elif isinstance(node, _COMPREHENSIONS):
            targets = [each.target for each in node.generators]
            self._children(node, bound | names_bound_by(targets), imports)
        elif isinstance(node, ast.Attribute | ast.Name):
            self._chain(node, (), bound, imports)
        elif isinstance(node, ast.Call) and _imports_by_name(node):
            self._import_by_name(node, ())
        elif isinstance(node, ast.Call) and (attribute := _literal_getattr(node)) is not None:
            self._chain(node.args[0], (attribute,), bound, imports)
            self._nodes(node.args[2:], bound, imports)
        else:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMESPACES - bound:
                self.mentions.reaches_all |= node.func.id != "vars" or not node.args  # `vars(x)` reaches `x` only
            self._children(node, bound, imports)

    def _children(self, node: ast.AST, bound: frozenset[str], imports: Mapping[str, Imported]) -> None:
        self._nodes(ast.iter_child_nodes(node), bound, imports)

    def _nodes(self, nodes: Iterable[ast.AST], bound: frozenset[str], imports: Mapping[str, Imported]) -> None:
        for node in nodes:
            self.read(node, bound, imports)

    def _function(self, node: Any, bound: frozenset[str], imports: Mapping[str, Imported]) -> None:
        # Decorators and defaults run in the surrounding scope, where the parameters are not bound.
        self._nodes(getattr(node, "decorator_list", ()), bound, imports)
        self._nodes([*node.args.defaults, *filter(None, node.args.kw_defaults)], bound, imports)
        self.read_body(node, bound, imports)

    def read_body(self, node: Any, bound: frozenset[str], imports: Mapping[str, Imported]) -> None:
        arguments = node.args
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        declared = {
            name for part in _own_scope(body) if isinstance(part, ast.Global | ast.Nonlocal) for name in part.names
        }
        parameters = {
            each.arg
            for each in (
                *(*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs),
                *filter(None, (arguments.vararg, arguments.kwarg)),
            )
        }
        # Names that are declared `global` or `nonlocal` are bound in the body without being local to it.
        local = (parameters | names_bound_by(body)) - declared
        local_imports = {
            name: imported
            for part in _own_scope(body)
            if isinstance(part, ast.Import | ast.ImportFrom)
            for name, imported in imports_of(part)
        }
        outer = {name: imported for name, imported in imports.items() if name not in local}
        # An imported name is bound as well, but must count as a reference to its module.
        self._nodes(body, (bound | local) - local_imports.keys(), {**outer, **local_imports})

    def _chain(self, node: ast.AST, attributes: Chain, bound: frozenset[str], imports: Mapping[str, Imported]) -> None:
        while isinstance(node, ast.Attribute):
            attributes = (node.attr, *attributes)
            node = node.value
        if not isinstance(node, ast.Name):
            if isinstance(node, ast.Call) and _imports_by_name(node):
                self._import_by_name(node, attributes)
            else:
                self.read(node, bound, imports)
        elif isinstance(node.ctx, ast.Load):
            if node.id in imports:
                self.mentions.imports[imports[node.id].at(attributes)] = None
            elif node.id not in bound:
                self.mentions.chains[node.id, *attributes] = None

    def _import_by_name(self, node: ast.Call, attributes: Chain) -> None:
        name = node.args[0]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            module = name.value.lstrip(".")
            self.mentions.imports[Imported(len(name.value) - len(module), module, attributes)] = None
        else:
            self.mentions.computed.append(node.lineno)


def _own_scope(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield all nodes of a function's body without those of functions and classes in it."""
    todo = list(body)
    for node in todo:  # grows
        yield node
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            todo += ast.iter_child_nodes(node)


def _imports_by_name(node: ast.Call) -> bool:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
    return called in ("import_module", "__import__") and bool(node.args)


def _literal_getattr(node: ast.Call) -> str | None:
    if not (isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) > 1):
        return None
    name = node.args[1]
    return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None


_WORD = re.compile(r"[\w.\-/@+]+")
_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+import|import\s+([\w.]+(?:\s*,\s*[\w.]+)*))", re.MULTILINE)
_COMPUTED = re.compile(
    r"""^\s*(?:exec\s+)?(?:(?:ba|da|z)?sh|source|\.|python[\d.]*|node|ruby|perl)\s+(?:-\w+\s+)*["']?[^\s"']*\$""", re.X
)
_OWN_FOLDER = re.compile(r"""\$\(\s*dirname\s+[^)]*\)|\$\{?(?:0%/\*|BASH_SOURCE%/\*|PWD)\}?""")
_LARGEST = 1024 * 1024  # bytes of a script that are read
_LONGEST = 200


class ScriptFiles(NamedTuple):
    """Files that a script names, and the lines on which it starts programs by computed names."""

    files: Sequence[str]
    computed: Sequence[int] = ()


def script_files(path: str) -> ScriptFiles:
    """Find the files beside a script that it names.

    Args:
        path: The script; binary programs have no files.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST)
    except OSError:
        return ScriptFiles(())
    if b"\0" in content:
        return ScriptFiles(())
    text = content.decode("utf-8", "replace")
    names = {word for word in _WORD.findall(_OWN_FOLDER.sub(".", text)) if "." in word and len(word) < _LONGEST}
    if path.endswith(".py"):
        names |= set(_imported(text))
    folder = os.path.dirname(path)
    places = {
        os.path.normpath(os.path.join(folder, name.lstrip("/") if name.startswith("./") else name)) for name in names
    }
    files = sorted(place for place in places if _is_beside(place, folder) and place != path)
    # A line of Python that looks like a shell command starts no program.
    if path.endswith(".py"):
        return ScriptFiles(files)
    lines = enumerate(text.splitlines(), 1)
    return ScriptFiles(files, [number for number, line in lines if _COMPUTED.match(_OWN_FOLDER.sub(".", line))])


def _imported(text: str) -> Sequence[str]:
    """Return possible files of the modules that a script imports."""
    modules = [
        name.strip() for pair in _IMPORT.findall(text) for part in pair for name in part.split(",") if name.strip(" .")
    ]
    paths = [module.replace(".", "/") for module in modules]
    return [f"{path}{ending}" for path in paths for ending in (".py", "/__init__.py")]


def _is_beside(place: str, folder: str) -> bool:
    """Return whether a path is a file in a folder or below it."""
    return place.startswith(folder + os.sep) and os.path.isfile(place)
