"""Credentials of a command are read once, and other processes of the same user cannot see them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from wtb.config import credentials
from wtb.config.credentials import DATABASE_URL, FLOWER_AUTH, PIPE, credentials_pipe
from wtb.features.archive.zip_file import Writing
from wtb.store.database import Database

linux = pytest.mark.skipif(sys.platform != "linux", reason="the system shows it on Linux only")

URL = "postgresql://wtb:s3cret@127.0.0.1:1/wtb"

COMMAND = """
import ctypes, os, sys
from wtb.config import credentials
from wtb.config.credentials import NAMES, credential

credentials.take()
given = {name: value for name in NAMES if (value := credential(name))}
print(given, sorted(name for name in os.environ if name.startswith("WTB_")), flush=True)
sys.stdin.read()
PR_GET_DUMPABLE = 3
sys.exit(ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0))
"""

CREDENTIALS = {DATABASE_URL: URL, FLOWER_AUTH: "ann:s3cret"}


def started(*arguments: str, env: dict[str, str], inherited: tuple[int, ...] = ()) -> subprocess.Popen[str]:
    """Start a command that reads and prints its credentials, and waits until its input is closed."""
    environment = {name: setting for name, setting in os.environ.items() if not name.startswith("WTB_")}
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        env={**environment, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=inherited,
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@linux
def test_what_a_command_finds_in_its_environment_is_seen_in_no_list_of_processes() -> None:
    with started("--db", URL, env={"WTB_DATABASE_URL": URL, "WTB_FLOWER_AUTH": "ann:s3cret", "KEPT": "1"}) as process:
        assert first_line(process) == f"{CREDENTIALS} []"
        process_info = psutil.Process(process.pid)
        assert process_info.environ()["KEPT"] == "1"
        everything = b"".join(Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("environ", "cmdline"))
        assert b"s3cret" not in everything
        assert process_info.cmdline()[-2:] == ["--db", "*" * len(URL)]
        process.communicate()
        assert process.returncode == 0, "what is dumpable may be read by others of the same user"


@linux
def test_what_a_part_receives_is_in_neither_its_environment_nor_its_arguments() -> None:
    with credentials_pipe(**CREDENTIALS) as (environment, inherited):
        assert PIPE in environment
        process = started(env={PIPE: environment[PIPE]}, inherited=inherited)
    with process:
        assert first_line(process) == f"{CREDENTIALS} []"
        everything = b"".join(Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("environ", "cmdline"))
        assert b"s3cret" not in everything
        process.communicate()


@linux
def test_a_command_that_holds_no_credentials_is_open_to_others_of_its_user() -> None:
    with started(env={}) as process:
        process.communicate("")
    assert process.returncode != 0


def test_an_sqlite_file_that_wtb_makes_is_for_its_owner_only_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        database = Database(f"sqlite:///{tmp_path / 'home' / 'wtb.db'}")
        database.prepare()
        with database.read() as connection:
            assert connection.scalar(sa.text("SELECT count(*) FROM sessions")) == 1
            modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "home").iterdir()}
    finally:
        os.umask(before)
        database.close()
    assert modes == {"wtb.db": 0o600, "wtb.db-wal": 0o600, "wtb.db-shm": 0o600}
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700


def test_an_archive_is_for_its_owner_only(tmp_path: Path) -> None:
    with Writing(tmp_path / "sweep.zip") as out:
        out.add("a", [b"content"])
    assert (tmp_path / "sweep.zip").stat().st_mode & 0o777 == 0o600


def test_what_is_in_the_environment_counts_more_than_what_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_credentials", {DATABASE_URL: "taken"})
    monkeypatch.delenv(DATABASE_URL, raising=False)
    assert credentials.credential(DATABASE_URL) == "taken"
    monkeypatch.setenv(DATABASE_URL, "given")
    assert credentials.credential(DATABASE_URL) == "given"
