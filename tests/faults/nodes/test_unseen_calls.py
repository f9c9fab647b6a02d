"""Calls of models that nothing records, and models without a price: their cost is unknown, and never 0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.model_server import ModelHandler, serving
from tests.support.project import Project
from tests.support.prose import sentence

APP = """
import asyncio, json, os, threading, urllib.request
import httpx
from wtb import END, Workflow
from wtb.integrations.models import complete

URL = os.environ["FAKE_URL"]
BODY = {"model": "gpt-4o-mini", "messages": []}
kept = httpx.Client()
wf = Workflow("app")


def raw():
    return httpx.post(URL, json=BODY).json()["text"]


def pooled():
    return kept.post(URL, json=BODY).json()["text"]


def standard():
    request = urllib.request.Request(URL, json.dumps(BODY).encode(), method="POST")
    with urllib.request.urlopen(request) as response:
        return json.loads(response.read())["text"]


async def later():
    async with httpx.AsyncClient() as client:
        return (await client.post(URL, json=BODY)).json()["text"]


def threaded():
    found = []
    thread = threading.Thread(target=lambda: found.append(raw()))
    thread.start()
    thread.join()
    return found[0]


WAYS = {"raw": raw, "pooled": pooled, "also_pooled": pooled, "standard": standard, "threaded": threaded}


@wf.node
def answer(state, ctx, *, way="template"):
    if way == "template":
        return {"a": "Dear customer"}
    if way == "counted":
        found = raw()
        ctx.cost(usd=0.001)
        return {"a": found}
    if way == "unpriced":
        ctx.call(model="our-own-70b", tokens_in=10, tokens_out=1)
        return {"a": "b"}
    return {"a": asyncio.run(later()) if way == "later" else WAYS[way]()}


for name in ("counted", "unpriced", "later", *WAYS):
    answer.variant(name, way=name)
wf.entry(answer)
wf.edge(answer, END)
"""
SWEEP: dict[str, Any] = {
    "sweep": "unseen",
    "workflow": "app:wf",
    "cases": [{"id": name, "input": {}} for name in "abcde"],
    "vary": {"answer": ["default", "counted", "raw"]},
    "evaluate": ["cost"],
    "best": {"minimize": "cost"},
    "baseline": {"answer": "default"},
    "run": {"concurrency": 1},
}


class Model(ModelHandler):
    """Answers, without usage."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send(200, {"text": "x"})


@pytest.fixture
def url() -> Iterator[str]:
    with serving(Model) as address:
        yield address.replace("127.0.0.1", "localhost")


def ran(project: Project, url: str, **changes: Any) -> dict[str, Any]:
    """The matrix of a sweep at its end."""
    project.write({"app.py": APP, "sweep.yaml": json.dumps({**SWEEP, **changes})})
    project.wtb("run", "sweep.yaml", "--quiet", env={"FAKE_URL": url})
    return dict(json.loads(project.inside("matrix", "unseen", "--format", "json", check=0).stdout))


def unknown(matrix: dict[str, Any]) -> dict[str, list[str]]:
    causes: dict[str, list[str]] = {}
    for reason in matrix["cost"]["unknown"]:
        causes.setdefault(reason["variant"], []).append(f"{reason['cause']} {reason['what']}")
    return causes


def costs(matrix: dict[str, Any]) -> dict[str, float | None]:
    return {row["combination"]["answer"]: row["cost_usd"] for row in matrix["rows"]}


@pytest.mark.parametrize("pool", ["process", "thread"])
def test_a_connection_that_no_recorded_call_explains_makes_a_cost_unknown(
    empty_project: Project, url: str, pool: str
) -> None:
    ways = ["default", "counted", "raw", "pooled", "also_pooled", "standard", "later"]
    ways += ["threaded"] if pool == "process" else []  # a thread of the runner may be anybody's
    matrix = ran(empty_project, url, vary={"answer": ways}, run={"concurrency": 1, "pool": pool})

    seen = ["raw", "pooled", "standard", "later", *(["threaded"] if pool == "process" else [])]
    where = url.removeprefix("http://")
    assert unknown(matrix).keys() >= set(seen)
    assert unknown(matrix).keys() - {"also_pooled"} == set(seen)
    assert set(map(tuple, unknown(matrix).values())) == {(f"connection {where}",)}
    assert costs(matrix)["default"] == 0.0
    assert costs(matrix)["counted"] == pytest.approx(0.001)
    assert all(costs(matrix)[way] is None for way in seen)


def test_a_connection_that_is_kept_hides_no_calls_of_other_variants(empty_project: Project, url: str) -> None:
    matrix = ran(empty_project, url, vary={"answer": ["default", "pooled", "also_pooled"]})
    assert unknown(matrix).keys() == {"pooled", "also_pooled"}
    assert costs(matrix)["default"] == 0.0


def test_an_unknown_cost_is_shown_and_ranked_nowhere_as_0(project: Project, url: str) -> None:
    gates = ["cost_usd.total < 1", "max(cost_usd) < 1", "cost.mean < 1", "failed == 0"]
    matrix = ran(project, url, gates=gates, limits={"usd": 0.1})

    assert costs(matrix) == {"default": 0.0, "counted": pytest.approx(0.001), "raw": None}
    raw = next(row for row in matrix["rows"] if row["combination"]["answer"] == "raw")
    assert (raw["cost_per_success_usd"], raw["metrics"]["cost"]["mean"]) == (None, None)
    number = matrix["rows"].index(raw)
    assert number not in matrix["front"]["cost"]
    assert matrix["choice"]["combination"] == {"answer": "default"}
    assert raw["combination"] not in matrix["best"]["cost"]["candidates"]
    holds = {gate["gate"]: gate["holds"] for gate in matrix["gates"]}
    assert holds == {gates[0]: None, gates[1]: None, gates[2]: True, gates[3]: True}  # the third is of the choice
    assert all(
        sentence("is unknown: ") + sentence("no recorded call explains") in gate["because"]
        for gate in matrix["gates"][:2]
    )
    warnings = " ".join(matrix["warnings"])
    assert sentence("limits.usd = {} {}: the cost of {} is unknown", "0.1", "was not kept", "answer=raw") in warnings

    table = project.inside("matrix", "unseen", check=0).stdout
    assert "raw" in table
    assert "$0.005" in table
    assert sentence("recorded, the rest is unknown") in table
    csv = project.inside("matrix", "unseen", "--format", "csv", check=0).stdout.splitlines()
    column = csv[0].split(",").index("cost_usd")
    assert [line.split(",")[column] for line in csv[1:] if line.split(",")[1] == "raw"] == [""]
    assert sentence("no recorded call explains") in project.inside("costs", "unseen", check=0).stdout
    status = json.loads(project.inside("status", "unseen", "--format", "json", check=0).stdout)
    assert status["cost"]["unknown"] == matrix["cost"]["unknown"]
    assert any("limits.usd" in warning for warning in status["warnings"])
    cells = json.loads(project.inside("show", "unseen", "--cells", "--format", "json", check=0).stdout)["cells"]
    assert {cell["cost_usd"] for cell in cells if cell["combination"] == {"answer": "raw"}} == {None}
    log = project.inside("log", "unseen", "--severity", "warning", check=0).stdout
    assert sentence("the cost of {}={} is unknown", "answer", "raw") in " ".join(log.split())
    project.inside("report", "unseen", "-o", "report.html", check=0)
    report = (project.folder / "report.html").read_text()
    assert sentence("no recorded call explains its connections") in report
    assert sentence("recorded, the rest is unknown") in report
    planned = project.inside("plan", "sweep.yaml", check=0, env={"FAKE_URL": url}).stdout
    assert "limits.usd = 0.1 cannot be kept" in " ".join(planned.split())
    plan = project.inside("plan", "sweep.yaml", "--format", "json", check=0, env={"FAKE_URL": url}).stdout
    assert [reason["variant"] for reason in json.loads(plan)["unknown_costs"]] == ["raw"]


def test_a_pilot_of_unknown_cost_estimates_none_and_names_the_limit(empty_project: Project, url: str) -> None:
    empty_project.write({"app.py": APP, "sweep.yaml": json.dumps({**SWEEP, "limits": {"usd": 1}})})
    done = empty_project.wtb("pilot", "sweep.yaml", "--cases", "2", "--format", "json", env={"FAKE_URL": url}, check=0)
    planned = json.loads(done.stdout)
    assert planned["pilot"]["estimate"]["usd"] == {"expected": None, "low": None, "high": None}
    assert any("limits.usd = 1 cannot be kept" in warning for warning in planned["warnings"])


def test_a_model_without_a_price_does_not_win_by_cost(empty_project: Project, url: str) -> None:
    matrix = ran(empty_project, url, vary={"answer": ["counted", "unpriced"]}, baseline={"answer": "counted"})
    assert unknown(matrix) == {"unpriced": ["price our-own-70b"]}
    assert matrix["choice"]["combination"] == {"answer": "counted"}
    assert matrix["best"]["cost"]["combination"] == {"answer": "counted"}


@pytest.mark.parametrize("pattern", ["localhost", "localhost:*", "local*"])
def test_hosts_that_are_named_cost_nothing(empty_project: Project, url: str, pattern: str) -> None:
    matrix = ran(empty_project, url, run={"concurrency": 1, "free_hosts": [pattern]})
    assert not matrix["cost"]["unknown"]
    assert costs(matrix)["raw"] == 0.0
