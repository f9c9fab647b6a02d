"""Comments on cells: permissions to write and delete them, redaction, archives and copies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.prose import sentence
from wtb import Score, Sweep, SweepHandle, Workflow, evaluator
from wtb.core.errors import AccessDenied, InputError
from wtb.core.roles import Permission
from wtb.core.scoring.scores import MOST_COMMENT, MOST_REASON
from wtb.features.archive.exporter import export_execution
from wtb.features.archive.importer import import_execution
from wtb.operations.context import Context
from wtb.operations.deleting import erase
from wtb.operations.identity import Identity, Method
from wtb.operations.results.commenting import add_comment, delete_comment, list_comments
from wtb.operations.results.side_by_side import outputs
from wtb.store.database import Database


def asking() -> Workflow:
    workflow = Workflow("asking")

    @workflow.node
    def answer(state: Any, ctx: Any, *, style: str = "plain") -> dict[str, Any]:
        return {"answer": f"{state['question']} {style}"}

    answer.variant("loud", style="loud")
    workflow.entry(answer)
    return workflow


@evaluator(scale=(0, 1))
def plain(case: Any, result: Any) -> Any:
    if case.id == "long":
        return Score(True, "x" * 10_000)
    is_plain = "plain" in result.state["answer"]
    return Score(is_plain, None if is_plain else f"key-123 {result.state['answer']} is not plain")


@pytest.fixture
def sweep(database: Database) -> SweepHandle:
    return Sweep(
        workflow=asking(),
        cases=[{"id": "q1", "input": {"question": "one"}}, {"id": "long", "input": {"question": "two"}}],
        vary={"answer": ["default", "loud"]},
        evaluate=[plain],
        repeats=2,
        name="asked",
        run={"pool": "thread"},
        redact={"patterns": {"key": "key-[0-9]+"}},
    ).run(database)


@pytest.fixture
def other_database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'other.db'}")
    database.prepare()
    yield database
    database.close()


def somebody(sweep: SweepHandle, name: str) -> Context:
    """Return the context of a user with a token, who is not the operator."""
    every = dict.fromkeys(Permission, None)
    return Context(sweep.database).acting_as(Identity(name, Method.token, every), Permission.answer)


def test_a_comment_is_on_its_cell_redacted_and_in_the_log(sweep: SweepHandle) -> None:
    comment = sweep.add_comment("q1", "Right, but key-42 is rude\n=1+1", row=1, repeat=1)
    assert (comment["number"], comment["case"], comment["row"], comment["repeat"]) == (1, "q1", 1, 1)
    assert comment["text"] == "Right, but [redacted:key] is rude\n=1+1"
    assert sweep.comments() == [comment] == sweep.comments(case="q1")
    assert sweep.comments(case="long") == []
    case_outputs = sweep.outputs()["cases"]
    by_place = {
        (case["case"], case["repeat"], cell["row"]): cell for case in case_outputs for cell in case["cells"] if cell
    }
    assert [place for place, cell in by_place.items() if "comments" in cell] == [("q1", 1, 1)]
    assert by_place["q1", 1, 1]["comments"][0]["text"] == comment["text"]
    (event,) = [event for event in sweep.log() if event["kind"] == "comment.added"]
    assert event["execution"] == by_place["q1", 1, 1]["execution"]
    assert event["data"] == {"number": 1, "case": "q1", "repeat": 1, "combination": 1, "by": comment["by"]}
    (cell,) = [cell for cell in sweep.cells(case="q1") if "comments" in cell]
    assert (cell["combination"], cell["repeat"]) == ({"answer": "loud"}, 1)


def test_only_the_author_and_the_operator_delete_a_comment(sweep: SweepHandle) -> None:
    ana, ben = somebody(sweep, "ana"), somebody(sweep, "ben")
    assert add_comment(ana, sweep.id, "q1", "first")["by"] == "ana"
    add_comment(ben, sweep.id, "q1", "second")
    with pytest.raises(
        AccessDenied, match=sentence("{} wrote comment {}, and {} may not delete it", "'ben'", 2, "'ana'")
    ):
        delete_comment(ana, sweep.id, 2)
    delete_comment(ana, sweep.id, 1)
    with pytest.raises(InputError, match=sentence("has no comment {}", 1)):
        delete_comment(ana, sweep.id, 1)
    assert [comment["text"] for comment in list_comments(ana, sweep.id)["comments"]] == ["second"]
    sweep.delete_comment(2)
    assert sweep.comments() == []
    kinds = [event["kind"] for event in sweep.log() if event["kind"].startswith("comment.")]
    assert kinds == ["comment.added"] * 2 + ["comment.deleted"] * 2


def test_who_reads_other_projects_finds_no_comments(sweep: SweepHandle) -> None:
    sweep.add_comment("q1", "ours")
    elsewhere = Identity("eve", Method.token, dict.fromkeys(Permission, frozenset({"other"})))
    eve = Context(sweep.database).acting_as(elsewhere, Permission.read)
    with pytest.raises(InputError):
        list_comments(eve, sweep.id)
    with pytest.raises(InputError):
        add_comment(eve, sweep.id, "q1", "theirs")


BAD_COMMENTS: list[tuple[dict[str, Any], str]] = [
    ({"text": "  \n"}, "text is blank"),
    ({"text": ""}, "text is empty"),
    ({"text": "x" * (MOST_COMMENT + 1)}, "at most 4,096"),
    ({"text": "a\0b"}, "NUL"),
    ({"case": "q2"}, "no case 'q2'"),
    ({"row": 2}, sentence("row is {}; expected the number of a combination, 0 to {}", 2, 1)),
    ({"row": -1}, "row is -1"),
    ({"repeat": 2}, "no repeat 2"),
]


def test_a_comment_that_cannot_be_written_is_rejected(sweep: SweepHandle, subtests: pytest.Subtests) -> None:
    for arguments, problem in BAD_COMMENTS:
        with subtests.test(problem), pytest.raises(InputError, match=re.escape(problem)):
            sweep.add_comment(**{"case": "q1", "text": "fine", **arguments})
    assert sweep.comments() == []


def test_reasons_are_stored_with_their_scores_cut_and_redacted(sweep: SweepHandle) -> None:
    by_case = {case["case"]: case["cells"] for case in sweep.outputs()["cases"]}
    fine, loud = (cell["scores"]["plain"] for cell in by_case["q1"] if cell)
    assert fine == {"value": 1.0, "reason": None, "version": None}
    assert loud == {"value": 0.0, "reason": "[redacted:key] one loud is not plain", "version": None}
    (cut, _) = (cell["scores"]["plain"]["reason"] for cell in by_case["long"] if cell)
    assert len(cut or "") <= MOST_REASON
    assert (cut or "").startswith("xxx")
    (cell, _) = [cell for cell in sweep.cells(case="q1") if cell["combination"] == {"answer": "loud"}]
    assert cell["reasons"] == {"plain": "[redacted:key] one loud is not plain"}


def test_scoring_again_writes_redacted_reasons_and_keeps_comments(sweep: SweepHandle) -> None:
    sweep.add_comment("q1", "kept")
    sweep.score([{"contains": {"field": "answer", "text": "key-77"}}])
    cells = [cell for case in sweep.outputs()["cases"] for cell in case["cells"] if cell]
    assert {cell["scores"]["contains"]["reason"] for cell in cells} == {"'[redacted:key]' is not in answer"}
    assert any(cell["scores"]["plain"]["reason"] for cell in cells)
    assert len(sweep.comments()) == 1


def test_an_archive_and_a_copy_have_comments_and_reasons(
    sweep: SweepHandle, other_database: Database, tmp_path: Path
) -> None:
    sweep.add_comment("q1", "kept", row=1)
    sweep.add_comment("long", "of another cell")
    execution = sweep.execution("q1", {"answer": "loud"}, 0)
    file = tmp_path / "one.wtb"
    export_execution(Context(sweep.database), execution.id, file)
    imported = import_execution(Context(other_database), file)
    imported_comments = list_comments(Context(other_database), imported["id"])["comments"]
    assert [(comment["text"], comment["row"], comment["case"]) for comment in imported_comments] == [("kept", 0, "q1")]
    (case,) = outputs(Context(other_database), imported["id"])["cases"]
    assert case["cells"][0]["scores"]["plain"]["reason"] == "[redacted:key] one loud is not plain"  # type: ignore[index]
    assert sweep.copy(other_database.url.render_as_string(hide_password=False))["is_new"]
    assert list_comments(Context(other_database), sweep.id) == list_comments(Context(sweep.database), sweep.id)
    assert not sweep.copy(other_database.url.render_as_string(hide_password=False))["is_new"]
    second_import = import_execution(Context(sweep.database), file)
    assert [comment["text"] for comment in list_comments(Context(sweep.database), second_import["id"])["comments"]] == [
        "kept"
    ]


def test_erasing_a_case_erases_its_comments(sweep: SweepHandle) -> None:
    sweep.add_comment("q1", "gone")
    sweep.add_comment("long", "stays")
    erase(Context(sweep.database), "q1", sweep=sweep.id)
    assert [comment["text"] for comment in sweep.comments()] == ["stays"]
    assert [event["data"]["case"] for event in sweep.log() if event["kind"] == "comment.added"] == ["long"]


def test_a_report_written_from_python_has_outputs_reasons_and_comments(sweep: SweepHandle, tmp_path: Path) -> None:
    sweep.add_comment("q1", "seen in the report", row=1)
    text = sweep.report(tmp_path / "report.html").read_text("utf-8")
    assert 'id="evidence"' in text
    assert "seen in the report" in text
    assert "one loud is not plain" in text


def test_the_number_of_a_comment_is_never_used_again(sweep: SweepHandle) -> None:
    first = sweep.add_comment("q1", "one")["number"]
    second = sweep.add_comment("q1", "two")["number"]
    sweep.delete_comment(second)
    third = sweep.add_comment("long", "three")["number"]
    assert (first, second, third) == (1, 2, 3)
    sweep.delete_comment(first)
    sweep.delete_comment(third)
    assert sweep.add_comment("q1", "four")["number"] == 4
    erase(Context(sweep.database), "q1", sweep=sweep.id)
    assert sweep.add_comment("long", "five")["number"] == 5
    copied = sweep.extend(new_name="copied", repeats=3).sweep
    sweep.delete_comment(5)
    assert sweep.add_comment("long", "six")["number"] == 6
    assert add_comment(Context(sweep.database), copied, "long", "of the copy")["number"] == 6
