"""The public surface is small, and changes on purpose only."""

from __future__ import annotations

import subprocess
import sys

import pytest

import wtb


def test_the_exported_names_are_these() -> None:
    assert set(wtb.__all__) == {
        "END",
        "Backoff",
        "Context",
        "FinalError",
        "InputError",
        "Node",
        "Sweep",
        "SweepResult",
        "Variant",
        "WTBError",
        "Workflow",
        "evaluator",
    }


def test_every_exported_name_is_there() -> None:
    assert all(getattr(wtb, name) is not None for name in wtb.__all__)


@pytest.mark.parametrize("module", ["wtb.execution.runtime.sweep_run", "wtb_workers.process", "wtb_scheduler.rounds"])
def test_who_runs_sweeps_starts_without_what_only_conclusions_need(module: str) -> None:
    code = f"import sys, {module}; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_importing_wtb_imports_nothing_heavy() -> None:
    heavy = "{'sqlalchemy', 'pydantic', 'numpy', 'typer', 'rich', 'orjson', 'psycopg'}"
    code = f"import sys, wtb; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
