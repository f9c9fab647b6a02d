"""A session is renamed while its sweep runs: the sweep continues, and everything shows the new name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.bench import Bench
from tests.support.prose import sentence
from wtb import Workflow
from wtb.core.errors import ConflictError, InputError
from wtb.display.views.sweeps import status_document
from wtb.operations.context import Context
from wtb.operations.sessions import change_session, create_session, describe_session, rename_session
from wtb.planning.prepare import stored_spec
from wtb.store.access.sessions import Quota
from wtb.store.database import Database

Make = Callable[..., Bench]


def renaming(database: Database) -> Workflow:
    """Return a -> b -> c; a renames the session of its sweep and costs what its quota allows."""
    wf = Workflow("renaming")

    @wf.node
    def a(state: Any, ctx: Any) -> Any:
        rename_session(Context(database, by="ada"), "ann", "bob")
        ctx.cost(usd=1.0)
        return {"y": 1}

    wf.node(lambda state, ctx: {"z": ctx.cost(usd=0.5)}, name="b", max_usd=0.5)
    wf.entry(a)
    wf.edge(a, "b")
    return wf


def test_a_sweep_continues_in_its_renamed_session(run_sweep: Make, database: Database) -> None:
    context = Context(database, by="ada")
    create_session(context, "ann", Quota(usd=1.2), owner="ada", metadata={"ticket": "W-1"})
    sweep = run_sweep(renaming(database), session="ann", run={"pool": "thread"})
    assert sentence("budget of {} {} reached", "session", "'bob'") in str(sweep.row.reason)
    assert status_document(database, sweep.row)["next"]["command"].startswith(
        "wtb admin session change bob --usd MORE;"
    )
    assert stored_spec(sweep.row).session == "bob"
    change_session(context, "bob", {"usd": 5.0})
    sweep.run()
    assert sweep.counts == {"succeeded": 1}, sweep.cells()[0].error
    session = describe_session(context, "bob")["session"]
    assert (session["owner"], session["metadata"], session["sweeps"]) == ("ada", {"ticket": "W-1"}, 1)
    assert session["usage"]["usd"] == pytest.approx(1.5)
    assert session["active_at"] >= session["created_at"]


def test_what_cannot_be_renamed_is_refused(database: Database) -> None:
    context = Context(database, by="ada")
    create_session(context, "ann")
    with pytest.raises(
        InputError, match=sentence("there is no session {}", "'anm'") + sentence("; did you mean '{}'", "ann")
    ):
        rename_session(context, "anm", "bob")
    with pytest.raises(ConflictError, match="'default' cannot be renamed"):
        rename_session(context, "default", "bob")
