"""Names of grid points, labels of levels, and the factors that are derived from them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtb.core.factors import (
    MAX_NAME,
    FileReference,
    canonical,
    factors_of,
    file_reference,
    label_columns,
    labels_of,
    level_label,
    point_name,
    sha256_of,
    split_name,
    with_texts,
)
from wtb.core.tree.combinations import in_words

PROMPT = FileReference("prompts/v1.md", sha256_of("Answer briefly."))

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
levels = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=5
)


def point(**parameters: object) -> dict[str, object]:
    return {"name": point_name(parameters), "levels": [list(pair) for pair in parameters.items()]}


def test_levels_of_other_types_have_other_names() -> None:
    assert [level_label(level) for level in (1, 1.0, "1", True, "true", None, "null", "mini")] == [
        "1", "1.0", '"1"', "true", '"true"', "null", '"null"', "mini",
    ]  # fmt: skip


def test_a_prompt_is_named_by_its_beginning_or_its_file_and_a_hash() -> None:
    assert level_label("Answer the question in one sentence, and cite the sources that you used.") == (
        "Answer-the-question-in-o#31231673"
    )
    assert level_label(str(PROMPT)) == f"v1.md#{PROMPT.sha256[:8]}"


def test_the_name_of_a_grid_point_has_its_levels_in_declared_order() -> None:
    assert point_name({"model": "mini", "temperature": 0.7}) == "model=mini, temperature=0.7"
    assert point_name({"temperature": 0.7, "model": "mini"}) == "temperature=0.7, model=mini"
    assert point_name({"model": "mini"}, "terse") == "terse, model=mini"


def test_a_name_is_never_longer_than_names_may_be_and_still_differs() -> None:
    many = {f"parameter_{number}": "x" * 39 for number in range(20)}
    name, other = point_name(many), point_name({**many, "parameter_19": "y"})
    assert max(len(name), len(other)) <= MAX_NAME
    assert name != other


@given(levels, levels)
def test_labels_are_equal_only_if_levels_are(first: object, other: object) -> None:
    assert (level_label(first) == level_label(other)) == (canonical(first) == canonical(other))


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), levels, min_size=1, max_size=4))
def test_a_name_that_was_not_cut_is_split_into_the_labels_of_its_levels(given_levels: dict[str, object]) -> None:
    name = point_name(given_levels)
    assert len(name) <= MAX_NAME
    assert name.isprintable()
    assert name == name.strip()
    if "…#" not in name:
        assert split_name(name) == (None, {key: level_label(level) for key, level in given_levels.items()})


@pytest.mark.parametrize("name", ["default", "terse-mini", "temp=0.1,top_p=0.9", "k = 3", "a, b"])
def test_other_names_are_left_as_they_are(name: str) -> None:
    assert split_name(name) == (name, {})


def test_factors_are_derived_from_the_levels_of_variants() -> None:
    mini, large = point(model="mini", temperature=0), point(model="large", temperature=0)
    factors = factors_of({"retrieve": "all", "answer": [{"name": "default"}, mini, large]})
    assert list(factors) == ["answer"]
    model, temperature = factors["answer"]
    assert (model.name, model.is_nested) == ("answer.model", True)
    assert [(level.value, level.variants) for level in model.levels] == [
        ("mini", ("model=mini, temperature=0",)),
        ("large", ("model=large, temperature=0",)),
    ]
    assert [(level.label, level.variants) for level in temperature.levels] == [("0", (mini["name"], large["name"]))]
    assert model.level_of("default") is None


def test_a_parameter_that_is_called_levels_is_no_factor() -> None:
    assert not factors_of({"log": [{"name": "loud", "levels": [["debug", 1]]}, {"name": "quiet", "levels": 3}]})


def test_a_combination_is_labelled_by_its_factors() -> None:
    choices = {"retrieve": "bm25", "answer": "terse, model=mini, temperature=0"}
    assert labels_of(choices) == {
        "retrieve": "bm25",
        "answer": "terse",
        "answer.model": "mini",
        "answer.temperature": "0",
    }
    assert in_words(choices) == "retrieve=bm25 answer=terse answer.model=mini answer.temperature=0"
    assert label_columns([{"retrieve": "bm25", "answer": "model=mini"}, {"retrieve": "bm25", "answer": "default"}]) == [
        "retrieve",
        "answer",
        "answer.model",
    ]


def test_references_to_files_are_replaced_by_their_texts_at_any_depth() -> None:
    texts = {PROMPT.sha256: "Answer briefly."}
    document = {"prompt": str(PROMPT), "more": [{"inner": str(PROMPT)}, 1]}
    assert with_texts(document, texts) == {"prompt": "Answer briefly.", "more": [{"inner": "Answer briefly."}, 1]}
    assert file_reference("file://prompts/v1.md") is None
    assert json.loads(canonical({"b": 1, "a": 1.0})) == {"a": 1.0, "b": 1}
