"""`make chaos`: the long run, on servers of its own. Exits with 1 where a figure is not what it must be."""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.acceptance.conftest import Project
from tests.chaos.plan import LONG, SHORT
from tests.chaos.storm import Storm
from tests.conftest import QUICK
from tests.faults.cluster import Cluster
from wtb.servers.postgres import PostgresServer
from wtb.servers.valkey import ValkeyServer


def main() -> int:
    asked = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    asked.add_argument("--short", action="store_true", help="the share of it that `make test` runs")
    asked.add_argument("--seed", type=int, help=f"of the order of faults and their victims [{LONG.seed}]")
    given = asked.parse_args()
    plan = SHORT if given.short else LONG
    if given.seed is not None:
        plan = replace(plan, seed=given.seed)
    with tempfile.TemporaryDirectory(prefix="wtb-chaos-") as name, ExitStack() as hands:
        folder = Path(name)
        folder.chmod(0o711)  # servers run as another user where we are root
        valkey = hands.enter_context(ValkeyServer(folder / "valkey", die_with_parent=True))
        settings = {**QUICK, "synchronous_commit": "on"}  # else it forgets what it has committed as it crashes
        postgres = hands.enter_context(PostgresServer(folder / "postgres", settings=settings, die_with_parent=True))
        project = Project(folder / "project")
        project.url = postgres.url
        hands.callback(project.close)
        cluster = Cluster(project, valkey, postgres)
        hands.callback(cluster.close)
        found = Storm(cluster, plan, lambda line: print(line, file=sys.stderr, flush=True)).run()
    print("\n".join(found.lines()))
    return 0 if found.is_well else 1


if __name__ == "__main__":
    sys.exit(main())
