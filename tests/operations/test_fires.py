"""Schedules and their fires in the database, and carrying out a fire as its process does."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support import prose
from tests.support.bench import in_memory
from wtb.config import webhooks
from wtb.core.cron import TRIES
from wtb.core.errors import ConflictError
from wtb.features.schedules import fire as firing
from wtb.features.schedules import queries as store
from wtb.features.schedules.fire import carry_out
from wtb.features.schedules.history import check_schedule, history
from wtb.operations.context import Context
from wtb.store.access.sessions import create
from wtb.store.database import Database
from wtb.store.housekeeping.deletion import delete_session, delete_sweep
from wtb.store.read.baselines import Fire, fire_rows
from wtb.store.tables.schema import fires, now, schedules, sweeps

FLOW = """
from typing import TypedDict

from wtb import END, Workflow


class State(TypedDict):
    x: int


wf = Workflow("flow", state=State, input=State)


@wf.node
def A(state):
    {body}


wf.entry(A)
wf.edge(A, END)


def score(case, result):
    return result.state["x"]
"""
AS_IT_WAS = 'return {"x": state["x"] + 1}'
A_DAY = 86_400.0


class Cron:
    """A folder with a sweep file, and schedules of it."""

    def __init__(self, database: Database, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.database = database
        self.folder = folder
        self._patch = patch
        patch.chdir(folder)
        (folder / "cases.json").write_text(json.dumps([{"id": f"c{n}", "input": {"x": n}} for n in range(8)]))
        # Threads are quicker, and refused where workers have a role of their own.
        pool = "thread" if database.is_sqlite else "process"
        (folder / "sweep.yaml").write_text(
            "workflow: cronflow:wf\ncases: cases.json\nvary: {A: all}\nevaluate: ['cronflow:score']\n"
            f"run: {{pool: {pool}}}\n"
        )
        self.code(AS_IT_WAS)
        self.messages: list[str] = []

    def code(self, body: str) -> None:
        """Change the workflow, as it is read by the next process."""
        import sys

        sys.modules.pop("cronflow", None)
        self._patch.setattr(sys, "dont_write_bytecode", True)
        self._patch.syspath_prepend(self.folder)
        (self.folder / "cronflow.py").write_text(FLOW.format(body=body))

    def add(self, name: str = "nightly", **more: Any) -> store.Schedule:
        row = {"name": name, "cron": "0 3 * * *", "tz": "UTC", "missed": "once", "queued": False}
        row |= {"file": str(self.folder / "sweep.yaml"), "folder": str(self.folder), "session": "default"}
        return store.add_schedule(
            self.database, store.NewSchedule(**{**row, "margin": {}, "notify": {}, "baseline": "last", **more})
        )

    def is_due(self, ago: float = 1.0) -> None:
        """Let the next fire have been due some seconds ago."""
        self.database.execute(schedules.update().values(next_at=now() - ago))

    def was_down(self, days: int) -> None:
        """Let nothing have looked for so many days."""
        self.database.execute(schedules.update().values(next_at=schedules.c.next_at - days * A_DAY))

    def make(self) -> Fire:
        """Make a fire that is due, and return its row."""
        store.make_manual(self.database, store.find_schedule(self.database, "nightly").id)
        return store.open_fires(self.database)[-1]

    def claim(self, fire: Fire) -> Fire:
        claimed = store.claim(self.database, fire)
        assert claimed is not None
        return claimed

    def carry(self, fire: Fire) -> Fire:
        """Claim a fire and carry it out, as a child of a scheduler does. Its row afterwards."""
        self.carry_out(self.claim(fire))
        return self.row(fire)

    def carry_out(self, claimed: Fire, **options: Any) -> None:
        carry_out(Context(self.database, report=self.messages.append, **options), claimed)

    def row(self, fire: Fire) -> Fire:
        rows = fire_rows(self.database, fire.schedule_id)
        return next(row for row in rows if row.fire_at == fire.fire_at)

    def count(self, table: sa.Table) -> int:
        with self.database.read() as connection:
            return connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0


@pytest.fixture
def cron(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cron:
    return Cron(database, tmp_path, monkeypatch)


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cron]:
    """The same in memory, for tests that do not depend on the database."""
    database = in_memory()
    yield Cron(database, tmp_path, monkeypatch)
    database.close()


# Making


def test_two_schedulers_at_once_make_one_fire(cron: Cron) -> None:
    cron.add()
    cron.is_due()
    both = threading.Barrier(2)
    due_fires: list[Any] = []

    def look() -> None:
        both.wait()
        due_fires.extend(store.make_due(cron.database))

    with ThreadPoolExecutor(2) as threads:
        for outcome in [threads.submit(look) for _ in range(2)]:
            outcome.result()
    assert len(due_fires) == 1
    assert cron.count(fires) == 1
    assert store.make_due(cron.database) == []


def test_a_clock_that_went_back_makes_no_second_fire(cron: Cron) -> None:
    added = cron.add()
    cron.is_due(3.0)
    (fire,) = store.make_due(cron.database)
    with cron.database.write() as connection:
        connection.execute(fires.update().values(status="judged", verdict="same"))
        connection.execute(schedules.update().values(next_at=fire.fire_at))  # as it stood then
    store.make_due(cron.database)
    assert cron.count(fires) == 1
    assert store.find_schedule(cron.database, "nightly").next_at == added.next_at


def test_fires_missed_in_a_downtime_are_made_up_for_once_and_that_is_said(cron: Cron) -> None:
    cron.add()
    cron.was_down(4)
    (late_fire,) = store.make_due(cron.database)
    (fire,) = store.open_fires(cron.database)
    assert late_fire.fire_at == fire.fire_at
    assert fire.why == [prose.sentence("{} {} before it were missed", 3, "fires")]


def test_missed_fires_can_be_skipped(cron: Cron) -> None:
    cron.add(missed="skip")
    cron.was_down(4)
    (fire,) = store.make_due(cron.database)
    is_hardly_late = fire.fire_at is not None  # where this runs at three o'clock
    assert fire.missed == 4 - is_hardly_late
    assert cron.count(fires) == is_hardly_late


def test_a_fire_that_nobody_has_begun_stands_for_those_that_follow(cron: Cron) -> None:
    cron.add()
    cron.make()
    cron.is_due()
    (fire,) = store.make_due(cron.database)
    assert (fire.fire_at, fire.missed) == (None, 1)
    assert cron.count(fires) == 1


def test_what_a_pause_leaves_out_is_skipped(cron: Cron) -> None:
    added = cron.add()
    assert store.pause_schedule(cron.database, added.id)
    assert store.find_schedule(cron.database, "nightly").next_at is None
    assert store.make_due(cron.database) == []
    assert store.resume_schedule(cron.database, added.id)
    assert not store.resume_schedule(cron.database, added.id)
    assert store.make_due(cron.database) == []
    assert store.find_schedule(cron.database, "nightly").next_at == added.next_at


# Claiming


def test_a_fire_is_claimed_once_and_given_up_after_some_deaths(cron: Cron) -> None:
    cron.add(notify={"command": ["true"]})
    fire = cron.make()
    claimed = cron.claim(fire)
    assert store.claim(cron.database, fire) is None
    for _ in range(TRIES - 1):
        store.release(cron.database, claimed, died=True)
        claimed = cron.claim(cron.row(fire))
    assert store.claim(cron.database, cron.row(fire)) is None, "it is held"
    store.release(cron.database, claimed, died=True)
    assert store.claim(cron.database, cron.row(fire)) is None
    row = cron.row(fire)
    assert (row.status, row.verdict) == ("failed", "failed")
    assert row.why == [prose.sentence("its process died {} times while it {}", 3, "began its sweep")]
    carried_fire = cron.carry(row)
    assert carried_fire.notified_at is not None


def test_files_of_a_fire_are_where_its_context_keeps_them(quick: Cron) -> None:
    (quick.folder / "cases.json").write_text(json.dumps([{"id": "c0", "input": {"x": 0}, "files": {"a.txt": "a.txt"}}]))
    (quick.folder / "a.txt").write_text("abc")
    quick.add()
    quick.carry_out(quick.claim(quick.make()), files=quick.folder / "elsewhere")
    assert (quick.folder / "elsewhere" / "files").is_dir()
    assert not (quick.folder / ".wtb").exists()


def test_a_fire_at_its_end_is_not_held_again_by_a_late_renewal(cron: Cron) -> None:
    cron.add()
    claimed = cron.claim(cron.make())
    assert store.renew(cron.database, claimed)
    assert store.end_fire(cron.database, claimed, "failed", [], baseline=None, notify=False)
    assert not store.renew(cron.database, claimed)
    assert store.open_fires(cron.database) == []


def test_who_lost_a_fire_submits_nothing(cron: Cron) -> None:
    cron.add()
    fire = cron.make()
    first = cron.claim(fire)
    store.release(cron.database, first)  # as if its lease had run out
    second = cron.claim(cron.row(fire))
    cron.carry_out(first)
    assert cron.count(sweeps) == 0
    with pytest.raises(ConflictError), cron.database.write() as connection:
        store.mark_submitted(connection, first, "x")
    cron.carry_out(second)
    assert cron.count(sweeps) == 1
    assert cron.row(fire).status == "judged"


def test_a_schedule_that_is_removed_meanwhile_submits_nothing_and_keeps_its_sweeps(cron: Cron) -> None:
    added = cron.add()
    cron.carry(cron.make())
    claimed = cron.claim(cron.make())
    assert store.remove_schedule(cron.database, added.id) == 2
    cron.carry_out(claimed)
    assert (cron.count(sweeps), cron.count(fires)) == (1, 0)


# Carrying out


def test_a_fire_that_lost_less_than_its_margin_or_is_unclear_ended_well(cron: Cron) -> None:
    cron.add(margin={"score": 2.0})
    first = cron.carry(cron.make())
    cron.code('return {"x": state["x"]}')
    second = cron.carry(cron.make())
    assert (second.verdict, second.baseline_id) == ("not worse", first.sweep_id)
    assert second.why == ["score is not worse in 1 combination: it lost less than its margin of 2 (5% error)"]
    cron.code('return {"x": state["x"] - 20 * (state["x"] == 3)}')
    third = cron.carry(cron.make())
    assert (third.verdict, third.baseline_id) == ("unclear", second.sweep_id)
    assert prose.sentence("its margin of {} takes about", 2) in third.why[0]
    assert not check_schedule(Context(cron.database), "nightly").is_wrong


def test_each_fire_is_compared_with_the_last_good_one(cron: Cron) -> None:
    cron.add()
    first = cron.carry(cron.make())
    assert (first.verdict, first.why) == (
        "cannot tell",
        [prose.sentence("no fire before it ended well, to compare it with")],
    )
    second = cron.carry(cron.make())
    assert (second.verdict, second.baseline_id) == ("same", first.sweep_id)
    cron.code('return {"x": state["x"]}')
    third = cron.carry(cron.make())
    assert third.verdict == "worse"
    assert check_schedule(Context(cron.database), "nightly").is_wrong
    fourth = cron.carry(cron.make())
    assert (fourth.verdict, fourth.baseline_id) == ("worse", second.sweep_id)
    cron.code(AS_IT_WAS)
    assert cron.carry(cron.make()).verdict == "same"
    assert not check_schedule(Context(cron.database), "nightly").is_wrong
    document = history(Context(cron.database), "nightly")
    assert [fire["code_changed"] for fire in document["fires"]] == [[], [], ["A"], [], ["A"]]
    assert [fire["mean"] for fire in document["fires"]] == [4.5, 4.5, 3.5, 3.5, 4.5]


def test_a_sweep_file_that_is_refused_fails_the_fire_with_the_error(quick: Cron) -> None:
    quick.add()
    (quick.folder / "sweep.yaml").write_text("workflow: cronflow:wf\nrepeats: none\n")
    row = quick.carry(quick.make())
    assert (row.status, row.verdict, row.sweep_id) == ("failed", "failed", None)
    assert "repeats" in " ".join(row.why)
    assert quick.count(sweeps) == 0


def test_failed_cells_and_gates_that_do_not_hold_fail_a_fire_without_a_baseline(quick: Cron) -> None:
    quick.add(baseline=None)
    with (quick.folder / "sweep.yaml").open("a") as file:
        file.write("gates: ['total == 9']\n")
    quick.code('return {"x": 1 // state["x"]}')
    row = quick.carry(quick.make())
    assert row.verdict == "failed"
    assert row.why == ["gate failed: total == 9 (8)", prose.sentence("{} of {} cells failed", 1, 8)]


def test_a_baseline_that_is_gone_fails_the_fire(quick: Cron) -> None:
    quick.add(baseline="main")
    row = quick.carry(quick.make())
    assert row.verdict == "failed"
    assert prose.sentence("no baseline {}", "'main'") in row.why[0]


def test_a_sweep_for_workers_is_left_to_them_and_judged_when_it_is_at_its_end(cron: Cron) -> None:
    cron.add(queued=True)
    fire = cron.carry(cron.make())
    assert (fire.status, fire.sweep_status) == ("running", "pending")
    assert store.claim(cron.database, fire) is None, "there is nothing to do"
    cron.database.execute(sweeps.update().values(status="cancelled", reason="by ann"))
    row = cron.carry(cron.row(fire))
    assert (row.verdict, row.why) == ("failed", ["its sweep was cancelled: by ann"])


def test_a_sweep_that_was_deleted_fails_its_fire(quick: Cron) -> None:
    quick.add(queued=True)
    fire = quick.carry(quick.make())
    delete_sweep(quick.database, fire.sweep_id)
    row = quick.carry(quick.row(fire))
    assert row.why == [f"its sweep {fire.sweep_id} was deleted"]
    assert history(Context(quick.database), "nightly")["fires"][0]["mean"] is None


def test_a_sweep_that_is_paused_waits_for_a_person_and_is_said_to(quick: Cron) -> None:
    quick.add(queued=True)
    fire = quick.carry(quick.make())
    quick.database.execute(sweeps.update().values(status="paused", reason="limit reached: usd = 1"))
    assert store.claim(quick.database, quick.row(fire)) is None
    checked = check_schedule(Context(quick.database), "nightly")
    assert checked.is_wrong
    assert "limit reached" in checked.sentence
    assert f"wtb resume {fire.sweep_id}" in checked.sentence


def test_a_sweep_that_waits_for_a_provider_is_judged_as_unclear_and_is_no_baseline(quick: Cron) -> None:
    quick.add()
    first = quick.carry(quick.make())
    second = quick.carry(quick.make())
    reason = "waiting for provider openai, which is overloaded (529)"
    with quick.database.write() as connection:
        running = {"status": "running", "verdict": None, "lease_until": None}
        connection.execute(fires.update().where(fires.c.fire_at == second.fire_at).values(running))
        paused = sweeps.update().values(status="paused", reason=reason)
        connection.execute(paused.where(sweeps.c.id == second.sweep_id))
    row = quick.carry(quick.row(second))
    assert row.verdict == "unclear"
    assert row.why[-1].endswith(f"of cells lost to the provider: {reason}")
    third = quick.carry(quick.make())
    assert (third.verdict, third.baseline_id) == ("same", first.sweep_id)


def test_a_fire_that_nobody_makes_or_carries_out_is_overdue(quick: Cron) -> None:
    quick.add()
    assert not check_schedule(Context(quick.database), "nightly").is_wrong
    quick.is_due(3700.0)
    checked = check_schedule(Context(quick.database), "nightly")
    assert checked.is_wrong
    assert prose.sentence("does anything run `wtb schedule run-due`") in checked.sentence


def test_a_fire_that_was_killed_while_it_ran_is_said_to_be_interrupted(cron: Cron) -> None:
    cron.add(queued=True)
    fire = cron.carry(cron.make())
    with cron.database.write() as connection:  # as a process leaves it that dies
        connection.execute(sweeps.update().values(queued=False, status="running"))
        connection.execute(fires.update().values(lease_until=now() - 60))
    assert not check_schedule(Context(cron.database), "nightly").is_wrong
    cron.database.execute(fires.update().values(lease_until=now() - 3700))
    checked = check_schedule(Context(cron.database), "nightly")
    assert checked.is_wrong
    assert checked.sentence.startswith("interrupted: no process carries on the fire of ")
    assert store.claim(cron.database, cron.row(fire)) is not None
    assert not check_schedule(Context(cron.database), "nightly").is_wrong


def test_a_fire_that_ends_late_hides_none_that_was_begun_after_it(quick: Cron) -> None:
    schedule = quick.add(queued=True)
    late, later = quick.carry(quick.make()), quick.carry(quick.make())
    with quick.database.write() as connection:
        for seconds, fire, verdict in ((9, late, "same"), (5, later, "worse")):
            ended = {"status": "judged", "verdict": verdict, "finished_at": now() + seconds, "lease_until": None}
            connection.execute(fires.update().where(fires.c.fire_at == fire.fire_at).values(ended))
    last = store.last_ended(quick.database, schedule.id)
    assert last is not None
    assert last.verdict == "worse"


def test_scores_that_fail_without_a_baseline_to_fail_them_fail_the_fire(quick: Cron) -> None:
    quick.add(baseline=None)
    code = (quick.folder / "cronflow.py").read_text()
    (quick.folder / "cronflow.py").write_text(code.replace('result.state["x"]', 'result.state["y"]'))
    row = quick.carry(quick.make())
    assert row.verdict == "failed"
    assert row.why[0].startswith("8 scores of score failed, such as: KeyError")


def test_scores_that_a_provider_prevented_fail_no_fire(quick: Cron) -> None:
    quick.add(baseline=None)
    module = quick.folder / "cronflow.py"
    unreachable = '__import__("urllib.request").request.urlopen("http://127.0.0.1:9/")'
    module.write_text(module.read_text().replace('result.state["x"]', unreachable))
    row = quick.carry(quick.make())
    assert row.verdict == "cannot tell"


def test_a_session_takes_its_schedules_with_it(cron: Cron) -> None:
    session = create(cron.database, "ann")
    cron.add(session="ann")
    cron.make()
    delete_session(cron.database, session.id, may_live=lambda owner, expired: False)
    assert (cron.count(schedules), cron.count(fires)) == (0, 0)


# Telling


class Listener(http.server.BaseHTTPRequestHandler):
    """A webhook that responds with a list of statuses, and repeats the last one."""

    statuses: list[int] = [200]
    got: list[tuple[dict[str, Any], dict[str, str]]] = []
    release = threading.Event()

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.got.append((json.loads(self.rfile.read(length)), dict(self.headers)))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status == 0:
            self.release.wait(10)
            return
        self.send_response(status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """A server on this machine: `webhook(500, 200)` returns the URL of one that responds with 500, then 200."""
    monkeypatch.setattr(firing, "PAUSES_S", (0.0,) * len(firing.PAUSES_S))
    monkeypatch.setattr(webhooks, "ANSWER_S", 0.5)
    Listener.got, Listener.release = [], threading.Event()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()

        def url(*statuses: int) -> str:
            Listener.statuses = list(statuses)
            return f"http://ann:secret@127.0.0.1:{server.server_address[1]}/hook?key=secret"

        yield url
        Listener.release.set()
        server.shutdown()
        thread.join()


def test_a_regression_and_the_recovery_from_it_are_told_and_nothing_else(
    quick: Cron, webhook: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(webhooks.PAGES_URL, "https://bench.example.org/")
    quick.add(notify={"url": webhook(500, 200), "allow_private": True})
    good = quick.carry(quick.make())
    quick.carry(quick.make())
    assert Listener.got == []
    quick.code('return {"x": state["x"]}')
    row = quick.carry(quick.make())
    assert row.notified_at is not None
    assert (row.notify_tries, row.notify_error) == (2, None)
    quick.code(AS_IT_WAS)
    second_fire = quick.carry(quick.make())
    quick.carry(quick.make())
    (failed, _), (message, headers), (recovered, _) = Listener.got
    assert failed == message
    assert (message["schedule"], message["verdict"], message["sweep"]) == ("nightly", "worse", row.sweep_id)
    assert message["baseline"] not in (None, row.sweep_id)
    assert [cell["case"] for cell in message["cells"]] == [f"c{n}" for n in range(8)]
    assert headers["Idempotency-Key"] == message["key"]
    assert headers["Authorization"].startswith("Basic ")
    assert (recovered["verdict"], recovered["sweep"]) == ("same", second_fire.sweep_id)
    assert recovered["text"] == "nightly recovered: same"
    assert message["text"].startswith("nightly worse than the last good run: score: fell in this run: 4.5 ")
    assert message["text"].endswith("; first differs at A; cronflow:A changed")
    (code,) = message["changed"]["code"]
    assert (code["node"], code["causes"], message["changed"]["files"]) == ("A", ["cronflow:A changed"], [])
    assert message["url"] == f"https://bench.example.org/compare/{message['baseline']}/{row.sweep_id}"
    assert message["because"][-2:] == row.why[-2:]
    assert good.notified_at is None


@pytest.mark.parametrize("pages", ["https://bench.example.org", ""])
@pytest.mark.parametrize("payload", ["slack", "teams"])
def test_a_chat_gets_the_text_and_a_link_to_the_page(
    quick: Cron, webhook: Callable[..., str], monkeypatch: pytest.MonkeyPatch, payload: str, pages: str
) -> None:
    monkeypatch.setenv(webhooks.PAGES_URL, pages)
    quick.add(notify={"url": webhook(200), "allow_private": True, "payload": payload})
    quick.code('raise ValueError("<!channel> *bold* & [link](https://evil.example)")')
    row = quick.carry(quick.make())
    ((message, headers),) = Listener.got
    link = f"{pages}/sweeps/{row.sweep_id}"
    assert headers["Idempotency-Key"]
    if payload == "slack":
        assert list(message) == ["text"]
        text, _, url = message["text"].partition("\n")
        assert text.startswith("nightly failed: 8 of 8 cells failed")
        assert url == (f"<{link}|Open in WTB>" if pages else "")
    else:
        (attachment,) = message["attachments"]
        assert message["type"] == "message"
        assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
        assert attachment["content"]["body"][0]["text"].startswith("nightly failed: 8 of 8 cells failed")
        actions = attachment["content"].get("actions", [])
        assert [action["url"] for action in actions] == ([link] if pages else [])


@pytest.mark.parametrize(
    ("status", "private", "error"),
    [
        (302, True, prose.sentence("redirects are not followed")),
        (404, True, "answered 404"),
        (0, True, prose.sentence("did not respond within")),
        (200, False, prose.sentence("not a public address")),
    ],
)
def test_a_webhook_that_does_not_take_it_is_tried_some_times_and_then_said(
    quick: Cron, webhook: Callable[..., str], status: int, private: bool, error: str
) -> None:
    quick.add(notify={"url": webhook(status), "allow_private": private})
    (quick.folder / "sweep.yaml").unlink()
    row = quick.carry(quick.make())
    assert row.verdict == "failed"
    assert row.notified_at is None
    assert error in row.notify_error
    assert "secret" not in row.notify_error + " ".join(quick.messages)
    assert row.notify_tries == firing.NOTIFY_TRIES
    assert len(Listener.got) == (firing.NOTIFY_TRIES if private else 0)
    assert store.open_fires(quick.database) == []


def test_who_is_down_for_a_while_is_told_by_a_later_round(
    quick: Cron, webhook: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing, "PAUSES_S", (0.0, 60.0))
    monkeypatch.setattr(firing, "NOTIFY_TRIES", 3)
    quick.add(notify={"url": webhook(500, 500, 200), "allow_private": True})
    (quick.folder / "sweep.yaml").unlink()
    row = quick.carry(quick.make())
    assert (row.notify_tries, row.held) == (2, True)
    assert store.claim(quick.database, row) is None
    assert prose.sentence("it is tried again") in check_schedule(Context(quick.database), "nightly").sentence
    quick.database.execute(fires.update().values(lease_until=now() - 1))
    fire = quick.carry(quick.row(row))
    assert (fire.notify_tries, fire.notify_error) == (3, None)
    assert fire.notified_at is not None
    checked = check_schedule(Context(quick.database), "nightly")
    assert checked.is_wrong
    assert "None" not in checked.sentence, "it has no sweep"


def test_a_command_is_told_on_its_stdin_and_its_failure_is_said(quick: Cron, monkeypatch: pytest.MonkeyPatch) -> None:
    quick.add(notify={"command": ["sh", "-c", "cat > told.json; pwd >> told.json; echo no luck; exit 3"]})
    (quick.folder / "sweep.yaml").unlink()
    monkeypatch.setattr(firing, "PAUSES_S", (0.0,) * len(firing.PAUSES_S))
    row = quick.carry(quick.make())
    message, folder = (quick.folder / "told.json").read_text().rsplit("}", 1)
    assert json.loads(message + "}")["verdict"] == "failed"
    assert folder.strip() == str(quick.folder)
    assert row.notify_error == prose.sentence("{} ended with exit code {}: {}", "sh", 3, "no luck")
