"""Browsers that are opened for whoever starts a server, whichever they are."""

from __future__ import annotations

import threading
import webbrowser

import pytest

from tests.support.prose import sentence
from wtb.hosting.api.web_pages import opened

URL = "http://127.0.0.1:1/#code=c"


def test_a_browser_that_is_waited_for_does_not_hold_up_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    serving, was_served = threading.Event(), list[bool]()
    ended = threading.Event()

    def browse(_: str) -> bool:
        was_served.append(serving.wait(10))
        ended.set()
        return True

    monkeypatch.setattr(webbrowser, "open", browse)
    with opened(URL, print):
        serving.set()
        assert ended.wait(20)
    assert was_served == [True]


def test_the_address_is_said_where_there_is_no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, was_said = list[str](), threading.Event()

    def report(line: str) -> None:
        lines.append(line)
        was_said.set()

    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    with opened(URL, report):
        assert was_said.wait(20)
    assert lines == [sentence("no browser could be opened; the address is {}", URL)]
