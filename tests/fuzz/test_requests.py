"""Requests made from the API's own description: every response describes the problem, and comes soon."""

from __future__ import annotations

import itertools
import json
import logging
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any
from urllib.parse import quote

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from tests.fuzz import nasty
from tests.hosting.api.serving import HEADERS, TOKEN, answering
from tests.support.tenants import Tenant
from wtb.hosting.api.app import make_app

SEED = 20_261_126
HANGS_S = 5.0
STREAMS = "text/event-stream"
LAST = ("delete", "erase", "remove", "archive", "revoke", "cancel")  # of what the others ask about

# The kind of object in a path, by the first part of the path.
NAMES = {f"{kind}s": kind for kind in ("sweep", "execution", "approval", "baseline", "schedule", "session", "token")}


CHECKS = list(HealthCheck)
PARTS = 4  # of the paths, each of which is asked in time by itself


@pytest.mark.parametrize(
    ("first", "each", "many", "least"),
    [
        pytest.param(0, 8, 4, 60, id="some"),
        *(pytest.param(n, PARTS, 60, 10_000 / PARTS, id=f"all-{n}", marks=pytest.mark.slow) for n in range(PARTS)),
    ],
)
def test_no_request_is_a_fault_of_the_server(
    tenant: Tenant, first: int, each: int, many: int, least: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Send requests to each path that match the description, and requests that violate it."""
    app = make_app(tenant.context, token=TOKEN, hosts=["127.0.0.1"])
    described = schemathesis.openapi.from_dict(app.openapi())
    operations = [operation.ok() for operation in described.get_all_operations()][first::each]
    operations.sort(key=lambda operation: any(word in operation.path for word in LAST) or operation.method == "delete")
    problems: list[str] = []
    count = 0
    with caplog.at_level(logging.ERROR, "wtb"), answering(app) as url, requests.Session() as session:
        for number, (operation, mode) in enumerate(itertools.product(operations, GenerationMode)):
            for case in _cases(operation, mode, many, SEED + number):
                count += 1
                problems += _send_case(session, url, case, tenant.names)
    faults = [record.exc_text or record.getMessage() for record in caplog.records]
    assert not problems, "\n".join([f"{len(problems)} of {count:,} requests:", *problems[:20], *faults[:5]])
    assert count >= least


@pytest.mark.parametrize("many", [150, pytest.param(5_000, marks=pytest.mark.slow)])
def test_values_that_no_schema_would_think_of_are_no_fault(
    tenant: Tenant, many: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Texts and numbers that no database stores, values that are not numbers, and nested values."""
    app = make_app(tenant.context, token=TOKEN, hosts=["127.0.0.1"])
    calls = list(_hostile(app.openapi(), tenant.names, random.Random(SEED), many))
    problems: list[str] = []
    with caplog.at_level(logging.ERROR, "wtb"), answering(app) as url, requests.Session() as session:
        for method, path, query, body in calls:
            arguments = {"params": query} if method == "get" else {"data": json.dumps(body)}
            headers = {**HEADERS, "Content-Type": "application/json"}
            options = {"headers": headers, "timeout": HANGS_S, "stream": True, **arguments}
            with session.request(method, url + path, **options) as answer:
                is_stream = answer.headers.get("Content-Type", "").startswith(STREAMS)
                wrong = None if is_stream else _wrong(answer, answer.content, {"200": 1, "201": 1, "202": 1, "204": 1})
            if wrong:
                problems.append(f"{method} {path} {query} {json.dumps(body)[:300]}: {wrong}, {answer.status_code}")
    faults = [record.exc_text or record.getMessage() for record in caplog.records]
    assert not problems, "\n".join([f"{len(problems)} of {len(calls):,} requests:", *problems[:20], *faults[:5]])


def _hostile(
    document: Mapping[str, Any], names: Mapping[str, str], dice: random.Random, many: int
) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Yield requests with some unexpected arguments: method, path, query, body."""
    calm_paths = {path: of for path, of in document["paths"].items() if not any(word in path for word in LAST)}
    operations = [(method, path, told) for path, methods in calm_paths.items() for method, told in methods.items()]
    calm = [operation for operation in operations if operation[0] != "delete"]
    for method, path, described in dice.choices(calm, k=many):
        text = quote(dice.choice(nasty.TEXTS[2:7]), safe="", errors="replace")
        named = text if dice.random() < 0.1 else names.get(_kind(path), text)
        reference = described.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        schema = document["components"]["schemas"].get(str(reference.get("$ref")).rpartition("/")[2], {})
        body = {name: nasty.odd_value(dice) for name in schema.get("properties", {}) if dice.random() < 0.5}
        body |= {name: names["sweep"] for name in schema.get("required", ()) if dice.random() < 0.5}
        options = [parameter["name"] for parameter in described.get("parameters", ()) if parameter["in"] == "query"]
        query = {name: str(nasty.odd_value(dice)).encode(errors="replace") for name in options if dice.random() < 0.5}
        yield method, re.sub(r"\{\w+\}", named, path), {**query, "wait": 0}, body


def _kind(path: str) -> str:
    """Return the kind of object in a path, as tenants name it."""
    return NAMES.get(path.split("/")[3] if path.count("/") > 2 else "", "")


def _cases(operation: Any, mode: GenerationMode, many: int, number: int) -> list[Any]:
    """Return so many requests of a path, the same in each run."""
    if many > 1 and not _cases(operation, mode, 1, number):
        return []  # it cannot be asked so, which takes ten tries for each request to find out
    cases: list[Any] = []

    @seed(number)
    @settings(max_examples=many, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=CHECKS)
    @given(operation.as_strategy(generation_mode=mode))
    def collect(case: Any) -> None:
        cases.append(case)

    with suppress(Unsatisfiable):  # what takes nothing cannot be given anything wrong
        collect()
    return cases


def _send_case(session: requests.Session, url: str, case: Any, names: Mapping[str, str]) -> list[str]:
    """Send a request and return the problems of the response."""
    dice = random.Random(repr((case.path_parameters, case.query, case.body)))
    kind = names.get(_kind(case.path))
    if kind is not None and case.path_parameters and dice.random() < 0.5:
        case.path_parameters |= dict.fromkeys(case.path_parameters, kind)
    for part in (case.query, case.headers):  # a request that asks to wait is no hang
        for name in [key for key in part or () if key.lower() in ("wait", "prefer")]:
            del part[name]
    arguments = case.as_transport_kwargs(base_url=url)
    arguments["headers"] = {**arguments.get("headers", {}), **HEADERS}
    body_sent = str(arguments.get("json", arguments.get("data")))[:300]
    label = f"{case.method} {arguments['url']} {arguments.get('params')} {body_sent}"
    try:
        with session.request(**arguments, timeout=HANGS_S, stream=True) as response:
            is_stream = response.headers.get("Content-Type", "").startswith(STREAMS)
            body = b"".join(islice(response.iter_content(1), 1)) if is_stream else response.content
    except requests.RequestException as error:
        return [f"{label}: {error}"]
    wrong = _wrong(response, body, case.operation.definition.raw["responses"])
    return [f"{label}: {wrong}, {response.status_code} {body[:300]!r}"] if wrong else []


def _wrong(response: requests.Response, body: bytes, described: Mapping[str, Any]) -> str | None:
    status, kind = response.status_code, response.headers.get("Content-Type")
    if status >= 500 or b"Traceback" in body:
        return "a fault"
    if status < 400:
        return None if str(status) in described else "a status that is not described"
    return None if kind == "application/problem+json" else f"a problem as {kind}"
