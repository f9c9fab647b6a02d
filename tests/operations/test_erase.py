"""Erasing a case removes it everywhere, and leaves a tombstone that names who erased it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.bench import Bench, make_bench
from tests.support.project import FLOW, SWEEP, Project
from tests.support.prose import sentence
from wtb import Context as NodeContext
from wtb import Workflow
from wtb.core.errors import ConflictError, InputError
from wtb.features.backup import queries as copies
from wtb.operations.context import Context
from wtb.operations.control.answers import answer
from wtb.operations.deleting import erase, preview_erase
from wtb.operations.inspection.sweeps import show
from wtb.operations.results.matrix import matrix
from wtb.store.access import requests
from wtb.store.access.requests import (
    Claim,
    FoundOperation,
    NewOperation,
    NewUpload,
    begin_operation,
    end_operation,
    find_answer,
    find_operation,
    keep_answer,
)
from wtb.store.database import Database
from wtb.store.read import queries, tallies
from wtb.store.tables.schema import approvals, cases, events, executions, metadata, sweeps
from wtb.store.transactions import Scope

SECRET = "the story of Ana Karenina"
CASES = [
    {"id": "ana", "input": {"text": SECRET, "about": "shared by both"}, "expected": SECRET, "tags": ["mine"]},
    {"id": "bob", "input": {"text": "another story", "about": "shared by both"}},
]


@pytest.fixture
def place(database: Database, tmp_path: Path) -> Context:
    return Context(database, by="erin", files=tmp_path / "files")


def teller(asks: bool = False, fails: bool = False) -> Workflow:
    """Return a workflow that writes its case to every place that it can."""
    workflow = Workflow("teller")

    @workflow.node(retries=1)
    def tell(state: dict[str, Any], ctx: NodeContext, *, times: int = 1) -> dict[str, Any]:
        (ctx.workspace / "told.txt").write_text(state["text"] * times)
        (ctx.workspace / "same.txt").write_text("the same for all")
        ctx.log(f"logged {state['text']}")
        ctx.call(model="m", prompt=state["text"], response=state["text"], usd=0.5)
        ctx.checkpoint("inside", so_far=f"so far {state['text']}")
        if ctx.attempt == 1 or fails:
            raise ValueError(f"cannot tell {state['text']}")
        if asks:
            ctx.ask(f"May I tell {state['text']}?", options=["yes", "no"])
        return {"told": f"told {state['text']}"}

    tell.variant("twice", times=2)
    workflow.entry(tell)
    return workflow


def long_text(case: Any, result: Any) -> float:
    return float(len(result.state["told"]))


def ran(place: Context, name: str = "first", **fields: Any) -> Bench:
    assert place.files is not None
    sweep = make_bench(
        place.database,
        place.files,
        teller(**fields),
        CASES,
        {"tell": ["default", "twice"]},
        evaluators={"long_text": long_text},
        sweep=name,
        run={"pool": "thread"},
    )
    sweep.run()
    return sweep


def everything(place: Context) -> str:
    """Return everything that is stored: rows, stored files, and the bytes of a database file."""
    with place.database.read() as connection:
        contents = [
            repr(tuple(row)) for table in metadata.sorted_tables for row in connection.execute(sa.select(table))
        ]
    assert place.files is not None
    folders = [place.files] if place.database.path is None else [place.files, place.database.path.parent]
    for folder in folders:
        contents += [path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()]
    return "\n".join(contents)


def test_nothing_of_its_content_is_left_in_the_database_and_in_stored_files(place: Context) -> None:
    sweep = ran(place)
    assert everything(place).count(SECRET) > 10, "the test looks in the wrong places"

    erased = erase(place, "ana", reason="asked to")

    content = everything(place)
    assert SECRET not in content, [line[:500] for line in content.splitlines() if SECRET in line][:3]
    assert erased.counts["cells"] == 2
    assert erased.values > 0
    assert erased.files == 4  # two stories, and the manifests of both variants
    assert erased.notes == ()
    (bob,) = [row for row in sweep.rows(cases) if row["id"] == "bob"]
    assert bob["erased_at"] is None
    assert {cell.case for cell in sweep.cells()} == {"bob"}
    assert [cell.state["told"] for cell in sweep.cells()] == ["told another story"] * 2


def test_values_and_files_that_others_have_stay(place: Context) -> None:
    """Copies of the other case, and of another sweep with the same case, stay."""
    ran(place, "first")
    other = ran(place, "second")
    erase(place, "ana", sweep="first")
    assert SECRET in everything(place)
    with place.database.read() as connection:
        assert copies.missing_values(connection) == copies.damaged_values(connection) == []
        snapshots = {row.workspace for row in connection.execute(sa.select(sa.text("workspace from checkpoints")))}
    for snapshot in snapshots - {None}:
        for file in place.workspaces.files.of_project("default").manifest(snapshot).values():
            assert b"".join(place.workspaces.files.of_project("default").read(file.digest))
    assert {cell.case for cell in other.cells()} == {"ana", "bob"}
    erase(place, "ana")
    assert SECRET not in everything(place)


def test_a_tombstone_says_who_erased_it_and_the_matrix_does_not_say_missing(place: Context) -> None:
    sweep = ran(place)
    before = matrix(place, "first")
    tallies.tally(place.database, sweep.sweep_id)
    erase(place, "ana", reason="asked to")
    (row,) = [case for case in sweep.rows(cases) if case["id"] == "ana"]
    assert (row["input"], row["expected"], row["tags"], row["erased_by"]) == ({}, None, [], "erin")
    event = queries.event_rows(place.database, sweep.sweep_id)[-1]
    assert event["kind"] == "case.erased"
    assert event["data"] == {"case": "ana", "by": "erin", "reason": "asked to", "cells": 2, "executions": 1 + 2}
    after = matrix(place, "first")
    assert (
        sentence("{} erased, with {} cells and scores: {} (by {})", "1 case was", "its", "ana", "erin")
        in after["warnings"]
    )
    assert not any("missing" in warning or "no outcome" in warning for warning in after["warnings"])
    assert (before["cells"]["total"], after["cells"]["total"]) == (4, 2)
    assert after["cost"]["usd"] == before["cost"]["usd"], "what was spent was spent"
    means = [[row["metrics"]["long_text"]["mean"] for row in document["rows"]] for document in (before, after)]
    assert means[1] == [18.0, 18.0]
    assert means[0] != means[1]
    show(place, "first")
    erase(place, "bob")
    assert matrix(place, "first")["cells"]["total"] == 0, "a sweep without a case can still be looked at"
    show(place, "first")
    with pytest.raises(InputError, match=sentence("there is no case {} that could be erased", "'ana'")):
        erase(place, "ana")


def test_a_question_and_its_answer_go_too_and_the_rest_continues(place: Context) -> None:
    sweep = ran(place, asks=True)
    questions = sweep.rows(approvals)
    for question in questions:
        whose = SECRET if SECRET in question["question"] else "bob"
        answer(place, question["id"], "yes", feedback=f"for {whose}", bound=sweep.prepared.bound)
    place.database.execute(sweeps.update().values(status="paused"))
    erase(place, "ana")
    assert SECRET not in everything(place)
    remaining = sweep.rows(approvals)
    assert {row["question"] for row in remaining} == {"May I tell another story?"}
    sweep.run()
    assert sweep.counts == {"succeeded": 2}
    assert sweep.status == "completed"


def test_failures_and_the_reasons_in_a_kept_matrix_go_too(place: Context) -> None:
    ran(place, fails=True)
    matrix(place, "first")
    erase(place, "ana")
    assert SECRET not in everything(place)


def test_copies_that_spare_somebody_to_send_or_ask_again_go_too(place: Context) -> None:
    ran(place)
    for number, project in enumerate(("default", "elsewhere")):
        text = SECRET if project == "default" else "of another project"
        keep_copies(place.database.within(Scope(frozenset({project}))), f"{number}", project, text)
    keep_copies(place.database, "2", "default", f'{{"told": "{SECRET}"}}')
    begin_operation(place.database, NewOperation("under-way", "compare", "ann"))

    expected = preview_erase(place, "ana").counts
    counts = erase(place, "ana").counts

    assert (counts["uploads"], counts["answers"]) == (2, 4)
    assert counts == expected
    assert SECRET not in everything(place)
    assert everything(place).count("of another project") >= 3
    for stored_copy in (find_answer(place.database, "key-2"), find_operation(place.database, "operation-2")):
        row = stored_copy.row if isinstance(stored_copy, FoundOperation) else stored_copy
        assert row is not None
        assert (row.status, sentence("the operation was carried out") in str(row.body)) == (410, True)
    under_way = find_operation(place.database, "under-way")
    assert under_way is not None
    assert under_way.status == "running"
    assert preview_erase(place, "bob").counts["answers"] == 0


def keep_copies(database: Database, id: str, project: str, text: str) -> None:
    """Store an upload, a response and the result of a long operation that contain a text."""
    content = text.encode()
    upload = NewUpload(f"upload-{id}", project, sha256(content + id.encode()).hexdigest(), "ann")
    requests.begin_upload(database, upload)
    requests.add_part(database, upload, 0, content)
    requests.complete_upload(database, upload)
    with database.write() as connection:
        Claim(f"key-{id}", "request").store(connection)
    keep_answer(database, f"key-{id}", 200, None, text)
    begin_operation(database, NewOperation(f"operation-{id}", "compare", "ann"))
    end_operation(database, f"operation-{id}", 200, None, text)


def test_a_preview_another_project_and_a_sweep_that_may_run_erase_nothing(place: Context) -> None:
    sweep = ran(place)
    counted = preview_erase(place, "ana").counts
    assert counted["cells"] == counted["scores"] == counted["node_runs"] == 2
    with pytest.raises(InputError, match=sentence("there is no case")):
        erase(place, "ana", project="elsewhere")
    place.database.execute(sweeps.update().values(status="running"))
    with pytest.raises(ConflictError, match=sentence("nothing is erased of sweeps that may still run: {}", "first")):
        erase(place, "ana")
    assert SECRET in everything(place)
    assert [row["erased_at"] for row in sweep.rows(cases)] == [None, None]
    assert len(place.database.tuples(sa.select(executions.c.id))) == 6
    assert place.database.scalar(sa.select(sa.func.count()).where(events.c.kind == "case.erased")) == 0


def test_the_command_asks_first(project: Project) -> None:
    project.write({"flow.py": FLOW, "first.sweep.yaml": SWEEP, "cases.jsonl": Project.cases(2)})
    project.inside("run", "first.sweep.yaml", "--quiet", check=0)
    refused = project.inside("admin", "erase", "c1", check=2)
    assert sentence("this needs confirmation, and there is no terminal; give --yes") in refused.output
    done = project.inside("admin", "erase", "c1", "--yes", "--reason", "asked to", "--format", "json", check=0)
    assert done.json["counts"]["cells"] == 64
    assert project.inside("matrix", "first", "--format", "json", check=0).json["cells"]["total"] == 64
    assert "erased case c1, with 64 cells: asked to" in project.inside("log", "first", check=0).stdout
