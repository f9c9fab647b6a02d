"""Count how plain names, docstrings, comments and messages are, and fail above the bounds: part of `make check`.

CONTRIBUTING.md explains the rules. Fields of classes do not count as names, since they are keys of documents and
columns of tables.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from scripts.count_lines import code_lines
from scripts.plain_docs import RATES

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("wtb", "workers", "scheduler")
SOURCES = (*PRODUCT, "tests", "benchmarks", "simulations", "examples", "scripts", "deploy")

# A name describes what it holds. None of these does.
UNCLEAR = frozenset(
    {"one", "ones", "found", "given", "made", "asked", "wanted", "known", "gone", "said", "told", "heard", "tried"}
    | {"kept", "held", "taken", "left", "begun", "over", "below", "here", "there", "again", "most", "others", "going"}
    | {"was", "happened", "settled", "chosen", "shown"}
)
# Nor do these, so nobody may use them instead.
VAGUE = frozenset({"item", "items", "thing", "entry", "element", "value", "obj", "tmp", "data", "result"})
MAX_UNCLEAR, MAX_VAGUE = 100, 600
MAX_HEADLESS = 0.02  # of docstrings
MIN_COMMENTS = 0.02  # lines of their own, of the lines of code of the product
HEADLESS = re.compile(r"\s*(What|Who|How|Whether|That)\b")
# In 10,000 words of messages: software that talks, and sentences whose subject is a clause. These are
# the bounds of the docs, too.
MAX_TALKING, MAX_CLAUSES = 3.0, 0.5

_NAMED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.MatchAs | ast.MatchStar | ast.ExceptHandler
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_JS_DECLARED = re.compile(r"\b(?:const|let|var|function\*?)\s+(\w+)|(?<![\w.])(\w+)\s*=>")
_JS_GROUPED = re.compile(
    r"\b(?:const|let|var)\s+[\[{]([^=]*?)[\]}]\s*=|\bfunction\b\s*\w*\s*\(([^)]*)\)|\(([^()]*)\)\s*=>"
)


class Docstrings(NamedTuple):
    """Docstrings of some modules.

    Attributes:
        count: How many there are.
        headless: Those that begin with a clause, as `path:line`.
    """

    count: int
    headless: list[str]


def python_names(tree: ast.Module) -> Iterator[str]:
    """Yield each name that a module binds, without fields of classes and imports."""
    fields = {
        id(statement.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, _NAMED) and node.name:
            yield node.name


def javascript_names(text: str) -> Iterator[str]:
    """Yield each name that a script declares: variables, functions and parameters."""
    for match in _JS_DECLARED.finditer(text):
        yield match[1] or match[2]
    for match in _JS_GROUPED.finditer(text):
        for part in (match[1] or match[2] or match[3] or "").split(","):
            name = part.partition("=")[0].rpartition(":")[2].strip(" .{}[]")
            if name.isidentifier():
                yield name


def documented(tree: ast.Module) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each docstring of a module: its statement and its text."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node, clean=False)) is not None:
            yield node.body[0], text


def docstrings(trees: Mapping[str, ast.Module]) -> Docstrings:
    """Count docstrings. trees: modules by path."""
    places = [(f"{path}:{node.lineno}", text) for path, tree in trees.items() for node, text in documented(tree)]
    return Docstrings(len(places), [place for place, text in places if HEADLESS.match(text)])


def comments(text: str) -> tuple[int, int]:
    """Return how many lines of a module are comments, and how many are code without docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    own = sum(token.type == tokenize.COMMENT and token.line.lstrip().startswith("#") for token in tokens)
    return own, code_lines(text)


def sources(folders: tuple[str, ...], suffix: str) -> dict[str, str]:
    """Return the texts of files by path, without those of vendored libraries."""
    files = (file for folder in folders for file in sorted((ROOT / folder).rglob(f"*{suffix}")))
    return {
        str(file.relative_to(ROOT)): file.read_text("utf-8")
        for file in files
        if not {"vendor", "node_modules", "__pycache__"} & set(file.parts)
    }


def message_rates() -> list[float]:
    """Return how often messages have software talk, and begin with a clause, in 10,000 words."""
    prose = "\n".join(file.read_text("utf-8") for file in sorted((ROOT / "tests/prose").glob("*.txt")))
    return [10_000 * len(rule.findall(prose)) / len(prose.split()) for _, rule, _, _ in RATES[:2]]


def figures() -> list[tuple[str, float, float, float]]:
    """Return (name, figure, least, maximum) of all code and messages."""
    texts = sources(SOURCES, ".py")
    trees = {path: ast.parse(text) for path, text in texts.items()}
    names = Counter(name.lstrip("_") for tree in trees.values() for name in python_names(tree))
    names.update(name for text in sources(SOURCES, ".js").values() for name in javascript_names(text))
    docstring_count, headless = docstrings(trees)
    counted = [comments(text) for path, text in texts.items() if path.startswith(PRODUCT)]
    commented = sum(own for own, _ in counted) / sum(code for _, code in counted)
    talking, clauses = message_rates()
    return [
        ("names that say nothing", sum(names[name] for name in UNCLEAR), 0, MAX_UNCLEAR),
        ("names such as item, value, result", sum(names[name] for name in VAGUE), 0, MAX_VAGUE),
        ("docstrings that begin with a clause", len(headless) / docstring_count, 0, MAX_HEADLESS),
        ("comments by lines of code", commented, MIN_COMMENTS, 1),
        ("say, tell of software, in messages", talking, 0, MAX_TALKING),
        ("'What' as subject, in messages", clauses, 0, MAX_CLAUSES),
    ]


def main() -> None:
    """Print the figures, and exit with 1 if a bound does not hold."""
    broken = []
    for name, figure, least, maximum in figures():
        print(f"{name}: {figure:.4g}")
        if not least <= figure <= maximum:
            broken.append(f"{name}: {figure:.4g}; expected {least:g} to {maximum:g}")
    if broken:
        sys.exit("\n".join(broken))


if __name__ == "__main__":
    main()
