"""A worker that stands by takes the place of the one that works, however that ends."""

from __future__ import annotations

import signal

import pytest

from tests.support.cluster import Cluster, Worker
from tests.support.invariants import write_trail
from tests.support.prose import sentence
from wtb.hosting.servers.standby import WAITS

# numpy takes as long as a tenth of all that a worker imports; the rest is of other commands.
NEEDLESS = ("numpy", "rich.table", "wtb.analysis.statistics", "wtb.display", "wtb.hosting.metrics")


def start_spare(cluster: Cluster) -> Worker:
    waits = cluster.start_worker(name="pair", options=["--standby"], ready=False)
    cluster.until(lambda: WAITS in waits.log, "it to stand by")
    return waits


def start_pair(cluster: Cluster) -> tuple[Worker, Worker]:
    """A worker that works, and one that stands by."""
    return cluster.start_worker(name="pair", options=["--standby"]), start_spare(cluster)


def pids(cluster: Cluster) -> list[int]:
    """The processes of workers that have registered and not ended, the last first."""
    return [pid for (pid,) in cluster.query("SELECT pid FROM runners ORDER BY created_at DESC")]


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_spare_works_as_soon_as_its_worker_has_ended(cluster: Cluster, ending: signal.Signals) -> None:
    write_trail(cluster.project, 4, params="{seconds: 0.2}")
    cluster.start_scheduler()
    works, waits = start_pair(cluster)
    assert pids(cluster) == [works.pid], "what stands by is no runner, and takes nothing"
    cluster.submit()
    cluster.until(lambda: cluster.executions("running"), "work")
    works.signal(ending)
    works.running.process.wait(60)
    cluster.until(lambda: waits.ready, "the spare to work")
    third = start_spare(cluster)
    cluster.wait_completed()
    third.stop(check=0)
    assert waits.ready
    cluster.ends_well({"succeeded": 16})


def test_node_processes_of_the_dead_do_not_hold_its_place(cluster: Cluster) -> None:
    write_trail(cluster.project, 1, params="{hold: [a c0]}")
    works, waits = start_pair(cluster)
    cluster.submit()
    cluster.until(lambda: any(" held " in line for line in cluster.project.log()), "a node to wait")
    works.suspend()
    assert not waits.ready, "it is stopped, and has not ended"
    works.kill()
    cluster.until(lambda: waits.ready, "the spare to work")
    cluster.start_scheduler()
    (cluster.project.folder / "gate").touch()
    cluster.ends_well({"succeeded": 4})


def test_a_spare_has_the_name_of_its_worker(cluster: Cluster) -> None:
    outcome = cluster.wtb("worker", "--standby", check=2)
    assert sentence("--standby is given without --name") in outcome.output


def test_a_worker_starts_without_what_only_other_commands_need(cluster: Cluster) -> None:
    worker = cluster.start_worker(own=True, env={"PYTHONPROFILEIMPORTTIME": "1"})
    lines = (line for line in worker.log.splitlines() if line.startswith("import time:"))
    imported = {line.rpartition("|")[2].strip() for line in lines}
    assert "wtb.execution.runner" in imported
    assert [name for name in imported if name.startswith(NEEDLESS)] == []
