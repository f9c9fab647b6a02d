"""Unknown costs: hosts that are free, and combinations with calls of unknown cost."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.prose import sentence
from wtb.authoring.context import connections
from wtb.core.scoring.unknown_costs import UnknownCost, cost_warnings, is_concerned, is_free, sentences

RAW: UnknownCost = {"node": "answer", "variant": "raw", "cause": "connection", "what": "api.example.org:443"}
HOUSE: UnknownCost = {"node": "answer", "variant": "house", "cause": "price", "what": "our-own-70b"}


@pytest.mark.parametrize(
    ("where", "patterns", "free"),
    [
        ("db.internal:5432", ["db.internal"], True),
        ("db.internal:5432", ["db.internal:5432"], True),
        ("db.internal:5432", ["db.internal:80"], False),
        ("DB.internal:5432", ["db.INTERNAL"], True),
        ("db.internal:5432", ["*.internal"], True),
        ("db.internal:5432", ["internal"], False),
        ("127.0.0.1:6333", ["localhost:6333"], True),
        ("127.0.0.1:6333", ["127.0.0.1"], True),
        ("::1:6333", ["localhost"], True),
        ("127.0.0.1:11434", ["localhost:6333"], False),
        ("10.0.0.1:80", ["localhost"], False),
        ("api.openai.com:443", [], False),
    ],
)
def test_a_host_is_free_if_a_pattern_names_it(where: str, patterns: list[str], free: bool) -> None:
    assert is_free(where, patterns) is free


def test_a_combination_is_concerned_by_its_own_variants_and_by_nodes_that_do_not_vary() -> None:
    assert is_concerned({"answer": "raw"}, [RAW])
    assert not is_concerned({"answer": "template"}, [RAW])
    assert is_concerned({"retrieve": "bm25"}, [RAW])
    assert not is_concerned({"answer": "raw"}, [])


def test_sentences_name_variants_and_causes_and_the_limit() -> None:
    first, second = sentences([RAW, HOUSE])
    assert first.startswith("the cost of answer=house is unknown: no price is known for model 'our-own-70b'")
    assert second.startswith("the cost of answer=raw is unknown: no recorded call explains its connections")
    assert cost_warnings([RAW], 2.5, ended=False)[-1] == (
        sentence("limits.usd = {} {}: the cost of {} is unknown and counts as 0", "2.5", "cannot be kept", "answer=raw")
    )
    assert cost_warnings([], 2.5, ended=True) == []


def test_a_descriptor_that_is_a_file_by_now_is_no_connection_and_fails_no_node(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        assert connections._near(file.fileno(), socket.AF_INET) is None
        closed = file.fileno()
    assert connections._near(closed, socket.AF_INET) is None
