"""Logs as JSON are one object a line, with the ids of what a thread is busy with; words in a terminal stay."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tests.support.project import Project
from wtb.core.errors import InputError
from wtb.core.telemetry.log_ids import log_ids
from wtb.hosting.telemetry.logs import wants_json, write_json_logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root, ours = logging.getLogger(), logging.getLogger("wtb")
    handlers, levels = root.handlers, (root.level, ours.level)
    found = io.StringIO()
    write_json_logs("worker", found)
    yield found
    root.handlers = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def test_a_line_is_an_object_with_the_ids_of_what_is_under_way(stream: io.StringIO) -> None:
    log = logging.getLogger("wtb")
    with log_ids(sweep="s1", execution=None), log_ids(execution="e1"):
        log.info("it %s\nand goes on", "began")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it failed")
    logging.getLogger("elsewhere").info("nobody asked")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["level"], first["part"]) == ("it began\nand goes on", "info", "worker")
    assert (first["sweep"], first["execution"]) == ("s1", "e1")
    assert first["at"].endswith("Z")
    assert "sweep" not in second
    assert "ValueError: broken" in second["exception"]


def test_a_setting_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch, empty_project: Project) -> None:
    monkeypatch.setenv("WTB_LOG", "xml")
    with pytest.raises(InputError, match="WTB_LOG is 'xml'; expected text or json"):
        wants_json()
    monkeypatch.setenv("WTB_LOG", "")
    assert not wants_json()
