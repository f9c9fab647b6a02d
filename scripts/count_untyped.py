"""How many annotations say no more than a mapping to anything, directly or by an alias: `make untyped`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("wtb", "workers/wtb_workers", "scheduler/wtb_scheduler")
MAPPINGS = {"dict", "Mapping", "MutableMapping"}
ANYTHING = {"Any", "object"}


def is_untyped(node: ast.AST) -> bool:
    """Return True for `dict[..., Any]` and `Mapping[..., Any]`."""
    if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in MAPPINGS):
        return False
    parts = node.slice.elts[1:] if isinstance(node.slice, ast.Tuple) else []
    return any(isinstance(one, ast.Name) and one.id in ANYTHING for one in parts)


def aliases(tree: ast.Module) -> set[str]:
    """Return the names that a module gives to such mappings."""
    found = [one for one in tree.body if isinstance(one, ast.Assign) and is_untyped(one.value)]
    return {target.id for one in found for target in one.targets if isinstance(target, ast.Name)}


def annotations(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the annotations of arguments, results and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation


def known_as(tree: ast.Module, by_module: Mapping[str, set[str]]) -> set[str]:
    """Return the names by which a module knows such mappings: of its own, and those that it imports."""
    imports = [one for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)]
    taken = {
        name.asname or name.name
        for one in imports
        for name in one.names
        if name.name in by_module.get(one.module or "", ())
    }
    return aliases(tree) | taken


def main() -> None:
    paths = [(ROOT / source, path) for source in SOURCES for path in (ROOT / source).rglob("*.py")]
    trees = {
        ".".join(path.relative_to(source.parent).with_suffix("").parts): ast.parse(path.read_text("utf-8"))
        for source, path in paths
    }
    by_module = {name: aliases(tree) for name, tree in trees.items()}
    direct = named = 0
    for tree in trees.values():
        names = known_as(tree, by_module)
        for node in (node for one in annotations(tree) for node in ast.walk(one)):
            direct += is_untyped(node)
            named += isinstance(node, ast.Name) and node.id in names
    print(f"untyped mappings: {direct:,} written out, {named:,} by an alias, {direct + named:,} in all")


if __name__ == "__main__":
    main()
