"""The tests follow the packages: tests/<package>/ tests that package of wtb/ (tests/cli the commands, as users call
them), workers/ and repository/ what else is installed and what the repository itself promises. What goes across:

    acceptance/   documents, examples, deployments and LangGraph graphs, from one end to the other
    faults/       what is killed, full, late or broken, in nodes, in runners and among workers
    fuzz/         hostile input and hostile nodes; chaos/ (`make chaos`) storms of faults, counted

Fixtures that everybody may ask for, each in its file of support/:

    databases.py  a database of the test's own (`database_url`, empty; `prepared_url`, with the tables): SQLite and
                  PostgreSQL, the tests of store/ on both, others on one that their name draws, and on the other one
                  in `make test-all`; `fresh_postgres_url` and `prepared_postgres_url` on that alone
    bench.py      sweeps in the test's process, and their rows: `bench`, `run_sweep`, `memory_bench`
    project.py    a user's folder and the command `wtb` in it: `project`, `shared_project`, `empty_project`
    crew.py       a worker and a scheduler that the tests of a module share: `crew`
    cluster.py    workers, schedulers and a broker of the test's own, to be killed: `cluster`, `make_cluster`

Commands and node processes are forks of processes that have imported everything (forkserver.py). A mark asks for other
node processes: `nodes("langgraph")` for those that know LangGraph, `nodes("clients")` for those that know clients of
models and of MCP servers, `nodes("started")` for those that users get.

Each process of a run has one PostgreSQL. Tests of a module that share one of its fixtures run in one process.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import again
from tests.support import forkserver
from wtb.config import credentials
from wtb.config.distribution import start_collecting

# What is imported and collected stays until the end: looking through it for garbage took a fifth of the collection.
gc.disable()

# On a machine that does other things too, examples are slow to make.
settings.register_profile("tests", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

DATABASES = ("sqlite", "postgresql")

pytest_plugins = [
    f"tests.support.{name}"
    for name in ("deadlines", "databases", "next_version", "bench", "project", "cluster", "crew", "report_page")
]

# What tests start is to heed Ctrl-C and the end of a terminal, also where the tests themselves run in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config: pytest.Config) -> None:
    """Have temporary directories made in memory: a short sweep commits thirty times, and would wait for the disk."""
    forkserver.share_servers(getattr(config, "workerinput", {}).get("servers", []))
    from tests.support.databases import quick_disk  # here, since pytest rewrites it when it becomes a plugin

    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", quick_disk())
    os.environ.setdefault("WTB_WRITABLE", quick_disk())  # nodes of tests leave marks beside their code


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say where the node processes of a test come from, before its fixtures start any."""
    mark = item.get_closest_marker("nodes")
    kind = mark.args[0] if mark else "plain"
    forkserver.fork_nodes(None if kind == "started" or "faults" in item.path.parts else kind)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make test-all` what repeats a test on the other database, but in store/, which is about them."""
    for test in items:
        params = test.callspec.params if hasattr(test, "callspec") else {}
        kind = params.get("prepared_url") or params.get("database_url")
        if kind and "store" not in test.path.parts:
            drawn = DATABASES[zlib.crc32(test.nodeid.replace(kind, "").encode()) % len(DATABASES)]
            if kind != drawn:
                test.add_marker(pytest.mark.slow)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Note how the run ended: only what has come to its end is tried again."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set(again.STATUS, int(exitstatus))


# Tests are handed out one by one, but for those of a module that share one of its fixtures: these run in one process,
# so that it is made once. xdist's own groups are marks in the names of tests, which pytest 9.2 does not let it change.


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of the tests where to say which tests belong together, and who forks processes for it."""
    from tests.support.cluster import server_settings

    node.workerinput["groups"] = str(_groups_of(os.getpid()))
    node.workerinput["servers"] = forkserver.start_servers(server_settings())


@pytest.hookimpl(tryfirst=True)  # before xdist reports the tests
def pytest_collection_finish(session: pytest.Session) -> None:
    start_collecting()
    settings = getattr(session.config, "workerinput", {})
    if settings.get("workerid") == "gw0":
        groups = {test.nodeid: str(test.path) for test in session.items if _shares_a_fixture(test)}
        Path(settings["groups"]).write_text(json.dumps(groups), "utf-8")


def _shares_a_fixture(test: Any) -> bool:
    fixtures = (fixture for definitions in test._fixtureinfo.name2fixturedefs.values() for fixture in definitions)
    return any(fixture.scope == "module" for fixture in fixtures)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):  # type: ignore[misc]
        """Groups first, the largest before the others, then single tests in their order."""

        def schedule(self) -> None:
            file = _groups_of(os.getpid())
            if file.exists():  # every process has collected, the first one included
                self._group_of = json.loads(file.read_text("utf-8"))
                file.unlink()
            super().schedule()
            for node in self.nodes:  # it begins a test when it has the next one: one that joins late was given one
                self._reschedule(node)

        def _split_scope(self, nodeid: str) -> str:
            return str(self._group_of.get(nodeid, nodeid))

        def remove_node(self, node: Any) -> str | None:
            """Drop the test that ended its process, and hand out again only the tests that had not run."""
            scopes = self.assigned_work[node].items()
            unfinished = {scope: [test for test, done in tests.items() if not done] for scope, tests in scopes}
            pending = [test for tests in unfinished.values() for test in tests]
            crashed = pending[0] if pending else None
            rest = {scope: {test: False for test in tests if test != crashed} for scope, tests in unfinished.items()}
            self.assigned_work[node] = {scope: tests for scope, tests in rest.items() if tests}
            super().remove_node(node)
            return crashed

    return Groups(config, log) if config.getvalue("dist") == "loadgroup" else None


def _groups_of(pid: int) -> Path:
    return Path(tempfile.gettempdir(), f"wtb-test-groups-{pid}.json")


@pytest.fixture(autouse=True)
def own_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget what a test imports from its folder: the next test may have a module of the same name."""
    from tests.support.project import forget_modules_of  # pytest rewrites it first

    before = set(sys.modules)
    yield
    forget_modules_of(tmp_path_factory.getbasetemp(), sys.modules.keys() - before)


@pytest.fixture(autouse=True)
def own_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the credentials that a test stored: the next one would use the wrong database."""
    monkeypatch.setattr(credentials, "_credentials", {})
