"""Judges that workers ask: all of them together keep to the limit of a sweep and to the rate of a judge."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integrations.test_judges import FLOW, MODEL, RUBRIC, Judging
from tests.support.cluster import Cluster
from tests.support.model_server import serving

PRICE = 0.00021  # US dollars of a judgement
SPACE_S = 0.2


@pytest.fixture
def server() -> Iterator[str]:
    for record in (Judging.bodies, Judging.keys, Judging.failing, Judging.at):
        record.clear()
    with serving(Judging) as address:
        yield f"{address}/v1"


@pytest.mark.slow
def test_judges_of_two_workers_share_a_limit_and_a_rate(cluster: Cluster, server: str) -> None:
    judge: dict[str, Any] = {"field": "a", "model": MODEL, "criteria": "It is kind.", "per_minute": 60 / SPACE_S}
    judge["rubric"] = {str(level): text for level, text in RUBRIC.items()}
    spec = {
        "sweep": "judged",
        "workflow": "answers:wf",
        "cases": [{"id": f"c{number}", "input": {"q": number}} for number in range(12)],
        "vary": {"answer": ["default"]},
        "evaluate": [{"judge": judge}],
        "limits": {"judging": {"usd": 4.5 * PRICE}},
    }
    cluster.take_time()
    cluster.project.write({"answers.py": FLOW, "sweep.yaml": json.dumps(spec)})
    of_provider = {"OPENAI_BASE_URL": server, "OPENAI_API_KEY": "of-the-provider"}
    for _ in range(2):
        cluster.start_worker(concurrency=2, ready=False, env=of_provider)
    cluster.start_scheduler()
    cluster.wait_ready()
    began = time.time()
    sweep = cluster.submit("sweep.yaml")
    cluster.until(lambda: cluster.sweeps()[sweep] == "paused", "the sweep to pause")
    assert len(Judging.bodies) == 4, "four slots spend no more than four may"
    reason = cluster.scalar("SELECT reason FROM sweeps")
    assert reason.startswith("limit reached: judging.usd = 0.000945 (spent 0.00084, 0.00021 wanted)")
    cluster.wtb("resume", "judged", "--limits", "judging.usd=1", check=0)
    cluster.wait_completed(sweep)
    assert cluster.cells() == {"succeeded": 12}
    assert len(Judging.bodies) == 12
    late = [at - began - number * SPACE_S for number, at in enumerate(sorted(Judging.at))]
    assert min(late) >= 0, "none comes before its turn"
    assert cluster.scalar("SELECT spent FROM budgets WHERE node = '(judging)'") == pytest.approx(12 * PRICE)
