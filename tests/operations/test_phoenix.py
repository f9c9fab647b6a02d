"""Phoenix accepts exported traces: each attempt of the database is one span, however often it is sent.

It brings some two hundred packages, so it has an environment of its own: `make phoenix`.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.operations.test_traces import branching
from tests.support.attempts import attempts
from tests.support.bench import in_memory, make_bench
from tests.support.project import Project
from wtb.features.telemetry.collector import SpansRefused
from wtb.features.telemetry.operations import export_traces
from wtb.hosting.servers.server import free_port
from wtb.operations.context import Context

pytestmark = pytest.mark.slow
PHOENIX = Path(__file__).parents[2] / ".venv" / "phoenix" / "bin" / "phoenix"
STARTING_S = 120.0


@pytest.fixture
def phoenix(tmp_path: Path) -> Iterator[str]:
    if not PHOENIX.exists():
        pytest.skip("there is no Phoenix: `make phoenix` installs it")
    port, grpc = free_port(), free_port()
    own = {"PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(grpc)}
    env = {**os.environ, **own, "PHOENIX_WORKING_DIR": str(tmp_path), "PHOENIX_TELEMETRY_ENABLED": "false"}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([PHOENIX, "serve"], env=env, cwd=tmp_path, stdout=quiet, stderr=quiet)
    url = f"http://127.0.0.1:{port}"
    try:
        Project.until(lambda: _answers(url) or process.poll() is not None, "Phoenix answers", STARTING_S)
        yield url
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        _spans(url)
    except OSError:
        return False
    return True


def _spans(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/v1/projects/default/spans?limit=1000", timeout=20) as answer:
        spans: list[dict[str, Any]] = json.load(answer)["data"]
    return spans


def test_phoenix_has_every_attempt_once(phoenix: str, tmp_path: Path) -> None:
    database = in_memory()
    cases = [{"id": f"c{n}", "input": {"x": "hello"}} for n in range(3)]
    bench = make_bench(database, tmp_path / "bench", branching(), cases=cases, vary={"b": "all"})
    bench.run()
    context = Context(database, by="ann", files=tmp_path)
    with pytest.raises(SpansRefused, match="415"):
        export_traces(context, bench.sweep_id, phoenix, openinference=True)
    for _ in range(2):
        sent = export_traces(context, bench.sweep_id, phoenix, openinference=True, protobuf=True)
    Project.until(lambda: len(_spans(phoenix)) >= sent.spans, "it has taken them")
    spans = _spans(phoenix)
    attempt_count = database.scalar(sa.select(sa.func.count()).select_from(attempts))
    database.close()
    attempt_spans = [span for span in spans if "wtb.attempt" in span["attributes"]]
    assert (len(spans), len(attempt_spans)) == (sent.spans, attempt_count)
    assert len({span["context"]["trace_id"] for span in spans}) == len(cases)
    assert {span["span_kind"] for span in spans} == {"CHAIN", "LLM", "TOOL"}
