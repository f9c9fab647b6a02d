"""T and S with the triggers that reject a completed execution with unfinished work, over T and S without them."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from benchmarks.embedded.sleepy import SLEEP_S
from benchmarks.harness.environment import KINDS, Environment, Kind
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.harness.timing import open_warm, timed
from benchmarks.workloads.chain import SLOTS, workflow
from wtb.store.database import Database

TRIGGERS = ("execution_completes", "execution_is_born_completed")


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    workloads = {"T": (workflow(), None), "S": (workflow(SLEEP_S), SLOTS)}
    for kind in KINDS:
        guarded, bare = open_warm(environment, kind), open_warm(environment, kind)
        _drop_triggers(bare, kind)
        for name, (sweep, slots) in workloads.items():
            ratios = []
            for number in range(runs):
                pair = (guarded, bare) if number % 2 else (bare, guarded)  # each goes first in turn
                seconds = {database: timed(database, sweep, slots=slots) for database in pair}
                ratios.append(seconds[guarded] / seconds[bare])
            yield of_rounds(f"{name}, {kind}: time with triggers / without", ratios, "x")
        guarded.close()
        bare.close()


def _drop_triggers(database: Database, kind: Kind) -> None:
    with database.engine.begin() as connection:
        for name in TRIGGERS:
            table = " ON executions" if kind == "postgresql" else ""
            connection.execute(sa.text(f"DROP TRIGGER {name}{table}"))
