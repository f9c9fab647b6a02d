"""Replies of judges: a level is a number or a text, and nothing else is one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wtb.integrations.judge_rubric import UnusableReply, read_rubric

RUBRIC = read_rubric(None, {"1": "bad", "2": "fair", "3": "good"})


@pytest.mark.parametrize("level", [3, 3.0, "3", " 3 ", "3.0"])
def test_a_level_may_be_a_number_or_its_text(level: Any) -> None:
    assert RUBRIC.score_of(json.dumps({"reasoning": "r", "level": level})) == 3


NO_LEVELS = ("7", "0", "-1", "2.5", "three", "", "3 of 3", "1e0", "nan", True, None, ["3"])
SEVERAL = ('{"level": "1", "level": "3"}', '{"level": 1} {"level": 3}', '{"level": "3', "3")


@pytest.mark.parametrize("reply", [*(json.dumps({"level": level}) for level in NO_LEVELS), *SEVERAL])
def test_what_is_no_level_or_may_mean_several_things_is_no_score(reply: str) -> None:
    with pytest.raises(UnusableReply):
        RUBRIC.score_of(reply)
