"""Requests made from the API's own description: whatever is asked, the answer says what is wrong, and comes soon."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from tests.hosting.api.serving import HEADERS, TOKEN, answering
from tests.support.tenants import Tenant
from wtb.hosting.api.app import make_app
from wtb.operations.context import Context
from wtb.store.database import Database

SEED = 20_261_126
HANGS_S = 5.0
STREAMS = "text/event-stream"
LAST = ("delete", "erase", "remove", "archive", "revoke", "cancel")  # of what the others ask about

# What the rest of a path that begins so names.
NAMES = {f"{kind}s": kind for kind in ("sweep", "execution", "approval", "baseline", "schedule", "session", "token")}


@pytest.fixture
def tenant(prepared_url: str, tmp_path: Path) -> Iterator[Tenant]:
    database = Database(prepared_url)
    yield Tenant(Context(database, by="ann", files=tmp_path / "files"), tmp_path / "files", "quokka")
    database.close()


@pytest.mark.parametrize(
    ("each", "many", "least"), [(8, 4, 90), pytest.param(1, 55, 10_000, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_no_request_is_a_fault_of_the_server(
    tenant: Tenant, each: int, many: int, least: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Of each of so many paths so many requests that fit the description, and so many that do not."""
    app = make_app(tenant.context, token=TOKEN, hosts=["127.0.0.1"])
    described = schemathesis.openapi.from_dict(app.openapi())
    operations = [found.ok() for found in described.get_all_operations()][::each]
    operations.sort(key=lambda one: any(word in one.path for word in LAST) or one.method == "delete")
    problems: list[str] = []
    asked = 0
    with caplog.at_level(logging.ERROR, "wtb"), answering(app) as url, requests.Session() as session:
        for number, (operation, mode) in enumerate(itertools.product(operations, GenerationMode)):
            for case in _cases(operation, mode, many, SEED + number):
                asked += 1
                problems += _asked(session, url, case, tenant.names)
    faults = [record.exc_text or record.getMessage() for record in caplog.records]
    assert not problems, "\n".join([f"{len(problems)} of {asked:,} requests:", *problems[:20], *faults[:5]])
    assert asked >= least


def _cases(operation: Any, mode: GenerationMode, many: int, number: int) -> list[Any]:
    """Return so many requests of a path, the same in each run."""
    found: list[Any] = []

    @seed(number)
    @settings(
        max_examples=many,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def collect(case: Any) -> None:
        found.append(case)

    with suppress(Unsatisfiable):  # what takes nothing cannot be given anything wrong
        collect()
    return found


def _asked(session: requests.Session, url: str, case: Any, names: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the answer to a request."""
    dice = random.Random(repr((case.path_parameters, case.query, case.body)))
    kind = NAMES.get(case.path.split("/")[3] if case.path.count("/") > 2 else "")
    if kind is not None and case.path_parameters and dice.random() < 0.5:
        case.path_parameters |= dict.fromkeys(case.path_parameters, names[kind])
    for part in (case.query, case.headers):  # who says that they wait is no hang
        for name in [one for one in part or () if one.lower() in ("wait", "prefer")]:
            del part[name]
    given = case.as_transport_kwargs(base_url=url)
    given["headers"] = {**given.get("headers", {}), **HEADERS}
    shown = f"{case.method} {given['url']} {given.get('params')} {str(given.get('json', given.get('data')))[:300]}"
    try:
        with session.request(**given, timeout=HANGS_S, stream=True) as response:
            is_stream = response.headers.get("Content-Type", "").startswith(STREAMS)
            body = b"".join(islice(response.iter_content(100), 1)) if is_stream else response.content
    except requests.RequestException as error:
        return [f"{shown}: {error}"]
    wrong = _wrong(response, body, case.operation.definition.raw["responses"])
    return [f"{shown}: {wrong}, {response.status_code} {body[:300]!r}"] if wrong else []


def _wrong(response: requests.Response, body: bytes, described: Mapping[str, Any]) -> str | None:
    status, kind = response.status_code, response.headers.get("Content-Type")
    if status >= 500 or b"Traceback" in body:
        return "a fault"
    if status < 400:
        return None if str(status) in described else "a status that is not described"
    return None if kind == "application/problem+json" else f"a problem as {kind}"
