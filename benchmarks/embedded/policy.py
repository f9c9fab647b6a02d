"""CPU time of a policy decision about a submission, by the policies of docs/policy.md."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from wtb.operations.policy_rules import FOLDER, Asked, Fact, find_policies

PAGE = Path(__file__).parents[2] / "docs" / "policy.md"
COUNT = 5_000  # decisions of a round
_NUMBERS = count(100)


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    folder = environment.folder / "policy"
    folder.mkdir(parents=True, exist_ok=True)
    block = re.search(r"(?s)<!-- file: policy/rules.cedar -->\n```\n(.+?)```", PAGE.read_text("utf-8"))
    assert block is not None, "the page shows no policies"
    (folder / "rules.cedar").write_text(block[1], "utf-8")
    before = os.environ.get(FOLDER)
    os.environ[FOLDER] = str(folder)
    try:
        yield of_rounds("a decision about something new", [_round(new=True) for _ in range(runs)], "ms", 0.1)
        yield of_rounds("the same again", [_round(new=False) for _ in range(runs)], "ms", 0.1)
    finally:
        os.environ.pop(FOLDER)
        if before is not None:
            os.environ[FOLDER] = before


def _round(*, new: bool) -> float:
    """Return the milliseconds of a decision, including the lookup of policies. new: about another sweep."""
    began = time.process_time()
    for number in range(COUNT):
        policies = find_policies()
        assert policies is not None
        facts: dict[str, Fact] = {
            "limit_cents": 4_000,
            "cells": next(_NUMBERS) if new else number % 2,
            "project": "help",
        }
        assert policies.decide(Asked("submit", "ana", "Workflow", "support", facts)).allowed
    return (time.process_time() - began) / COUNT * 1000
