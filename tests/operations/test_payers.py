"""A token with a budget cannot spend anything that the budget does not count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import tenants
from tests.support.bench import make_bench
from tests.support.tenants import Tenant, limited_to
from wtb.core.errors import AccessDenied
from wtb.operations.context import Context
from wtb.operations.control.pause_cancel import list_breakpoints, set_breakpoints
from wtb.operations.registry import OPERATIONS, Effect, Permission
from wtb.store.database import Database
from wtb.store.transactions import Scope

# What they run is a sweep of its own, which is charged to the token that submits it.
CHARGED = {
    *(
        "sweeps.run_pilot",
        "sweeps.run",
        "executions.start",
        "executions.start_published",
        "sweeps.submit",
        "sweeps.submit_published",
        "sweeps.regress",
    ),
    "baselines.repeat",
}
# What spends in what is there, and what gives or takes limits: with what each is called beside what it has to have.
UNCHARGED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "sweeps.resume": ("sweep", {}),
    "sweeps.retry": ("sweep", {}),
    "executions.fork": ("execution", {}),
    "combinations.add": ("execution", {}),
    "sweeps.extend": ("sweep", {"repeats": 2}),
    "questions.answer": ("approval", {"action": "approve"}),
    "executions.rollback": ("execution", {"to": "a"}),
    "executions.undo_rollback": ("execution", {}),
    "scores.compute": ("sweep", {"evaluate": ["exact_match"]}),
    "scorings.submit": ("sweep", {"evaluate": ["exact_match"]}),
    "schedules.run_now": ("schedule", {}),
    "schedules.resume": ("schedule", {}),
    "tokens.create": ("", {"name": "another", "scopes": ["submit"]}),
    "budgets.set": ("", {"limits": {"usd": 1000.0}, "token": "quokka.to"}),
    "budgets.clear": ("", {"token": "quokka.to"}),
    "access.grant": ("", {"role": "runner", "user": "quokka.us"}),
    "teams.change": ("", {"name": "core", "add": ["quokka.us"]}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("payers")


@pytest.fixture(scope="module")
def tenant(folder: Path) -> Iterator[Tenant]:
    database = Database("sqlite:///:memory:")
    database.prepare()
    yield Tenant(Context(database, by="ann", files=folder), folder, "quokka")
    database.close()


def by_its_token(tenant: Tenant, needs: Permission) -> Context:
    return tenant.context.acting_as(replace(limited_to("quokka"), token=tenant.names["token"]), needs)


def test_of_everything_that_spends_it_is_known_who_pays() -> None:
    spends = {
        name for name, operation in OPERATIONS.items() if operation.effect is Effect.spends and not operation.everywhere
    }
    assert spends <= CHARGED | UNCHARGED.keys()


@pytest.mark.parametrize("name", UNCHARGED)
def test_what_its_budget_does_not_count_is_refused(tenant: Tenant, name: str) -> None:
    kind, arguments = UNCHARGED[name]
    before = tenants.rows_of(tenant.context.database)
    with pytest.raises(AccessDenied, match="has a budget"):
        OPERATIONS[name].function(
            by_its_token(tenant, OPERATIONS[name].needs), *([tenant.names[kind]] if kind else []), **arguments
        )
    assert tenants.rows_of(tenant.context.database) == before


def test_what_makes_a_sweep_of_others_stop_may_be_added_and_not_removed(tenant: Tenant) -> None:
    acting, sweep = by_its_token(tenant, Permission.steer), tenant.names["sweep"]
    set_breakpoints(acting, sweep, add=["b"])
    for removal in ({"remove": ["before b"]}, {"clear": True}):
        with pytest.raises(AccessDenied, match="has a budget"):
            set_breakpoints(acting, sweep, **removal)  # type: ignore[arg-type]
    assert list_breakpoints(acting, sweep).breakpoints
    set_breakpoints(tenant.context, sweep, clear=True)


def test_its_own_sweep_continues(tenant: Tenant, folder: Path) -> None:
    token = tenant.names["token"]
    mine = tenant.context.database.within(Scope(frozenset({"quokka"}), token))
    sweep = make_bench(mine, folder, tenants.asking(), session=tenant.names["session"])
    acting = by_its_token(tenant, Permission.steer)
    set_breakpoints(acting, sweep.sweep_id, add=["b"])
    assert set_breakpoints(acting, sweep.sweep_id, clear=True).breakpoints == ()
