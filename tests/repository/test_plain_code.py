"""`scripts.plain_code` counts names, docstrings and comments; `scripts.commit_subject` checks commits."""

from __future__ import annotations

import ast

import pytest

from scripts import plain_code
from scripts.commit_subject import problems

MODULE = """
\"\"\"What this is.\"\"\"
import os as found


class Row:
    found: int
    given = 1


def made(asked, *, kept=1):
    # The order matters.
    for told in asked:  # not on a line of its own
        text = "# no comment"
        match told:
            case {"a": said}:
                text = [heard for heard in said]
    return text
"""
SCRIPT = """
const found = 1;
let { given, made: asked } = x, z = 2;
function told(kept, held = 3) { return kept.map((left, over) => left); }
items.forEach(one => one);
"""


def test_every_binding_of_a_name_counts_and_no_field() -> None:
    names = list(plain_code.python_names(ast.parse(MODULE)))
    assert sorted(name for name in names if name in plain_code.UNCLEAR) == [
        "asked", "given", "heard", "kept", "made", "said", "told",
    ]  # fmt: skip


def test_names_of_scripts_count() -> None:
    names = [name for name in plain_code.javascript_names(SCRIPT) if name in plain_code.UNCLEAR]
    assert sorted(names) == ["asked", "found", "given", "held", "kept", "left", "one", "over", "told"]


def test_comments_stand_on_lines_of_their_own_and_docstrings_are_no_code() -> None:
    assert plain_code.comments(MODULE) == (1, 11)
    assert plain_code.docstrings({"a.py": ast.parse(MODULE)}).headless == ["a.py:2"]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("Claim tasks once\n\nTwo workers did.\n", None),
        ("Claim tasks once\n", None),
        ("# a comment\nClaim tasks once\n", None),
        ("Merge branch 'x' into a branch whose name is much longer than a subject may ever be, as it is\n", None),
        ("", "the message has no subject"),
        ("Claim tasks once.\n", "the subject ends with a full stop"),
        ("claim tasks once\n", "the subject begins with a small letter"),
        ("Claimed tasks once\n", "the subject begins with 'Claimed'; use the imperative"),
        (f"Claim {'x' * 70}\n", "the subject has 76 characters; at most 72"),
        ("Claim tasks once\nTwo workers did.\n", "the line after the subject is not empty"),
    ],
)
def test_a_commit_has_a_short_imperative_subject(message: str, problem: str | None) -> None:
    assert list(problems(message)) == ([] if problem is None else [problem])
