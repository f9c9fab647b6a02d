"""A follower of a sweep misses nothing and gets nothing twice, whatever breaks on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

import wtb
from tests.hosting.api.serving import TOKEN, Server
from tests.hosting.client.proxies import CuttingProxy
from tests.support.project import Project, Running
from tests.support.prose import sentence
from wtb.core.errors import InputError, ServerError
from wtb.hosting.client import following

# Each run of node B waits until one more of them may end, so that the test says how far the sweep is.
WAITS = """
import time
from pathlib import Path

from wtb import Workflow

HERE = Path(__file__).parent
wf = Workflow("waits", state=dict)


@wf.node
def A(state):
    return {"a": state["x"] + 1}


@wf.node
def B(state):
    ended = len(list(HERE.glob("ended-*")))
    while len(list(HERE.glob("may-end-*"))) <= ended:
        time.sleep(0.01)
    (HERE / f"ended-{ended}").touch()
    return {"b": state["a"] + 1}


wf.entry(A)
wf.edge(A, B)
"""
SWEEP = "sweep: waits\nworkflow: waits:wf\ncases: cases.jsonl\nvary: {A: all, B: all}\n"


class Followed:
    """A sweep that runs here, each of whose cases ends when the test says so, and a server of its database."""

    def __init__(self, project: Project) -> None:
        self.project = project
        project.write({"waits.py": WAITS, "sweep.yaml": SWEEP, "cases.jsonl": Project.cases(8)})
        self.run: Running = project.start("run", "sweep.yaml", "--concurrency", "1")
        project.until(lambda: project.query("SELECT 1 FROM events"), "the sweep to begin")
        self.server = Server(project)
        self.server.start()
        self._may_end = 0

    def let_end(self, cases: int = 1) -> None:
        """Have so many more cases end."""
        for _ in range(cases):
            (self.project.folder / f"may-end-{self._may_end}").touch()
            self._may_end += 1

    def logged(self) -> list[int]:
        lines = self.project.inside("log", "waits", "--format", "json", check=0).stdout.splitlines()
        return [json.loads(line)["id"] for line in lines]


@pytest.fixture
def followed(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Followed]:
    monkeypatch.setattr(following, "_LONGEST_PAUSE_S", 0.05)  # who waits that long between connections has them all
    followed = Followed(project)
    yield followed
    followed.server.kill()


@pytest.mark.slow
def test_nothing_is_missed_where_the_server_is_killed_and_a_proxy_cuts(followed: Followed) -> None:
    proxy = CuttingProxy(followed.server.port, blocks=2)
    seen, ended = [], 0
    followed.let_end()
    with wtb.open(proxy.url, token=TOKEN) as bench:
        for event in bench.sweep("waits").follow():
            seen.append(event["id"])
            if event["kind"] == "cell.succeeded":
                ended += 1
                if ended in (2, 5):
                    followed.server.kill()
                    followed.let_end()
                    followed.server.start()
                else:
                    followed.let_end()
        assert bench.sweep("waits").status == "completed"
    followed.run.wait(check=0)
    assert seen == followed.logged()
    assert proxy.cuts >= 2
    proxy.close()


def test_a_program_with_an_event_loop_misses_nothing_either(followed: Followed) -> None:
    proxy = CuttingProxy(followed.server.port, blocks=2)

    async def follow() -> list[int]:
        seen = []
        followed.let_end()
        with wtb.open(proxy.url, token=TOKEN) as bench:
            sweep = await asyncio.to_thread(bench.sweep, "waits")
            waits = asyncio.create_task(sweep.wait_async())
            async for event in sweep.follow_async(kinds=["cell"]):
                seen.append(event["id"])
                followed.let_end()
            assert (await asyncio.to_thread((await waits).details))["sweep"]["status"] == "completed"
        return seen

    seen = asyncio.run(follow())
    followed.run.wait(check=0)
    lines = followed.project.inside("log", "waits", "--kind", "cell", "--format", "json", check=0).stdout.splitlines()
    assert seen == [json.loads(line)["id"] for line in lines]
    assert len(seen) == 8
    proxy.close()


def test_waiting_outlives_the_server(followed: Followed) -> None:
    url = f"http://127.0.0.1:{followed.server.port}"
    looks = []

    def look(progress: object) -> None:
        looks.append(progress)
        if len(looks) == 1:
            followed.server.kill()
            followed.let_end(8)
            followed.server.start()

    with wtb.open(url, token=TOKEN) as bench:
        sweep = bench.sweep("waits")
        assert sweep.wait(timeout=0).status == "running"
        assert sweep.wait(progress=look).status == "completed"
        assert sweep.record.counts["succeeded"] == 8
        with pytest.raises(InputError, match=sentence("there is no sweep {}", "'nothing'")):
            bench.sweep("nothing")
        with pytest.raises(InputError, match=sentence("is not a severity")):
            next(sweep.iter_events(severity="loud"))
    followed.run.wait(check=0)
    followed.server.kill()
    with wtb.open(url, token=TOKEN) as bench, pytest.raises(ServerError, match="cannot be reached"):
        bench.sweep("waits")
