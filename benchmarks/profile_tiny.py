"""`python -m benchmarks.profile_tiny [graph]`: profile T by module, on one slot and SQLite.

`graph`: T as a graph of LangGraph. The slot and the journal's thread are profiled apart; the profiler's own cost is in
the figures, so read them as shares.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import wtb
from benchmarks.harness.environment import environment
from benchmarks.harness.timing import timed
from benchmarks.workloads import chain, graph
from wtb.execution.runtime import sweep_context
from wtb.execution.runtime.thread_pool import LocalPool
from wtb.store.database import Database
from wtb.store.runs.flush import flush

OURS = str(Path(wtb.__file__).parent)
FUNCTIONS_SHOWN = 12


def main() -> None:
    workflow = (graph if sys.argv[1:] == ["graph"] else chain).workflow()
    slot, journal = cProfile.Profile(), cProfile.Profile()
    work = LocalPool.work

    def profiled_work(pool: LocalPool, run: Any) -> None:
        slot.runcall(work, pool, run)

    def profiled_flush(*arguments: Any) -> set[str]:
        lost: set[str] = journal.runcall(flush, *arguments)
        return lost

    with environment() as place:
        database = Database(place.fresh("sqlite"))
        database.prepare()
        timed(database, workflow, cases=1, slots=1)
        with patch.object(LocalPool, "work", profiled_work), patch.object(sweep_context, "flush", profiled_flush):
            timed(database, workflow, slots=1)
        database.close()
    _show("slot: nodes, engine, runner", slot)
    _show("journal's thread: the flush", journal)


def _show(title: str, profile: cProfile.Profile) -> None:
    spent: Counter[str] = Counter()
    for (file, _, function), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        spent[_module(file, function)] += own
    whole = sum(spent.values())
    print(f"{title}: {whole:.3f} s")
    for name, seconds in spent.most_common(FUNCTIONS_SHOWN):
        print(f"  {seconds / whole:5.0%}  {name}")


def _module(file: str, function: str) -> str:
    if file.startswith(OURS):
        return str(Path(file).relative_to(OURS).with_suffix(""))
    if file == "~":
        return "SQLite" if "sqlite3" in function else "Python's builtins"
    packages = ("sqlalchemy", "benchmarks", "langgraph", "langchain_core", "langsmith")
    return next((name for name in packages if name in file), "Python's library")


if __name__ == "__main__":
    main()
