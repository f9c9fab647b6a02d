"""Metrics for Prometheus: gauges from the database at each scrape, histograms from the memory of this process.

Labels are projects and statuses, never sweeps or cases, so that the number of series does not grow with the usage
of a server.
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
from wtb.core.ids import trace_id_of
from wtb.core.version import __version__
from wtb.core.work_record import BOUNDS_S, CLAIMS, FLUSHES, Histogram
from wtb.store.database import Database
from wtb.store.log_followers import collectors, roots
from wtb.store.read.activity import Counts, SweepState, count, queues, sweep_states, worker_rows
from wtb.store.read.activity import waiting as pending_by_queue
from wtb.store.tables.control import ExporterRow

AT_A_TIME = 200  # sweeps that one query counts

_HISTOGRAMS: Mapping[str, tuple[str, Histogram]] = {
    "wtb_flush_seconds": ("Transactions by which this process writes what its runners did.", FLUSHES),
    "wtb_claim_seconds": ("Transactions by which this process takes executions.", CLAIMS),
}


class Tallies:
    """Counts of sweeps. Those of ended sweeps are cached, so that a scrape reads rows of running ones only.

    A cached count is valid until the state of its sweep changes, for example by a retry or garbage collection.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: dict[str, tuple[SweepState, Counts]] = {}

    def of(self, database: Database, states: Iterable[SweepState]) -> dict[str, Counts]:
        """Return the counts of sweeps.

        Args:
            database: Their database.
            states: Their states.
        """
        counts_by_sweep: dict[str, Counts] = {}
        unknown: dict[str, SweepState] = {}
        # A simultaneous scrape waits, and then finds the counts of ended sweeps in the cache.
        with self._lock:
            for state in states:
                ended = self._ended.get(state.id)
                if ended is not None and ended[0] == state:
                    counts_by_sweep[state.id] = ended[1]
                else:
                    unknown[state.id] = state
            remaining = iter(unknown)
            while some := list(islice(remaining, AT_A_TIME)):
                for id, counts in count(database, some).items():
                    counts_by_sweep[id] = counts
                    if unknown[id].finished_at is not None:
                        self._ended[id] = (unknown[id], counts)
        return counts_by_sweep


class DatabaseMetrics(Collector):
    """The metrics of a database, for the projects that the client may see."""

    def __init__(self, database: Database, tallies: Tallies) -> None:
        """Make it.

        Args:
            database: The database, limited to what the client may see.
            tallies: Cached counts of ended sweeps.
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
            summed: Counter[tuple[str, ...]] = Counter()
            for state in states:
                summed.update({(state.project, status): n for status, n in what(counts[state.id]).items()})
            yield _by_status(name, words, summed)
        spent: defaultdict[str, float] = defaultdict(float)
        losses: Counter[str] = Counter()
        for state in states:
            spent[state.project] += counts[state.id].usd + state.collected_usd
            losses[state.project] += counts[state.id].lease_losses
        yield _by("wtb_spend_usd", "US dollars of all attempts of the sweeps that are there.", spent)
        yield _by("wtb_lease_losses", "How often the lease of an execution ran out in a node.", losses)
        waiting = queues(database)
        executions = {queue.project: queue.executions for queue in waiting}
        yield _by("wtb_queue_executions", "Executions that wait for workers.", executions)
        oldest = {queue.project: queue.oldest_s for queue in waiting}
        yield _by("wtb_queue_oldest_seconds", "For how long the first of them has waited.", oldest)
        if database.scope.projects is None:  # workers serve all projects
            pending = {queue or "default": count for queue, count in pending_by_queue(database).items()}
            yield _by("wtb_queue_pending", "Executions that wait on a queue, published or not.", pending, "queue")
            workers = worker_rows(database)
            slots = sum(worker.slots for worker in workers)
            yield _single("wtb_slots", "Slots of the workers that were seen lately.", slots)
            yield _single("wtb_slots_busy", "Those of them that are busy.", sum(worker.busy for worker in workers))
            yield from _exports(collectors(database))


class ProcessMetrics(Collector):
    """The metrics of this process."""

    def __init__(self, subscribers: Callable[[], int] | None = None, database: Database | None = None) -> None:
        """Make it.

        Args:
            subscribers: Returns the number of followed streams, if the process has any.
            database: The database of executions, for exemplars.
        """
        self._subscribers = subscribers
        self._database = database

    def collect(self) -> Iterator[Metric]:
        """Read the memory of this process, and yield its metrics."""
        yield _gauge("wtb_build_info", "1, with the version as label.", ("version",), {(__version__,): 1})
        for name, (words, histogram) in _HISTOGRAMS.items():
            yield self._histogram(name, words, histogram)
        if self._subscribers is not None:
            yield _single("wtb_stream_subscribers", "Streams that are followed.", self._subscribers())

    def _histogram(self, name: str, words: str, histogram: Histogram) -> Metric:
        """Return a histogram for Prometheus, whose buckets are cumulative."""
        read, within = histogram.read(), 0
        traces = self._traces([exemplar.execution for exemplar in read.exemplars.values()])
        buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
        for number, (bound, counted) in enumerate(zip((*map(str, BOUNDS_S), "+Inf"), read.counts, strict=True)):
            within += counted
            last = read.exemplars.get(number)
            if last is None or last.execution not in traces:
                buckets.append((bound, within))
            else:
                buckets.append((bound, within, Exemplar({"trace_id": traces[last.execution]}, last.seconds, last.at)))
        return HistogramMetricFamily(name, words, buckets=buckets, sum_value=read.total_s)

    def _traces(self, executions: Sequence[str]) -> Mapping[str, str]:
        """Return the traces of existing executions. Without a database there are none, and no exemplars."""
        if self._database is None or not executions:
            return {}
        try:
            return {id: trace_id_of(*root) for id, root in roots(self._database, executions).items()}
        except StoreError:
            return {}


def exposition(collectors: Iterable[Collector], accept: str) -> tuple[bytes, str]:
    """Collect metrics, and return them as Prometheus reads them.

    Args:
        collectors: The collectors.
        accept: The header of the request, by which newer versions select OpenMetrics.

    Returns:
        The text and its type.

    Raises:
        StoreError: If the database cannot be read.
    """
    # `auto_describe` would collect everything once more, when a collector is registered.
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


def _gauge(name: str, words: str, labels: Sequence[str], figures: Mapping[tuple[str, ...], float]) -> Metric:
    family = GaugeMetricFamily(name, words, labels=labels)
    for key, figure in sorted(figures.items()):
        family.add_metric(key, figure)
    return family


def _single(name: str, words: str, figure: float) -> Metric:
    return _gauge(name, words, (), {(): figure})


def _by(name: str, words: str, figures: Mapping[str, float], label: str = "project") -> Metric:
    return _gauge(name, words, (label,), {(value,): figure for value, figure in figures.items()})


def _by_status(name: str, words: str, figures: Mapping[tuple[str, ...], float]) -> Metric:
    return _gauge(name, words, ("project", "status"), figures)


def _exports(exporters: Sequence[ExporterRow]) -> Iterator[Metric]:
    rejected = sum(exporter.rejected for exporter in exporters)
    spans = {"accepted": sum(exporter.spans for exporter in exporters) - rejected, "rejected": rejected}
    yield _by("wtb_exported_spans", "Spans that collectors were sent.", spans, "status")
    failing = [time.time() - exporter.failing_since for exporter in exporters if exporter.failing_since is not None]
    yield _single(
        "wtb_export_failing_seconds", "For how long a collector has taken nothing.", max(failing, default=0.0)
    )
