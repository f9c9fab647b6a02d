"""LangGraph's own tests of checkpointers, from the release that is installed, pass on `Saver`."""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Collection, Mapping
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.project import run_program

SUITE = Path(__file__).parent / "langgraph_suite"
KNOWN_FAILURES: dict[str, dict[str, str]] = tomllib.loads((SUITE / "known_failures.toml").read_text())
TRIES = 3  # some expect an order that 10 ms of sleep make, which a busy machine does not keep
FIXTURES = ("sync_checkpointer", "async_checkpointer")


@pytest.fixture(scope="module")
def release(request: pytest.FixtureRequest) -> Path:
    """LangGraph's released source with its tests; it stays on disk for the next run."""
    name = f"langgraph-{version('langgraph')}"
    sources: Path = request.config.rootpath / "build" / name
    if not sources.exists():
        sources.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=sources.parent) as download_folder:
            unpacked = downloaded(name.replace("-", "=="), Path(download_folder)) / name
            if not sources.exists():  # another process was quicker
                unpacked.rename(sources)
    shutil.copy(SUITE / "suite_conftest.py", sources / "tests" / "conftest.py")
    return sources


def downloaded(requirement: str, folder: Path) -> Path:
    """Return a folder with the source of a release. Skip if no registry can be reached, except in CI."""
    options = ["--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, requirement]
    done = run_program(command, timeout=300)
    if done.returncode:
        why = f"pip cannot download the source of {requirement}: {done.stderr.strip()[-500:]}"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        if hasattr(tarfile, "data_filter"):  # not in the first releases of Python 3.11
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)
    return folder


def run(release: Path, report: Path, tests: Collection[str], database_url: str | None) -> dict[str, str | None]:
    """Run tests of the release. Return their outcome by name: None if they passed, else the end of the error."""
    outside = {key: setting for key, setting in os.environ.items() if not key.startswith(("PYTEST_", "WTB_", "LANG"))}
    suite_environment = {"WTB_SUITE_DATABASE": database_url} if database_url else {}
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:wtb", "-o", "addopts=", "--tb=short"]
    command = [sys.executable, "-m", "pytest", *options, f"--rootdir={release}", f"--junitxml={report}", *tests]
    done = run_program(command, cwd=release, env=outside | suite_environment, timeout=1800)
    assert done.returncode in (0, 1), done.stdout[-5000:] + done.stderr[-5000:]
    return dict(outcome(case) for case in ElementTree.parse(report).iter("testcase"))


def outcome(case: ElementTree.Element) -> tuple[str, str | None]:
    bad = next((problem for kind in ("failure", "error") if (problem := case.find(kind)) is not None), None)
    file = case.attrib["classname"].rpartition(".")[2] + ".py"
    return f"{file}::{case.attrib['name']}", None if bad is None else (bad.text or "")[-1000:]


def failed(outcomes: Mapping[str, str | None]) -> dict[str, str]:
    return {name: error for name, error in outcomes.items() if error is not None}


@pytest.mark.slow
def test_langgraphs_own_tests_of_checkpointers_pass(release: Path, tmp_path: Path, database_url: str) -> None:
    of_release = sorted((release / "tests").glob("test_*.py"))
    used = [file for file in of_release if any(fixture in file.read_text() for fixture in FIXTURES)]
    files = [str(file.relative_to(release)) for file in used]

    outcomes = run(release, tmp_path / "report.xml", files, database_url)

    known_failures = {**KNOWN_FAILURES["saver"], **KNOWN_FAILURES["both"]}
    bad = failed(outcomes)
    unknown = {name: error for name, error in bad.items() if name not in known_failures}
    for number in range(TRIES if len(unknown) < 5 else 0):
        if unknown:
            rerun = run(release, tmp_path / f"again-{number}.xml", [f"tests/{name}" for name in unknown], database_url)
            unknown = failed(rerun)
    assert unknown == {}
    assert sorted(known_failures.keys() - bad.keys()) == [], "listed as failing, and passed: take them off the list"
    assert len(outcomes) > 600
    assert len(KNOWN_FAILURES["saver"]) <= 2


@pytest.mark.slow
def test_what_is_listed_as_failing_with_any_checkpointer_fails_with_langgraphs_own(
    release: Path, tmp_path: Path
) -> None:
    outcomes = run(release, tmp_path / "report.xml", [f"tests/{name}" for name in KNOWN_FAILURES["both"]], None)

    assert failed(outcomes).keys() == KNOWN_FAILURES["both"].keys()
