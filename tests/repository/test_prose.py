"""The catalogue of texts: `make check` notices a changed text, and ignores code that only moves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import prose
from scripts.web_texts import html_texts, script_texts
from tests.support.project import run_program
from tests.support.prose import sentence

ERRORS = '''
"""A module, whose docstring nobody reads in a terminal."""
import warnings
import typer

class Missing(LookupError):
    """Nothing is there."""

class NoCase(Missing):
    pass

def find(name, cases):
    """Find a case by its name.

    See also: `wtb cases`
    lists them.
    """
    assert cases, "a developer passes cases"
    if name not in cases:
        raise NoCase(f"there is no case {name!r}; expected one of: " + ", ".join(cases))
    log.info("case %s read", name)
    connection.execute(text("SELECT id FROM cases WHERE name = 'a b'"))
    warnings.warn("the case is old")
    return {"case.read": lambda d: f"{d['by']} read case {d['case']}"}
'''
OPTION = (
    'import typer\nCase = typer.Option("--case", metavar="NAME", help="Name.")\nSILENT = "key"\nSAID = "two words"\n'
)
PAGE = 'export const words = { title: "Cases", of: (n) => `${n} of ${many(n, "case")}` };\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a module of each kind, whose catalogue is written."""
    for path, source in {"find.py": ERRORS, "cli/options.py": OPTION, "web/words.js": PAGE}.items():
        (tmp_path / "wtb" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "wtb" / path).write_text(source)
    assert run(tmp_path) == (0, "")
    assert run(tmp_path, "--check") == (0, "")
    return tmp_path


def run(root: Path, *options: str) -> tuple[int, str]:
    """Run the script for a project; return its exit code and its output."""
    command = [sys.executable, "-m", "scripts.prose", "--root", str(root), *options]
    ended = run_program(command, cwd=prose.ROOT)
    assert not ended.stderr
    return ended.returncode, ended.stdout


def test_each_literal_is_in_the_file_of_its_kind(project: Path) -> None:
    assert prose.read(project / "tests" / "prose") == {
        "errors": {"there is no case {}; expected one of:"},
        "help": {"Find a case by its name.", "See also: `wtb cases` lists them.", "Name."},
        "logs": {"case %s read"},
        "warnings": {"the case is old"},
        "events": {"{} read case {}"},
        "texts": {"two words"},
        "pages": {"Cases", "{} of {}", "case"},
    }


Edit = Callable[[Path], object]


def replaced(path: str, old: str, new: str) -> Edit:
    """Return a function that replaces a text in a file of the project."""

    def edit(root: Path) -> None:
        source = (root / path).read_text()
        assert old in source
        (root / path).write_text(source.replace(old, new))

    return edit


@pytest.mark.parametrize(
    ("edit", "printed"),
    [
        (replaced("wtb/cli/options.py", "two words", "three more words"), "texts.txt: - two words\ntexts.txt: + three"),
        (replaced("wtb/cli/options.py", 'help="Name."', ""), "help.txt: - Name.\n"),
        (replaced("wtb/find.py", "return", "raise ValueError('a new one')\n    return"), "errors.txt: + a new one\n"),
        (replaced("wtb/find.py", "See also", "Look at"), "help.txt: - See also: `wtb cases` lists them.\n"),
        (replaced("wtb/web/words.js", "Cases", "All cases"), "pages.txt: - Cases\npages.txt: + All cases\n"),
        (replaced("tests/prose/errors.txt", "there is no case", "no case"), "errors.txt: - no case {}"),
        (lambda root: (root / "tests/prose/logs.txt").unlink(), "logs.txt: + case %s read\n"),
    ],
    ids=["changed", "removed", "added", "help", "page", "line", "file"],
)
def test_a_literal_that_is_not_as_it_was_fails_the_check(project: Path, edit: Edit, printed: str) -> None:
    edit(project)
    code, output = run(project, "--check")
    assert code == 1
    assert printed in output


def test_a_function_that_moves_to_another_module_does_not_fail_the_check(project: Path) -> None:
    (project / "wtb" / "cases" / "store").mkdir(parents=True)
    (project / "wtb" / "find.py").rename(project / "wtb" / "cases" / "store" / "search.py")
    (project / "wtb" / "web" / "words.js").rename(project / "wtb" / "cases" / "case_words.js")
    assert run(project, "--check") == (0, "")


def test_a_sentence_that_tests_quote_has_to_be_in_the_catalogue(project: Path) -> None:
    test = project / "tests" / "test_find.py"
    test.write_text('assert error == sentence("there is no case {}", 7)\n')
    assert run(project, "--check") == (0, "")
    test.write_text('\nassert error == sentence("there is no row {}", 7)\n')
    code, output = run(project, "--check")
    assert code == 1
    assert f"{test}:2: no text of tests/prose has 'there is no row {{}}'\n" in output


def test_texts_of_scripts_and_templates_are_what_people_see() -> None:
    source = r"""
        // "a comment"
        import { html } from "../lib/html.js";
        const path = text.replace(/"quoted words"/g, "no-break");
        const shown = html`<p class=${`notice is-${tone}`} title="The title">
          Read ${count > 1 ? "all of it" : one} <b>now</b></p>`;
        """
    assert [*script_texts(source)] == ["all of it", "The title", "Read {}", "now"]
    page = '{# a note #}<p {% if a > b %}class="x y"{% endif %}>{{ n }} more <i>cases</i></p>'
    assert [*html_texts(page + '<script>let a = "b c";</script>')] == ["{} more", "cases"]


def test_a_quoted_sentence_has_a_value_in_each_place() -> None:
    assert sentence("workflow {} has no node {}", "'w'", "'n'") == "workflow 'w' has no node 'n'"
    assert sentence("has no node") == "has no node"
    unknown = "is without any node"  # by another name, so that `make check` does not look for it
    with pytest.raises(AssertionError, match="no text of tests/prose has 'is without any node'"):
        sentence(unknown)
    with pytest.raises(AssertionError, match="has 2 places, not 1"):
        sentence("workflow {} has no node {}", "'w'")
