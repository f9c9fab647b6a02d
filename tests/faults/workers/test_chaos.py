"""A bounded share of the long run (`make chaos`)."""

from __future__ import annotations

import pytest

from tests.chaos.plan import SHORT, WORKER
from tests.chaos.recovery import FREED, FREED_LATER, TAKEN_UP
from tests.chaos.storm import Storm
from tests.support.cluster import MakeCluster


@pytest.mark.slow
def test_a_storm_of_kills_zombies_and_crashes_loses_and_doubles_nothing(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(postgres={"synchronous_commit": "on"})
    found = Storm(cluster, SHORT).run()
    assert found.is_clean, found
    assert len(found.times[TAKEN_UP]) >= SHORT.counts[WORKER] / 2, "most of the killed held something, and it went on"
    freed = len(found.times[FREED]) + len(found.times.get(FREED_LATER, ()))
    assert len(found.times[TAKEN_UP]) == freed
    cluster.invariants({"succeeded": SHORT.cells})
