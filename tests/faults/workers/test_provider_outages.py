"""A provider that stays away pauses a sweep for all workers, whose node processes call it over HTTP."""

from __future__ import annotations

import json

import pytest

from tests.support.cluster import Cluster
from tests.support.model_provider import UNAUTHORIZED, answer_to, limited, model_provider

FLOW = """
import openai

from wtb import END, Workflow

wf = Workflow("asking")


@wf.node
def ask(state):
    with openai.OpenAI(api_key="k", max_retries=0) as client:
        reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": state["q"]}])
    return {"a": reply.choices[0].message.content}


wf.entry(ask)
wf.edge(ask, END)
"""
SPEC = {
    "sweep": "asking",
    "workflow": "asking:wf",
    "cases": [{"id": f"c{x}", "input": {"q": f"q{x}"}, "expected": {"a": answer_to(f"q{x}")}} for x in range(6)],
    "vary": {"ask": ["default"]},
    "evaluate": [{"exact_match": {"field": "a"}}],
    "gates": ["exact_match.mean >= 1", "provider_failures <= 0"],
}


@pytest.mark.slow
def test_an_outage_pauses_the_sweep_and_it_continues_without_a_loss(cluster: Cluster) -> None:
    with model_provider(lambda number, text: UNAUTHORIZED) as provider:
        cluster.take_time()
        cluster.project.write({"asking.py": FLOW, "sweep.yaml": json.dumps(SPEC)})
        cluster.start_worker(concurrency=2, env={"OPENAI_BASE_URL": f"{provider.url}/v1"})
        cluster.start_scheduler()
        sweep = cluster.submit("sweep.yaml")
        cluster.until(lambda: cluster.sweeps()[sweep] == "paused", "the sweep to pause")
        reason = cluster.scalar("SELECT reason FROM sweeps")
        assert reason == "waiting for provider openai, which rejects the credentials (401)"
        assert len(provider.requests) <= 6
        assert "failed" not in cluster.cells(sweep)
        provider.fault = lambda number, text: limited("0.01") if number % 3 == 0 else None
        cluster.wtb("retry", "asking", "--provider", check=0)
        cluster.wait_completed(sweep)
        assert cluster.cells(sweep) == {"succeeded": 6}
