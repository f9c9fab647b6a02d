"""`make chaos`: the long run, on servers of its own. Exits with 1 where a figure is not what it must be."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.chaos import embedded, tables
from tests.chaos.figures import Figures
from tests.chaos.plan import LONG, Plan
from tests.chaos.progress import ProgressStorm
from tests.chaos.stack import StackStorm
from tests.chaos.storm import Storm
from tests.support import forkserver
from tests.support.cluster import Cluster
from tests.support.databases import QUICK
from tests.support.project import Project
from wtb.hosting.servers.postgres import PostgresServer
from wtb.hosting.servers.valkey import ValkeyServer

Say = Callable[[str], None]


@contextmanager
def _cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster with a PostgreSQL that commits for good as it crashes."""
    with ExitStack() as hands:
        valkey = hands.enter_context(ValkeyServer(folder / "valkey"))
        settings = {**QUICK, "synchronous_commit": "on"}
        postgres = hands.enter_context(PostgresServer(folder / "postgres", settings=settings))
        project = Project(folder / "project")
        project.url = postgres.url
        hands.callback(project.close)
        cluster = Cluster(project, valkey, postgres)
        hands.callback(cluster.close)
        yield cluster


def workers(folder: Path, plan: Plan, say: Say) -> Figures:
    """The storm over workers of their own."""
    with _cluster(folder) as cluster:
        return Storm(cluster, plan, say).run()


def progress(folder: Path, plan: Plan, say: Say, *, spares: bool) -> Figures:
    """The storm that counts what is done meanwhile."""
    with _cluster(folder) as cluster:
        return ProgressStorm(cluster, plan, say, spares=spares).run()


def stack(folder: Path, plan: Plan, say: Say) -> Figures:
    """The storm over the stack of `wtb up`."""
    return StackStorm(folder / "project", plan, say).run()


STORMS: dict[str, tuple[Callable[[Path, Plan, Say], Figures], Plan]] = {
    "workers": (workers, LONG.workers),
    "stack": (stack, LONG.stack),
    "embedded": (embedded.killed_runs, LONG.embedded),
    "disk": (embedded.full_disks, LONG.disk),
    "progress": (partial(progress, spares=False), LONG.progress),
    "spares": (partial(progress, spares=True), LONG.progress),
}


def run(names: list[str], seed: int | None, share: float, say: Say) -> Iterator[Figures]:
    for name in names:
        if name == "disk" and not embedded.can_mount():
            say("disk: left out, since only root can mount a small one")
            continue
        storm, plan = STORMS[name]
        plan = (plan if seed is None else replace(plan, seed=seed)).share(share)
        say(f"{name}: --seed {plan.seed} draws the same sweeps and the same order of faults")
        with tempfile.TemporaryDirectory(prefix="wtb-chaos-") as folder:
            yield storm(Path(folder), plan, lambda line, name=name: say(f"{name} {line}"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--only", action="append", choices=STORMS, help="one of the storms; may be given again")
    parser.add_argument("--seed", type=int, help=f"draws sweeps, faults and their victims [{LONG.workers.seed}]")
    parser.add_argument("--share", type=float, default=1.0, help="of all faults and cells [1]")
    parser.add_argument("--update", type=Path, metavar="PAGE", help="write the tables to this page, between its marks")
    options = parser.parse_args()
    began, at = time.monotonic(), datetime.now(UTC).strftime("%Y-%m-%d")
    loads = list[float]()

    def say(line: str) -> None:
        loads.append(os.getloadavg()[0])
        print(line, file=sys.stderr, flush=True)

    forkserver.fork_nodes("langgraph")  # where workers are forked too: starting Python is most of what a storm would do
    reports = list(run(options.only or list(STORMS), options.seed, options.share, say))
    for figures in reports:
        for example in figures.examples:
            say(f"{figures.name}: {example}")
    text = tables.render(reports, tables.machine(sum(loads) / max(1, len(loads)), at))
    print(text)
    if options.update:
        tables.replace(options.update, text)
    say(f"{(time.monotonic() - began) / 60:.1f} minutes")
    return 0 if all(report.is_well for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
