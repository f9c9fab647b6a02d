"""Equal contents of projects are stored once: erasing or deleting in one project takes nothing from another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.bench import Bench, make_bench
from tests.support.tenants import limited_to
from wtb import END, Workflow
from wtb.features.backup import queries
from wtb.hosting.servers.postgres import role_url
from wtb.operations.context import Context
from wtb.operations.deleting import erase
from wtb.operations.projects import create_project
from wtb.operations.registry import Permission
from wtb.operations.sessions import create_session, delete_session
from wtb.store.database import Database
from wtb.store.housekeeping.contents import MARKS, mark
from wtb.store.tables.schema import checkpoints
from wtb.store.tables.walls import SERVER, WORKER

CASES = [{"id": "ana", "input": {"text": "what both have"}}, {"id": "bob", "input": {"text": "another"}}]


def telling() -> Workflow:
    workflow = Workflow("telling")

    @workflow.node
    def tell(state: Any, ctx: Any) -> Any:
        (ctx.workspace / "told.txt").write_text(state["text"] * 1000)
        return {"told": state["text"]}

    workflow.entry(tell)
    workflow.edge(tell, END)
    return workflow


def ran(context: Context, folder: Path, project: str) -> Bench:
    create_project(context, project)
    create_session(context, f"in-{project}", project=project)
    bench = make_bench(context.database, folder, telling(), CASES, sweep=f"of {project}", session=f"in-{project}")
    bench.run()
    return bench


@dataclass(frozen=True)
class Shared:
    """Two projects with the same contents, and the server's role, limited to one of them."""

    context: Context
    other: Bench
    own: Bench
    limited: Context

    def check_other(self) -> None:
        """The other project has all of its values and files."""
        with self.context.database.read() as connection:
            assert queries.missing_values(connection) == []
            its = sa.select(checkpoints.c.workspace).where(checkpoints.c.sweep_id == self.other.sweep_id)
            snapshots = {row.workspace for row in connection.execute(its)} - {None}
        files = self.context.workspaces.files.of_project("quokka")
        assert snapshots
        for snapshot in snapshots:
            for file in files.manifest(snapshot).values():
                assert b"".join(files.read(file.digest))
        assert [cell.state["told"] for cell in self.other.cells()] == [case["input"]["text"] for case in CASES]


@pytest.fixture
def shared(prepared_postgres_url: str, tmp_path: Path) -> Iterator[Shared]:
    operator, server = (Database(role_url(prepared_postgres_url, role)) for role in (WORKER, SERVER))
    context = Context(operator, by="ann", files=tmp_path / "files")
    other, own = (ran(context, tmp_path / "files", project) for project in ("quokka", "zebras"))
    limited = Context(server, files=tmp_path / "files").acting_as(limited_to("zebras"), Permission.administer)
    yield Shared(context, other, own, limited)
    operator.close()
    server.close()


def test_a_case_is_erased_and_what_another_project_has_as_well_stays(shared: Shared) -> None:
    erased = erase(shared.limited, "ana")
    assert [row.project for row in erased.found] == ["zebras"]
    assert {cell.case for cell in shared.own.cells()} == {"bob"}
    shared.check_other()


def test_a_session_is_deleted_and_what_other_projects_have_stays(shared: Shared) -> None:
    """Deleting a project collects unreferenced contents, although the server's role sees no rows of others."""
    hidden = shared.context.workspaces.files.root / MARKS
    deleted = delete_session(shared.limited, "in-zebras")
    assert (deleted.sweeps, deleted.freed is not None) == (1, True)
    shared.check_other()
    mark(shared.context.database, shared.context.workspaces.files)
    assert len(list(hidden.iterdir())) == 1, "a store is of one database, whoever marks it"
