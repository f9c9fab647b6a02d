"""Metrics say what the database has, to whoever may read it, and dashboards name none that there are not."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tests.support.attempts import attempts
from tests.support.prose import sentence
from tests.support.tenants import Tenant
from wtb.core.errors import InputError, StoreAway
from wtb.core.work_record import BOUNDS_S, FLUSHES, Histogram
from wtb.features.access.operations import create_token
from wtb.features.telemetry.building import make_spans
from wtb.features.telemetry.queries import execution_ids
from wtb.hosting.api.app import make_app
from wtb.hosting.metrics import DatabaseMetrics, ProcessMetrics, Tallies, exposition
from wtb.hosting.metrics_exporter import Exporter, Place, is_named, parse_place
from wtb.operations.context import Context
from wtb.operations.deleting import erase
from wtb.store.database import Database
from wtb.store.read.queries import find_sweep
from wtb.store.tables.schema import cases, cells, executions, node_runs, sweeps, took_one_attempt

MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"
TOKEN = "a-token-of-the-tests-own"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def tenants(context: Context, tmp_path: Path) -> tuple[Tenant, Tenant]:
    return Tenant(context, tmp_path, "acme"), Tenant(context, tmp_path, "zeta")


def read(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(database: Database, tallies: Tallies | None = None) -> Samples:
    body, _ = exposition([DatabaseMetrics(database, tallies or Tallies())], "text/plain")
    return read(body.decode())


def test_figures_are_those_of_the_tables(context: Context, tenants: tuple[Tenant, Tenant]) -> None:
    samples = scraped(context.database)
    by_project = (("project", "acme"),)
    for name, table in (("wtb_cells", cells), ("wtb_node_runs", node_runs)):
        query = (
            sa.select(sweeps.c.project, table.c.status, sa.func.count())
            .join(sweeps, sweeps.c.id == table.c.sweep_id)
            .group_by(sweeps.c.project, table.c.status)
        )
        expected = {(project, status): number for project, status, number in context.database.tuples(query)}
        of_metric = {labels: n for (metric, labels), n in samples.items() if metric == name}
        assert {tuple(text for _, text in labels): n for labels, n in of_metric.items()} == expected
    assert _sum(samples, "wtb_attempts") == context.database.scalar(sa.select(sa.func.count()).select_from(attempts))
    assert samples["wtb_sweeps", (*by_project, ("status", "completed"))] == 1
    assert samples["wtb_spend_usd", by_project] == 0
    assert samples["wtb_lease_losses", by_project] == 0
    assert samples["wtb_slots", ()] == 0
    assert {label for _, labels in samples for label, _ in labels} == {"project", "status"}, "and never sweeps"


def test_what_has_ended_is_counted_once(context: Context, tenants: tuple[Tenant, Tenant]) -> None:
    tallies, database = Tallies(), context.database
    before = scraped(database, tallies)
    parameters: list[str] = []
    with closing(_listening(database, parameters)):
        assert scraped(database, tallies) == before
    ended = {id for (id,) in database.tuples(sa.select(sweeps.c.id).where(sweeps.c.finished_at.is_not(None)))}
    assert ended
    assert not any(id in text for id in ended for text in parameters)


def test_what_a_retry_changes_is_counted_again(context: Context, tenants: tuple[Tenant, Tenant]) -> None:
    tallies, database = Tallies(), context.database
    scraped(database, tallies)
    done = sweeps.c.finished_at.is_not(None)
    with database.write() as connection:
        connection.execute(executions.update().values(losses=3))
    assert _sum(scraped(database, tallies), "wtb_lease_losses") == 6
    with database.write() as connection:
        connection.execute(sweeps.update().where(done).values(finished_at=sweeps.c.finished_at + 1))
    assert _sum(scraped(database, tallies), "wtb_lease_losses") == 12


def test_what_is_erased_is_counted_again_and_spent_once(context: Context, tenants: tuple[Tenant, Tenant]) -> None:
    tallies, database = Tallies(), context.database
    with database.write() as connection:
        connection.execute(node_runs.update().where(took_one_attempt).values(usd=0.5))
    before = scraped(database, tallies)
    acme, done = (("project", "acme"),), tenants[0].called("done")
    (case,) = {id for (id,) in database.tuples(sa.select(cases.c.id).join(sweeps).where(sweeps.c.name == done))[:1]}
    erase(context, case, sweep=done)
    samples = scraped(database, tallies)
    assert samples["wtb_spend_usd", acme] == before["wtb_spend_usd", acme] > 0
    for name in ("wtb_cells", "wtb_node_runs", "wtb_attempts"):
        assert _sum(samples, name) < _sum(before, name)
    assert samples == scraped(database), "what is kept is what is counted anew"


def _sum(samples: Samples, name: str) -> float:
    return sum(n for (metric, _), n in samples.items() if metric == name)


def _listening(database: Database, parameters: list[str]) -> Any:
    """Note the parameters of every statement until it is closed."""

    def note(*args: Any) -> None:
        parameters.append(repr(args[3]))

    with database.read() as connection:
        engine = connection.engine

    class Listening:
        def close(self) -> None:
            sa.event.remove(engine, "before_cursor_execute", note)

    sa.event.listen(engine, "before_cursor_execute", note)
    return Listening()


@pytest.mark.parametrize("metric", ["wtb_flush_seconds", "wtb_claim_seconds"])
def test_a_process_tells_its_own_figures(metric: str) -> None:
    body, media_type = exposition([ProcessMetrics(lambda: 3)], "application/openmetrics-text; version=1.0.0")
    assert media_type.startswith("application/openmetrics-text")
    assert b"wtb_stream_subscribers 3" in body
    assert f"{metric}_count".encode() in body


def test_a_journal_counts_its_flushes(context: Context, tmp_path: Path) -> None:
    before = sum(FLUSHES.read().counts)
    Tenant(context, tmp_path, "acme")
    assert sum(FLUSHES.read().counts) > before


def test_buckets_have_the_trace_of_what_they_counted_last(context: Context, tmp_path: Path) -> None:
    Tenant(context, tmp_path, "acme")
    accept = "application/openmetrics-text; version=1.0.0"
    body, _ = exposition([ProcessMetrics(database=context.database)], accept)
    within = r'wtb_flush_seconds_bucket\{le="[^"]+"\} \d+(?:\.0)? # \{trace_id="([0-9a-f]{32})"\}'
    named = set(re.findall(within, body.decode()))
    trace_ids = {
        span.trace_id
        for (id,) in context.database.tuples(sa.select(sweeps.c.id))
        for span in make_spans(context.database, find_sweep(context.database, id), execution_ids(context.database, id))
    }
    assert named
    assert named <= trace_ids
    plain, _ = exposition([ProcessMetrics(database=context.database)], "text/plain")
    assert b"trace_id" not in plain
    assert b"trace_id" not in exposition([ProcessMetrics()], accept)[0]


def test_a_bucket_keeps_the_last_one_that_is_known() -> None:
    histogram = Histogram()
    for execution in ("first", "second", None):
        histogram.observe(0.0, execution)
    assert {n: exemplar.execution for n, exemplar in histogram.read().exemplars.items()} == {0: "second"}
    with histogram.timed() as timed:
        timed.execution = "third"
    assert "third" in {exemplar.execution for exemplar in histogram.read().exemplars.values()}


def test_a_histogram_counts_each_duration_in_its_bucket() -> None:
    histogram = Histogram()
    for seconds in (0.0, BOUNDS_S[0], BOUNDS_S[0] * 1.01, 1e9):
        histogram.observe(seconds)
    counts = histogram.read().counts
    assert (counts[0], counts[1], counts[-1], sum(counts)) == (2, 1, 1, 4)


def test_the_server_tells_metrics_to_whom_it_knows(context: Context, tenants: tuple[Tenant, Tenant]) -> None:
    client = TestClient(make_app(context, token=TOKEN, hosts=["testserver"]))
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"Authorization": "Bearer no"}).status_code == 401
    answer = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.headers["content-type"].startswith("text/plain")
    whole = read(answer.text)
    assert ("wtb_slots", ()) in whole
    assert "wtb_build_info" in {name for name, _ in whole}
    limited = create_token(context, "limited", project="acme", scopes=["read"])["token"]
    seen = read(client.get("/metrics", headers={"Authorization": f"Bearer {limited}"}).text)
    assert {dict(labels)["project"] for _, labels in seen} == {"acme"}
    assert seen.items() <= whole.items()
    other = create_token(context, "other", scopes=["answer"])["token"]
    refused = client.get("/metrics", headers={"Authorization": f"Bearer {other}"})
    assert refused.status_code == 403
    assert sentence("takes the scope {}", "read") in refused.json()["detail"]


@pytest.mark.parametrize("text", ["", "x", "99999", "1.2.3.4", "http://h:1", "127.0.0.1:", ":80", "a b:80", "::1:80"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=sentence("expected a port such as 9465")):
        parse_place(text)


def test_a_place_is_on_loopback_unless_told_otherwise() -> None:
    assert parse_place("9465") == Place("127.0.0.1", 9465)
    assert parse_place("10.0.0.2:9465") == Place("10.0.0.2", 9465)
    assert parse_place("[::1]:9465") == Place("::1", 9465)


def refused(exporter: Exporter, path: str, **headers: str) -> tuple[int, bytes]:
    """Send a request that an exporter refuses. Returns the status and the body of the response."""
    request = urllib.request.Request(f"http://127.0.0.1:{exporter.port}{path}", headers=headers)
    with pytest.raises(urllib.error.HTTPError) as error, closing(urllib.request.urlopen(request, timeout=10)):
        pass
    with closing(error.value):
        return error.value.code, error.value.read()


def test_an_exporter_answers_metrics_alone_and_says_when_the_database_is_away() -> None:
    def away(_: str) -> tuple[bytes, str]:
        raise StoreAway("the database is away")

    with closing(Exporter(Place("127.0.0.1", 0), lambda accept: (b"x 1\n", "text/plain"))) as exporter:
        with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=10) as answer:
            assert answer.read() == b"x 1\n"
        assert refused(exporter, "/")[0] == 404
        with pytest.raises(InputError, match="cannot listen"):
            Exporter(Place("127.0.0.1", exporter.port), away)
    with closing(Exporter(Place("127.0.0.1", 0), away)) as exporter:
        assert refused(exporter, "/metrics") == (503, b"the database is away\n")


@pytest.mark.parametrize(("fault", "is_logged"), [(RuntimeError, True), (BrokenPipeError, False)])
def test_what_goes_wrong_in_an_exporter_is_logged_and_not_printed(
    fault: type[Exception], is_logged: bool, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(_: str) -> tuple[bytes, str]:
        raise fault

    unanswered = pytest.raises((OSError, http.client.HTTPException))
    with closing(Exporter(Place("127.0.0.1", 0), fails)) as exporter, unanswered:
        urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=10)
    assert (sentence("a scrape was not answered") in caplog.text) == is_logged
    assert "Traceback" not in capfd.readouterr().err


OWN_NAMES = ("127.0.0.1:9465", "10.1.2.3", "[::1]:9465", "localhost", "worker:9465", "WORKER")
OTHER_NAMES = ("evil.example:9465", "127.0.0.1.evil.example", "localhost.evil.example:1", "", "a b")


@pytest.mark.parametrize("host", [*OWN_NAMES, *OTHER_NAMES])
def test_an_exporter_answers_to_addresses_and_to_its_name_alone(host: str) -> None:
    assert is_named(host, Place("worker", 9465)) == (host in OWN_NAMES)


def test_an_exporter_listens_at_an_address_of_ipv6() -> None:
    exporter = Exporter(parse_place("[::1]:0"), lambda accept: (b"x 1\n", "text/plain"))
    with closing(exporter), urllib.request.urlopen(f"http://[::1]:{exporter.port}/metrics", timeout=10) as answer:
        assert answer.read() == b"x 1\n"


def test_a_page_that_has_its_name_lead_to_an_exporter_gets_nothing() -> None:
    with closing(Exporter(Place("127.0.0.1", 0), lambda accept: (b"x 1\n", "text/plain"))) as exporter:
        status, body = refused(exporter, "/metrics", Host="evil.example")
    assert (status, b"x 1" in body) == (421, False)


@pytest.fixture(scope="module")
def promtool() -> str:
    path = shutil.which("promtool")
    if path is None and os.environ.get("CI"):
        pytest.fail("there is no promtool: `make prometheus` installs it")
    return path or pytest.skip("there is no promtool: `make prometheus` installs it")


def test_prometheus_takes_the_alert_rules(promtool: str) -> None:
    checked = subprocess.run([promtool, "check", "rules", MONITORING / "alerts.yaml"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert re.search(r"SUCCESS: \d+ rules found", checked.stdout)


def test_alerts_fire_when_they_should(promtool: str) -> None:
    tests = Path(__file__).with_name("alerts_test.yaml")
    done = subprocess.run([promtool, "test", "rules", tests], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_what_the_dashboard_asks(promtool: str, tmp_path: Path) -> None:
    queries = [
        re.sub(r"\$\w+", "x", expression) for expression in expressions() if not expression.startswith("label_values")
    ]
    rules = [{"record": f"asked:{number}", "expr": expr} for number, expr in enumerate(queries)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    checked = subprocess.run([promtool, "check", "rules", tmp_path / "rules.yaml"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert f"SUCCESS: {len(rules)} rules found" in checked.stdout


def test_panels_of_the_dashboard_have_ids_and_places_of_their_own() -> None:
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(set(places)) == len(places)
    assert max(x for x, _ in places) < 24, "Grafana's grid"


@pytest.mark.parametrize("part", ["database", "process"])
def test_prometheus_takes_what_it_is_told(
    promtool: str, context: Context, tenants: tuple[Tenant, Tenant], part: str
) -> None:
    collectors = [DatabaseMetrics(context.database, Tallies())] if part == "database" else [ProcessMetrics(lambda: 1)]
    body, _ = exposition(collectors, "text/plain")
    checked = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def expressions() -> list[str]:
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    board = json.loads((MONITORING / "dashboard.json").read_text())
    alerts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [*alerts, *queries, board["templating"]["list"][1]["query"]["query"]]


def test_dashboard_and_alerts_name_metrics_that_there_are(context: Context, tenants: tuple[Tenant, Tenant]) -> None:
    collectors = [DatabaseMetrics(context.database, Tallies()), ProcessMetrics(lambda: 0)]
    families = {metric.name: metric for collector in collectors for metric in collector.collect()}
    names = {sample.name for family in families.values() for sample in family.samples} | families.keys()
    named = {name for expression in expressions() for name in re.findall(r"\bwtb_\w+", expression)}
    assert named
    assert named <= names
    assert not re.search(r"sweep=|case=", " ".join(expressions()))


def test_the_page_names_every_metric(context: Context) -> None:
    page = (MONITORING.parents[1] / "docs" / "workers.md").read_text()
    collectors = [DatabaseMetrics(context.database, Tallies()), ProcessMetrics(lambda: 0)]
    names = {metric.name for collector in collectors for metric in collector.collect()}
    assert names == set(re.findall(r"`(wtb_\w+)`", page))
