"""J: 10,000 judgements, 64 at a time, by a server that answers in 500 ms; and calls of the bare client."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure
from benchmarks.harness.models import serving_model
from wtb.authoring.workflow import Workflow
from wtb.handles.bench import open as open_bench
from wtb.handles.local_sweep import Sweep
from wtb.integrations.judge_rubric import read_rubric

COUNT = int(os.environ.get("BENCH_JUDGEMENTS", "10000"))
BARE = -(-COUNT // 10)  # of the bare client, so that it takes no minute more
AT_ONCE = 64
WAIT_S = 0.5
CRITERIA = "It is a number."

judged = Workflow("judged")


@judged.node
def answer(state: dict[str, int]) -> dict[str, str]:
    return {"answer": str(state["x"])}


judged.entry(answer)


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    """Measure one round and ignore `runs`: the server determines the time."""
    with serving_model(WAIT_S) as url, open_bench(environment.fresh("sqlite")) as bench:
        cases = [{"id": str(x), "input": {"x": x}} for x in range(COUNT)]
        sweep = bench.run(Sweep(workflow=judged, cases=cases, vary={"answer": "all"}, run={"pool": "thread"}))
        bare_cpu, bare = _bare(url)
        began, cpu = time.perf_counter(), time.process_time()
        options = {"field": "answer", "model": "model", "criteria": CRITERIA, "url": url}
        scored = sweep.score([{"judge": options}], at_once=AT_ONCE)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        means = sweep.matrix()["rows"][0]["metrics"]
        assert means["judge"]["mean"] == 1.0, means
        assert means["judge.failed"]["mean"] == 0.0, means
        assert scored.scores == 3 * COUNT, scored
    yield Figure(f"J: {COUNT:,} judgements, time / {_ideal(COUNT):.0f} s", seconds / _ideal(COUNT), "x", 1.2)
    yield Figure("J: the bare client, time / the same", bare / _ideal(BARE), "x")
    yield Figure("J: processor time of a judgement", cpu / COUNT * 1000, "ms")
    yield Figure("J: processor time of a bare call", bare_cpu / BARE * 1000, "ms")


def _ideal(calls: int) -> float:
    return calls / AT_ONCE * WAIT_S


def _bare(url: str) -> tuple[float, float]:
    """Return seconds of CPU and of the clock for the calls alone, on as many threads."""
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    rubric = read_rubric(CRITERIA, None)
    form = {"type": "json_schema", "json_schema": {"name": "judgement", "strict": True, "schema": rubric.schema()}}

    def call(number: int) -> None:
        text = json.dumps({"input": {"x": number}, "answer": f"{number} "})
        messages = [{"role": "system", "content": rubric.instructions()}, {"role": "user", "content": text}]
        arguments: dict[str, object] = {"model": "model", "messages": messages, "response_format": form}
        client.chat.completions.create(**arguments)  # type: ignore[call-overload]

    began, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(call, range(BARE)))
    return time.process_time() - cpu, time.perf_counter() - began
