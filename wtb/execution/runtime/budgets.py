"""Budgets of a sweep that runs here: what an attempt reserves before it starts, and what it may spend.

The ledger is in the database (store/limits/reservations.py), so that a cap holds for all who run sweeps of a session or
project. Where no budget applies, nothing is asked.
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

from wtb.authoring.context.allowance import Allowance, Kind
from wtb.authoring.context.attempt_record import Record
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.errors import StoreError
from wtb.core.ids import new_id
from wtb.core.scoring.judgement import JUDGING, UNKNOWN_PRICE, limit_name
from wtb.core.scoring.measure import Score, spent_of
from wtb.core.stop import WALL, Stop
from wtb.store.database import Database
from wtb.store.limits.budgets import Key, binding_budgets, budget_rows, dearest, dearest_judged, figure, key_of, recount
from wtb.store.limits.reservations import (
    Claim,
    Granted,
    Reached,
    Settlement,
    record_reached,
    release,
    release_lost,
    reserve,
)
from wtb.store.limits.sessions import current_name
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.costs import BudgetDocument


_LIMIT = re.compile(
    r"(?:limit|budget of (?P<scope>session|project|token) .*?) reached: (?P<name>\S+) = "
)  # see `stop_at`
_SPENT = ("usd", "tokens")  # kinds that the end of an attempt counts

FIRST_PAUSE_S, LONGEST_PAUSE_S, GROWTH = 0.005, 0.2, 1.3  # between two questions whether there is room now


@dataclass
class Reserved:
    """What is reserved for an attempt. Where no budget applies it settles nothing.

    keys: the budgets that apply. first: the attempt begins a node run. amounts: by kind, what was reserved.
    """

    id: str = ""
    keys: Sequence[Key] = ()
    first: bool = True
    allowance: Allowance | None = None
    amounts: Mapping[str, float] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)
    counted: dict[str, float] = field(default_factory=lambda: {"usd": 0.0, "tokens": 0.0})

    def begun(self) -> list[Settlement]:
        """The node run is there: it counts. Rows for the journal, as of the others."""
        return [self._row(key, 1.0, None) for key in self.keys if key[3] == "node_runs" and self.first]

    def spent(self, usd: float, tokens: float) -> list[Settlement]:
        """Record what a running attempt has spent."""
        if not self.keys:
            return []
        more = {"usd": usd, "tokens": tokens}
        for kind, amount in more.items():
            self.counted[kind] += amount
        left = {kind: max(0.0, self.amounts[kind] - self.counted[kind]) for kind in more}
        return [self._row(key, more[key[3]], left[key[3]]) for key in self.keys if key[3] in more]

    def ended(self, record: Record) -> list[Settlement]:
        """The attempt has ended: what was not counted yet counts, and what it left can be had."""
        whole = {"usd": record.usd, "tokens": float(record.tokens_in + record.tokens_out)}
        return [self._row(key, whole[key[3]] - self.counted[key[3]], None) for key in self.keys if key[3] in whole]

    def is_overspent(self, kind: str, record: Record) -> bool:
        """Return whether a failed attempt was ended because budgets are used up, rather than by a limit of its own."""
        if not self.keys or self.allowance is None:
            return False
        tokens = record.tokens_in + record.tokens_out
        exceeded = self.allowance.exceeded(record.usd, tokens, used_up=kind == "budget")
        return exceeded is not None and exceeded not in self.allowance.declared

    def _row(self, key: Key, spent: float, left: float | None) -> Settlement:
        return _settlement(self.id, self.about["session_id"], self.about["sweep_id"], key, spent, left)


def _settlement(
    id: str, session_id: str, sweep_id: str, budget: Key, spent: float | None, left: float | None
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
        left=left,
    )


NOT_RESERVED = Reserved()


class Budgets:
    """The budgets that bind one sweep, as its runner sees them. Threads share it.

    wall: seconds that this run may take.
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
        self._declared = {name: _declared(one.max_usd, one.max_tokens) for name, one in rules.items()}
        self._declared[JUDGING] = None
        self._free = {name: Reserved(allowance=declared) for name, declared in self._declared.items()}
        self._keys: dict[str, tuple[Key, ...]] = {}
        self._known: frozenset[Key] = frozenset()
        self._late: list[Key] = []  # counted when they appeared
        self._dearest: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()
        self.look()

    def look(self) -> None:
        """Once a second: budgets may be given to a session or project at any time, and be lifted; time passes."""
        self._check_wall()
        rows = binding_budgets(self._database, self._sweep)
        keys = [key_of(row) for row in rows]
        new = [key for key in keys if key not in self._known]
        self._known = frozenset(keys)
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
        """Reserve for an attempt of a node before it starts; wait while those under way may leave enough.

        first: it begins a node run, which counts. Raises Stopped, and stops the sweep, where a budget forbids it.
        """
        if self._ends is not None:
            self._check_wall()
        self._stop.check()
        keys = self._keys.get(node)
        if not keys:
            return self._free[node]
        id, pause, asked = new_id(), FIRST_PAUSE_S, False
        declared = self._declared[node] or Allowance()
        amounts = {"node_runs": float(first), "usd": declared.usd, "tokens": declared.tokens}
        sweep = self._sweep
        claim = Claim(id, sweep.session_id, sweep.id, execution_id, self._runner_id, keys, amounts)
        try:
            while True:
                got = reserve(self._database, claim, partial(self._cost, node))
                asked = True
                if isinstance(got, Granted):
                    return self._to_reservation(claim, declared, got)
                if isinstance(got, Reached):
                    self.stop_at(got)
                self._stop.wait(pause)
                pause = min(LONGEST_PAUSE_S, pause * GROWTH)
        except BaseException:
            if asked:
                release(self._database, id)
            raise

    def _cost(self, node: str, connection: sa.Connection) -> Mapping[str, float]:
        """What the dearest run of a node has cost: of this sweep, as far as it is known here, else of earlier ones."""
        known = self._dearest.get(node)
        if node == JUDGING:
            usd = dearest_judged(connection, self._sweep.id) if known is None else known[0]
            return {} if usd is None else {"usd": usd}
        if known is None:
            found = dearest(connection, self._sweep.id, node)
            if found is None:
                return {}
            usd, tokens, own = found
            if own:
                with self._lock:
                    self._dearest.setdefault(node, (usd, tokens))
            known = usd, tokens
        return {"usd": known[0], "tokens": known[1]}

    def _to_reservation(self, claim: Claim, declared: Allowance, got: Granted) -> Reserved:
        """Turn a granted claim into what the attempt may spend: its own limit, else what its budgets leave."""
        amounts: dict[str, float] = {}
        allowed: dict[str, float | None] = {}
        for kind in ("usd", "tokens"):
            amounts[kind] = got.amounts[kind] or 0.0
            own = getattr(declared, kind)
            allowed[kind] = own if own is not None or kind not in got.left else amounts[kind] + got.left[kind]
        about = {"session_id": claim.session_id, "sweep_id": claim.sweep_id}
        allowance = Allowance(allowed["usd"], allowed["tokens"], declared.declared)
        return Reserved(claim.id, claim.keys, claim.amounts["node_runs"] == 1, allowance, amounts, about)

    def ended(self, node: str, reserved: Reserved, record: Record, *, accepted: bool) -> list[Settlement]:
        """An attempt has ended: the rows that settle it."""
        if not reserved.keys and not self._keys.get(node):
            return []
        if accepted and reserved.keys:
            with self._lock:
                usd, tokens = self._dearest.get(node, (0.0, 0.0))
                self._dearest[node] = max(usd, record.usd), max(tokens, float(record.tokens_in + record.tokens_out))
        rows = reserved.ended(record)
        late = [key for key in self._keys.get(node, ()) if key[3] in _SPENT and key not in reserved.keys]
        about = reserved.id, self._sweep.session_id, self._sweep.id
        # Budgets that were given meanwhile: what of this attempt they know of is found when it is recorded.
        return rows + [_settlement(*about, key, None, None) for key in late]

    @contextmanager
    def judging(self, execution_id: str) -> Iterator[Callable[[Sequence[Score]], list[Settlement]]]:
        """Reserve for the judges of a cell. Yields what makes of its scores the rows that settle what they spent.

        Raises Stopped, and stops the sweep, where a budget forbids to judge.
        """
        if not self._keys[JUDGING]:
            yield lambda scores: []
            return
        reserved = self.reserve(execution_id, JUDGING, first=False)
        spent: list[float | None] = []

        def settled(scores: Sequence[Score]) -> list[Settlement]:
            spent.append(spent_of(scores))
            price = sum(one.value or 0.0 for one in scores if one.metric.endswith(".usd"))  # also of what is kept
            with self._lock:
                self._dearest[JUDGING] = max(self._dearest.get(JUDGING, (0.0, 0.0))[0], price), 0.0
            return self.ended(JUDGING, reserved, Record(usd=spent[0] or 0.0), accepted=False)

        try:
            yield settled
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
        """An attempt was ended since a budget left nothing more. Raises Stopped; the node run starts again later.

        What the attempt spent is committed by now.
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
        most = figure(kind, reached.most)
        spending = f"spent {figure(kind, reached.spent)}"
        spending += "" if reached.wanted is None else f", {figure(kind, reached.wanted)} wanted"
        if scope == "sweep":
            more = "" if kind == "node_runs" else f" ({spending})"
            self._stop.request(f"limit reached: {name} = {most}{more}", limit=name)
        else:
            called = current_name(self._database, self._sweep.session_id) if scope == "session" else of
            text = f"budget of {scope} {called!r} reached: {name} = {most} ({spending})"
            self._stop.request(text, limit=f"{scope} {kind}")
        self._stop.check()


def _binds(key: Key, node: str) -> bool:
    """Whether a budget is of a node; what judges cost is told apart from what the sweep does."""
    return key[2] == node or (not key[2] and node != JUDGING)


def _declared(usd: float | None, tokens: int | None) -> Allowance | None:
    if usd is None and tokens is None:
        return None
    given: tuple[tuple[Kind, float | None], ...] = (("usd", usd), ("tokens", tokens))
    names = tuple(kind for kind, most in given if most is not None)
    return Allowance(usd, None if tokens is None else float(tokens), names)


def budget_documents(database: Database, sweep_id: str | None = None) -> list[BudgetDocument]:
    """Budgets as documents; those that bind a sweep where one is named."""
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
    """How to go on past a limit: what to add to `wtb resume SWEEP`, and the command before it where there is one."""
    if limit is None:
        return "", None
    scope, _, kind = limit.rpartition(" ")
    option = f"--{kind.replace('_', '-')} MORE"
    if scope == "session":
        return "", f"wtb session change {shlex.quote(sweep.session)} {option}"
    if scope == "project":
        return "", f"wtb budget set --project {shlex.quote(sweep.project)} {option}"
    if scope == "token":
        return "", f"wtb budget set --token {shlex.quote(sweep.token or '')} {option}"
    return f" --limits {limit}=MORE", None


def limit_of(reason: str | None) -> str | None:
    """The limit for which a sweep was paused, by its reason: what `raising` takes. None where it was no limit."""
    if found := _LIMIT.match(reason or ""):
        return found["name"] if found["scope"] is None else f"{found['scope']} {found['name']}"
    return None
