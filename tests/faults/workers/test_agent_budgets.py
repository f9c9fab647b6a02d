"""Whatever agents request and whatever is killed meanwhile, the budget of their token holds as docs/costs.md says.

Two clients share a token with a budget. They submit by MCP and HTTP, agree twice or not at all, replay consents, steer,
fork and answer nothing, while workers and the server are killed. Nodes note in a file what they really pay.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import anyio
import httpx2
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.hosting.api.serving import Server
from tests.support.attempts import ATTEMPTS
from tests.support.cluster import Cluster
from tests.support.invariants import GATED
from wtb.hosting.api.routes import PREFIX

CAP = 1.0
DEAREST = 0.3  # of one call
MAX_USD = 0.4  # of an attempt that says what it may cost
SLOTS = 2
MUTANTS = {  # of the ledger in workers: with each of them what is promised here is false, whoever is quicker
    "nothing is counted": "flush.settle = lambda to, rows: settle(to, [{**row, 'spent': 0.0} for row in rows])",
    "no cap is compared": "reservations.slack = lambda most: 1e9",
}
MUTANT = "TESTED_MUTANT"
# Workers import no user code: Python itself runs this when it starts, from their PYTHONPATH. In nodes it does nothing.
SITE = f"""
import os
import sys

if "worker" in sys.orig_argv:
    from wtb.store.limits import reservations
    from wtb.store.access.reservations import settle
    from wtb.store.runs import flush

    exec(os.environ["{MUTANT}"])
"""
PAID = (
    GATED
    + f"""
from wtb import evaluator


def pay(state, ctx):
    for usd in state["prices"]:
        note(f"paid {{state['by']}} {{usd}}")
        ctx.cost(usd=usd)
        time.sleep(0.02)
    return {{"sum": sum(state["prices"])}}


@evaluator(better="higher", scale=(0, 10))
def total(case, result):
    return result.state["sum"]


def flow(name, **declared):
    made = Workflow(name)
    node = made.node(name="work", retries=1, **declared)(lambda state, ctx, *, times=1: pay(state, ctx))
    node.variant("again", times=2)
    made.entry(node)
    made.edge(node, END)
    return made


declared = flow("declared", max_usd={MAX_USD})
guessed = flow("guessed")
"""
)
PRICES = st.lists(st.sampled_from([0.05, 0.1, DEAREST]), min_size=1, max_size=2).filter(
    lambda prices: sum(prices) <= MAX_USD
)
# Of what there is, which is no choice between so many: how many there are depends on who is quicker.
PLACES = st.integers(0, 1000)
UNREACHABLE = (OSError, httpx2.HTTPError, http.client.HTTPException)


class Agents(RuleBasedStateMachine):
    """The actions of two clients of one token, and the kills meanwhile."""

    cluster: ClassVar[Cluster]
    server: ClassVar[Server]
    worker_env: ClassVar[Mapping[str, str]] = {}
    tokens: ClassVar[int] = 0
    workflows: ClassVar[tuple[str, ...]] = ("guessed", "declared")

    def __init__(self) -> None:
        super().__init__()
        self.sweeps: list[str] = []
        self.consents: list[tuple[str, dict[str, Any]]] = []
        self.killed = 0

    @initialize(number=st.integers(0, 1), more=PRICES)
    def begin(self, number: int, more: list[float]) -> None:
        """Hypothesis leaves rules out of most runs: what each has is a sweep that costs more than there is."""
        type(self).tokens += 1
        self.workflow = self.workflows[number % len(self.workflows)]
        self.name = f"agent{self.tokens}-{self.workflow}"
        options = ("--scope", "read,submit,steer", "--budget", f"{CAP}usd")
        self.token = self.cluster.wtb("admin", "token", "create", self.name, *options, check=0).stdout.strip()
        self._agreed("submit", 1, sweep=self._sweep([[DEAREST], [0.1, 0.05], more, [DEAREST], [DEAREST, 0.1], [0.1]]))
        assert self._own(), "it was submitted"

    # What clients do.

    @rule(cases=st.lists(PRICES, min_size=1, max_size=4), agrees=st.integers(0, 2))
    def submits(self, cases: list[list[float]], agrees: int) -> None:
        self._agreed("submit", agrees, sweep=self._sweep(cases))

    @rule(cases=st.lists(PRICES, min_size=1, max_size=4))
    def submits_over_http(self, cases: list[list[float]]) -> None:
        sent = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        body = json.dumps({"keys": self._sweep(cases), "anyway": True})
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)) as connection:
                connection.request("POST", f"{PREFIX}/sweeps", body, sent)
                document = json.load(connection.getresponse())
        except UNREACHABLE:
            return
        assert document["sweep"], document

    @rule(place=PLACES)
    def replays_a_consent(self, place: int) -> None:
        if not self.consents:
            return
        name, arguments = self.consents[place % len(self.consents)]
        before = self._own()
        reply = self._call(name, arguments)
        assert reply is None, "a consent that was used is of no more use"
        assert self._own() == before

    @rule(place=PLACES, action=st.sampled_from(["resume", "retry", "pause", "cancel"]), agrees=st.integers(0, 2))
    def steers(self, place: int, action: str, agrees: int) -> None:
        own = self._own()
        ref = own[place % len(own)]
        self._agreed("steer", 0 if action == "pause" else agrees, ref=ref, action=action)

    @rule(place=PLACES, every=st.booleans())
    def forks(self, place: int, every: bool) -> None:
        query = "SELECT e.id FROM executions e JOIN sweeps s ON s.id = e.sweep_id WHERE s.token = :name ORDER BY e.id"
        executions = [id for (id,) in self.cluster.query(query, name=self.name)]
        if executions:
            options = {"all_cases": True} if every else {}
            self._agreed("fork", 1, ref=executions[place % len(executions)], variants={"work": "again"}, **options)

    # What goes wrong.

    @rule(tree=st.booleans())
    def a_worker_is_killed(self, tree: bool) -> None:
        (worker,) = [worker for worker in self.cluster.workers if worker.lives]
        (worker.end if tree else worker.kill)()
        self.killed += 1
        self.cluster.start_worker(concurrency=SLOTS, env=self.worker_env)

    @rule()
    def the_server_is_killed(self) -> None:
        self.server.kill()
        self.server.start(self.cluster.env, ["--mcp"])

    @rule()
    def nothing_happens_until_work_stands_still(self) -> None:
        self.cluster.until(lambda: not self._count_running(), "work to end, or to wait for its budget")

    # What holds.

    @invariant()
    def what_is_recorded_is_within_the_budget(self) -> None:
        if hasattr(self, "name"):
            spent, recorded = self._spent()
            assert max(spent, recorded) <= CAP + self._beyond() + 1e-9, (spent, recorded)

    def teardown(self) -> None:
        if not hasattr(self, "name"):
            return
        self.nothing_happens_until_work_stands_still()
        spent, recorded = self._spent()
        assert spent == pytest.approx(recorded)
        query = "SELECT count(*) FROM reservations WHERE scope = 'token' AND key = :name"
        reason = "what was reserved to be given back, by a scheduler where its worker was killed"
        self.cluster.until(lambda: self.cluster.scalar(query, name=self.name) == 0, reason)
        paid = [float(line.split()[2]) for line in self.cluster.project.log() if line.split()[1] == self.name]
        # A runner that is killed has not recorded what its attempts paid within `run.durability`: a call for each slot.
        assert sum(paid) <= CAP + self._beyond() + self.killed * SLOTS * DEAREST + 1e-9
        assert sum(paid) >= recorded - 1e-9
        for sweep in self._own():
            self._agreed("steer", 1, ref=sweep, action="cancel")

    def _beyond(self) -> float:
        """Return how much running attempts may spend beyond their reservations."""
        return 0.0 if self.workflow == "declared" else SLOTS * MAX_USD

    def _sweep(self, cases: list[list[float]]) -> dict[str, Any]:
        listed = [{"id": f"c{n}", "input": {"prices": prices, "by": self.name}} for n, prices in enumerate(cases)]
        return {"sweep": self.name, "workflow": self.workflow, "cases": listed, "vary": {"work": ["default"]}}

    def _own(self) -> list[str]:
        if not hasattr(self, "name"):
            return []
        query = "SELECT id FROM sweeps WHERE token = :name ORDER BY id"
        return [id for (id,) in self.cluster.query(query, name=self.name)]

    def _count_running(self) -> int:
        query = "SELECT count(*) FROM sweeps WHERE token = :name AND status IN ('pending', 'running')"
        return int(self.cluster.scalar(query, name=self.name))

    def _spent(self) -> tuple[float, float]:
        """By the ledger, and by what attempts recorded."""
        ledger = "SELECT spent FROM budgets WHERE scope = 'token' AND key = :name"
        recorded = (
            f"SELECT coalesce(sum(attempts.usd), 0) FROM {ATTEMPTS} JOIN node_runs r ON r.id = attempts.node_run_id "
            "JOIN sweeps s ON s.id = r.sweep_id WHERE s.token = :name"
        )
        return float(self.cluster.scalar(ledger, name=self.name)), float(self.cluster.scalar(recorded, name=self.name))

    def _agreed(self, name: str, times: int, **arguments: Any) -> None:
        """Call, and agree so many times to what it would do: the second time is a replay by another client."""
        first = self._call(name, arguments)
        confirm = None if first is None else first.get("confirm")
        for number in range(times if confirm else 0):
            confirmed = {**arguments, "confirm": confirm["token"]}  # type: ignore[index]
            reply = self._call(name, confirmed)
            assert number == 0 or reply is None, "it was agreed to once"
            self.consents.append((name, confirmed))

    def _call(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the reply of a tool; None if it refuses, or if the server is not there."""
        replies: list[Mapping[str, Any]] = []

        async def go() -> None:
            headers = {"Authorization": f"Bearer {self.token}"}
            async with httpx2.AsyncClient(headers=headers, timeout=60) as web:
                transport = streamable_http_client(f"http://127.0.0.1:{self.server.port}/mcp", http_client=web)
                async with Client(transport) as client:
                    reply = await client.call_tool(name, dict(arguments))
                    if not reply.is_error:
                        replies.append(reply.structured_content)

        anyio.run(go)
        return replies[0] if replies else None


@pytest.fixture(scope="module")
def machine(module_cluster: Cluster) -> Iterator[type[Agents]]:
    names = "[workflows]\ndeclared = 'paid:declared'\nguessed = 'paid:guessed'\n"
    module_cluster.project.write({"paid.py": PAID, "wtb.toml": f"{names}[publish]\nevaluators = ['paid:total']\n"})
    module_cluster.start_scheduler()
    module_cluster.start_worker(concurrency=SLOTS)
    server = Server(module_cluster.project)
    server.start(module_cluster.env, ["--mcp"])
    published = ("workflow", "list", "--format", "json", "--published")
    module_cluster.until(lambda: len(module_cluster.wtb(*published).json["workflows"]) >= 2, "both are published")
    Agents.cluster, Agents.server = module_cluster, server
    yield Agents
    server.kill()


@pytest.mark.parametrize(
    ("examples", "steps"), [(2, 6), pytest.param(15, 20, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_no_sequence_of_calls_and_crashes_exceeds_a_budget(machine: type[Agents], examples: int, steps: int) -> None:
    _run(machine, examples, steps)


def _run(machine: type[Agents], examples: int, steps: int) -> None:
    bounds = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=examples < 10,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=bounds)


class Declaring(Agents):
    """With nodes that say what they may cost, so that nothing may be spent beyond the budget."""

    workflows = ("declared",)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_ledger_that_is_wrong_is_found_out(machine: type[Agents], mutant: str, tmp_path: Path) -> None:
    with _changed(machine, MUTANTS[mutant], tmp_path), pytest.raises((AssertionError, Flaky)):
        _run(Declaring, 3, 6)


@pytest.mark.slow
def test_a_ledger_that_is_changed_in_nothing_is_not_found_to_be_wrong(machine: type[Agents], tmp_path: Path) -> None:
    with _changed(machine, "reservations.slack = reservations.slack", tmp_path):
        _run(Declaring, 3, 6)


@contextmanager
def _changed(machine: type[Agents], mutant: str, folder: Path) -> Iterator[None]:
    """Have workers change their ledger, inside the block. They note in the folder that they have."""
    armed = folder / "armed"
    (folder / "sitecustomize.py").write_text(SITE)
    machine.worker_env = {MUTANT: f"{mutant}; open({os.fspath(armed)!r}, 'w').close()", "PYTHONPATH": os.fspath(folder)}
    _replace_worker(machine)
    assert armed.exists()
    try:
        yield
    finally:
        machine.worker_env = {}
        _replace_worker(machine)


def _replace_worker(machine: type[Agents]) -> None:
    """Start a worker with the environment of now in place of the one that is there."""
    (worker,) = [worker for worker in machine.cluster.workers if worker.lives]
    worker.end()
    machine.cluster.start_worker(concurrency=SLOTS, env=machine.worker_env)
