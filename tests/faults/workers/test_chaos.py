"""A bounded share of the long run (`make chaos`)."""

from __future__ import annotations

import pytest

from tests.chaos.plan import SHORT
from tests.chaos.recovery import FREED, FREED_LATER, TAKEN_UP
from tests.chaos.storm import Storm
from tests.support import forkserver
from tests.support.cluster import MakeCluster


@pytest.mark.deadline(900.0)  # a minute or two on a quiet machine
def test_a_storm_over_drawn_sweeps_loses_doubles_and_changes_nothing(make_cluster: MakeCluster) -> None:
    forkserver.fork_nodes("langgraph")  # for this test: starting Python is most of what the storm would do
    cluster = make_cluster(postgres={"synchronous_commit": "on"})
    figures = Storm(cluster, SHORT).run()
    assert figures.is_clean, "\n".join(figures.examples)
    assert figures.by_hand == 0
    freed = len(figures.times[FREED]) + len(figures.times.get(FREED_LATER, ()))
    assert 0 < len(figures.times[TAKEN_UP]) <= freed, "some of the killed held something, and it continued"
    cluster.no_slot_is_busy()
