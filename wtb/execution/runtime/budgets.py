"""Budgets of a sweep that runs here: what an attempt reserves before it starts, and what it may spend.

The ledger is in the database (`wtb/store/access/reservations.py`), so that a budget binds all runners of a session or
project. If no budget applies, there is no query.
"""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import sqlalchemy as sa

from wtb.authoring.context.attempt_record import Allowance, Kind, Record
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.errors import StoreError
from wtb.core.ids import new_id
from wtb.core.scoring.measure import Score, spent_of
from wtb.core.scoring.scores import JUDGING, UNKNOWN_PRICE, limit_name
from wtb.core.stop import WALL, Stop
from wtb.store.access.budgets import Key, binding_budgets, budget_rows, dearest, dearest_judged, figure, key_of, recount
from wtb.store.access.reservations import (
    Claim,
    Granted,
    Reached,
    Settlement,
    record_reached,
    release,
    release_lost,
    reserve,
)
from wtb.store.access.sessions import current_name
from wtb.store.database import Database
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.plan import BudgetDocument


_LIMIT = re.compile(
    r"(?:limit|budget of (?P<scope>session|project|token) .*?) reached: (?P<name>\S+) = "
)  # see `stop_at`
_SPENT = ("usd", "tokens")  # kinds that the end of an attempt counts

FIRST_PAUSE_S, LONGEST_PAUSE_S, GROWTH = 0.005, 0.2, 1.3  # between two questions whether there is room now


@dataclass
class Reserved:
    """The reservation of an attempt. If no budget applies, it settles nothing.

    Attributes:
        keys: The budgets that apply.
        first: Whether the attempt begins a node run.
        amounts: The reserved amounts, by kind.
    """

    id: str = ""
    keys: Sequence[Key] = ()
    first: bool = True
    allowance: Allowance | None = None
    amounts: Mapping[str, float] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)
    counted: dict[str, float] = field(default_factory=lambda: {"usd": 0.0, "tokens": 0.0})

    def count_node_run(self) -> list[Settlement]:
        """Return the rows for the journal that count the node run itself."""
        return [self._row(key, 1.0, None) for key in self.keys if key[3] == "node_runs" and self.first]

    def spent(self, usd: float, tokens: float) -> list[Settlement]:
        """Count spending of a running attempt. Returns the rows for the journal."""
        if not self.keys:
            return []
        more = {"usd": usd, "tokens": tokens}
        for kind, amount in more.items():
            self.counted[kind] += amount
        remaining = {kind: max(0.0, self.amounts[kind] - self.counted[kind]) for kind in more}
        return [self._row(key, more[key[3]], remaining[key[3]]) for key in self.keys if key[3] in more]

    def ended(self, record: Record) -> list[Settlement]:
        """Count the remaining spending of an attempt that has ended, and release the rest of its reservation."""
        whole = {"usd": record.usd, "tokens": float(record.tokens_in + record.tokens_out)}
        return [self._row(key, whole[key[3]] - self.counted[key[3]], None) for key in self.keys if key[3] in whole]

    def is_overspent(self, kind: str, record: Record) -> bool:
        """Return whether a failed attempt was ended because budgets are used up, rather than by a limit of its own."""
        if not self.keys or self.allowance is None:
            return False
        tokens = record.tokens_in + record.tokens_out
        exceeded = self.allowance.exceeded(record.usd, tokens, used_up=kind == "budget")
        return exceeded is not None and exceeded not in self.allowance.declared

    def _row(self, key: Key, spent: float, remaining: float | None) -> Settlement:
        return _settlement(self.id, self.about["session_id"], self.about["sweep_id"], key, spent, remaining)


def _settlement(
    id: str, session_id: str, sweep_id: str, budget: Key, spent: float | None, remaining: float | None
) -> Settlement:
    scope, key, node, kind = budget
    return Settlement(
        id=id,
        session_id=session_id,
        sweep_id=sweep_id,
        scope=scope,
        key=key,
        node=node,
        kind=kind,
        spent=spent,
        left=remaining,
    )


NOT_RESERVED = Reserved()


class Budgets:
    """The budgets that bind one sweep, as its runner sees them. Threads share it.

    `wall` is the number of seconds that this run may take.
    """

    def __init__(
        self, database: Database, sweep: SweepRow, runner_id: str, workflow: WorkflowFacts, stop: Stop,
        *, wall: float | None = None,
    ) -> None:  # fmt: skip
        self._database = database
        self._sweep = sweep
        self._runner_id = runner_id
        self._stop = stop
        self._wall = wall
        self._ends = None if wall is None else time.monotonic() + wall
        rules = {node.name: node.rules for node in workflow.nodes.values()}
        self._declared = {name: _declared(rule.max_usd, rule.max_tokens) for name, rule in rules.items()}
        self._declared[JUDGING] = None
        self._free = {name: Reserved(allowance=declared) for name, declared in self._declared.items()}
        self._keys: dict[str, tuple[Key, ...]] = {}
        self._seen_keys: frozenset[Key] = frozenset()
        self._late: list[Key] = []  # counted when they appeared
        self._dearest: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()
        self.look()

    def look(self) -> None:
        """Read the budgets again, once a second: those of sessions and projects can change at any time."""
        self._check_wall()
        rows = binding_budgets(self._database, self._sweep)
        keys = [key_of(row) for row in rows]
        new = [key for key in keys if key not in self._seen_keys]
        self._seen_keys = frozenset(keys)
        self._keys = {name: tuple(key for key in keys if _binds(key, name)) for name in self._declared}
        # Only now, when what is spent from here on counts by itself; and once more when what ended until now is there.
        if new or self._late:
            recount(self._database, [*new, *self._late])
        self._late = new
        if keys:
            release_lost(self._database)

    def _check_wall(self) -> None:
        if self._ends is not None and time.monotonic() >= self._ends:
            self._stop.request(f"{WALL} = {self._wall:g} s", limit="wall")

    def bind(self, node: str) -> bool:
        """Return whether any budget applies to a node."""
        return bool(self._keys.get(node))

    def reserve(self, execution_id: str, node: str, *, first: bool = True) -> Reserved:
        """Reserve for an attempt of a node before it starts; wait while running attempts may leave enough.

        Args:
            execution_id: The execution.
            node: The node.
            first: Whether the attempt begins a node run, which counts.

        Raises:
            Stopped: A budget forbids the attempt, and the sweep has been stopped.
        """
        if self._ends is not None:
            self._check_wall()
        self._stop.check()
        keys = self._keys.get(node)
        if not keys:
            return self._free[node]
        id, pause, has_reserved = new_id(), FIRST_PAUSE_S, False
        declared = self._declared[node] or Allowance()
        amounts = {"node_runs": float(first), "usd": declared.usd, "tokens": declared.tokens}
        sweep = self._sweep
        claim = Claim(id, sweep.session_id, sweep.id, execution_id, self._runner_id, keys, amounts)
        try:
            while True:
                got = reserve(self._database, claim, partial(self._cost, node))
                has_reserved = True
                if isinstance(got, Granted):
                    return self._to_reservation(claim, declared, got)
                if isinstance(got, Reached):
                    self.stop_at(got)
                self._stop.wait(pause)
                pause = min(LONGEST_PAUSE_S, pause * GROWTH)
        except BaseException:
            # A reservation that nothing settles would block others until this runner has ended.
            if has_reserved:
                release(self._database, id)
            raise

    def _cost(self, node: str, connection: sa.Connection) -> Mapping[str, float]:
        """Return the cost of the dearest run of a node, in this sweep if it has one, else in earlier sweeps."""
        cost = self._dearest.get(node)
        if node == JUDGING:
            usd = dearest_judged(connection, self._sweep.id) if cost is None else cost[0]
            return {} if usd is None else {"usd": usd}
        if cost is None:
            earlier_cost = dearest(connection, self._sweep.id, node)
            if earlier_cost is None:
                return {}
            usd, tokens, own = earlier_cost
            # Costs of earlier sweeps are not kept, because this sweep may soon have its own.
            if own:
                with self._lock:
                    self._dearest.setdefault(node, (usd, tokens))
            cost = usd, tokens
        return {"usd": cost[0], "tokens": cost[1]}

    def _to_reservation(self, claim: Claim, declared: Allowance, got: Granted) -> Reserved:
        """Turn a granted claim into an allowance: the limit of the node, else the rest of its budgets."""
        amounts: dict[str, float] = {}
        allowed: dict[str, float | None] = {}
        for kind in ("usd", "tokens"):
            amounts[kind] = got.amounts[kind] or 0.0
            own = getattr(declared, kind)
            allowed[kind] = own if own is not None or kind not in got.remaining else amounts[kind] + got.remaining[kind]
        about = {"session_id": claim.session_id, "sweep_id": claim.sweep_id}
        allowance = Allowance(allowed["usd"], allowed["tokens"], declared.declared)
        return Reserved(claim.id, claim.keys, claim.amounts["node_runs"] == 1, allowance, amounts, about)

    def ended(self, node: str, reserved: Reserved, record: Record, *, accepted: bool) -> list[Settlement]:
        """Return the rows that settle an attempt that has ended."""
        if not reserved.keys and not self._keys.get(node):
            return []
        if accepted and reserved.keys:
            with self._lock:
                usd, tokens = self._dearest.get(node, (0.0, 0.0))
                self._dearest[node] = max(usd, record.usd), max(tokens, float(record.tokens_in + record.tokens_out))
        rows = reserved.ended(record)
        late = [key for key in self._keys.get(node, ()) if key[3] in _SPENT and key not in reserved.keys]
        about = reserved.id, self._sweep.session_id, self._sweep.id
        # Budgets that were added meanwhile: the flush finds out which part of this attempt they have counted.
        return rows + [_settlement(*about, key, None, None) for key in late]

    @contextmanager
    def judging(self, execution_id: str) -> Iterator[Callable[[Sequence[Score]], list[Settlement]]]:
        """Reserve for the judges of a cell. Yields a function from its scores to the rows that settle their cost.

        Raises Stopped, and stops the sweep, if a budget forbids it.
        """
        if not self._keys[JUDGING]:
            yield lambda scores: []
            return
        reserved = self.reserve(execution_id, JUDGING, first=False)
        spent: list[float | None] = []

        def settle(scores: Sequence[Score]) -> list[Settlement]:
            spent.append(spent_of(scores))
            price = sum(score.value or 0.0 for score in scores if score.metric.endswith(".usd"))  # also of what is kept
            with self._lock:
                self._dearest[JUDGING] = max(self._dearest.get(JUDGING, (0.0, 0.0))[0], price), 0.0
            return self.ended(JUDGING, reserved, Record(usd=spent[0] or 0.0), accepted=False)

        try:
            yield settle
        except BaseException:
            self.release(reserved)
            raise
        if None in spent:
            self._stop.request(UNKNOWN_PRICE)

    def release(self, reserved: Reserved) -> None:
        """Release the reservation of a lost attempt, whose rows may be lost, too."""
        if reserved.keys:
            with suppress(StoreError):  # it is released when this runner has ended
                release(self._database, reserved.id)

    def stop_for(self, reserved: Reserved, record: Record) -> None:
        """Stop the sweep after a budget has ended an attempt. Raises Stopped; the node run starts again later.

        The spending of the attempt must be committed by now.
        """
        allowance = reserved.allowance or Allowance()
        kind = allowance.exceeded(record.usd, record.tokens_in + record.tokens_out, used_up=True)
        rows = binding_budgets(self._database, self._sweep)
        tight = [row for row in rows if row.kind == kind and key_of(row) in reserved.keys]
        if tight:
            row = min(tight, key=lambda row: row.most - row.spent)
            self.stop_at(Reached(key_of(row), row.most, row.spent, None))

    def stop_at(self, reached: Reached) -> None:
        """Pause the sweep at a budget. Raises Stopped."""
        record_reached(self._database, self._sweep.session_id, self._sweep.id, reached)
        scope, of, node, kind = reached.key
        name = limit_name(node, kind)
        maximum = figure(kind, reached.limit)
        spending = f"spent {figure(kind, reached.spent)}"
        spending += "" if reached.requested is None else f", {figure(kind, reached.requested)} wanted"
        if scope == "sweep":
            more = "" if kind == "node_runs" else f" ({spending})"
            self._stop.request(f"limit reached: {name} = {maximum}{more}", limit=name)
        else:
            called = current_name(self._database, self._sweep.session_id) if scope == "session" else of
            text = f"budget of {scope} {called!r} reached: {name} = {maximum} ({spending})"
            self._stop.request(text, limit=f"{scope} {kind}")
        self._stop.check()


def _binds(key: Key, node: str) -> bool:
    """Return whether a budget applies to a node. Judges are counted apart from nodes."""
    return key[2] == node or (not key[2] and node != JUDGING)


def _declared(usd: float | None, tokens: int | None) -> Allowance | None:
    if usd is None and tokens is None:
        return None
    amounts: tuple[tuple[Kind, float | None], ...] = (("usd", usd), ("tokens", tokens))
    names = tuple(kind for kind, amount in amounts if amount is not None)
    return Allowance(usd, None if tokens is None else float(tokens), names)


def budget_documents(database: Database, sweep_id: str | None = None) -> list[BudgetDocument]:
    """Return budgets as documents; with `sweep_id`, only those that bind the sweep."""
    return [
        {
            "scope": row.scope,
            "name": row.name if row.name is not None else row.key,
            "key": row.key,
            "node": row.node or None,
            "kind": row.kind,
            "most": row.most,
            "spent": row.spent,
            "reserved": row.reserved,
        }
        for row in budget_rows(database, sweep_id=sweep_id)
    ]


def raising(limit: str | None, sweep: SweepRow) -> tuple[str, str | None]:
    """Return the way past a limit: options to add to `wtb resume SWEEP`, and a command to run first, if any."""
    if limit is None:
        return "", None
    scope, _, kind = limit.rpartition(" ")
    option = f"--{kind.replace('_', '-')} MORE"
    if scope == "session":
        return "", f"wtb admin session change {shlex.quote(sweep.session)} {option}"
    if scope == "project":
        return "", f"wtb admin budget set --project {shlex.quote(sweep.project)} {option}"
    if scope == "token":
        return "", f"wtb admin budget set --token {shlex.quote(sweep.token or '')} {option}"
    return f" --limits {limit}=MORE", None


def limit_of(reason: str | None) -> str | None:
    """Return the limit for which a sweep was paused, read from its reason, for `raising`; None if it was no limit."""
    if match := _LIMIT.match(reason or ""):
        return match["name"] if match["scope"] is None else f"{match['scope']} {match['name']}"
    return None
