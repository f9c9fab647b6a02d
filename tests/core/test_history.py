"""Boundaries, paths and rollback targets, computed from a line of checkpoints."""

from __future__ import annotations

import pytest

from tests.support.prose import sentence
from wtb.core.errors import InputError
from wtb.core.tree.checkpoints import Checkpoint, CheckpointId, Inside, Position, Trigger, Writer
from wtb.core.tree.history import ExecutionHistory
from wtb.core.tree.recorded_runs import NodeBoundary, RecordedRun


def line(*steps: tuple[str, str], mid: dict[int, Trigger] | None = None) -> ExecutionHistory:
    """Build checkpoints from (writers, next nodes), each a word of one-letter names; `mid` are inside a step."""
    checkpoints: list[Checkpoint] = []
    for number, (writers, following) in enumerate(steps):
        checkpoints.append(
            Checkpoint(
                CheckpointId(f"c{number}"),
                CheckpointId(f"c{number - 1}") if number else None,
                Position(number, tuple(following)),
                {},
                tuple(Writer(node, "default", f"run-{node}{number}") for node in writers),
                trigger=(mid or {}).get(number, "step"),
            )
        )
    return ExecutionHistory(checkpoints)


def visits(history: ExecutionHistory) -> list[tuple[str, int, str, str | None]]:
    return [(b.node, b.visit, b.entry, b.exit) for b in history.boundaries]


def test_a_visit_goes_from_the_checkpoint_that_names_the_node_next_to_the_one_that_it_wrote() -> None:
    history = line(("", "a"), ("a", "b"), ("b", ""))

    assert visits(history) == [("a", 0, "c0", "c1"), ("b", 0, "c1", "c2")]
    assert history.path == ("a", "b")
    assert history.latest is not None
    assert history.latest.id == "c2"
    assert line(("", "a"), ("a", "b")).boundary("b") == NodeBoundary("b", 0, CheckpointId("c1"), None)
    empty = ExecutionHistory([])
    assert (empty.latest, empty.path, empty.boundaries) == (None, (), ())


def test_each_pass_of_a_loop_is_a_visit_of_its_own() -> None:
    history = line(("", "a"), ("a", "b"), ("b", "a"), ("a", "b"), ("b", ""))

    assert visits(history) == [
        ("a", 0, "c0", "c1"),
        ("b", 0, "c1", "c2"),
        ("a", 1, "c2", "c3"),
        ("b", 1, "c3", "c4"),
    ]
    assert visits(line(("", "a"), ("a", "a"), ("a", ""))) == [("a", 0, "c0", "c1"), ("a", 1, "c1", "c2")]


def test_all_writers_of_a_step_exit_at_its_checkpoint() -> None:
    history = line(("", "a"), ("a", "bc"), ("bc", "d"), ("d", ""))

    assert visits(history)[1:3] == [("b", 0, "c1", "c2"), ("c", 0, "c1", "c2")]
    assert history.path == ("a", "b", "c", "d")


@pytest.mark.parametrize("trigger", ["time", "manual", "durable", "error"])
def test_a_checkpoint_taken_inside_a_step_leaves_the_visit_open(trigger: Trigger) -> None:
    history = line(("", "a"), ("", "a"), ("", "a"), ("a", ""), mid={1: trigger, 2: trigger})

    assert visits(history) == [("a", 0, "c0", "c3")]
    assert history.path == ("a",)
    parallel = line(("", "bc"), ("", "bc"), ("bc", ""), mid={1: trigger})
    assert visits(parallel) == [("b", 0, "c0", "c2"), ("c", 0, "c0", "c2")]


def test_rolling_back_to_a_node_leads_to_the_exit_of_its_last_completed_visit() -> None:
    history = line(("", "a"), ("a", "b"), ("b", "a"), ("a", "b"))

    assert history.rollback_targets() == {"a": "c3", "b": "c2"}  # the second visit of b has no exit yet
    assert line(("", "a")).rollback_targets() == {}


def test_a_line_that_begins_in_the_middle_has_boundaries_from_there_on() -> None:
    whole = line(("", "a"), ("a", "b"), ("b", "c"), ("c", ""))

    assert visits(ExecutionHistory(whole.checkpoints[2:])) == [("c", 0, "c2", "c3")]


def test_checkpoints_that_do_not_form_a_line_are_refused() -> None:
    whole = line(("", "a"), ("a", "b"), ("b", ""))

    with pytest.raises(ValueError, match=sentence("checkpoint {} follows {} but its parent is {}", "c2", "c0", "c1")):
        ExecutionHistory([whole.checkpoints[0], whole.checkpoints[2]])


# What programs read of a history


def inside(id: str, parent: str, name: str | None = None, at: float = 0.0) -> Checkpoint:
    """A checkpoint inside node `b`."""
    return Checkpoint(
        CheckpointId(id),
        CheckpointId(parent),
        Position(1, ("b",)),
        {},
        trigger="durable",
        name=name,
        created_at=at,
        inside=Inside("run-b2", "b", "default", {}),
    )


def test_a_history_is_iterated_and_counted_as_its_checkpoints() -> None:
    history = line(("", "a"), ("a", "b"), ("b", ""))

    assert [checkpoint.id for checkpoint in history] == ["c0", "c1", "c2"]
    assert len(history) == 3
    assert history.latest is not None
    assert history.latest.is_terminal
    assert history.completed_nodes == ("a", "b")
    assert (history.get("c1"), history.get("c9")) == (history.checkpoints[1], None)


def test_a_visit_is_named_by_its_node_and_number() -> None:
    history = line(("", "a"), ("a", "a"), ("a", "b"))

    assert history.boundary("a").entry == "c1"
    assert history.boundary("a", 0).exit == "c1"
    with pytest.raises(
        InputError,
        match=sentence(
            "{} {} visit {} of node {}; expected one of {}", "this", "history has not reached", 2, "'a'", "0, 1"
        ),
    ):
        history.boundary("a", 2)
    with pytest.raises(InputError, match=r"has not reached node 'c'.*; it has: 'a', 'b'"):
        history.boundary("c")


def test_the_checkpoint_of_a_node_that_never_ran_names_those_that_did() -> None:
    history = line(("", "a"), ("a", "b"))

    assert history.at("a").id == "c1"
    for target in ("b", "nowhere"):
        with pytest.raises(InputError, match=rf"has not run node '{target}'.*; it has: 'a'"):
            history.at(target)
    with pytest.raises(
        InputError, match=sentence("{} {} visit {} of node {}; expected one of {}", "has", "not run", 1, "'a'", 0)
    ):
        history.at("a", 1)


def test_status_and_times_of_a_visit_are_those_of_its_node_runs() -> None:
    bare = line(("", "a"), ("a", "b"))
    ran = RecordedRun(
        "run-a1", "a", "a", "default", 0, "succeeded", 10.0, 2.0, 13.0, writes={"x": "sha", "~engine": "e"}
    )
    failed = RecordedRun("run-b", "b", "b", "default", 0, "failed", 14.0, 1.0, 15.0, error="ValueError: no")
    history = ExecutionHistory(bare.checkpoints, runs={ran.id: ran}, unfinished=[failed])

    a, b = history.boundaries
    assert (a.status, a.started, a.ended, a.duration, a.error) == ("succeeded", 10.0, 13.0, 2.0, None)
    assert a.output == {"x": "sha"}  # what is the engine's own is hidden
    assert (b.status, b.exit, b.ended, b.error) == ("failed", None, 15.0, "ValueError: no")
    document = history.document({"sha": 5})
    assert [(boundary["status"], boundary["output"]) for boundary in document["boundaries"]] == [
        ("succeeded", {"x": 5}),
        ("failed", {}),
    ]


def test_of_parallel_tasks_the_slowest_gives_the_time_and_a_failed_one_the_status() -> None:
    bare = line(("", "a"))
    tasks = [
        RecordedRun("r0", "a|0", "a", "default", 0, "succeeded", 10.0, 5.0, 15.0),
        RecordedRun("r1", "a|1", "a", "default", 0, "failed", 9.0, 1.0, 10.0, error="no"),
        RecordedRun("r2", "a|2", "a", "default", 0, "running", 11.0, 0.0),
    ]
    (boundary,) = ExecutionHistory(bare.checkpoints, unfinished=tasks).boundaries

    assert (boundary.status, boundary.started, boundary.ended, boundary.duration) == ("failed", 9.0, None, 5.0)


def test_rollback_targets_of_tools_are_added_to_those_of_nodes() -> None:
    bare = line(("", "a"), ("a", "b"), ("b", ""))
    tool_checkpoints = [inside("i1", "c1", "load #0", 1.0), inside("i2", "c1", "load #1", 2.0), inside("i3", "c1")]
    history = ExecutionHistory(bare.checkpoints, inside=tool_checkpoints)

    assert history.rollback_targets() == {"a": "c1", "b": "c2"}
    assert history.rollback_targets("tool") == {"load #0": "i1", "load #1": "i2", "i3": "i3", "a": "c1", "b": "c2"}
    with pytest.raises(InputError, match=sentence("expected 'node' or 'tool'")):
        history.rollback_targets("file")  # type: ignore[arg-type]
    assert [checkpoint["id"] for checkpoint in history.document()["inside"]] == ["i1", "i2", "i3"]


def test_a_target_is_an_id_its_beginning_a_node_or_a_name_of_which_the_newest_counts() -> None:
    bare = line(("", "a"), ("a", "b"), ("b", ""))
    tool_checkpoints = [inside("i-new", "c1", "load", 2.0), inside("i-old", "c1", "load", 1.0)]
    history = ExecutionHistory(bare.checkpoints, inside=tool_checkpoints, execution="e1")

    assert [history.resolve(target).id for target in ("c0", "b", "load", "i-o")] == ["c0", "c2", "i-new", "i-old"]
    for target in ("c", "i", "", "q"):
        with pytest.raises(InputError):
            history.resolve(target)
        assert not history.can_rollback_to(target)
    assert sentence("{} has no checkpoint {}", "execution e1", "'q'") in history.can_rollback_to("q").reason


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("b", sentence("it is the head")),
        ("a", "step 1 of the line"),
        ("i1", "inside node 'b'"),
        ("l2", sentence("a line that a rollback left")),
    ],
)
def test_a_possible_rollback_has_its_reason(target: str, reason: str) -> None:
    bare = line(("", "a"), ("a", "b"), ("b", ""))
    superseded = Checkpoint(CheckpointId("l2"), CheckpointId("c1"), Position(2, ()), {})
    history = ExecutionHistory(bare.checkpoints, inside=[inside("i1", "c1")], left=[superseded])

    check = history.can_rollback_to(target)
    assert check
    assert reason in check.reason


def test_between_two_checkpoints_are_those_after_the_first() -> None:
    history = line(("", "a"), ("a", "b"), ("b", "c"), ("c", ""))

    assert [checkpoint.id for checkpoint in history.between("a", "c")] == ["c2", "c3"]
    assert history.between("c1", "a") == ()
    with pytest.raises(InputError, match="'a' comes before 'b'"):
        history.between("b", "a")


def test_a_history_of_checkpoints_alone_is_json_too() -> None:
    document = line(("", "a"), ("a", "")).document()

    assert [writer["node"] for writer in document["checkpoints"][1]["writers"]] == ["a"]
    assert document["rollback_targets"] == {"a": "c1"}
