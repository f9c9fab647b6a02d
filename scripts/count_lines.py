"""Count the lines of code: `make lines`.

A line counts if it holds code: no blank line, no comment and no docstring. Templates and style sheets count by their
lines that are not blank. The core is what authors, runs and compares on one machine, without commands and pages.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("wtb", "workers/wtb_workers", "scheduler/wtb_scheduler")
TEMPLATES = {".html", ".css", ".js", ".md", ".j2"}
CORE = (
    "wtb/core/",
    "wtb/config/",
    "wtb/authoring/",
    "wtb/planning/",
    "wtb/execution/",
    "wtb/analysis/",
    "wtb/handles/local_sweep.py",
    "wtb/handles/start.py",
)
STORE_OUTSIDE_CORE = tuple(f"wtb/store/{name}/" for name in ("access", "control", "housekeeping", "migrations"))
SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the lines of all docstrings, and of other strings that are statements.

    Args:
        tree: A parsed module.

    Returns:
        Line numbers, from 1.
    """
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def code_lines(text: str) -> int:
    """Return the number of lines of a Python module that hold code.

    Args:
        text: The module's source.

    Returns:
        The number of lines, blanks, comments and docstrings left out.
    """
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in SKIPPED
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - docstring_lines(ast.parse(text)))


def counted(path: Path) -> int:
    """Return the number of lines that count in a file: code of Python, non-blank lines of a template."""
    text = path.read_text("utf-8")
    return code_lines(text) if path.suffix == ".py" else sum(1 for line in text.splitlines() if line.strip())


def count(root: Path) -> dict[str, int]:
    """Return the number of lines that count in each source file of the distributions.

    Args:
        root: The top folder of a checkout.

    Returns:
        The number of lines by path relative to `root`.
    """
    return {
        path.relative_to(root).as_posix(): counted(path)
        for source in SOURCES
        for path in sorted((root / source).rglob("*"))
        if path.suffix == ".py" or path.suffix in TEMPLATES
    }


def is_core(path: str) -> bool:
    """Return whether a file is needed to author, run and compare on one machine."""
    return path.startswith((*CORE, "wtb/store/")) and not path.startswith(STORE_OUTSIDE_CORE)


def main() -> None:
    """Print the lines of each package, of the core and of all."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="the top folder of a checkout")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    args = parser.parse_args()
    files = count(args.root)
    packages: Counter[str] = Counter()
    for path, lines in files.items():
        packages["/".join(path.split("/")[: 2 if path.count("/") > 1 else 1])] += lines
    core = sum(lines for path, lines in files.items() if is_core(path))
    sums = {**dict(sorted(packages.items())), "core": core, "all": sum(files.values()), "files": len(files)}
    print(json.dumps(sums, indent=2) if args.format == "json" else "\n".join(f"{n:>7,}  {p}" for p, n in sums.items()))


if __name__ == "__main__":
    main()
