"""Traces that the scheduler sends are those of the database, although it and a worker are killed meanwhile."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.attempts import ATTEMPTS
from tests.support.cluster import Cluster
from tests.support.invariants import write_trail
from tests.support.receiver import Receiver, attributes, receiving


def attempts_of(receiver: Receiver) -> Counter[str]:
    return Counter(span["spanId"] for span in receiver.spans if "wtb.attempt" in attributes(span))


@pytest.mark.slow  # it waits for leases of those that were killed
def test_traces_are_complete_although_scheduler_and_worker_are_killed(cluster: Cluster) -> None:
    with receiving() as receiver:
        write_trail(cluster.project, 6)
        cluster.project.write({"wtb.toml": f'[telemetry]\nendpoint = "{receiver.url}"\ntimeout = 2\n'})
        receiver.hold()
        scheduler = cluster.start_scheduler()
        worker = cluster.start_worker(concurrency=2)
        sweep = cluster.submit()
        cluster.until(lambda: cluster.scalar(f"SELECT count(*) FROM {ATTEMPTS}") > 3, "some attempts")
        worker.kill()
        cluster.start_worker(concurrency=2)
        cluster.wait_completed(sweep)
        cluster.until(lambda: receiver.bodies, "a request that is not answered")
        scheduler.kill()
        receiver.resume()
        cluster.start_scheduler()
        expected = cluster.scalar(f"SELECT count(*) FROM {ATTEMPTS}")
        cluster.until(lambda: len(attempts_of(receiver)) == expected, "all attempts", patience=60)
        cluster.until(lambda: cluster.scalar("SELECT count(*) FROM exports"), "its position")
    sent = attempts_of(receiver)
    assert max(sent.values()) == 2, "what nobody noted was sent again, under the same ids"
    spans = {span["spanId"]: span for span in receiver.spans}
    assert len([span for span in spans.values() if "wtb.execution" in attributes(span)]) == len(cluster.executions())
    assert {span.get("parentSpanId", id) for id, span in spans.items()} <= spans.keys()
