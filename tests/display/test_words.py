"""Text in a terminal: events as sentences, values on one line, tables that fit."""

import time
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

from tests.support.prose import sentence
from wtb.core import texts
from wtb.core.documents.event_texts import event_text
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import readable
from wtb.display.tables import facts, grid, wrapped
from wtb.display.text import executions, graphs


@pytest.mark.parametrize(
    ("kind", "details", "text"),
    [
        (
            "sweep.submitted",
            {"name": "n", "cells": 2000, "combinations": 1},
            "sweep n submitted: 2,000 cells of 1 combination",
        ),
        ("sweep.paused", {"reason": "the limit of 5 USD", "by": "wtb"}, "sweep paused: the limit of 5 USD"),
        ("sweep.completed", {"reason": None}, "sweep completed"),
        (
            "execution.forked",
            {"children": 3, "by": ["answer"]},
            sentence("forked into {} by the variants of {}", 3, "answer"),
        ),
        ("execution.retried", {"cells": 1, "from": "x"}, sentence("{} tried again", "1 cell")),
        (
            "checkpoint.created",
            {"checkpoint": "c", "step": 2, "next": []},
            sentence("checkpoint after step {}, next: {}", 2, "the end"),
        ),
        ("node_run.succeeded", {"node": "a", "variant": "b", "duration_s": 1.5}, "a=b done in 1.50 s"),
        (
            "node_run.succeeded",
            {"node": "a", "variant": "b", "duration_s": 1.5, "usd": 2.5},
            "a=b done in 1.50 s for $2.50",
        ),
        (
            "attempt.failed",
            {"node": "a", "variant": "b", "attempt": 1, "of": 3, "error": "node 'a': ValueError: no"},
            sentence("{} failed in attempt {} of {}: {}", "a=b", 1, 3, "ValueError: no"),
        ),
        (
            "attempt.lost",
            {"node": "a", "variant": "b", "attempt": 1, "error": "node 'a': AttemptLost: it ended"},
            "a=b lost attempt 1: AttemptLost: it ended",
        ),
        ("cell.succeeded", {"combination": 0, "scores": {"f1": 0.5}}, "cell a=b succeeded: f1 0.5"),
        ("cell.failed", {"combination": 7, "error": "ValueError"}, sentence("cell {} failed: {}", 7, "ValueError")),
        ("node.log", {"node": "a", "variant": "b", "message": "hi", "level": "info", "n": 3}, "a=b: hi n=3"),
        ("node.progress", {"node": "a", "variant": "b", "done": 1, "total": 4, "note": ""}, "a=b: 1 of 4 (25%)"),
        ("node.metric", {"node": "a", "variant": "b", "name": "loss", "value": 0.25}, "a=b: loss = 0.25"),
        (
            "node.stream",
            {"node": "a", "variant": "b", "task": "a|1", "tasks": 3, "name": "stream", "data": {"x": [1, 2]}},
            'a=b (2 of 3): stream: {"x": [1, 2]}',
        ),
        ("approval.asked", {"who": "ann"}, 'approval.asked who="ann"'),
        ("node_run.succeeded", {}, "node_run.succeeded"),
    ],
)
def test_an_event_says_what_happened(kind: str, details: dict[str, Any], text: str) -> None:
    assert event_text(kind, details, {"a": "b"} if details.get("combination") == 0 else None) == text


def test_an_event_stays_on_one_line_and_obeys_no_terminal() -> None:
    text = event_text("cell.failed", {"combination": 0, "error": "bad\n\n\x1b[2Jnews " + "x" * 1000})
    assert "\n" not in text
    assert "\x1b" not in text
    assert len(text) < 350


def test_the_log_says_the_date_where_it_changes_and_wraps_below_the_words() -> None:
    first = datetime(2026, 1, 1, 23, 59, 59).timestamp()
    log = [
        {"at": first, "severity": "info", "kind": "sweep.completed", "data": {}, "case": None},
        {"at": first + 2, "severity": "error", "kind": "cell.failed", "case": "q1"}
        | {"data": {"combination": 0, "error": "many words " * 12}},
    ]
    lines = list(executions.lines(log, 60))
    assert lines[0] == "2026-01-01"
    assert lines[1] == "23:59:59.000  info     sweep completed"
    assert lines[2] == "2026-01-02"
    assert lines[3].startswith("00:00:01.000  error    q1: cell 0 failed: many words")
    assert all(line.startswith(" " * 23) for line in lines[4:])
    assert all(len(line) <= 60 for line in lines)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, 2), [1, 2]),
        ({"b", "a"}, ["a", "b"]),
        (b"1234", "<4 bytes>"),
        (float("nan"), "nan"),
        (2**70, str(2**70)),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00"),
        (PurePosixPath("a/b"), "a/b"),
        (np.zeros((2, 3)), "<array of <f8, 2x3>"),
        ({1: "a", (2, 3): "b"}, {"1": "a", "[2, 3]": "b"}),
        ({"$tuple": [1]}, {"$tuple": [1]}),
        ({"deep": [{"x": (1,)}]}, {"deep": [{"x": [1]}]}),
    ],
)
def test_stored_values_are_read_as_plain_json(value: object, expected: object) -> None:
    assert readable(encode(value)) == expected


def test_a_class_that_is_gone_does_not_hinder_reading() -> None:
    stored = b'{"$dataclass":{"type":"gone.module:Thing","fields":{"x":1,"y":{"$tuple":[2]}}}}'
    assert readable(stored) == {"x": 1, "y": [2]}


@pytest.mark.parametrize("width", [10, 20, 40])
@pytest.mark.parametrize("value", ["short", "long " * 50, list(range(100)), {"k": "v" * 100}, "日本語" * 30, None])
def test_a_value_fits_on_one_line(value: object, width: int) -> None:
    assert cell_len(texts.short(value, width)) <= width


def test_a_cut_value_says_its_size() -> None:
    assert texts.short(list(range(1000)), 40).endswith("… (1,000 items)")
    assert texts.short("x" * 500, 40).endswith("… (500 characters)")


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "–"), (0.0123, "12 ms"), (61.0, "61.0 s"), (7200.0, "2.0 h"), (259_200.0, "3.0 d")]
)
def test_durations_have_the_unit_that_suits(seconds: float | None, text: str) -> None:
    assert texts.took(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e9, "2.5 GB")])
def test_sizes_have_the_unit_that_suits(count: float, text: str) -> None:
    assert texts.bytes_of(count) == text


def test_several_combinations_are_one_phrase() -> None:
    assert texts.chosen_by_all([{"a": "x", "b": "1"}, {"a": "x", "b": "2"}]) == "a=x b=(2 variants)"
    assert texts.chosen_by_all([{}]) == sentence("the workflow as it is")


def test_a_moment_of_this_year_leaves_the_year_out() -> None:
    now = time.time()
    assert texts.brief_moment(now, now) == texts.moment(now)[5:]
    assert texts.brief_moment(0.0, now) == texts.moment(0.0)
    assert texts.moment(None) == "–"


def test_colors_are_for_statuses_only_and_only_where_wanted() -> None:
    assert texts.colored("failed", "failed", True) == "\x1b[31mfailed\x1b[0m"
    assert texts.colored("failed", "failed", False) == "failed"
    assert texts.colored("whatever", "whatever", True) == "whatever"


@pytest.mark.parametrize("width", [50, 60, 80, 120])
def test_a_table_fits_and_never_cuts_what_must_stay_whole(width: int) -> None:
    rows = [
        ["0123456789", "a name that goes on " * 3, "日本語 " * 10, "succeeded", "1"],
        ["x", "y", "z", "failed", "1000"],
    ]
    table = grid(
        ["id", "name", "text", "status", "n"], rows, width, right={"n"}, whole={"id", "status"}, notes=["", "why " * 40]
    )
    assert all(cell_len(line) <= width for line in table.splitlines())
    assert "0123456789" in table
    assert "succeeded" in table


@pytest.mark.parametrize("width", [10, 25, 79])
def test_wrapped_text_keeps_every_word_and_fits(width: int) -> None:
    text = (
        "  indented words and one thatislongerthananyline" * 3
        + "\n          \n"
        + " " * 200
        + "far right 日本語日本語日本語日本語"
    )
    lines = wrapped(text, width, " ")
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_facts_leave_out_what_is_empty() -> None:
    assert facts([("a", "1"), ("long name", "2"), ("b", "")], 80) == "a          1\nlong name  2\n"


def _graph(edges: list[dict[str, Any]], branches: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    names = ["a", "b", "c"]
    variant = {"name": "default", "description": "", "params": {}, "active": True}
    node = {"default": "default", "retries": 0, "timeout": None, "on_error": "fail", "durable": False}
    return {
        "name": "g",
        "version": "",
        "description": "",
        "state": {},
        "entries": ["a"],
        "nodes": [{"name": name, **node, "variants": [variant]} for name in names],
        "edges": [{"when": None, "priority": 0, "default": False, **edge} for edge in edges],
        "branches": branches or [],
    }


def test_a_graph_shows_conditions_joins_and_loops() -> None:
    edges = [
        {"from": ["a"], "to": "b", "when": "is_good", "priority": 2},
        {"from": ["a"], "to": "a", "default": True},
        {"from": ["a", "b"], "to": "c"},
    ]
    drawn = graphs.draw(_graph(edges, [{"from": "c", "by": "choose", "to": {"x": "END"}, "default": "a"}]), {}, 80)
    assert "start ─▶ a\n" in drawn
    assert "▶ b    when is_good, priority 2\n" in drawn
    assert "▶ a ↑  otherwise\n" in drawn
    assert "▶ c    once b has run too\n" in drawn
    assert "▶ end  when choose is 'x'\n" in drawn
    assert "▶ a ↑  when choose is anything else\n" in drawn
