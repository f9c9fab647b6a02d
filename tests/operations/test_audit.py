"""The audit log records who changed what, and detects rows that were changed afterwards."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.project import FLOW, SWEEP, Project
from tests.support.prose import sentence
from wtb.core.errors import ConflictError, InputError, NotFound, StoreError
from wtb.features.access.audit import audit_head, list_audit, prune_audit, verify_audit
from wtb.features.access.operations import create_token, revoke_token
from wtb.operations import auditing
from wtb.operations.auditing import audited, noting, shown_argument
from wtb.operations.budgets import set_budgets
from wtb.operations.context import Context
from wtb.operations.registry import OPERATIONS, Effect
from wtb.operations.running.published import submit_published
from wtb.operations.sessions import archive_session, create_session, delete_session
from wtb.store.access import audit as store
from wtb.store.access.audit import Origin
from wtb.store.access.sessions import Quota
from wtb.store.database import Database
from wtb.store.tables.schema import audit, tokens


@pytest.fixture
def context(prepared_url: str) -> Iterator[Context]:
    ann = Context(Database(prepared_url), by="ann", origin=Origin("wtb test", "10.0.0.1", "nightly"))
    yield ann
    ann.close()


# What is noted


def is_noted(function: Any) -> bool:
    """Return whether a function, or one that it wraps, is the decorator's."""
    while function is not None:
        if function.__code__.co_name == "noted":
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def test_every_operation_that_changes_something_is_noted() -> None:
    """But for the one that loads the log itself and is noted behind it."""
    left_out = {"backups.restore"}
    changing = {
        operation.path
        for name, operation in OPERATIONS.items()
        if operation.effect is not Effect.reads and name not in left_out
    }
    assert {operation.path for operation in OPERATIONS.values() if is_noted(operation.function)} == changing


def test_who_did_what_from_where_and_how_it_ended_is_noted(context: Context) -> None:
    create_session(context, "s", Quota(usd=5))
    with pytest.raises(ConflictError):
        create_session(context, "s")
    failed, creation = list_audit(context)
    assert creation["by"] == "ann"
    assert (creation["via"], creation["address"], creation["token"]) == ("wtb test", "10.0.0.1", "nightly")
    assert (creation["operation"], creation["outcome"], creation["error"]) == ("sessions.create", "done", None)
    assert creation["arguments"]["name"] == "s"
    assert creation["ended_at"] is not None
    assert (failed["outcome"], str(failed["error"]).partition(":")[0]) == ("failed", "ConflictError")


def test_a_change_and_its_note_are_committed_together_or_not_at_all(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise StoreError("the log cannot be written")

    monkeypatch.setattr(auditing, "append", refuse)
    with pytest.raises(StoreError):
        create_token(context, "ann")
    assert context.database.scalars(sa.select(tokens.c.name)) == []
    monkeypatch.undo()
    create_token(context, "ann")
    assert [record["operation"] for record in list_audit(context)] == ["tokens.create"]


def test_what_was_killed_has_no_end(context: Context) -> None:
    @audited
    def killed(context: Context) -> None:
        set_budgets(context, {"usd": 5}, project="p")
        monkey.setattr(context.database, "write", None)  # nothing is written any more
        raise SystemExit

    killed.__wrapped__.__module__, killed.__wrapped__.__name__ = (  # type: ignore[attr-defined]
        "wtb.operations.budgets",
        "set_budgets",
    )
    with pytest.MonkeyPatch.context() as monkey, pytest.raises((SystemExit, TypeError)):
        killed(context)
    (record,) = list_audit(context)
    assert (record["operation"], record["outcome"], record["ended_at"]) == ("budgets.set", "unknown", None)


def test_an_operation_within_another_is_part_of_it(context: Context) -> None:
    create_session(context, "s")
    delete_session(context, "s")
    assert [record["operation"] for record in list_audit(context)] == ["sessions.delete", "sessions.create"]


def test_bad_arguments_and_what_only_reads_are_not_noted(context: Context) -> None:
    with pytest.raises(InputError):
        create_token(context, "")
    list_audit(context)
    with pytest.raises(InputError):
        revoke_token(context, 5)  # type: ignore[arg-type]
    assert list_audit(context) == []


def test_an_error_that_may_quote_what_is_secret_is_noted_by_its_name_alone(context: Context) -> None:
    with pytest.raises(InputError, match="ana's story"):
        submit_published(context, {"sweep": "s", "workflow": "w", "vary": "ana's story", "cases": []})
    with pytest.raises(NotFound):
        delete_session(context, "nothing")
    errors = {record["operation"]: record["error"] for record in list_audit(context)}
    assert errors["sweeps.submit_published"] == "InputError"
    assert "nothing" in str(errors["sessions.delete"])


def test_secrets_are_left_out(context: Context) -> None:
    access_token = create_token(context, "ann")
    listing = json.dumps(list_audit(context))
    assert access_token["token"] not in listing
    for argument, expected in (
        ("postgresql://me:hunter2@host/db", "postgresql://me:***@host/db"),
        (f"take {access_token['token']}", "***"),
        ("x" * 500, "x" * 200 + "..."),
        ("a\x1b[31m", "a\ufffd[31m"),
        ({"to": ["a", 1, None]}, {"to": ["a", 1, None]}),
        (float("nan"), "nan"),
        (2**70, str(2**70)),
        (object(), None),
        (datetime(2026, 1, 31, tzinfo=UTC), "2026-01-31T00:00:00+00:00"),
    ):
        assert shown_argument(argument) == expected


def test_cases_values_of_states_and_addresses_of_webhooks_are_left_out(context: Context) -> None:
    @audited
    def changed(
        context: Context, *, set: Any = None, value: Any = ..., notify: str | None = None, keys: Any = None
    ) -> None:
        raise ConflictError("not now")

    changed.__wrapped__.__module__, changed.__wrapped__.__name__ = "wtb.operations.control.forks", "fork"  # type: ignore[attr-defined]
    with pytest.raises(ConflictError):
        changed(
            context,
            set={"name": "Jane"},
            value={"iban": "DE00"},
            notify="https://hooks.example/T0/secret",
            keys={"cases": [{"input": {"name": "Jane"}}]},
        )
    (record,) = list_audit(context)
    assert record["arguments"] == {
        "set": {"name": "***"},
        "value": {"iban": "***"},
        "notify": "***",
        "keys": {"cases": "***"},
    }


def test_commands_are_noted_by_their_words_and_sweeps_by_their_ids(tmp_path: Any) -> None:
    project = Project(tmp_path)
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP, "cases.jsonl": Project.cases(1)})
    project.inside("run", "sweep.yaml", "--quiet")
    project.inside("admin", "token", "create", "ann", check=0)
    listed = project.inside("admin", "audit", "list", "--format", "json", check=0).json["audit"]
    ((sweep,),) = project.query("SELECT id FROM sweeps")
    assert [(record["via"], record["operation"]) for record in listed] == [
        ("wtb admin token create", "tokens.create"),
        ("wtb run", "sweeps.run"),
    ]
    assert listed[1]["result"] == {"sweep": sweep}
    assert listed[1]["arguments"]["prepared"]["workflow"]
    listing = project.inside("admin", "audit", "list", check=0).stdout
    assert "tokens.create" in listing
    assert "via" not in listing
    project.close()


def test_the_log_is_filtered_and_read_part_by_part(context: Context) -> None:
    for name in ("a", "b", "c"):
        create_token(context, name)
    with noting(Context(context.database, by="bob"), "sign-in", kind=None), context.database.write():
        pass
    everything = list_audit(context)
    assert [record["by"] for record in everything] == ["bob", "ann", "ann", "ann"]
    assert list_audit(context, by="bob") == everything[:1]
    assert list_audit(context, command="sign-in") == everything[:1]
    assert list_audit(context, token="nightly") == everything[1:]
    assert list_audit(context, limit=2) == everything[:2]
    assert list_audit(context, before=everything[1]["number"]) == everything[2:]
    assert list_audit(context, since=datetime.now(UTC) + timedelta(hours=1)) == []


# What is checked


@pytest.fixture
def written(context: Context) -> Context:
    for name in ("a", "b", "c"):
        create_session(context, name)
    return context


def change(context: Context, statement: Any) -> None:
    context.database.execute(statement)


def test_a_log_as_it_was_written_is_well(written: Context) -> None:
    report = verify_audit(written, [audit_head(written)["head"]])
    assert (report["ok"], report["rows"], report["first"], report["problems"]) == (True, 6, 1, [])
    assert report["checked_heads"] == [6]
    assert verify_audit(written)["head"] == audit_head(written)


def test_a_changed_row_is_found(written: Context) -> None:
    values = {"at": 1.0, "outcome": "failed", "hash": "f" * 64, "arguments": "{}"}
    row, of_row = next(row for row in store.rows(written.database) if row.number == 4), audit.c.number == 4
    for name in (column.name for column in audit.columns if column.name != "number"):
        change(written, audit.update().where(of_row).values({name: values.get(name, "x")}))
        report = verify_audit(written)
        assert (name, report["ok"]) == (name, False)
        assert report["problems"][0].startswith("row 4 is not as it was written"), name
        change(written, audit.update().where(of_row).values({name: getattr(row, name)}))
    assert verify_audit(written)["ok"]


def test_a_removed_row_is_found(written: Context) -> None:
    change(written, audit.delete().where(audit.c.number == 3))
    assert verify_audit(written)["problems"] == [sentence("rows {} to {} are missing", 3, 3)]
    change(written, audit.update().where(audit.c.number > 3).values(number=audit.c.number - 1))
    assert verify_audit(written)["problems"], "closing the gap does not help"


def test_rows_in_another_order_are_found(written: Context) -> None:
    for number, other in ((2, 20), (3, 2), (20, 3)):
        change(written, audit.update().where(audit.c.number == number).values(number=other))
    assert len(verify_audit(written)["problems"]) >= 2


def test_a_log_that_was_cut_off_or_written_anew_differs_from_its_published_head(written: Context) -> None:
    head = audit_head(written)["head"]
    rows = list(store.rows(written.database))
    change(written, audit.delete().where(audit.c.number > 4))
    assert verify_audit(written)["ok"], "which nothing else shows"
    report = verify_audit(written, [head])
    assert report["problems"] == [
        sentence("row {} was published as a head and is not there: the log was cut off after {}", 6, 4)
    ]
    change(written, audit.delete())
    before = store.BEFORE_ALL
    for row in rows:
        forged = {column.name: getattr(row, column.name) for column in audit.columns} | {"by": "eve"}
        forged["hash"] = before = store.hash_of(before, store.AuditRow(**forged))
        change(written, audit.insert().values(forged))
    assert verify_audit(written)["ok"]
    (problem,) = verify_audit(written, [head])["problems"]
    assert sentence("row {} has another hash than the head that was published", 6) in problem


def test_what_was_pruned_is_told_from_what_is_missing(written: Context) -> None:
    early, late = f"2:{next(row.hash for row in store.rows(written.database) if row.number == 2)}", audit_head(written)
    change(written, audit.update().where(audit.c.number <= 4).values(at=audit.c.at))
    at = sorted(row.at for row in store.rows(written.database))[4]
    pruned = prune_audit(written, datetime.fromtimestamp(at, UTC))
    assert pruned["rows"] >= 3
    report = verify_audit(written, [early, late["head"]])
    assert report["ok"], report
    assert (report["pruned_heads"], report["checked_heads"]) == ([2], [6])
    assert report["pruned"] == {"rows": pruned["upto"], "upto": pruned["upto"]}
    assert list_audit(written)[0]["operation"] == "audit.prune"
    first = int(report["first"] or 0)
    change(written, audit.delete().where(audit.c.number == first))
    assert verify_audit(written)["problems"] == [
        sentence("rows 1 to {} are missing, and no pruning is recorded", first)
    ]


def test_a_pruning_that_was_made_up_lacks_the_signature(written: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody with write access removes rows before a published head, and claims that they were pruned."""
    head = audit_head(written)["head"]
    last_pruned = next(row for row in store.rows(written.database) if row.number == 2)
    change(written, audit.delete().where(audit.c.number <= last_pruned.number))
    facts = {"upto": last_pruned.number, "hash": last_pruned.hash, "signature": "0" * 64}
    with written.database.write() as connection:
        made_up = store.Note("x", "root", Origin("wtb admin audit prune"), store.PRUNE, "{}", "done", json.dumps(facts))
        store.append(connection, made_up)
    assert verify_audit(written, [head])["ok"], "nobody can tell without a key"
    monkeypatch.setenv("WTB_AUDIT_KEY", "open sesame")
    problem = "rows 1 to 2 were pruned, and WTB_AUDIT_KEY did not sign that"
    assert verify_audit(written, [head])["problems"] == [problem]


def test_a_signed_pruning_is_one_of_its_key_alone(written: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WTB_AUDIT_KEY", "open sesame")
    upto = prune_audit(written, datetime.now(UTC) + timedelta(days=1))["upto"]
    assert verify_audit(written)["ok"]
    monkeypatch.setenv("WTB_AUDIT_KEY", "another")
    assert verify_audit(written)["problems"] == [
        sentence("rows 1 to {} were pruned, and {} did not sign that", upto, "WTB_AUDIT_KEY")
    ]
    assert "open sesame" not in str(list_audit(written))


def test_the_newest_row_is_never_pruned(written: Context) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    assert prune_audit(written, later)["rows"] == 5
    assert prune_audit(written, datetime(2000, 1, 1, tzinfo=UTC)) == {"rows": 0, "upto": None}
    assert verify_audit(written)["ok"]
    assert audit_head(written)["number"] == 8


def test_what_is_no_head_is_refused(context: Context, subtests: pytest.Subtests) -> None:
    for head in ("", "1", "x:y", "1:abc", f"-1:{'0' * 64}"):
        with subtests.test(head=head), pytest.raises(InputError):
            verify_audit(context, [head])


def test_two_who_write_at_once_make_one_chain(prepared_url: str) -> None:
    contexts = [Context(Database(prepared_url), by=name) for name in ("ann", "bob")]
    barrier = threading.Barrier(2)

    def work(context: Context) -> None:
        barrier.wait(30)
        for number in range(15):
            create_session(context, f"{context.by}{number}")
            archive_session(context, f"{context.by}{number}")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, contexts))
    report = verify_audit(contexts[0])
    assert (report["ok"], report["rows"]) == (True, 120)
    assert {record["outcome"] for record in list_audit(contexts[0])} == {"done"}
    for context in contexts:
        context.close()


def test_verify_fails_as_a_command(tmp_path: Any) -> None:
    project = Project(tmp_path)
    project.inside("admin", "session", "create", "ann", check=0)
    head = project.inside("admin", "audit", "head", check=0).stdout.strip()
    well = project.inside("admin", "audit", "verify", "--head", head, check=0).stdout
    assert sentence("no row was changed, removed or moved") in well
    assert sentence("head {}: as it was published", head.partition(":")[0]) in well
    project.change("UPDATE audit SET by = 'eve' WHERE number = 1")
    bad = project.inside("admin", "audit", "verify", check=1).stdout
    assert sentence("row {} is not as it was written", 1) in bad
    assert sentence("no row is so old") in project.inside("admin", "audit", "prune", "--before", "365d", check=0).output
    project.close()
