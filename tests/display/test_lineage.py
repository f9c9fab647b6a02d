"""Trees in a terminal, and values that you set for keys."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypedDict, cast

import pytest
from rich.cells import cell_len

from tests.support.prose import sentence
from wtb.authoring.workflow import Workflow
from wtb.config.run_options import Redact
from wtb.core.errors import InputError
from wtb.core.values import Value
from wtb.display.text.history import tree
from wtb.operations.control.state_edits import as_written, checked_changes, parse_changes
from wtb.planning.binding import Bound


def segment(id: str, parent: str | None, *nodes: str, **more: Any) -> dict[str, Any]:
    steps = [{"node": node, "variant": "default", "node_run": "", "varied": False} for node in nodes]
    defaults = {"input": parent is None, "left": False, "left_by": None, "made": None, "step": 0, "heads": []}
    return {"id": id, "parent": parent, "nodes": steps, **defaults, **more}


def document(segments: list[dict[str, Any]], left_out: int = 0) -> dict[str, Any]:
    head = {"status": "completed", "reason": None, "origin": "root", "parent": None, "cells": 1, "edited": False}
    ids = [id for part in segments for id in part["heads"]]
    return {
        "sweep": {"id": "s", "name": "nightly", "status": "completed", "reason": None},
        "execution": None,
        "trees": [{"case": "one", "repeat": 0, "segments": segments, "not_begun": []}],
        "executions": {id: {**head, "superseded": False} for id in ids},
        "left_out": left_out,
        "cases_left_out": 0,
    }


def test_lines_are_drawn_with_heads_and_what_was_left() -> None:
    drawn = tree(
        document(
            [
                segment("1", None, "a"),
                segment("2", "1", "b", left=True, left_by="anna"),
                segment("3", "1", "c", heads=["e"], made={"kind": "execution.rolled_back", "by": "anna"}),
            ],
            left_out=3,
        ),
        80,
    )
    assert drawn.splitlines()[3:] == [
        "(input) → a",
        "├─ ╳ b  left by anna",
        "└─ (rolled back by anna) → c  ● completed, 1 cell, e",
        "",
        sentence("left out: {}; more with --limit, or name a --case", "3 lines"),
    ]


def test_heads_on_lines_of_their_own_leave_no_gap_in_what_passes_by() -> None:
    long = [f"node_{n}" for n in range(10)]
    drawn = tree(
        document(
            [
                segment("1", None, "a", heads=["e", "f"]),
                segment("2", "1", *long, heads=["g"]),
                segment("3", "2", "b", heads=["h"]),
                segment("4", "2", "c", heads=["i", "j"]),
                segment("5", "1", "d", heads=["k", "l"]),
            ]
        ),
        60,
    )
    assert drawn.splitlines()[3:] == [
        "(input) → a",
        "│ ● completed, 1 cell, e",
        "│ ● completed, 1 cell, f",
        "├─ node_0 → ... → node_9 (10 nodes)",
        "│  │ ● completed, 1 cell, g",
        "│  ├─ b  ● completed, 1 cell, h",
        "│  └─ c",
        "│       ● completed, 1 cell, i",
        "│       ● completed, 1 cell, j",
        "└─ d",
        "     ● completed, 1 cell, k",
        "     ● completed, 1 cell, l",
    ]


def test_a_terminal_without_boxes_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    drawn = tree(document([segment("1", None, "a"), segment("2", "1", "b", heads=["e"])]), 80)
    assert drawn.isascii()
    assert "`- b  * completed, 1 cell, e" in drawn


def test_no_line_is_wider_than_the_terminal() -> None:
    deep = [segment("0", None, *(f"node_{n}" for n in range(100)))]
    for n in range(1, 60):
        deep += [segment(f"{n}", str(n - 1), f"n{n}", heads=[f"{n:022}"]), segment(f"{n}x", str(n - 1), "\x1b[31mred")]
    drawn = tree(document(deep), 80)
    assert all(cell_len(line) <= 80 for line in drawn.splitlines())
    assert "(101 nodes)" in drawn
    assert "\x1b" not in drawn


@dataclasses.dataclass
class Doc:
    title: str
    score: float = 0.0


class State(TypedDict, total=False):
    text: str
    number: int
    docs: list[str]
    doc: Doc
    anything: Any


BOUND = cast(
    Bound, SimpleNamespace(workflow=Workflow("lineage", state=State).facts(), spec=SimpleNamespace(redact=Redact()))
)


def checked(texts: list[str]) -> dict[str, Value]:
    """Return the values that are stored for typed text."""
    return checked_changes(BOUND, parse_changes(texts), as_written(texts))


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("text=hello", b'"hello"'),
        ("text=42", b'"42"'),
        ("text=true", b'"true"'),
        ("text=What: this?", b'"What: this?"'),
        ("text='[x'", b'"[x"'),
        ("number=16", b"16"),
        ("docs=[a, b]", b'["a","b"]'),
        ("anything={a: [1, null]}", b'{"a":[1,null]}'),
    ],
)
def test_values_are_read_as_yaml_and_fit_the_type_of_their_key(text: str, stored: bytes) -> None:
    (value,) = checked([text]).values()
    assert value.data == stored


def test_a_mapping_becomes_the_dataclass_of_its_key() -> None:
    (value,) = checked(["doc={title: x, score: 2}"]).values()
    assert b'"fields":{"title":"x","score":2.0}' in value.data


def test_files_are_yaml_by_their_name_else_text(tmp_path: Path) -> None:
    (tmp_path / "docs.yml").write_text("---\n- a\n- b\n")
    (tmp_path / "prompt.md").write_text("# Title\n  key: value\n")
    read = checked([f"docs=@{tmp_path}/docs.yml", f"text=@{tmp_path}/prompt.md"])
    assert (read["docs"].data, read["text"].data) == (b'["a","b"]', b'"# Title\\n  key: value\\n"')


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["number=x"], sentence("key {}: found {}; expected {}", "'number'", "'x'", "int")),
        (["docs=3"], sentence("key {}: found {}; expected {}", "'docs'", 3, "list\\[str\\]")),
        (["docs=[1, b]"], sentence("key {}: found {}", "'docs.0'", 1)),
        (["docs=[a"], "set docs: not YAML"),
        (["nummer=1"], sentence("key {} is not in the state", "'nummer'") + sentence("; did you mean '{}'", "number")),
        (["text"], sentence("set {}: expected key=value", "'text'")),
        (["text=a", "text=b"], sentence("set {}: given twice", "text")),
        (["text=@/nowhere"], sentence("set {}: {} cannot be read", "text", "'/nowhere'")),
        (["text=\ud800"], sentence("key {} cannot be stored", "'text'")),
        (["number=x", "docs=3"], "(?s)number.*docs"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_was_found(texts: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        checked(texts)
