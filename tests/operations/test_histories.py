"""The history of executions as a value and as documents, on both databases: lines, visits, states and targets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.support.prose import sentence
from tests.support.tenants import limited_to
from wtb import Bench, Workflow
from wtb.core.errors import InputError, NotFound
from wtb.display.text.history import tree as draw
from wtb.operations.context import Context
from wtb.operations.inspection.executions import history, show_checkpoint, tree
from wtb.operations.registry import Permission


def looping() -> Workflow:
    """Count -> look, twice, then end -> fail; `look` writes a file, and takes checkpoints by its tool and by hand."""
    wf = Workflow("looping")

    @wf.tool
    def fetch(page: int) -> int:
        return page * 10

    @wf.node
    def count(state: dict[str, Any]) -> dict[str, Any]:
        return {"n": state.get("n", 0) + 1}

    @wf.node
    def look(state: dict[str, Any], ctx: Any) -> dict[str, Any]:
        (ctx.workspace / f"page-{state['n']}").write_text("x" * state["n"])
        page = ctx.tools.fetch(page=state["n"])
        ctx.checkpoint("halfway", page=state["n"])
        return {"seen": [*state.get("seen", []), page]}

    @wf.node
    def end(state: dict[str, Any]) -> None:
        if state.get("fails"):
            raise ValueError("no page fits")

    wf.entry(count)
    wf.edge(count, look)
    wf.edge(look, count, when=lambda state: state["n"] < 2)
    wf.edge(look, end, default=True)
    return wf


@pytest.fixture
def bench(prepared_url: str, tmp_path: Path) -> Iterator[Bench]:
    with wtb.open(prepared_url, by="ana", files=tmp_path / "files") as opened:
        yield opened


def run(bench: Bench, **state: Any) -> wtb.ExecutionHandle:
    return bench.start(looping(), state, run={"checkpoints": "fine"}).wait()


def test_a_history_has_visits_with_their_status_times_and_states(bench: Bench) -> None:
    execution = run(bench)
    timeline = execution.history()

    assert timeline.path == ("count", "look", "count", "look", "end")
    assert (len(timeline), timeline.completed_nodes) == (6, ("count", "look", "end"))
    assert [(boundary.node, boundary.visit, boundary.status) for boundary in timeline.boundaries] == [
        ("count", 0, "succeeded"),
        ("look", 0, "succeeded"),
        ("count", 1, "succeeded"),
        ("look", 1, "succeeded"),
        ("end", 0, "succeeded"),
    ]
    for boundary in timeline.boundaries:
        assert boundary.started is not None
        assert boundary.ended is not None
        assert boundary.started <= boundary.ended
    assert timeline.latest is not None
    assert timeline.latest.is_terminal
    document = history(Context(bench.database), execution.id)
    assert {key: document[key] for key in timeline.document()} == timeline.document()  # type: ignore[literal-required]
    assert all("state" not in checkpoint for checkpoint in document["checkpoints"])
    on_request = history(Context(bench.database), execution.id, state=True)
    visit = on_request["boundaries"][3]
    assert (visit["input"], visit["output"]) == ({"n": 2, "seen": [10]}, {"seen": [10, 20]})
    assert on_request["checkpoints"][-1]["state"] == {"n": 2, "seen": [10, 20]}


def test_the_state_is_there_at_every_checkpoint_and_visit(bench: Bench) -> None:
    execution = run(bench)
    timeline = execution.history()

    assert execution.state_at("look", 0) == {"n": 1, "seen": [10]}
    assert execution.state_at("look") == execution.state == {"n": 2, "seen": [10, 20]}
    assert execution.state_at(timeline.boundary("look", 1).entry) == {"n": 2, "seen": [10]}
    assert execution.state_at(timeline.checkpoints[0].id) == {}
    assert execution.state_at("halfway") == {"n": 2, "seen": [10]}  # where its visit began
    for target, visit in (("nowhere", None), ("look", 2), ("", None)):
        with pytest.raises(InputError, match=r"has not run .*(it has: 'count', 'look', 'end'|expected one of 0, 1)"):
            execution.state_at(target, visit)


def test_a_node_that_failed_has_its_error_and_never_had_a_state(bench: Bench) -> None:
    execution = run(bench, fails=True)

    boundary = execution.history().boundary("end")
    assert (boundary.status, boundary.exit) == ("failed", None)
    assert "no page fits" in str(boundary.error)
    assert boundary.ended is not None
    with pytest.raises(InputError, match="has not run node 'end'; it has: 'count', 'look'"):
        execution.state_at("end")


def test_checkpoints_inside_nodes_have_their_ids_everywhere(bench: Bench) -> None:
    execution = run(bench)
    timeline = execution.history()

    assert [checkpoint.name for checkpoint in timeline.inside] == ["fetch #0", "halfway", "fetch #0", "halfway"]
    targets = timeline.rollback_targets("tool")
    assert set(targets) == {"count", "look", "end", "fetch #0", "halfway"}
    assert targets["halfway"] == timeline.inside[-1].id
    assert set(timeline.rollback_targets()) == {"count", "look", "end"}
    document = history(Context(bench.database), execution.id)
    assert [checkpoint["id"] for checkpoint in document["inside"]] == [checkpoint.id for checkpoint in timeline.inside]
    drawn = tree(Context(bench.database), execution.history().execution or "")
    listed = [
        checkpoint["id"] for of_case in drawn["trees"] for part in of_case["segments"] for checkpoint in part["inside"]
    ]
    assert listed == [checkpoint.id for checkpoint in timeline.inside]
    assert all(f"  {id}  look  " in draw(drawn, 100) for id in listed)


def test_a_rollback_takes_what_the_history_says_it_can(bench: Bench) -> None:
    execution = run(bench)
    before = execution.history()
    first = before.inside[0]
    assert before.can_rollback_to(first.id)

    execution.rollback(first.id)

    after = execution.history()
    assert after.checkpoints[-1].parent == first.id
    assert [checkpoint.id for checkpoint in after.left] == [checkpoint.id for checkpoint in before.checkpoints[2:]]
    assert sentence("a line that a rollback left") in after.can_rollback_to(before.checkpoints[-1].id).reason
    assert not after.can_rollback_to("end")
    assert execution.resume().wait().state == {"n": 2, "seen": [10, 20]}


def test_a_checkpoint_shows_its_state_files_writers_and_what_comes_next(bench: Bench) -> None:
    execution = run(bench)
    timeline = execution.history()

    document = bench.checkpoint(timeline.boundary("look", 1).entry)
    assert (document["checkpoint"]["state"], document["checkpoint"]["next"]) == ({"n": 2, "seen": [10]}, ["look"])
    assert [writer["node"] for writer in document["checkpoint"]["writers"]] == ["count"]
    assert [(file["path"], file["size"]) for file in document["files"]] == [("page-1", 1)]
    assert document["inside"] is None
    assert document["checkpoint"]["parent"] == timeline.boundary("look", 0).exit

    inside = bench.checkpoint(timeline.inside[-1].id)
    assert (inside["saved"], [file["path"] for file in inside["files"]]) == ({"page": 2}, ["page-1", "page-2"])
    assert inside["inside"] is not None
    assert (inside["inside"]["node"], inside["checkpoint"]["name"]) == ("look", "halfway")


def test_a_checkpoint_of_another_project_is_as_if_it_did_not_exist(bench: Bench) -> None:
    latest = run(bench).history().latest
    assert latest is not None
    other = Context(bench.database).acting_as(limited_to("zebras"), Permission.read)

    with pytest.raises(NotFound) as foreign:
        show_checkpoint(other, latest.id)
    with pytest.raises(NotFound) as nothing:
        show_checkpoint(other, "nothing")
    assert str(foreign.value).replace(latest.id, "nothing") == str(nothing.value)


def test_a_checkpoint_is_found_by_the_name_that_somebody_gave_it(bench: Bench) -> None:
    execution = run(bench)
    first = execution.history().boundary("look", 0).exit

    named = execution.name_checkpoint("before the second page", note="one page seen", at=first)

    assert (named.checkpoint, named.previous) == (first, None)
    timeline = execution.history()
    assert timeline.resolve("before the second page").id == first
    assert timeline.notes == {first: "one page seen"}
    checkpoint = bench.checkpoint(str(first))["checkpoint"]
    assert (checkpoint["name"], checkpoint["note"]) == ("before the second page", "one page seen")
    assert execution.list_files(at="before the second page")["checkpoint"] == first
    (event,) = execution.log(kinds=["checkpoint.named"])
    about = {"checkpoint": first, "name": "before the second page", "note": "one page seen"}
    assert event["data"] == {**about, "by": "ana"}

    execution.rollback("before the second page")
    assert execution.resume().wait().state == {"n": 2, "seen": [10, 20]}
    renaming = execution.name_checkpoint("page 1", at=first)
    assert (renaming.previous, execution.history().notes) == ("before the second page", {})


def test_a_name_given_after_a_rollback_outlives_its_undoing(bench: Bench) -> None:
    execution = run(bench)
    target = execution.history().boundary("count").exit
    execution.rollback("count")
    assert execution.name_checkpoint("counted").checkpoint == target
    execution.undo_rollback()

    assert execution.history().resolve("counted").id == target
    execution.rollback("counted")
    assert execution.resume().wait().state == {"n": 2, "seen": [10, 20]}


def test_a_name_that_would_mean_two_things_is_rejected(bench: Bench, subtests: pytest.Subtests) -> None:
    execution = run(bench)
    no_names = dict.fromkeys((" ", "a\nb", "x" * 201), "printable")
    for name, message in ({"count": "is a node", "halfway": "is in use"} | no_names).items():
        with subtests.test(repr(name)), pytest.raises(InputError, match=message):
            execution.name_checkpoint(name)
    assert list(execution.log(kinds=["checkpoint.named"])) == []
    latest = execution.history().latest
    assert latest is not None
    assert execution.name_checkpoint("the end of it").checkpoint == latest.id, "by default that at the head"
    assert execution.fork(at="the end of it", run=False)
    with pytest.raises(InputError, match=sentence("no checkpoint yet")):
        bench.start(looping(), {}, create_only=True).name_checkpoint("early")
