"""A stack in the background: what it logs until it is ready reaches who started it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from wtb.config.stack_file import Stack
from wtb.hosting.servers import background


def test_a_line_written_just_before_the_stack_is_ready_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = SimpleNamespace(pid=os.getpid(), poll=lambda: None)

    def become_ready(folder: Path) -> Stack:
        with (folder / background.LOGS / "wtb.log").open("a") as log:
            log.write("ready after 1.0 s\n")
        return Stack(folder, started.pid, time.time(), True, "", "", None, ())

    monkeypatch.setattr(background.subprocess, "Popen", lambda *args, **options: started)
    monkeypatch.setattr(background, "find_stack", become_ready)
    lines: list[str] = []

    assert background.start_detached(tmp_path, [], lines.append) == 0
    assert lines == ["ready after 1.0 s"]
