"""Count type expressions that are only a mapping to anything: `make untyped`. `make check` fails above MAX_UNTYPED.

Counted are annotations, bases of classes and targets of casts, each mapping in them once. An alias hides nothing: every
use of it counts, unless it is declared with `TypeAlias` and a docstring that describes what the mapping holds. Then it
counts once. MOST_ALIASES bounds how many there are of those, since a name for anything would be no type either.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = ("wtb", "workers/wtb_workers", "scheduler/wtb_scheduler")
MAX_UNTYPED: Final = 200
MOST_ALIASES: Final = 12
MAPPINGS: Final = {"dict", "Dict", "Mapping", "MutableMapping", "defaultdict", "OrderedDict", "ChainMap"}
ANYTHING: Final = frozenset({"Any", "object"})
FEWEST_WORDS: Final = 8  # of the docstring of an alias
MAKERS: Final = {"NewType", "TypeVar", "TypeAliasType"}


@dataclass
class Module:
    """A module and the names that it knows, its own and imported ones.

    Attributes:
        top: The statements that type checkers read at its top, each with the next one.
        imports: What it imports of other modules.
        expressions: Its type expressions.
        anything: Names that stand for `Any` or `object`.
        untyped: Names of mappings to anything that are not declared.
        declared: Names of mappings to anything that are declared, with the module that does so.
    """

    top: Sequence[tuple[ast.stmt, ast.stmt | None]]
    imports: Sequence[ast.ImportFrom]
    expressions: Sequence[ast.expr]
    anything: set[str] = field(default_factory=set)
    untyped: set[str] = field(default_factory=set)
    declared: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Counts:
    """The counts; `uses` are those of declared aliases."""

    written_out: int
    by_alias: int
    declared: tuple[str, ...]
    uses: int

    @property
    def total(self) -> int:
        return self.written_out + self.by_alias + len(self.declared)


def name_of(node: ast.AST) -> str:
    """Return `a.b` of a name or an attribute; nothing of anything else."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def parts_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all parts of a type expression, those in quotes as well."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            try:
                yield from ast.walk(ast.parse(part.value, mode="eval").body)
            except SyntaxError:  # text, such as that of a Literal
                continue
        else:
            yield part


def is_anything(node: ast.AST, module: Module) -> bool:
    """Return whether an expression is `Any`, `object`, or another name for one of them."""
    name = name_of(node)
    return name.rpartition(".")[2] in ANYTHING or name in module.anything


def is_untyped(node: ast.AST, module: Module) -> bool:
    """Return True for `dict[..., Any]` and `Mapping[..., Any]`."""
    if not isinstance(node, ast.Subscript) or name_of(node.value).rpartition(".")[2] not in MAPPINGS:
        return False
    values = node.slice.elts[1:] if isinstance(node.slice, ast.Tuple) else []
    return any(is_anything(part, module) for argument in values for part in union_of(argument))


def union_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the alternatives of a union, as one of them may be anything."""
    if isinstance(node, ast.BinOp):
        yield from union_of(node.left)
        yield from union_of(node.right)
    else:
        yield node


def has_untyped(node: ast.AST, module: Module) -> bool:
    """Return whether a type expression has such a mapping in it, by an alias or written out."""
    return any(is_untyped(part, module) or name_of(part) in module.untyped for part in parts_of(node))


def statements(tree: ast.Module) -> Iterator[tuple[ast.stmt, ast.stmt | None]]:
    """Yield the statements at the top of a module that type checkers read, each with the next one."""
    for block in (tree.body, *(part.body for part in tree.body if isinstance(part, ast.If))):
        yield from zip(block, [*block[1:], None], strict=True)


def is_docstring(node: ast.stmt | None) -> bool:
    """Return whether a statement is a text of enough words to say what a mapping holds."""
    text = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else None
    return isinstance(text, str) and len(text.split()) >= FEWEST_WORDS


def alias_of(node: ast.stmt) -> tuple[str, ast.expr, bool] | None:
    """Return the name of an alias, what it stands for and whether it is declared; None of other statements."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        return (node.target.id, node.value, True) if name_of(node.annotation).endswith("TypeAlias") else None
    if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
        return None
    is_type = isinstance(node.value, ast.Name | ast.Attribute | ast.Subscript | ast.BinOp)
    is_made = isinstance(node.value, ast.Call) and name_of(node.value.func).rpartition(".")[2] in MAKERS
    return (node.targets[0].id, node.value, False) if is_type or is_made else None


def note_aliases(name: str, module: Module) -> None:
    """Note the aliases of a module, given those of others."""
    for node, following in module.top:
        alias = alias_of(node)
        if alias is None:
            continue
        own_name, target, is_declared = alias
        if is_anything(target, module):
            module.anything.add(own_name)
        elif is_declared and is_docstring(following) and any(is_untyped(part, module) for part in parts_of(target)):
            module.declared[own_name] = name
        elif own_name not in module.declared and has_untyped(target, module):
            module.untyped.add(own_name)


def note_imports(module: Module, modules: Mapping[str, Module]) -> None:
    """Note the aliases of others that a module imports, directly or through their module."""
    for node in module.imports:
        for imported in node.names:
            as_name = imported.asname or imported.name
            if (source := modules.get(node.module or "")) is not None:
                note_import(module, source, imported.name, as_name)
            if (source := modules.get(f"{node.module}.{imported.name}")) is not None:
                for name in (*source.anything, *source.untyped, *source.declared):
                    note_import(module, source, name, f"{as_name}.{name}")


def note_import(module: Module, source: Module, name: str, as_name: str) -> None:
    """Note one imported alias."""
    if name in source.anything:
        module.anything.add(as_name)
    elif name in source.untyped:
        module.untyped.add(as_name)
    elif name in source.declared:
        module.declared[as_name] = source.declared[name]


def expressions(nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """Yield the annotations of arguments, results and variables, the bases of classes and the targets of casts."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.ClassDef):
            yield from node.bases
        elif isinstance(node, ast.Call) and name_of(node.func).rpartition(".")[2] == "cast" and node.args:
            yield node.args[0]


def read_module(text: str) -> Module:
    """Parse a module."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return Module(list(statements(tree)), imports, list(expressions(nodes)))


def count(sources: Mapping[str, str]) -> Counts:
    """Count the untyped mappings of modules.

    Args:
        sources: The text of each module by its name.
    """
    modules = {name: read_module(text) for name, text in sources.items()}
    before = None
    while before != (
        before := [(len(module.anything), len(module.untyped), len(module.declared)) for module in modules.values()]
    ):
        for name, module in modules.items():
            note_imports(module, modules)
            note_aliases(name, module)
    written_out = by_alias = uses = 0
    for module in modules.values():
        for part in (part for expression in module.expressions for part in parts_of(expression)):
            written_out += is_untyped(part, module)
            by_alias += name_of(part) in module.untyped
            uses += name_of(part) in module.declared
    declared = sorted(
        f"{name}.{alias}" for name, module in modules.items() for alias, home in module.declared.items() if home == name
    )
    return Counts(written_out, by_alias, tuple(declared), uses)


def read_sources() -> dict[str, str]:
    """Return the text of each module by its name."""
    paths = [(ROOT / source, path) for source in SOURCES for path in (ROOT / source).rglob("*.py")]
    return {
        ".".join(path.relative_to(source.parent).with_suffix("").parts): path.read_text("utf-8")
        for source, path in paths
    }


def main() -> None:
    counts = count(read_sources())
    print(
        f"untyped mappings: {counts.written_out:,} written out, {counts.by_alias:,} by aliases that nothing declares, "
        f"{len(counts.declared):,} aliases that are declared (used {counts.uses:,} times): {counts.total:,} in all"
    )
    for name in counts.declared:
        print(f"  {name}")
    if counts.total > MAX_UNTYPED or len(counts.declared) > MOST_ALIASES:
        raise SystemExit(f"expected at most {MAX_UNTYPED:,} in all, and {MOST_ALIASES:,} declared aliases")


if __name__ == "__main__":
    main()
