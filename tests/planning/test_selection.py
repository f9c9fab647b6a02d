"""Variants whose names have commas and equals signs can be selected."""

from __future__ import annotations

import pytest

from tests.support.prose import sentence
from wtb.cli.console import read_choices
from wtb.core.errors import InputError
from wtb.planning.prepare import matching

NAMES = ["temp=0.1,top_p=0.9", "k=5", "a, b", "a, b=2, c=3", "x y", "[1,2]", "all,default"]


@pytest.mark.parametrize("name", NAMES)
def test_a_variant_with_commas_is_chosen_by_its_name(name: str) -> None:
    every = [{"ans": variant, "other": "v1"} for variant in NAMES]
    assert matching(every, read_choices([f"ans={name}"])) == [NAMES.index(name)]
    assert matching(every, read_choices([f"ans={name},other=v1"])) == [NAMES.index(name)]
    assert matching(every, read_choices([f"other=v1, ans={name}"])) == [NAMES.index(name)]


def test_unknown_nodes_and_variants_are_still_named() -> None:
    every = [{"ans": "a"}, {"ans": "b"}]
    assert matching(every, read_choices(["ans=a"])) == [0]
    with pytest.raises(InputError, match=sentence("does not vary a node {}", "'and'")):
        matching(every, read_choices(["ans=a,and=b"]))
    with pytest.raises(InputError, match=sentence("has no variant {}", "'a,b'")):
        matching(every, read_choices(["ans=a,b"]))
