"""The programs of `examples/lifecycle`, as their users start them, on both databases."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.project import run_program

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "lifecycle"
ORDER = """\
prepared: paused
at the breakpoint: paused 80.0 ['lamp']
then: failed
found as failed: True
rolled back to price: paused []
the rollback undone: ['lamp']
with another limit: completed True ['lamp']
a fork beside it: completed 60.0 80.0
  price, visit 0: succeeded
  reserve, visit 0: succeeded
  confirm, visit 0: succeeded
events: ['checkpoint.named', 'rollback.begun']
the variant `sale` in place of the default: completed 60.0
"""


def printed(program: str, url: str) -> str:
    assert f"python -m examples.lifecycle.{program}" in (EXAMPLES / f"{program}.py").read_text("utf-8")
    command = [sys.executable, "-m", f"examples.lifecycle.{program}", url]
    return run_program(command, cwd=ROOT, timeout=120, code=0).stdout


def test_the_life_of_an_execution(prepared_url: str) -> None:
    assert printed("order", prepared_url) == ORDER


def test_a_batch_with_its_matrix(prepared_url: str) -> None:
    lines = printed("batch", prepared_url).splitlines()

    assert lines[0] == "cells: 16 of 16"
    means = [float(line.rpartition(" ")[2]) for line in lines[1:5]]
    assert means[0] > means[2], "long words find less"
    assert lines[5:7] == ["scored again: ['brevity.share', 'brevity.words', 'exact_match']", "the same again: same"]
    assert lines[7] == "attempts: 24 instead of 32"
