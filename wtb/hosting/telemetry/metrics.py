"""What Prometheus reads: gauges from the database at each scrape, histograms from the memory of this process.

Labels are projects and statuses, never sweeps or cases: how many series there are depends on how a server is used,
and not on how much.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from wtb.core.errors import StoreError
from wtb.core.telemetry.latencies import BOUNDS_S, CLAIMS, FLUSHES, Histogram
from wtb.core.telemetry.trace_ids import trace_id_of
from wtb.core.version import __version__
from wtb.store.database import Database
from wtb.store.read.activity import Counts, SweepState, count, queues, sweep_states
from wtb.store.tables.control import ExporterRow
from wtb.store.telemetry.attempts import roots
from wtb.store.telemetry.positions import collectors
from wtb.store.telemetry.workers import waiting as pending_by_queue
from wtb.store.telemetry.workers import worker_rows

AT_A_TIME = 200  # sweeps that one query counts

_HISTOGRAMS: Mapping[str, tuple[str, Histogram]] = {
    "wtb_flush_seconds": ("Transactions by which this process writes what its runners did.", FLUSHES),
    "wtb_claim_seconds": ("Transactions by which this process takes executions.", CLAIMS),
}


class Tallies:
    """Counts of sweeps. Those of a sweep that has ended are kept: a scrape reads the rows of what changes.

    They are kept for as long as it stands as it stood: a retry, and whatever collects its rows, changes that.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: dict[str, tuple[SweepState, Counts]] = {}

    def of(self, database: Database, states: Iterable[SweepState]) -> dict[str, Counts]:
        """Return the counts of sweeps.

        Args:
            database: Where they are.
            states: How they stand.
        """
        found: dict[str, Counts] = {}
        unknown: dict[str, SweepState] = {}
        with self._lock:  # who scrapes at the same time waits, and finds what has ended counted
            for state in states:
                ended = self._ended.get(state.id)
                if ended is not None and ended[0] == state:
                    found[state.id] = ended[1]
                else:
                    unknown[state.id] = state
            left = iter(unknown)
            while some := list(islice(left, AT_A_TIME)):
                for id, counts in count(database, some).items():
                    found[id] = counts
                    if unknown[id].finished_at is not None:
                        self._ended[id] = (unknown[id], counts)
        return found


class DatabaseMetrics(Collector):
    """The metrics of a database, of the projects that whoever asks may see."""

    def __init__(self, database: Database, tallies: Tallies) -> None:
        """Make it.

        Args:
            database: Limited to what may be seen.
            tallies: What is known already of sweeps that have ended.
        """
        self._database = database
        self._tallies = tallies

    def collect(self) -> Iterator[Metric]:
        """Read the database, and yield its metrics."""
        database = self._database
        states = sweep_states(database)
        counts = self._tallies.of(database, states)
        yield _by_status("wtb_sweeps", "Sweeps.", Counter((state.project, state.status) for state in states))
        for name, words, what in _COUNTED:
            summed: Counter[tuple[str, str]] = Counter()
            for state in states:
                summed.update({(state.project, status): n for status, n in what(counts[state.id]).items()})
            yield _by_status(name, words, summed)
        spent: defaultdict[str, float] = defaultdict(float)
        losses: Counter[str] = Counter()
        for state in states:
            spent[state.project] += counts[state.id].usd + state.collected_usd
            losses[state.project] += counts[state.id].lease_losses
        yield _by_project("wtb_spend_usd", "US dollars of all attempts of the sweeps that are there.", spent)
        yield _by_project("wtb_lease_losses", "How often the lease of an execution ran out in a node.", losses)
        waiting = queues(database)
        yield _by_project(
            "wtb_queue_executions",
            "Executions that wait for workers.",
            {one.project: one.executions for one in waiting},
        )
        yield _by_project(
            "wtb_queue_oldest_seconds",
            "For how long the first of them has waited.",
            {one.project: one.oldest_s for one in waiting},
        )
        if database.scope.projects is None:  # workers serve all projects
            pending = GaugeMetricFamily(
                "wtb_queue_pending", "Executions that wait on a queue, published or not.", labels=["queue"]
            )
            for queue, count in sorted(pending_by_queue(database).items()):
                pending.add_metric([queue or "default"], count)
            yield pending
            workers = worker_rows(database)
            yield _single("wtb_slots", "Slots of the workers that were seen lately.", sum(one.slots for one in workers))
            yield _single("wtb_slots_busy", "Those of them that are busy.", sum(one.busy for one in workers))
            yield from _exports(collectors(database))


class ProcessMetrics(Collector):
    """The metrics of this process."""

    def __init__(self, subscribers: Callable[[], int] | None = None, database: Database | None = None) -> None:
        """Make it.

        Args:
            subscribers: Says how many streams are followed, where there are any.
            database: Where the executions are that its transactions were about.
        """
        self._subscribers = subscribers
        self._database = database

    def collect(self) -> Iterator[Metric]:
        """Read the memory of this process, and yield its metrics."""
        built = GaugeMetricFamily("wtb_build_info", "1, with the version as label.", labels=["version"])
        built.add_metric([__version__], 1)
        yield built
        for name, (words, histogram) in _HISTOGRAMS.items():
            yield self._histogram(name, words, histogram)
        if self._subscribers is not None:
            yield _single("wtb_stream_subscribers", "Streams that are followed.", self._subscribers())

    def _histogram(self, name: str, words: str, histogram: Histogram) -> Metric:
        """Return a histogram as Prometheus has them: each bucket counts what is within its bound, and all below."""
        read, within = histogram.read(), 0
        traces = self._traces([one.execution for one in read.exemplars.values()])
        buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
        for number, (bound, counted) in enumerate(zip((*map(str, BOUNDS_S), "+Inf"), read.counts, strict=True)):
            within += counted
            last = read.exemplars.get(number)
            if last is not None and last.execution in traces:
                exemplar = Exemplar({"trace_id": traces[last.execution]}, last.seconds, last.at)
                buckets.append((bound, within, exemplar))
            else:
                buckets.append((bound, within))
        return HistogramMetricFamily(name, words, buckets=buckets, sum_value=read.total_s)

    def _traces(self, executions: Sequence[str]) -> Mapping[str, str]:
        """Return the traces of executions that are there. Without a database there are none, and the rest is told."""
        if self._database is None or not executions:
            return {}
        try:
            return {id: trace_id_of(*root) for id, root in roots(self._database, executions).items()}
        except StoreError:
            return {}


def exposition(collectors: Iterable[Collector], accept: str) -> tuple[bytes, str]:
    """Collect metrics, and return them as Prometheus reads them.

    Args:
        collectors: What has them.
        accept: The header of the request, by which newer versions ask for OpenMetrics.

    Returns:
        The text and its type.

    Raises:
        StoreError: If the database cannot be read.
    """
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


_COUNTED: tuple[tuple[str, str, Callable[[Counts], Mapping[str, int]]], ...] = (
    ("wtb_cells", "Cells of sweeps.", lambda counts: counts.cells),
    ("wtb_node_runs", "Node runs.", lambda counts: counts.node_runs),
    ("wtb_attempts", "Attempts of node runs, by what came of them.", lambda counts: counts.attempts),
)


def _single(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=value)


def _by_project(name: str, words: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, words, labels=["project"])
    for project, value in sorted(values.items()):
        family.add_metric([project], value)
    return family


def _by_status(name: str, words: str, values: Mapping[tuple[str, str], int]) -> Metric:
    family = GaugeMetricFamily(name, words, labels=["project", "status"])
    for labels, value in sorted(values.items()):
        family.add_metric(labels, value)
    return family


def _exports(known: Sequence[ExporterRow]) -> Iterator[Metric]:
    family = GaugeMetricFamily("wtb_exported_spans", "Spans that collectors were sent.", labels=["status"])
    rejected = sum(one.rejected for one in known)
    family.add_metric(["accepted"], sum(one.spans for one in known) - rejected)
    family.add_metric(["rejected"], rejected)
    yield family
    failing = [time.time() - one.failing_since for one in known if one.failing_since is not None]
    yield _single(
        "wtb_export_failing_seconds", "For how long a collector has taken nothing.", max(failing, default=0.0)
    )
