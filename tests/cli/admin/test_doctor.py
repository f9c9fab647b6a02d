"""`wtb doctor` where workers run sweeps: each finding with how to fix it; without a broker it says nothing of them."""

from __future__ import annotations

import re
from typing import Any

from tests.support.cluster import SCHEDULER_INTERVAL_S, Cluster
from tests.support.crew import write_sweep
from tests.support.project import Project
from tests.support.prose import sentence
from wtb.hosting.servers.server import free_port

ABOUT_WORKERS = {"broker", "workers", "scheduler", "clocks", "versions", "shared files"}


def examined(cluster: Cluster, *more: str, check: int, **env: str) -> dict[str, Any]:
    document = cluster.wtb("doctor", "--format", "json", *more, check=check, env=env).json
    return {finding["name"]: finding for finding in document["checks"]}


def test_without_a_broker_nothing_is_said_of_workers(empty_project: Project) -> None:
    document = empty_project.wtb("doctor", "--format", "json", check=0).json
    assert {finding["name"] for finding in document["checks"]}.isdisjoint(ABOUT_WORKERS)


class TestWithWorkers:
    """In this order: first without anybody, then with a worker, then with a scheduler as well."""

    def test_a_missing_worker_and_what_waits_for_it_are_problems(self, module_cluster: Cluster) -> None:
        module_cluster.wtb("submit", write_sweep(module_cluster.project, "waits"), "--anyway", check=0)
        checks = examined(module_cluster, check=1)
        assert checks["workers"]["found"] == "none"
        assert checks["queue default"]["found"] == sentence("{} wait, and no worker takes from it", "2 executions")
        assert checks["queue default"]["fix"] == sentence("start one: wtb worker")
        assert re.fullmatch(r"redis://:\*\*\*@127.0.0.1:\d+/0 answers in [\d.]+ ms", checks["broker"]["found"])

    def test_a_broker_that_is_down_or_refuses_the_password_is_a_problem(self, module_cluster: Cluster) -> None:
        down = examined(module_cluster, "--broker", f"redis://127.0.0.1:{free_port()}/0", check=1)["broker"]
        assert "refused" in down["found"]
        assert "wtb up" in down["fix"]
        wrong = re.sub(r":[^:@]*@", ":wrong@", module_cluster.valkey.url)
        assert (
            sentence("rejected the password") in examined(module_cluster, "--broker", wrong, check=1)["broker"]["found"]
        )

    def test_work_that_waits_beside_free_slots_says_that_no_scheduler_runs(self, module_cluster: Cluster) -> None:
        cluster = module_cluster
        cluster.wait_ready(cluster.start_worker(concurrency=1))
        cluster.until(lambda: not cluster.executions("pending", "running"), "the first sweep to run")
        dead = f"redis://127.0.0.1:{free_port()}/0"
        cluster.wtb("submit", write_sweep(cluster.project, "silent"), "--broker", dead, check=0)  # no message is sent

        def stuck() -> Any:
            scheduler = examined(cluster, check=None)["scheduler"]  # type: ignore[arg-type]
            return scheduler if scheduler["status"] == "problem" else None

        scheduler = cluster.until(stuck, "it to be seen", 30 + 3 * SCHEDULER_INTERVAL_S)
        assert sentence("although slots are free") in scheduler["found"]
        assert "wtb scheduler" in scheduler["fix"]

    def test_all_is_well_once_a_scheduler_runs(self, module_cluster: Cluster) -> None:
        module_cluster.start_scheduler()
        module_cluster.wait_completed()
        checks = examined(module_cluster, check=0)
        (worker,) = [finding for name, finding in checks.items() if name.startswith("worker ")]
        assert re.search(r"of 1 slot busy, queues default, seen \d s ago", worker["found"])
        assert checks["scheduler"]["status"] == checks["clocks"]["status"] == checks["versions"]["status"] == "ok"
        assert "within" in checks["clocks"]["found"]

    def test_a_clock_that_is_off_is_said_and_harmless(self, module_cluster: Cluster) -> None:
        module_cluster.start_scheduler  # noqa: B018
        module_cluster.project.change("UPDATE runners SET version = '0.0.1', clock_s = 7 WHERE worker IS NOT NULL")
        checks = examined(module_cluster, check=1)
        assert checks["versions"]["status"] == "problem"
        assert "has 0.0.1" in checks["versions"]["found"]

    def test_a_shared_directory_that_is_not_there_is_a_problem(self, module_cluster: Cluster) -> None:
        checks = examined(module_cluster, check=1, WTB_FILES="/nowhere/at/all")
        assert sentence("there is no directory {}", "/nowhere/at/all") in checks["shared files"]["found"]
        assert checks["database"]["status"] == "ok"
