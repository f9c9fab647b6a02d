"""Runners learn from each other which files nodes write."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.support.prose import sentence
from wtb.core.tree.stored_code import StoredCode, stored_code
from wtb.execution.runtime import code_drift
from wtb.execution.runtime.code_drift import WrittenFiles
from wtb.store.database import Database
from wtb.store.read.queries import find_sweep
from wtb.store.runs import leases
from wtb.store.runs.submission import NewCase, NewSweep
from wtb.store.runs.submit import submit
from wtb.store.tables.sweeps import SweepRow

PARTS = {"flow:answer": "00", "file cache.json": "01", "file prompt.md": "02"}
Submit = Callable[..., SweepRow]


@pytest.fixture
def submitted(database: Database) -> Submit:
    def make(id: str, workflow: str = "flow") -> SweepRow:
        code: StoredCode = stored_code({"answer": {"default": PARTS}})
        sweep = NewSweep(
            id=id,
            name=id,
            session="default",
            project=None,
            spec={"code": code},  # type: ignore[typeddict-item]
            graph_id=workflow.ljust(64, "g"),
            graph={"name": workflow, "version": ""},
            fingerprints={"answer": {"default": "f"}},
            choices=[{}],
            repeats=1,
            share=True,
            cells=1,
        )
        submit(database, sweep, [NewCase("c", {}, None)])
        return find_sweep(database, id)

    return make


def test_a_file_is_noted_once_with_its_node(database: Database, submitted: Submit) -> None:
    notices: list[str] = []
    written = WrittenFiles(database, submitted("first"), notices.append)

    assert written.note("file cache.json", "answer") == sentence(
        "not code: {}, which {} writes", "cache.json", "node answer"
    )
    assert written.note("file cache.json", "other") is None
    assert len(notices) == 1
    assert find_sweep(database, "first").spec["code"]["written"] == {"file cache.json": "answer"}


def test_what_is_no_file_of_the_code_is_not_noted(database: Database, submitted: Submit) -> None:
    row = submitted("first")

    assert WrittenFiles(database, row).note("flow:answer", "answer") is None
    assert WrittenFiles(database, row, is_shared=True).note("file of another sweep.json", "answer") is None
    assert WrittenFiles(database, row).note("file new.json", "answer") is not None
    assert find_sweep(database, "first").spec["code"]["written"] == {"file new.json": "answer"}


def test_sweeps_of_one_workflow_know_what_their_nodes_write(database: Database, submitted: Submit) -> None:
    first, second, other = submitted("first"), submitted("second"), submitted("other", "another")
    WrittenFiles(database, first).note("file cache.json", "answer")

    assert leases.written_files(database, second) == {"file cache.json"}
    assert leases.written_files(database, other) == set()
    assert WrittenFiles(database, second).cover({"file cache.json"})


def test_a_runner_waits_for_what_another_one_is_about_to_record(
    database: Database, submitted: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = submitted("first")
    first, second = WrittenFiles(database, row), WrittenFiles(database, row)
    looks = threading.Event()
    read = leases.written_files

    def reading(database: Database, sweep: SweepRow) -> set[str]:
        files = read(database, sweep)
        looks.set()
        return files

    monkeypatch.setattr(leases, "written_files", reading)
    monkeypatch.setattr(code_drift, "LATE_S", 60.0)
    covered: list[bool] = []
    waiting = threading.Thread(target=lambda: covered.append(first.cover({"file cache.json"})))
    waiting.start()
    assert looks.wait(60)

    second.note("file cache.json", "answer")

    waiting.join(60)
    assert covered == [True]


def test_a_file_that_no_node_writes_is_not_covered(
    database: Database, submitted: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_drift, "LATE_S", 0.0)
    written = WrittenFiles(database, submitted("first"))
    written.note("file cache.json", "answer")

    assert not written.cover({"file cache.json", "file prompt.md"})


def test_code_that_is_recorded_anew_keeps_what_nodes_wrote(database: Database, submitted: Submit) -> None:
    row = submitted("first")
    WrittenFiles(database, row).note("file cache.json", "answer")

    leases.record_code(database, "first", row.fingerprints, stored_code({"answer": {"default": PARTS}}))

    assert leases.written_files(database, row) == {"file cache.json"}
