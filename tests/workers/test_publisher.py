"""A worker publishes what is registered where it runs, and again when that changes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from wtb.store.database import Database
from wtb.store.publications import list_publications
from wtb_workers.process import Publisher

FLOW = """
from wtb import END, Workflow
wf = Workflow("flow")
@wf.node
def f(state, *, k: int = {k}): return {{}}
wf.entry(f)
wf.edge(f, END)
"""


def test_changed_code_is_published_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared_url: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("publisher_flow", None)
    monkeypatch.setattr(Publisher, "_keep_published", lambda self: None)  # the test says when it looks
    database = Database(prepared_url)
    publisher = Publisher(database, "w1")
    publisher.look()
    assert list_publications(database) == []
    flow, setting = tmp_path / "publisher_flow.py", tmp_path / "wtb.toml"
    setting.write_text("[workflows]\nflow = 'publisher_flow:wf'\n")
    publisher.look()
    (missing,) = list_publications(database)
    assert (missing.description, missing.failed_by) == (None, "w1")
    digests = set()
    for k in (1, 22):
        flow.write_text(FLOW.format(k=k))
        publisher.look()
        (row,) = list_publications(database)
        assert (row.error, row.published_by) == (None, "w1")
        digests.add(row.digest)
    assert len(digests) == 2
    setting.write_text("")
    publisher.look()
    assert list_publications(database) == []
    publisher.close(1)
    database.close()
