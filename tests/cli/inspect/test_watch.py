"""`wtb watch`: how a sweep, its workers and their queues stand, live or once; leaving it changes nothing."""

from __future__ import annotations

import json
import re
import signal

from tests.support.cluster import Cluster
from tests.support.crew import ran, status_of, submitted, write_sweep
from tests.support.project import Project
from tests.support.prose import sentence
from wtb.config.broker import PREFIX, queue_key
from wtb.core.tree.run_order import case_order
from wtb.hosting.servers.server import free_port
from wtb_workers import app


def test_the_queues_of_the_broker_have_one_name() -> None:
    assert app.make_app(None).conf.task_default_queue == PREFIX
    assert [queue_key(name, "c1") for name in (None, "", "gpu")] == [f"{PREFIX}.c1", f"{PREFIX}.c1", f"{PREFIX}.c1.gpu"]


class TestWatching:
    def test_shows_progress_workers_and_queues_within_80_columns(self, crew: Cluster) -> None:
        sweep = submitted(crew, "shown", gate="shown-on")
        crew.until(lambda: ran(crew.project, "held shown-"), "a node to run")
        text = crew.wtb("watch", sweep, "--once", check=0, env={"COLUMNS": "80"}).stdout
        assert max(map(len, text.splitlines())) <= 80
        assert f"shown ({sweep}): running" in text
        assert re.search(r"cells +4: .*running", text)
        assert re.search(r"w0@\S+ +[12] of 2 +\d+ s ago +default", text)
        assert re.search(r"default +\d+ +\d+ +1\n", text)
        short = crew.wtb("watch", "--once", check=0).stdout
        assert re.search(rf"{sweep} +shown +running +workers +0 of 4", short)
        crew.project.write({"shown-on": ""})
        crew.wait_completed(sweep)

    def test_follows_a_sweep_to_its_end_and_exits_as_run_does(self, crew: Cluster) -> None:
        sweep = submitted(crew, "followed", gate="followed-on")
        crew.until(lambda: ran(crew.project, "held followed-"), "a node to run")
        options = ("--interval", "0.1", "--format", "json")
        with crew.project.start("watch", sweep, *options, env=crew.env) as running:
            crew.project.write({"followed-on": ""})
            lines = [json.loads(line) for line in running.wait(0).stdout.splitlines()]
        assert lines[-1]["sweep"]["status"] == "completed"
        assert lines[-1]["sweep"]["cells"]["succeeded"] == 4
        assert lines[-1]["sweep"]["best"]["y"]["mean"] == 2.0
        assert lines[-1]["sweep"]["best"]["y"]["combination"] == {"held": "two"}
        assert lines[-1]["broker"]["reached"]
        rates = [line["sweep"]["node_runs_per_s"] for line in lines]
        assert rates[0] is None
        assert all(rate >= 0 for rate in rates[1:])

    def test_a_sweep_that_stops_when_enough_is_known_ends_for_its_workers(self, crew: Cluster) -> None:
        """Cases beyond the first 40 in its order wait for a file that never comes: by about 20, enough is known."""
        late = set(case_order([None] * 60, 0)[40:])
        # Each of the others is a task of its own: a part of a task that goes to another slot may come after late ones.
        inputs = [{"x": 0, **({"gate": "never"} if n in late else {"pause": 0.4})} for n in range(60)]
        lines = [{"id": f"early-{n}", "input": fields} for n, fields in enumerate(inputs)]
        options = "evaluate: [{'flow:y': {scale: [1, 2]}}]\nstop: when_known\nrun: {grace: 1ms}\n"
        cases = "".join(json.dumps(line) + "\n" for line in lines)
        head = "sweep: early\nworkflow: flow:wf\ncases: early.jsonl\nequal_inputs: independent\nvary: {held: all}\n"
        crew.project.write({"early.jsonl": cases, "early.yaml": head + options})
        sweep = crew.wtb("submit", "early.yaml", check=0).stdout.strip()
        crew.wait_completed(sweep)
        matrix = json.loads(crew.wtb("matrix", sweep, "--format", "json", check=0).stdout)
        assert matrix["best"]["y"]["combination"] == {"held": "two"}
        assert matrix["cells"]["skipped"] >= 40
        assert matrix["cells"]["succeeded"] + matrix["cells"]["skipped"] == 120
        crew.until(lambda: "0 of 2" in crew.wtb("watch", "--once", check=0).stdout, "the slots to be free")

    def test_exits_with_1_where_cells_failed(self, crew: Cluster) -> None:
        sweep = submitted(crew, "fails", breaks="never")
        text = crew.wtb("watch", sweep, "--interval", "0.1", check=1).stdout
        assert re.search(r"completed: 4 of 4 cells, 4 failed; \d+ \([^)]*\) node runs; 1 worker, ", text) or re.search(
            r"completed: 4 of 4 cells, 4 failed", text
        )

    def test_can_be_left_and_the_sweep_continues(self, crew: Cluster) -> None:
        sweep = submitted(crew, "left", gate="left-on")
        with crew.project.start("watch", sweep, "--interval", "0.1", env=crew.env) as running:
            crew.until(lambda: "running: 0 of 4" in running._stdout.read_text(), "progress to be shown")
            running.signal(signal.SIGINT)
            done = running.wait(0)
        assert (
            sentence("the sweep continues. ") + sentence("Come back with") + sentence(": wtb watch {}", sweep)
            in done.output
        )
        assert status_of(crew, sweep) == "running"
        crew.project.write({"left-on": ""})
        crew.wait_completed(sweep)

    def test_continues_where_the_broker_is_out_of_reach(self, crew: Cluster) -> None:
        down = f"redis://:secret@127.0.0.1:{free_port()}/0"
        document = crew.wtb("watch", "--once", "--format", "json", "--broker", down, check=0).json
        assert not document["broker"]["reached"]
        assert "refused" in document["broker"]["problem"]
        assert "secret" not in str(document)
        assert [queue["messages"] for queue in document["queues"]] == [None]
        assert sentence("broker out of reach") in crew.wtb("watch", "--once", "--broker", down, check=0).stdout

    def test_says_who_refuses_a_sweep_and_why(self, crew: Cluster) -> None:
        original = (crew.project.folder / "flow.py").read_text("utf-8")
        file = write_sweep(crew.project, "refused", workflow="moved:wf").removesuffix(".yaml")
        elsewhere = Project(crew.project.folder.parent / "elsewhere")
        elsewhere.url = crew.project.url
        for name in (f"{file}.yaml", f"{file}.jsonl"):
            text = (crew.project.folder / name).read_text("utf-8")
            elsewhere.write({name: text.replace("near", "held")})
        elsewhere.write({"moved.py": original})  # the worker has no such module
        sweep = elsewhere.wtb("submit", f"{file}.yaml", check=0, env=crew.env).stdout.strip()
        crew.until(lambda: crew.events("worker.refused", sweep), "the worker to refuse it")
        (warning,) = crew.wtb("watch", sweep, "--once", "--format", "json", check=0).json["sweep"]["warnings"]
        assert warning.startswith("refused by w0@")
        assert "moved" in warning
        assert "refused by w0@" in crew.wtb("status", sweep, check=0).stdout
        crew.wtb("cancel", sweep, "--yes", check=0)
        elsewhere.close()
