"""Sweeps inside tests: `pytest` runs this, `pytest --wtb` runs the sweep files too."""

from __future__ import annotations

import bot

from wtb import Sweep
from wtb.integrations.pytest_plugin import SweepTester


def test_the_help_desk_is_good_enough(wtb: SweepTester) -> None:
    result = wtb.run("quality.sweep.yaml", gates=["baseline.right.mean > 0.5"])
    wtb.check(result)  # its gates hold, and no cell failed
    best = max(result.matrix()["rows"], key=lambda row: row["metrics"]["right"]["mean"])
    assert best["combination"] == {"find": "stems", "reply": "careful"}


def test_a_careful_reply_asks_a_person(wtb: SweepTester) -> None:
    cases = [{"id": "off topic", "input": {"question": "Shall we dance?"}, "expected": "person"}]
    vary = {"find": "all", "reply": ["careful"]}
    wtb.check(wtb.run(Sweep(workflow=bot.wf, cases=cases, vary=vary, evaluate=[bot.right], gates=["right.mean == 1"])))
