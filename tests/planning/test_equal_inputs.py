"""Equality of inputs, and the clusters of cases with equal inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wtb.core.errors import InputError
from wtb.core.serialization.codec import encode
from wtb.core.tree.looks import equal_inputs_cluster, is_of_equal_inputs, united
from wtb.planning import equal_inputs
from wtb.planning.equal_inputs import EqualInputs, Inputs

Files = dict[str, Path]


def group_inputs(
    *inputs: Any, clusters: list[str | None] | None = None, expected: list[Any] | None = None
) -> EqualInputs:
    seen = Inputs()
    for number, case_input in enumerate(inputs):
        seen.add(encode({"input": case_input, "expected": expected[number] if expected else None}), {})
    return seen.equal(clusters or [None] * len(inputs))


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ({"x": 1}, {"x": 1.0}),
        ({"x": [0.5, 2.0, {"y": -3.0}]}, {"x": [0.5, 2, {"y": -3}]}),
        ({"x": 1e16}, {"x": 1e16}),
        ({"x": 100.0}, {"x": 1e2}),
        ({"x": 1, "y": 2}, {"y": 2, "x": 1}),
        ({"x": {"a": {"b": 1, "c": 2}}}, {"x": {"a": {"c": 2, "b": 1}}}),
        ({"q": "Ä " * 50_000}, {"q": "Ä " * 50_000}),
        ({"x": (1, 2)}, {"x": (1.0, 2)}),
        ({"x": {3, 1}}, {"x": {1, 3}}),
        ({"x": b"bytes"}, {"x": b"bytes"}),
        ({}, {}),
    ],
)
def test_inputs_are_equal_by_value(first: Any, other: Any) -> None:
    assert group_inputs(first, other).groups == [[0, 1]]


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ({"x": 1}, {"x": True}),
        ({"x": 1}, {"x": "1"}),
        ({"x": "1.0,"}, {"x": "1,"}),
        ({"x": None}, {}),
        ({"x": ""}, {"x": None}),
        ({"x": [1, 2]}, {"x": [2, 1]}),
        ({"x": [1, 2]}, {"x": (1, 2)}),
        ({"q": "a"}, {"q": "a "}),
        ({"q": "a"}, {"q": "A"}),
        ({"q": "\u00e9"}, {"q": "e\u0301"}),
        ({"x": 2**53}, {"x": 2**53 + 1}),
        ({"x": float(2**60)}, {"x": 2**60 + 1}),
    ],
)
def test_inputs_that_differ_are_not_equal(first: Any, other: Any) -> None:
    assert group_inputs(first, other).groups == []


def test_the_cases_of_an_input_are_one_cluster_and_others_have_none() -> None:
    alike = group_inputs({"x": 1}, {"x": 2}, {"x": 1}, {"x": 3}, {"x": 2}, {"x": 1})
    assert alike.groups == [[0, 2, 5], [1, 4]]
    assert alike.repeated == 3
    first, second = equal_inputs_cluster(0), equal_inputs_cluster(1)
    assert alike.clusters == [first, second, first, None, second, first]
    assert is_of_equal_inputs(first)
    assert not is_of_equal_inputs("equal inputs 0")  # which a case may name


def test_cases_join_the_cluster_that_one_with_an_equal_input_names() -> None:
    alike = group_inputs({"x": 1}, {"x": 1}, {"x": 2}, clusters=[None, "doc", None])
    assert (alike.clusters, alike.apart) == (["doc", "doc", None], [])


def test_clusters_that_cases_name_hold_although_their_inputs_are_equal() -> None:
    alike = group_inputs(*[{"x": 1}] * 4, clusters=["doc", "page", None, "doc"])
    assert alike.clusters == ["doc", "page", "doc", "doc"]
    assert alike.apart == [[0, 1, 2, 3]]


def test_equal_inputs_of_which_different_values_are_expected() -> None:
    same = group_inputs({"x": 1}, {"x": 1}, expected=[{"a": 1, "b": None}, {"b": None, "a": 1.0}])
    assert same.contradictory == []
    other = group_inputs({"x": 1}, {"x": 1}, {"x": 2}, expected=["yes", "no", "no"])
    assert other.contradictory == [[0, 1]]


def test_files_are_part_of_an_input_by_name_and_content(tmp_path: Path) -> None:
    def file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    files: list[Files] = [
        {},
        {"a.txt": file("1/a.txt", "same")},
        {"a.txt": file("2/b.txt", "same")},
        {"a.txt": file("3/a.txt", "else")},  # of the same size
        {"a.txt": file("4/a.txt", "longer")},
        {"b.txt": file("5/a.txt", "same")},
    ]
    seen = Inputs()
    for case_files in files:
        seen.add(encode({"input": {"x": 1}, "expected": None}), case_files)
    assert seen.equal([None] * len(files)).groups == [[1, 2]]
    files[1]["a.txt"].unlink()
    with pytest.raises(InputError, match=r"file '.*a\.txt' of a case cannot be read"):
        seen.equal([None] * len(files))


def test_more_cases_than_are_compared_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equal_inputs, "MOST_CASES", 2)
    alike = group_inputs({"x": 1}, {"x": 1}, {"x": 1})
    assert alike.groups == [[0, 1]]
    assert alike.clusters[2] is None


def test_clusterings_are_united() -> None:
    assert united(["a", None, "b", None], [None, None, "x", "x"]) == ["a", None, "b", "b"]
    merged = united(["a", "a", "b", "c"], [None, "x", "x", None])
    assert merged[0] == merged[1] == merged[2] != merged[3]
