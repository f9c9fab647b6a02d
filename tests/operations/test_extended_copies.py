"""Copies of sweeps under another name, and their extension: the original stays, and nothing of it runs again."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import sqlalchemy as sa

from tests.operations.test_extending import add, cases_of
from tests.support.abc_flow import Abc, write_new
from tests.support.bench import Bench
from tests.support.prose import sentence
from wtb.core.errors import ConflictError, InputError
from wtb.features.archive.sweep_copies import copy_sweep
from wtb.operations.results.commenting import add_comment, list_comments
from wtb.operations.results.comparing import set_baseline
from wtb.operations.running.extending import plan_extension
from wtb.store.housekeeping.sweep_copy import digests_of_tables
from wtb.store.read import queries
from wtb.store.tables.schema import metadata, sweeps

Make = Callable[..., Abc]


@pytest.fixture
def abc(bench: Callable[..., Bench], tmp_path: Path) -> Make:
    return lambda cases=4, **spec: Abc(tmp_path, bench, cases, **spec)


def everything(flow: Abc, sweep_id: str) -> dict[str, str]:
    """Return a digest of all rows of a sweep by table, including its own row and its look."""
    with flow.bench.database.read() as connection:
        digests = digests_of_tables(connection, sweep_id)
        for table in metadata.sorted_tables:
            key = table.c.id if table is sweeps else table.c.get("sweep_id")
            if key is not None:
                rows = connection.execute(sa.select(table).where(key == sweep_id))
                text = "\n".join(sorted(map(repr, rows)))
                digests[f"all of {table.name}"] = hashlib.sha256(text.encode()).hexdigest()
    return digests


def turn_to(flow: Abc, sweep_id: str) -> None:
    """Point the flow at another sweep."""
    flow.bench.sweep_id = sweep_id


def outcomes(flow: Abc) -> Counter[tuple[str, int, tuple[tuple[str, str], ...], str]]:
    every = queries.choices(flow.bench.database, flow.bench.sweep_id)
    return Counter(
        (row.case, row.repeat, tuple(sorted(every[row.combination].items())), row.status)
        for row in queries.cell_rows(flow.bench.database, flow.bench.sweep_id)
    )


def test_a_baseline_is_extended_as_a_copy_and_stays_byte_for_byte(abc: Make) -> None:
    flow = abc(repeats=2)
    write_new(flow)
    original = flow.bench.sweep_id
    set_baseline(flow.context, "main", original)
    before_matrix = flow.matrix()
    before = everything(flow, original)
    with pytest.raises(ConflictError, match="--new-name NAME"):
        add(flow, vary={"b": ["new"]})
    added = add(flow, cases=cases_of(4, 5), vary={"b": ["new"]}, new_name="wider")
    assert (added.name, added.sweep != original) == ("wider", True)
    assert added.cells == 6 * 3 * 2 - 4 * 2 * 2
    assert everything(flow, original) == before
    turn_to(flow, added.sweep)
    flow.run()
    assert flow.ran == Counter(a=2 * 2, b=4 * 2 + 2 * 3 * 2, c=4 * 2 + 2 * 3 * 2), "no node of an old cell"
    assert flow.bench.row.name == "wider"
    assert {status for *_, status in outcomes(flow)} == {"succeeded"}
    assert len(outcomes(flow)) == 6 * 3 * 2
    assert everything(flow, original) == before
    turn_to(flow, original)
    assert flow.matrix() == before_matrix


def test_a_copy_has_the_scores_costs_and_history_of_its_original(abc: Make) -> None:
    flow = abc()
    original, matrix = flow.bench.sweep_id, flow.matrix()
    add_comment(flow.context, original, case="c1", text="Too loud.", row=1)
    kinds = Counter(event["kind"] for event in flow.bench.events)
    copied = copy_sweep(flow.context, original, new_name="twin")
    assert (copied["name"], copied["status"], copied["is_new"]) == ("twin", "completed", True)
    turn_to(flow, copied["id"])
    rows = flow.matrix()["rows"]
    assert [row["metrics"] for row in rows] == [row["metrics"] for row in matrix["rows"]]
    assert Counter(event["kind"] for event in flow.bench.events) == kinds + Counter({"sweep.copied": 1})
    ids = {
        row.execution_id for sweep in (original, copied["id"]) for row in queries.cell_rows(flow.bench.database, sweep)
    }
    assert len(ids) == 2 * 8, "ids are new"
    (comment,) = list_comments(flow.context, copied["id"])["comments"]
    assert (comment["case"], comment["row"], comment["text"]) == ("c1", 1, "Too loud.")
    add(flow, cases=[{"id": "more", "input": {"x": 99}}])
    assert len(list_comments(flow.context, copied["id"])["comments"]) == 1, "extending keeps it"


def test_ids_within_the_history_of_a_copy_are_those_of_the_copy(abc: Make) -> None:
    flow = abc()
    database = flow.bench.database
    copied = copy_sweep(flow.context, flow.bench.sweep_id, new_name="twin")
    for text in (
        "SELECT count(*) FROM checkpoints a JOIN checkpoints b ON a.parent_id = b.id AND a.sweep_id <> b.sweep_id",
        "SELECT count(*) FROM node_runs r JOIN checkpoints c ON c.id = r.checkpoint_id AND c.sweep_id <> r.sweep_id",
        "SELECT count(*) FROM cells c JOIN executions e ON e.id = c.execution_id AND e.sweep_id <> c.sweep_id",
    ):
        assert database.scalar(sa.text(text)) == 0
    own = set(database.scalars(sa.text(f"SELECT id FROM node_runs WHERE sweep_id = '{copied['id']}'")))
    writers = [
        writer[2]
        for row in database.tuples(sa.text(f"SELECT writers FROM checkpoints WHERE sweep_id = '{copied['id']}'"))
        for writer in (orjson.loads(row[0]) if isinstance(row[0], str) else row[0])
    ]
    assert writers
    assert own.issuperset(writers)


def test_what_a_sweep_has_spent_is_not_spent_again_by_its_copy(abc: Make) -> None:
    flow = abc()
    database = flow.bench.database
    with database.write() as connection:
        connection.execute(sa.text("UPDATE node_runs SET usd = 0.25"))
        connection.execute(sa.text("UPDATE attempts SET usd = 0.25"))
    spent = queries.usd_spent(database, flow.bench.sweep_id)
    copied = copy_sweep(flow.context, flow.bench.sweep_id, new_name="twin")
    assert spent > 0
    assert queries.usd_spent(database, flow.bench.sweep_id) == spent
    assert queries.usd_spent(database, copied["id"]) == 0
    planned = plan_extension(flow.context, copied["id"], repeats=2, code=flow.code)
    assert planned.usd == (0.25 * planned.node_runs[0], 0.25 * (planned.node_runs[1] or 0)), "by the original's prices"


def test_a_copy_is_extended_and_deleted_without_its_original_and_the_other_way_round(abc: Make) -> None:
    from wtb.operations.deleting import delete

    flow = abc(cases=2)
    original = flow.bench.sweep_id
    copied = copy_sweep(flow.context, original, new_name="twin")
    delete(flow.context, original)
    turn_to(flow, copied["id"])
    add(flow, repeats=2)
    flow.run()
    assert {status for *_, status in outcomes(flow)} == {"succeeded"}
    assert flow.ran == Counter(a=2, b=4, c=4)


def test_what_the_original_showed_counts_as_one_earlier_look(abc: Make) -> None:
    flow = abc(cases=8)
    added = add(flow, cases=cases_of(8, 9), new_name="wider")
    turn_to(flow, added.sweep)
    flow.run()
    assert sentence("{} look at these rows by {}", "second", "score") in " ".join(flow.matrix()["warnings"])


def test_names_that_do_not_fit_are_rejected_and_nothing_is_copied(
    abc: Make, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    flow = abc(cases=2)
    own_name = flow.bench.row.name
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"new_name": own_name, "repeats": 2}, sentence("already has the name {}", f"'{own_name}'")),
        ({"new_name": "", "repeats": 2}, "new_name is empty"),
        ({"new_name": "x" * 201, "repeats": 2}, "at most 200"),
        ({"new_name": "twin", "cases": cases_of(0)}, sentence("nothing to add to a copy")),
    ]
    for options, problem in wrong:
        with subtests.test(problem), pytest.raises(InputError, match=problem):
            add(flow, **options)
    with pytest.raises(InputError, match=sentence("expected either a database or a name")):
        copy_sweep(flow.context, flow.bench.sweep_id, f"sqlite:///{tmp_path}/other.db", new_name="twin")
    with pytest.raises(InputError, match=sentence("expected the URL of another database, or a name")):
        copy_sweep(flow.context, flow.bench.sweep_id)
    assert flow.bench.database.scalar(sa.select(sa.func.count()).select_from(sweeps)) == 1


def test_a_copy_that_fails_leaves_nothing(abc: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from wtb.store.housekeeping import sweep_copy

    flow = abc(cases=2)
    before = everything(flow, flow.bench.sweep_id)

    def fails(*_: object) -> None:
        raise ConflictError("somebody was quicker")

    monkeypatch.setattr(sweep_copy, "publish_renamed", fails)
    with pytest.raises(ConflictError, match=sentence("{} was quicker", "somebody")):
        add(flow, repeats=2, new_name="twin")
    assert flow.bench.database.scalar(sa.select(sa.func.count()).select_from(sweeps)) == 1
    assert everything(flow, flow.bench.sweep_id) == before


def test_changed_code_is_rejected_for_a_copy_too(abc: Make) -> None:
    from tests.support.abc_flow import changed

    flow = abc(cases=2)
    flow.wf["c"].variants["default"] = replace(flow.wf["c"].variants["default"], fn=changed)
    with pytest.raises(ConflictError, match=sentence("the code of {}={} has changed", "c", "default")):
        add(flow, repeats=2, new_name="twin")
    assert flow.bench.database.scalar(sa.select(sa.func.count()).select_from(sweeps)) == 1
