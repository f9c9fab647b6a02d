"""Boundaries, paths and rollback targets, computed from a line of checkpoints."""

from __future__ import annotations

import pytest

from wtb.core.tree.checkpoints import (
    Checkpoint,
    CheckpointId,
    ExecutionHistory,
    NodeBoundary,
    Position,
    Trigger,
    Writer,
)


def line(*steps: tuple[str, str], mid: dict[int, Trigger] | None = None) -> ExecutionHistory:
    """Checkpoints from (writers, next nodes), each a word of one-letter names. `mid`: taken inside a step."""
    made: list[Checkpoint] = []
    for number, (writers, following) in enumerate(steps):
        made.append(
            Checkpoint(
                CheckpointId(f"c{number}"),
                CheckpointId(f"c{number - 1}") if number else None,
                Position(number, tuple(following)),
                {},
                tuple(Writer(node, "default", f"run-{node}{number}") for node in writers),
                trigger=(mid or {}).get(number, "step"),
            )
        )
    return ExecutionHistory(made)


def visits(history: ExecutionHistory) -> list[tuple[str, int, str, str | None]]:
    return [(b.node, b.visit, b.entry, b.exit) for b in history.boundaries()]


def test_a_visit_goes_from_the_checkpoint_that_names_the_node_next_to_the_one_that_it_wrote() -> None:
    history = line(("", "a"), ("a", "b"), ("b", ""))

    assert visits(history) == [("a", 0, "c0", "c1"), ("b", 0, "c1", "c2")]
    assert history.path == ("a", "b")
    assert history.latest is not None
    assert history.latest.id == "c2"


def test_a_node_that_has_not_run_yet_has_an_open_boundary() -> None:
    history = line(("", "a"), ("a", "b"))

    assert history.by_node("b") == [NodeBoundary("b", 0, CheckpointId("c1"), None)]


def test_each_pass_of_a_loop_is_a_visit_of_its_own() -> None:
    history = line(("", "a"), ("a", "b"), ("b", "a"), ("a", "b"), ("b", ""))

    assert visits(history) == [
        ("a", 0, "c0", "c1"),
        ("b", 0, "c1", "c2"),
        ("a", 1, "c2", "c3"),
        ("b", 1, "c3", "c4"),
    ]


def test_a_node_that_follows_itself_exits_and_enters_at_the_same_checkpoint() -> None:
    history = line(("", "a"), ("a", "a"), ("a", ""))

    assert visits(history) == [("a", 0, "c0", "c1"), ("a", 1, "c1", "c2")]


def test_all_writers_of_a_step_exit_at_its_checkpoint() -> None:
    history = line(("", "a"), ("a", "bc"), ("bc", "d"), ("d", ""))

    assert visits(history)[1:3] == [("b", 0, "c1", "c2"), ("c", 0, "c1", "c2")]
    assert history.path == ("a", "b", "c", "d")


@pytest.mark.parametrize("trigger", ["time", "manual", "durable", "error"])
def test_a_checkpoint_taken_inside_a_step_leaves_the_visit_open(trigger: Trigger) -> None:
    history = line(("", "a"), ("", "a"), ("", "a"), ("a", ""), mid={1: trigger, 2: trigger})

    assert visits(history) == [("a", 0, "c0", "c3")]
    assert history.path == ("a",)


def test_a_checkpoint_inside_a_parallel_step_leaves_all_its_visits_open() -> None:
    history = line(("", "bc"), ("", "bc"), ("bc", ""), mid={1: "time"})

    assert visits(history) == [("b", 0, "c0", "c2"), ("c", 0, "c0", "c2")]


def test_rolling_back_to_a_node_leads_to_the_exit_of_its_last_completed_visit() -> None:
    history = line(("", "a"), ("a", "b"), ("b", "a"), ("a", "b"))

    assert history.rollback_targets() == {"a": "c3", "b": "c2"}  # the second visit of b has no exit yet


def test_a_node_that_never_completed_is_no_rollback_target() -> None:
    assert line(("", "a")).rollback_targets() == {}


def test_a_line_that_begins_in_the_middle_has_boundaries_from_there_on() -> None:
    whole = line(("", "a"), ("a", "b"), ("b", "c"), ("c", ""))

    assert visits(ExecutionHistory(whole.checkpoints[2:])) == [("c", 0, "c2", "c3")]


def test_an_empty_history_has_nothing() -> None:
    history = ExecutionHistory([])

    assert (history.latest, history.path, history.boundaries()) == (None, (), [])


def test_checkpoints_that_do_not_form_a_line_are_refused() -> None:
    whole = line(("", "a"), ("a", "b"), ("b", ""))

    with pytest.raises(ValueError, match="checkpoint c2 follows c0 but its parent is c1"):
        ExecutionHistory([whole.checkpoints[0], whole.checkpoints[2]])
