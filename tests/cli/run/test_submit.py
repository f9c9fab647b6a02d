"""`wtb submit` submits a whole sweep or nothing, whatever the broker does."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.crew import ran, status_of, write_sweep
from tests.support.project import Outcome
from tests.support.prose import sentence
from wtb.hosting.servers.server import free_port
from wtb.hosting.servers.valkey import ValkeyServer

BOUND_S = 20.0  # for whatever is wrong around us, on a machine that does other things too


def sweeps_named(cluster: Cluster, name: str) -> list[str]:
    return [id for (id,) in cluster.query("SELECT id FROM sweeps WHERE name = :name", name=name)]


class TestASubmission:
    def test_prints_the_id_alone_and_runs_to_its_end(self, crew: Cluster) -> None:
        done = crew.wtb("submit", write_sweep(crew.project, "plain"), check=0)
        assert sweeps_named(crew, "plain") == [done.stdout.strip()]
        assert done.stderr.splitlines()[0] == sentence(
            "sweep {} ({}): {} cells", "plain", done.stdout.strip(), 4
        ) + sentence("; {} to run it", "1 worker")
        crew.wait_completed(done.stdout.strip())
        assert crew.cells(done.stdout.strip()) == {"succeeded": 4}

    def test_is_a_document_for_scripts(self, crew: Cluster) -> None:
        outcome = crew.wtb("submit", write_sweep(crew.project, "scripted"), "--format", "json", "-q", check=0)
        (sweep,) = sweeps_named(crew, "scripted")
        assert outcome.json == {"sweep": sweep, "name": "scripted", "cells": 4, "started": True, "workers": 1}
        assert outcome.stderr == ""

    def test_has_the_priority_of_the_file_unless_another_one_is_given(self, crew: Cluster) -> None:
        file = write_sweep(crew.project, "weighty", run="priority: 7")
        first, second = (crew.wtb("submit", file, *more, check=0).stdout.strip() for more in ([], ["--priority", "-2"]))
        priorities = dict(crew.query("SELECT id, priority FROM sweeps WHERE name = 'weighty'"))
        assert priorities == {first: 7, second: -2}

    def test_with_a_format_of_matrices_needs_wait(self, crew: Cluster) -> None:
        done = crew.wtb("submit", write_sweep(crew.project, "formats"), "--format", "csv", check=2)
        assert sentence("also give --wait") in done.output
        assert sweeps_named(crew, "formats") == []

    def test_of_a_bad_file_is_refused_as_run_refuses_it(self, crew: Cluster) -> None:
        file = write_sweep(crew.project, "bad", run="priority: often")
        run, submit = (crew.wtb(command, file, check=2) for command in ("run", "submit"))
        assert "run.priority" in submit.output
        assert submit.stderr == run.stderr


class TestWithoutAWorker:
    def test_it_is_refused_and_says_how_to_start_one(self, crew: Cluster) -> None:
        done = crew.wtb("submit", write_sweep(crew.project, "gpus", workflow="flow:remote"), check=4)
        assert sentence("no worker takes from the queue {}", "'gpu', so nothing was submitted") in done.output
        assert "`wtb worker --queues gpu`" in done.output
        assert sweeps_named(crew, "gpus") == []

    def test_it_is_accepted_anyway_and_status_says_what_it_waits_for(self, crew: Cluster) -> None:
        file = write_sweep(crew.project, "patient", workflow="flow:remote")
        sweep = crew.wtb("submit", file, "--anyway", check=0).stdout.strip()
        waiting = "SELECT count(*) FROM executions WHERE sweep_id = :sweep AND queue = 'gpu' AND status = 'pending'"
        crew.until(lambda: crew.scalar(waiting, sweep=sweep) == 2, "both cases to wait for the other queue")
        document = crew.wtb("status", sweep, "--format", "json", check=0).json
        assert document["queue"]["waiting"] == [
            {"queue": "gpu", "executions": 2, "why": sentence("no worker takes from the queue {}", "'gpu'")}
        ]
        assert document["next"] is None
        assert sentence("start one with: ") + sentence("wtb worker --queues {}", "gpu") in " ".join(
            crew.wtb("status", sweep, check=0).stdout.split()
        )


class TestWaiting:
    def test_ends_with_the_sweep_and_gives_what_run_gives(self, crew: Cluster) -> None:
        file = write_sweep(crew.project, "awaited")
        remote = crew.wtb("submit", file, "--wait", "--format", "json", check=0).json
        local = crew.wtb("run", file, "--format", "json", check=0, env={"WTB_DATABASE_URL": "sqlite:///here.db"}).json
        assert remote.keys() == local.keys()
        assert remote["cells"] == local["cells"]
        assert remote["sweep"]["status"] == "completed"
        same = [(row["combination"], row["n"], row["metrics"]["y"]["mean"]) for row in local["rows"]]
        assert [(row["combination"], row["n"], row["metrics"]["y"]["mean"]) for row in remote["rows"]] == same

    def test_exits_with_1_where_cells_fail(self, crew: Cluster) -> None:
        done = crew.wtb("submit", write_sweep(crew.project, "failing", breaks="never"), "--wait", "-q", check=1)
        assert "failing (completed)" in done.stdout

    @pytest.mark.parametrize(
        "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=["Ctrl-C", "SIGTERM"]
    )
    def test_can_be_left_while_the_sweep_continues(self, crew: Cluster, number: signal.Signals) -> None:
        name, gate = f"left-{number.name.lower()}", f"gate-{number.name}"
        file = write_sweep(crew.project, name, gate=gate, cases=1)
        with crew.project.start("submit", file, "--wait", "--format", "json", env=crew.env) as running:
            crew.until(lambda: ran(crew.project, f"held {name}-"), "the node to run")
            running.signal(number)
            outcome = running.wait(130)
        (sweep,) = sweeps_named(crew, name)
        assert (
            sentence("the sweep continues. Look on with: wtb watch {}; end it with: wtb cancel {}", sweep, sweep)
            in outcome.output
        )
        assert outcome.json["sweep"]["id"] == sweep
        assert status_of(crew, sweep) == "running"
        crew.project.write({gate: ""})
        crew.wait_completed(sweep)


def submitted_within_bounds(cluster: Cluster, name: str, usual_s: float, *more: str) -> Outcome:
    file = write_sweep(cluster.project, name)
    began = time.monotonic()
    done = cluster.wtb("submit", file, *more, check=0)
    took = time.monotonic() - began
    assert took < usual_s + BOUND_S, f"{took:.1f} s, otherwise {usual_s:.1f} s"
    assert sentence("the sweep is accepted, and starts when the broker is back") in done.output
    return done


@pytest.fixture(scope="module")
def usual_s(crew: Cluster) -> float:
    """The usual duration of a submission, in seconds."""
    began = time.monotonic()
    crew.wtb("submit", write_sweep(crew.project, "usual"), check=0)
    return time.monotonic() - began


class TestABroker:
    """In each of these, the scheduler, which has the right broker, notifies workers of the accepted sweep."""

    def test_that_is_down_holds_up_no_submission(self, crew: Cluster, usual_s: float) -> None:
        done = submitted_within_bounds(crew, "down", usual_s, "--broker", f"redis://:x@127.0.0.1:{free_port()}/0")
        assert "refused" in done.output
        crew.wait_completed(done.stdout.strip())

    def test_that_hangs_holds_up_no_submission(self, crew: Cluster, usual_s: float) -> None:
        pid = crew.valkey.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            done = submitted_within_bounds(crew, "hanging", usual_s)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert sentence("did not respond within {} s", 2) in done.output
        crew.wait_completed(done.stdout.strip())

    def test_that_refuses_the_password_holds_up_no_submission(self, crew: Cluster, usual_s: float) -> None:
        wrong = re.sub(r":[^:@]*@", ":wrong@", crew.valkey.url)
        done = submitted_within_bounds(crew, "unknown", usual_s, "--broker", wrong)
        assert sentence("rejected the password") in done.output
        assert "wrong" not in done.output.replace("WRONGPASS", "")
        crew.wait_completed(done.stdout.strip())

    def test_that_is_full_holds_up_no_submission(self, crew: Cluster, usual_s: float, servers_folder: Path) -> None:
        settings = {"maxmemory": "1", "maxmemory-policy": "noeviction"}
        with ValkeyServer(servers_folder / "valkey-full", settings=settings) as full:
            done = submitted_within_bounds(crew, "full", usual_s, "--broker", full.url)
        assert sentence("accepts no messages") in done.output
        crew.wait_completed(done.stdout.strip())

    def test_that_nobody_names_is_refused(self, crew: Cluster) -> None:
        file = write_sweep(crew.project, "nameless")
        done = crew.project.inside("submit", file, check=4)
        assert "set WTB_BROKER_URL" in done.output
        assert sweeps_named(crew, "nameless") == []


class TestADatabase:
    def test_that_is_down_is_said_within_bounds(self, crew: Cluster, usual_s: float) -> None:
        began = time.monotonic()
        down = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
        done = crew.wtb("submit", write_sweep(crew.project, "no-database"), "--db", down, check=4)
        assert time.monotonic() - began < usual_s + BOUND_S
        assert "database postgresql+psycopg://nobody@127.0.0.1" in done.output

    def test_that_workers_cannot_share_is_refused(self, crew: Cluster) -> None:
        done = crew.wtb("submit", write_sweep(crew.project, "sqlite"), "--db", "sqlite:///alone.db", check=2)
        assert sentence("workers need PostgreSQL") in done.output
        assert not (crew.project.folder / "alone.db").exists()
