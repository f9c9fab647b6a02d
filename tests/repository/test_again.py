"""CI repeats failed tests once, and only if the run completed and few tests failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import again

TESTS = """
def test_now_well():
    pass

def test_wrong():
    raise AssertionError
"""
WELL, WRONG = "test_it.py::test_now_well", "test_it.py::test_wrong"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def note(failed: list[str], status: int) -> None:
    for name, value in {"cache/lastfailed": dict.fromkeys(failed, True), again.STATUS: status}.items():
        path = again.CACHE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))


def test_what_passes_alone_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    note([WELL], pytest.ExitCode.TESTS_FAILED)
    assert again.main() == 0
    assert WELL in capfd.readouterr().err


def test_what_fails_again_fails() -> None:
    note([WELL, WRONG], pytest.ExitCode.TESTS_FAILED)
    assert again.main() == 1


@pytest.mark.parametrize("status", [pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR])
def test_a_run_that_broke_off_is_not_repaired_by_it(status: pytest.ExitCode) -> None:
    note([WELL], status)
    assert again.main() == 1


def test_nothing_is_tried_where_many_failed_or_nobody_knows_what(folder: Path) -> None:
    assert again.main() == 1
    note([f"{WELL}[{number}]" for number in range(again.MAX_FAILED + 1)], pytest.ExitCode.TESTS_FAILED)
    assert again.main() == 1
