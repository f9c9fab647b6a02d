"""Write every text that users can read to tests/prose (`make prose`), or check that it is there (`make check`).

One file for each kind of text, one literal a line, sorted and without names of modules. So code that moves leaves the
files as they are, and a text that changes is one line of a diff. `{}` stands for the values of an f-string, `\\n` for a
new line. The sentences that tests quote by `sentence()` must be in the files, too.

A literal is of the kind of the nearest call around it (an error class, `warnings.warn`, `typer.Option`, a logger).
Without such a call it goes to `texts.txt` if it has at least two words. SQL, patterns and names of types are left out.
Words that stand alone outside of such calls, such as headings of tables, look like keys: they are not in the catalogue.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import gc
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.web_texts import html_texts, script_texts

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("wtb", "workers", "scheduler")
LEFT_OUT = {"vendor", "migrations", "schemas", "__pycache__"}

# The kind of the literals in a call, by the last name of what is called. Error classes are found by their bases.
KINDS = {
    **dict.fromkeys(("warn", "warn_explicit"), "warnings"),
    **dict.fromkeys(("Option", "Argument", "Typer", "Entry", "confirm", "prompt"), "help"),
    **dict.fromkeys(("debug", "info", "warning", "error", "exception", "critical"), "logs"),
    **dict.fromkeys(("Operation", "Route", "Tool", "Document", "Field", "Query", "Header", "Body"), "api"),
    **dict.fromkeys(("Column", "Table", "create_table"), "tables"),
    **dict.fromkeys(("refuse", "_refuse", "problem", "expected", "PydanticCustomError"), "errors"),
}
# Calls whose literals are for other readers: databases, type checkers, the import system, patterns.
SILENT = {
    *("text", "CheckConstraint", "Index", "execute", "exec_driver_sql", "scalar", "scalars", "literal_column", "DDL"),
    *("cast", "TypeVar", "import_module", "compile", "fullmatch", "search", "sub", "finditer", "findall"),
}
SQL = re.compile(
    r"\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|WITH|PRAGMA|BEGIN|LOCK|GRANT|REVOKE|NOTIFY|LISTEN|AND|OR|SET|"
    r"ORDER|WHERE|FROM|VACUUM|ANALYZE|ON|FOR|COPY|TRUNCATE|JOIN|LEFT|UNION|GROUP|VALUES|RETURNING)\s+[A-Z\"{(*a-z_:]"
)
TWO_WORDS = re.compile(
    r"[^\W\d_][\w'`)]*[,:;.!?]* +[({`'\"<*]*[^\W\d_{]|\w[,:;.!?)'`]* +\{\}|\{\}[,:;.)'`]* +[^\W\d_]{2}"
)
LETTERS = re.compile(r"[^\W\d_]{2}")
EVENT = re.compile(r"[a-z_]+\.[a-z_]+")
OPTION_TEXTS = {"help", "short_help", "epilog", "prompt"}
BUILT_IN_ERRORS = {
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
}

Catalogue = dict[str, set[str]]
Entry = tuple[str, str]


def collect(root: Path) -> Catalogue:
    """Return all texts of the sources below a directory, by kind."""
    files = sorted(path for source in SOURCES for path in (root / source).rglob("*") if not LEFT_OUT & {*path.parts})
    sources = [path.read_text("utf-8") for path in files if path.suffix == ".py" and "templates" not in path.parts]
    errors = error_classes(sources)
    catalogue: Catalogue = defaultdict(set)
    for source in sources:
        for kind, text in module_texts(ast.parse(source), errors):
            catalogue[kind].add(line_of(text))
    for path in files:
        if path.suffix == ".js":
            texts = script_texts(path.read_text("utf-8"), every_string=path.stem.endswith("words"))
            catalogue["pages"].update(map(line_of, texts))
        elif path.suffix == ".html":
            catalogue["templates"].update(map(line_of, html_texts(path.read_text("utf-8"))))
        elif path.is_file() and "templates" in path.parts and path.suffix != ".css":
            catalogue["templates"].update(line.strip() for line in path.read_text("utf-8").splitlines() if line.strip())
    return catalogue


def error_classes(sources: Iterable[str]) -> set[str]:
    """Return the names of all classes that are exceptions, by the names of their bases."""
    bases: dict[str, set[str]] = defaultdict(set)
    for source in sources:
        for name, above in re.findall(r"^ *class (\w+)\(([^)]*)\)", source, re.MULTILINE):
            bases[name] |= {base.partition("[")[0].rpartition(".")[2].strip() for base in above.split(",")}
    errors = set(BUILT_IN_ERRORS)
    while more := {name for name, above in bases.items() if above & errors} - errors:
        errors |= more
    return errors


def module_texts(module: ast.Module, errors: set[str]) -> Iterator[Entry]:
    """Yield the kind and the text of each literal of a module that users can read."""
    has_commands = any(
        isinstance(node, ast.Import | ast.ImportFrom)
        and ("typer" in (alias.name for alias in node.names) or getattr(node, "module", "") == "typer")
        for node in module.body
    )
    if has_commands:
        yield from command_helps(module)
    yield from literals(module, "", errors)


def command_helps(module: ast.Module) -> Iterator[Entry]:
    """Yield the paragraphs of the docstrings of public functions in a module of commands: they are the helps."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
                yield "help", " ".join(paragraph.split())


def literals(node: ast.AST, kind: str, errors: set[str], alone: bool = False) -> Iterator[Entry]:
    """Yield the literals below a node, whose kind is that of the nearest call that has one.

    Args:
        node: Where to look.
        kind: The kind of the call around it; empty outside of such calls.
        errors: The names of the classes of errors.
        alone: Whether a single word is a text, since it is an argument of such a call.
    """
    if isinstance(node, ast.Constant | ast.JoinedStr):
        text = template_of(node)
        if (TWO_WORDS.search(text) and not SQL.match(text)) or (alone and LETTERS.search(text)):
            yield kind or "texts", text
    if isinstance(node, ast.Call):
        yield from call_literals(node, kind, errors)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            is_event = isinstance(key, ast.Constant) and EVENT.fullmatch(str(key.value))
            yield from literals(key, kind, errors) if key else ()
            yield from literals(value, kind or ("events" if is_event else ""), errors)
    elif not isinstance(node, ast.Name | ast.Assert):  # the message of an assert is for developers
        alone = alone and isinstance(node, ast.BinOp | ast.IfExp)
        for child in ast.iter_child_nodes(node):
            if not is_quiet(child, node):
                yield from literals(child, kind, errors, alone)


def is_quiet(node: ast.AST, parent: ast.AST) -> bool:
    """Return whether a node is a docstring, or a piece of text that is a part of its f-string already."""
    constant = node.value if isinstance(node, ast.Expr) else node if isinstance(parent, ast.JoinedStr) else None
    return isinstance(constant, ast.Constant)


def call_literals(node: ast.Call, kind: str, errors: set[str]) -> Iterator[Entry]:
    """Yield the literals in a call, of its kind if it has one."""
    name = last_name(node.func)
    if name in SILENT:
        return
    own = "warnings" if name.endswith("Warning") else "errors" if name in errors else KINDS.get(name, "")
    if name in ("append", "extend") and "problem" in ast.unparse(node.func):
        own = "errors"
    yield from literals(node.func, kind, errors)
    for argument in node.args:
        yield from literals(argument, own or kind, errors, alone=own in ("errors", "warnings"))
    for keyword in node.keywords:
        yield from literals(keyword.value, own or kind, errors, alone=own == "help" and keyword.arg in OPTION_TEXTS)


def last_name(node: ast.expr) -> str:
    """Return the last name of `a.b.Name`, `Name` or `Name[T]`."""
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def template_of(node: ast.Constant | ast.JoinedStr) -> str:
    """Return the text of a string, with `{}` for each value of an f-string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)


def line_of(text: str) -> str:
    """Return the line that stands for a text."""
    return text.strip().replace("\n", "\\n")


def read(prose: Path) -> Catalogue:
    """Return the catalogue that was written."""
    return {path.stem: {*path.read_text("utf-8").split("\n")} - {""} for path in sorted(prose.glob("*.txt"))}


def write(catalogue: Catalogue, prose: Path) -> None:
    """Write a file for each kind, and remove the files of kinds that have no texts any more."""
    prose.mkdir(parents=True, exist_ok=True)
    for kind in {*read(prose)} - {*catalogue}:
        (prose / f"{kind}.txt").unlink()
    for kind, lines in catalogue.items():
        (prose / f"{kind}.txt").write_text("".join(f"{line}\n" for line in sorted(lines - {""})), "utf-8")


def differences(before: Catalogue, after: Catalogue) -> list[str]:
    """Return removed and added literals, one a line."""
    return [
        f"{kind}.txt: {sign} {line}"
        for kind in sorted({*before, *after})
        for sign, lines in (
            ("-", before.get(kind, set()) - after.get(kind, set())),
            ("+", after.get(kind, set()) - before.get(kind, set()) - {""}),
        )
        for line in sorted(lines)
    ]


def unknown_quotations(tests: Path, catalogue: Catalogue) -> list[str]:
    """Return the sentences that tests quote although no text of the catalogue has them."""
    texts = "\n".join(line for lines in catalogue.values() for line in lines)
    return [
        f"{path}:{node.lineno}: no text of tests/prose has {node.args[0].value!r}"
        for path in sorted(tests.rglob("*.py"))
        if "sentence(" in (source := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and last_name(node.func) == "sentence"
        if node.args and isinstance(node.args[0], ast.Constant) and line_of(str(node.args[0].value)) not in texts
    ]


def main() -> int:
    """Write the files, or print the missing texts and return 1."""
    parser = argparse.ArgumentParser(description=inspect.getdoc(sys.modules[__name__]))
    parser.add_argument("--check", action="store_true", help="Write nothing; fail if the files are out of date.")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args()
    gc.disable()  # the trees of all modules, which live for a moment, take twice as long with it
    prose, catalogue = options.root / "tests" / "prose", collect(options.root)
    problems = differences(read(prose), catalogue) if options.check else []
    problems += unknown_quotations(options.root / "tests", catalogue)
    if not options.check:
        write(catalogue, prose)
    if problems:
        print("\n".join(problems), "Run `make prose` if these changes are right.", sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
