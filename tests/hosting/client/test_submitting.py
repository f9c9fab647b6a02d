"""Sweeps and inputs submitted and steered through a server, from where their code is not; workers publish it."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import pytest

import wtb
from tests.hosting.api.serving import TOKEN, Server
from tests.hosting.client.sending import CELLS, SWEEP, Sending, execution_of, state_of, submitted, until_it_is
from tests.support.prose import sentence
from wtb.core.errors import InputError
from wtb.hosting.api.routes import PREFIX


def test_a_sweep_file_is_planned_and_submitted_from_where_its_code_is_not(sending: Sending) -> None:
    plan = sending.wtb("plan", "sweep.yaml", "--format", "json").json
    assert (plan["cells"], plan["combinations"]) == (CELLS, CELLS / 2)
    sweep = sending.wtb("submit", "sweep.yaml").stdout.strip()
    sending.cluster.wait_completed(sweep)
    document = sending.wtb("show", sweep, "--format", "json").json
    assert document["cells"]["succeeded"] == CELLS
    best = sending.wtb("matrix", sweep, "--format", "json").json["rows"]
    assert len(best) == CELLS / 2


def test_it_is_what_the_code_itself_would_have_submitted(sending: Sending) -> None:
    """Graph and fingerprints are those of the code, or workers would refuse it, and comparisons call it changed."""
    project = sending.cluster.project
    project.write({"own.yaml": json.dumps({**SWEEP, "sweep": "own"})})
    ours = sending.cluster.submit("own.yaml")
    _, _, sent = sending.post("/sweeps", {"keys": SWEEP})
    sending.cluster.wait_completed(ours, sent["sweep"])
    query = "SELECT workflow_id, fingerprints::text FROM sweeps WHERE id = :id"
    assert sending.cluster.query(query, id=ours) == sending.cluster.query(query, id=sent["sweep"])


def test_a_part_of_a_sweep_is_submitted_and_says_where_it_is(sending: Sending) -> None:
    part = {"case": "b", "choices": {"A": "v1"}}
    status, location, document = sending.post("/sweeps", {"keys": SWEEP, "part": part, "priority": 3})
    assert (status, document["cells"]) == (201, 2)
    assert location == f"{PREFIX}/sweeps/{document['sweep']}"
    sending.cluster.wait_completed(document["sweep"])


def test_one_input_is_started(sending: Sending) -> None:
    execution = sending.wtb("start", "shop", "--set", "x=4", "--variant", "A=v2", "--format", "json").json["id"]
    sending.cluster.wait_completed(execution)
    assert sending.wtb("show", execution, "--format", "json").json["state"] == {"x": 6}


def test_a_request_that_is_repeated_at_two_servers_makes_one_sweep_and_has_one_answer(sending: Sending) -> None:
    other = Server(sending.cluster.project)
    other.start(sending.cluster.env)
    body = {"keys": {**SWEEP, "sweep": "repeated"}}
    counted = "SELECT count(*) FROM sweeps WHERE name = 'repeated'"
    try:
        with ThreadPoolExecutor(50) as pool:
            servers = [sending.server, other] * 25
            requests = [pool.submit(sending.post, "/sweeps", body, key="k-1", server=server) for server in servers]
            answers = [request.result() for request in requests]
        assert answers[0][0] == 201
        assert [answer for answer in answers if answer != answers[0]] == []
        assert sending.cluster.scalar(counted) == 1
        status, _, problem = sending.post("/sweeps", {"keys": SWEEP}, key="k-1", server=other)
        assert (status, "another request" in problem["detail"]) == (422, True)
        assert sending.post("/sweeps", body, key="k-2")[2]["sweep"] != answers[0][2]["sweep"]
        assert sending.cluster.scalar(counted) == 2
    finally:
        other.kill()


def test_who_starts_something_may_wait_for_its_end(sending: Sending) -> None:
    status, _, document = sending.post("/sweeps?wait=60", {"keys": {**SWEEP, "sweep": "waited"}})
    assert (status, document["status"]) == (201, "completed")
    status, _, document = sending.post("/executions?wait=60", {"workflow": "shop", "input": {"x": 1}})
    assert (status, document["status"]) == (201, "completed")


def test_cases_are_read_from_a_file_that_was_sent_before(sending: Sending) -> None:
    content = b"id,x\na,one\nb,two\n"
    digest = sha256(content).hexdigest()
    cases = {"upload": digest, "name": "cases.csv"}
    status, _, problem = sending.post("/plans", {"keys": {**SWEEP, "cases": cases}})
    assert (status, sentence("there is no upload") in problem["detail"]) == (400, True)
    assert sending.put(f"/uploads/{digest}", content) == (201, {"upload": digest, "bytes": 17, "project": "default"})
    assert sending.put(f"/uploads/{digest}", content)[0] == 201
    _, _, plan = sending.post("/plans", {"keys": {**SWEEP, "cases": cases}})
    assert (plan["cells"], plan["combinations"]) == (CELLS, CELLS / 2)
    assert sending.cluster.scalar("SELECT count(*) FROM upload_parts") == 1


def test_a_table_is_read_by_the_keys_of_the_state_where_they_are_known(sending: Sending) -> None:
    """The laptop does not know the state, so it sends the table and its mapping as they are."""
    content = "ID;X;Note of mine;Owner\na;1;n;me\n;;;\nb;2;n;me\n"
    sending.laptop.write({"sheet.csv": content})
    keys = {**SWEEP, "workflow": "reviewed", "vary": {"draft": "all"}, "evaluate": [], "cases": "sheet.csv"}
    sending.laptop.write({"sheet.yaml": json.dumps(keys)})
    refused = sending.wtb("plan", "sheet.yaml", check=2)
    columns = {"note": "note of mine", "ignore": "Owner"}
    assert "columns 'Note of mine' and 'Owner' are no keys of the state" in " ".join(refused.stderr.split())
    sending.laptop.write({"sheet.yaml": json.dumps({**keys, "columns": columns})})
    plan = sending.wtb("plan", "sheet.yaml", "--format", "json").json
    assert (plan["cases"], plan["notes"]) == (2, ["1 blank row of cases skipped"])
    digest = sha256(content.encode()).hexdigest()
    assert sending.put(f"/uploads/{digest}", content.encode())[0] == 201
    uploaded = {**keys, "columns": columns, "cases": {"upload": digest, "name": "sheet.csv"}}
    _, _, planned = sending.post("/plans", {"keys": uploaded})
    assert (planned["cases"], planned["notes"]) == (2, plan["notes"])
    files = {**keys, "cases": {"headings": ["X", "Files"], "rows": [["1", "/etc/passwd"]]}}
    status, _, problem = sending.post("/plans", {"keys": files})
    assert (status, sentence("a case names files") in problem["detail"]) == (400, True)


def test_a_file_that_is_not_what_its_digest_says_is_not_kept(sending: Sending) -> None:
    digest = sha256(b"this").hexdigest()
    status, problem = sending.put(f"/uploads/{digest}", b"that")
    assert (status, sha256(b"that").hexdigest() in problem["detail"]) == (400, True)
    assert sending.cluster.scalar("SELECT count(*) FROM uploads WHERE digest = :digest", digest=digest) == 0
    assert sending.put("/uploads/ABC", b"that")[0] == 400
    status, problem = sending.put(f"/uploads/{digest}?project=nowhere", b"this")
    assert (status, "nowhere" in problem["detail"]) == (404, True)


def test_a_file_of_cases_that_is_too_large_for_a_request_is_sent_before_it(sending: Sending) -> None:
    cases = [{"id": str(number), "input": {"x": number}, "tags": ["t" * 900]} for number in range(2_000)]
    sending.laptop.write({"many.jsonl": "\n".join(map(json.dumps, cases))})
    sending.laptop.write({"many.yaml": json.dumps({**SWEEP, "cases": "many.jsonl"})})
    plan = sending.wtb("plan", "many.yaml", "--format", "json").json
    assert plan["cells"] == CELLS / 2 * len(cases)
    rows = "".join(f'{number};{number};"{"t;" * 450}"\r\n' for number in range(2_000))
    sending.laptop.write({"many.csv": f"ID;x;TAGS\r\n{rows}"})
    sending.laptop.write({"sheet.yaml": json.dumps({**SWEEP, "cases": "many.csv"})})
    assert sending.wtb("plan", "sheet.yaml", "--format", "json").json["cells"] == plan["cells"]


def test_an_answer_is_kept_for_a_day(sending: Sending) -> None:
    sending.post("/sweeps", {"keys": SWEEP}, key="old")
    sending.cluster.project.change("UPDATE idempotency_keys SET created_at = created_at - 86401")
    sending.post("/sweeps", {"keys": SWEEP}, key="new")
    assert sending.cluster.scalar("SELECT count(*) FROM idempotency_keys") == 1


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"workflow": "flow:nothing"}, "no worker publishes a workflow 'flow:nothing'"),
    ({"workflow": "shopp"}, "did you mean 'shop'"),
    ({"cases": "/etc/passwd.jsonl"}, "which the server does not read"),
    ({"cases": "flow:cases"}, "which the server does not read"),
    ({"cases": [{"id": "a", "input": {"x": 1}, "files": {"f": "/etc/passwd"}}]}, "a case names files"),
    ({"cases": [{"id": "a", "input": {"y": 1}}]}, "'y'"),
    ({"files_from": ["/etc"]}, "files_from"),
    ({"vary": {"B": {"by": ["file:///etc/passwd"]}}}, "which the server does not read"),
    ({"params": {"a": [{"b": "file://x.md"}]}}, "which the server does not read"),
    ({"vary": {"B": {"bye": [5]}}}, "did you mean 'by'?"),
    ({"run": {"env": ["HOME"]}}, "set on the machines of workers"),
    ({"notify": ["touch /tmp/was-run"]}, "it is a command"),
    ({"notify": [{"to": "http://10.0.0.1/x", "allow_private": True}]}, "private addresses"),
    ({"mcp": {"files": {"command": ["touch", "/tmp/was-run"], "tools": ["read"]}}}, "on the machines of workers"),
    ({"mcp": {"files": {"url": "http://10.0.0.1/mcp", "tools": ["read"]}}}, "on the machines of workers"),
    ({"vary": {"A": [{"name": "own", "with": "os:getcwd"}]}}, "nothing is imported here"),
    ({"vary": {"A": ["v9"]}}, "has no variant 'v9'"),
    ({"vary": {"A": [{"name": "own", "bye": 5}]}}, "bye"),
    ({"evaluate": ["flow:picky"]}, "what workers publish"),
    ({"run": {"pool": "thread"}}, "thread would give nodes access to their worker's secrets; expected process"),
    ({"evaluate": ["os:system"]}, "what workers publish"),
]


@pytest.mark.parametrize(("keys", "detail"), REFUSED, ids=[detail for _, detail in REFUSED])
def test_what_names_something_of_the_servers_machine_is_refused(
    sending: Sending, keys: dict[str, Any], detail: str
) -> None:
    before = sending.cluster.scalar("SELECT count(*) FROM sweeps")
    for path in ("/plans", "/sweeps"):
        status, _, document = sending.post(path, {"keys": {**SWEEP, **keys}})
        assert (status, detail in document["detail"]) == (400, True), (path, document)
    assert sending.cluster.scalar("SELECT count(*) FROM sweeps") == before


# Files as levels


FILE = "file:///etc/passwd"


def test_the_client_sends_the_text_of_a_file_that_a_level_names(sending: Sending) -> None:
    sending.laptop.write({"prompts/one.md": "One.\n", "prompts/two.md": "Two.\n", "prompts/three.md": "Three.\n"})
    sending.laptop.write({"pyproject.toml": ""})
    origin = execution_of(sending, "reviewed", "--set", "x=5", "--variant", "draft.text=file://prompts/one.md")
    assert state_of(sending, origin)["note"] == "One.\n"
    start = sending.wtb("history", origin, "--format", "json").json["checkpoints"][0]["id"]
    options = ("--at", start, "--variant", "draft.text=file://prompts/two.md", "--format", "json")
    forked = sending.wtb("fork", origin, *options).json["execution"]["id"]
    until_it_is(sending, forked, "completed")
    assert state_of(sending, forked)["note"] == "Two.\n"

    sweep = {"workflow": "reviewed", "cases": [{"id": "a", "input": {"x": 1}}], "vary": {"draft.by": [1, 2]}}
    sending.laptop.write({"by.yaml": json.dumps(sweep)})
    id = sending.wtb("submit", "by.yaml").stdout.strip()
    sending.cluster.wait_completed(id)
    sending.wtb("extend", id, "--vary", "draft.text=file://prompts/two.md")
    sending.cluster.wait_completed(id)
    with (
        wtb.open(f"http://127.0.0.1:{sending.server.port}", token=TOKEN) as bench,
        contextlib.chdir(sending.laptop.folder),
    ):
        added = bench.sweep(id).extend(vary={"draft.text": ["file://prompts/three.md"]})
        assert {row["draft"].rpartition("=")[2].partition("#")[0] for row in added.combinations} == {"three.md"}
        with pytest.raises(InputError, match="no such file"):
            bench.execution(forked).fork(variants={"draft.text": "file://prompts/four.md"})
        keys = {**sweep, "vary": {"draft.text": ["file://prompts/one.md", "file://prompts/two.md"]}}
        assert bench.plan(keys)["cells"] == 2
    sending.cluster.wait_completed(id)
    cells = sending.wtb("show", id, "--cells", "--format", "json").json["cells"]
    assert {cell["state"].get("note") for cell in cells} == {None, "Two.\n", "Three.\n"}


def test_a_server_rejects_the_name_of_a_file_before_anything_else(sending: Sending) -> None:
    sending.cluster.project.write({"here.yaml": json.dumps({**SWEEP, "sweep": "here", "workflow": "flow:wf"})})
    sending.cluster.wtb("run", "here.yaml", "--quiet", check=0)
    execution = execution_of(sending, "reviewed", "--set", "x=5")
    grid = {"vary": {"A.by": [FILE, FILE]}}
    for path, body in (
        ("/sweeps/here/extend", grid),
        ("/sweeps/here/extend/plan", grid),
        ("/sweeps/none/extend", grid),
        (f"/executions/{execution}/fork", {"variants": {"draft.text": FILE}}),
        (f"/executions/{execution}/row", {"variants": {"draft.text": FILE}}),
    ):
        status, _, document = sending.post(path, body)
        assert (status, document["detail"].count("which the server does not read")) == (400, 1), (path, document)
        assert "root:" not in json.dumps(document)
    status, _, document = sending.post("/sweeps/here/extend", {"vary": {"B": [{"name": "seven", "by": 7}]}})
    assert (status, sentence("was not submitted to workers") in document["detail"]) == (409, True), document


# Steering


def test_an_execution_is_resumed_with_another_state(sending: Sending) -> None:
    execution = execution_of(sending, "reviewed", "--set", "x=4", "--until", "draft")
    refused = sending.wtb("resume", execution, "--set", "x=many", check=2)
    assert sentence("found {}; expected {}", "'many'", "int") in refused.stderr
    done = sending.wtb("resume", execution, "--set", "x=7", "--set", "note=42")
    assert sentence("is for the workers") in done.stderr
    until_it_is(sending, execution, "completed")
    assert state_of(sending, execution) == {"x": 7, "note": "42", "answer": "small"}


def test_a_question_is_answered_and_what_waited_continues(sending: Sending) -> None:
    execution = execution_of(sending, "reviewed", "--set", "x=100")
    wrong = sending.wtb("answer", execution, "maybe", check=2)
    assert sentence("cannot be answered with {}", "'maybe'") in wrong.stderr
    output = sending.wtb("answer", execution, "yes", "--format", "json")
    assert output.json["choice"] == "yes"
    assert sentence("{} for the workers", "1 execution") in output.stderr
    until_it_is(sending, execution, "completed")
    assert state_of(sending, execution)["answer"] == "yes"


def test_an_execution_is_rolled_back_and_forward_again(sending: Sending) -> None:
    execution = execution_of(sending, "reviewed", "--set", "x=5")
    back = sending.wtb("rollback", execution, "--to", "draft", "--reason", "once more", "--format", "json").json
    assert (back["next"], back["nodes"]) == (["review"], ["review"])
    assert sending.wtb("rollback", execution, "--undo", "--format", "json").json["next"] == []
    sending.wtb("rollback", execution, "--to", "draft")
    sending.wtb("resume", execution)
    until_it_is(sending, execution, "completed")


def test_failed_cells_are_tried_again(sending: Sending) -> None:
    cases = [{"id": "a", "input": {"x": 1}}, {"id": "b", "input": {"x": 2}}]
    keys = {"sweep": "mended", "workflow": "reviewed", "cases": cases, "vary": {"draft": "all"}}
    sending.cluster.project.write({"broken": ""})
    swept = submitted(sending, keys)
    assert sending.cluster.cells(swept) == {"failed": 4}
    (sending.cluster.project.folder / "broken").unlink()
    done = sending.wtb("retry", swept, "--wait", "--format", "json")
    assert done.json["cells"]["succeeded"] == 4


def test_an_execution_is_forked_with_another_variant_parameter_and_state(sending: Sending) -> None:
    origin = execution_of(sending, "reviewed", "--set", "x=5")
    refused = sending.wtb("fork", origin, "--variant", "draft=triple", check=2)
    assert sentence("node {} has no variant {}", "'draft'", "'triple'") in refused.stderr
    start = sending.wtb("history", origin, "--format", "json").json["checkpoints"][0]["id"]
    options = ("--at", start, "--variant", "draft=double", "--set", "x=30", "--format", "json")
    forked = sending.wtb("fork", origin, *options)
    assert sentence("is for the workers") in forked.stderr
    until_it_is(sending, forked.json["execution"]["id"], "completed")
    assert state_of(sending, forked.json["execution"]["id"])["x"] == 60
    options = ("--at", start, "--variant", "draft={name: by 7, of: double, by: 7}", "--format", "json")
    forked = sending.wtb("fork", origin, *options)
    until_it_is(sending, forked.json["execution"]["id"], "completed")
    assert state_of(sending, forked.json["execution"]["id"])["x"] == 35
    code = sending.wtb("fork", origin, "--at", start, "--variant", "draft=os:getcwd", check=2)
    assert sentence("nothing is imported here") in code.stderr
    paused = sending.wtb("fork", origin, "--at", start, "--no-run", "--format", "json")
    assert paused.json["execution"]["status"] == "paused"


def test_what_one_case_suggested_is_run_for_every_case(sending: Sending) -> None:
    sweep = sending.wtb("submit", "sweep.yaml").stdout.strip()
    sending.cluster.wait_completed(sweep)
    cells = sending.wtb("show", sweep, "--cells", "--case", "a", "--format", "json").json["cells"]
    code = sending.wtb("combination", "add", cells[0]["execution"], "--variant", "C=os:getcwd", check=2)
    assert sentence("nothing is imported here") in code.stderr
    options = ("--variant", "C={name: far, by: 7}", "--reason", "further", "--format", "json")
    row = sending.wtb("combination", "add", cells[0]["execution"], *options).json
    assert (row["choices"]["C"], row["cells"], row["queued"]) == ("far", 2, True)
    sending.cluster.wait_completed(sweep)
    assert len(sending.wtb("matrix", sweep, "--format", "json").json["rows"]) == CELLS / 2 + 1


def test_many_questions_are_answered_at_once(sending: Sending) -> None:
    executions = [execution_of(sending, "reviewed", "--set", f"x={number}") for number in (200, 201)]
    refused = sending.wtb("answer-all", "maybe", "--yes", check=2)
    assert sentence("nothing was answered") in refused.stderr
    document = sending.wtb("answer-all", "no", "--yes", "--format", "json").json
    assert [answer["choice"] for answer in document["answers"]] == ["no", "no"]
    for execution in executions:
        until_it_is(sending, execution, "completed")
        assert state_of(sending, execution)["answer"] == "no"


def test_sweeps_are_kept_named_and_deleted(sending: Sending) -> None:
    swept = submitted(sending, {**SWEEP, "sweep": "kept"}, part={"limit": 1})
    assert sending.wtb("admin", "pin", "kept").stdout == f"pinned sweep kept ({swept})\n"
    assert sending.wtb("admin", "unpin", "kept").stdout == f"unpinned sweep kept ({swept})\n"
    assert sending.wtb("baseline", "set", "main", "kept").stdout == f"baseline main: sweep kept ({swept})\n"
    assert sentence("is the baseline") in sending.wtb("delete", "kept", "--yes", check=2).stderr
    assert "sweep" in sending.wtb("baseline", "remove", "main").stdout
    assert sending.wtb("delete", "kept", "--yes").stdout.startswith(f"deleted sweep kept ({swept}): 8 cells")
    assert "kept" not in sending.wtb("list").stdout


def test_who_administers_does_so_through_a_server(sending: Sending) -> None:
    for command in (
        *("admin project create search", "admin project change search --sweeps 90d"),
        *("admin session create ann --project search --usd 5", "admin session change ann --usd 6"),
        *("admin budget set --session ann --usd 4", "admin budget clear --session ann", "admin session archive ann"),
        *("admin user create ann", "admin team create core", "admin team change core --add ann"),
        *("admin access grant runner --user ann --project search", "admin token create nightly --project search"),
    ):
        sending.wtb(*command.split())
    assert sending.wtb("admin", "project", "show", "search", "--format", "json").json["sessions"] == 1
    assert "runner" in sending.wtb("admin", "access", "list").stdout
    assert "core" in sending.wtb("admin", "team", "list").stdout
    assert "ann" in sending.wtb("admin", "user", "list").stdout
    for command in (
        *(
            "admin token revoke nightly",
            "admin access revoke --user ann --project search",
            "admin session delete ann --yes",
        ),
        "admin user remove ann",
    ):
        sending.wtb(*command.split())
    assert sentence("nobody has a role") in sending.wtb("admin", "access", "list").output


def test_what_no_worker_runs_is_not_continued_by_a_server(sending: Sending) -> None:
    project = sending.cluster.project
    project.write({"own.yaml": json.dumps({**SWEEP, "sweep": "mine", "workflow": "flow:wf"})})
    sending.cluster.wtb("run", "own.yaml", "--break", "B", check=1)
    refused = sending.wtb("resume", "mine", check=2)
    assert sentence("was not submitted to workers, and no process runs it") in refused.stderr
    assert sending.cluster.scalar("SELECT status FROM sweeps WHERE name = 'mine'") == "paused"


def test_the_server_has_imported_nothing(sending: Sending) -> None:
    running = sending.server.running
    assert running is not None
    importers = (sending.cluster.project.folder / "imported-by").read_text().split()
    assert importers
    assert str(running.pid) not in importers
