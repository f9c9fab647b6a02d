"""Reasons for which a release is not built."""

from __future__ import annotations

from scripts.release import problems
from wtb import __version__

DATED = f"# Changelog\n\n## Unreleased\n\nNothing yet.\n\n## {__version__} - 2030-01-31\n\n- All of it.\n"


def test_a_clean_tree_with_a_date_can_be_released() -> None:
    assert problems(DATED, "") == []


def test_each_thing_that_is_missing_is_named() -> None:
    (uncommitted,) = problems(DATED, " M wtb/core/version.py\n")
    assert "commit" in uncommitted
    (undated,) = problems(DATED.replace("2030-01-31", "not released yet"), "")
    assert f"## {__version__} - YYYY-MM-DD" in undated
    (entries,) = problems(DATED.replace("Nothing yet.", "- A key of sweep files."), "")
    assert "Unreleased" in entries
    (entries,) = problems(DATED.replace(f"## {__version__} ", "## 0.0.9 "), "")
    assert __version__ in entries
