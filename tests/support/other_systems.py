"""Commands of `wtb` on another system, as far as that can be had: `python -m tests.support.other_systems SYSTEM JSON`.

What Python lacks there is taken away; what the system does otherwise stays as it is here. Packages of others are
imported first, since they look at the name of the system, which stays as it is for them.

JSON is a list of commands, each a list of arguments; what is printed is a list of [exit code, stdout, stderr].
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import io
import json
import os
import platform
import shutil
import signal
import sys
from types import SimpleNamespace
from typing import Any

OTHER_PACKAGES = """
    alembic.command asyncio click jsonschema multiprocessing numpy psutil psycopg pydantic rich.console sqlalchemy typer
"""
WINDOWS_MODULES = "fcntl grp pty pwd readline resource syslog termios tty"
WINDOWS_OS = """
    O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_PATH WNOHANG chown fchmod fchown fork getegid geteuid getgid getpgid
    getuid killpg memfd_create pidfd_open pipe2 posix_fallocate pread pwrite sched_getaffinity setsid statvfs
    sysconf uname
"""
WINDOWS_SIGNALS = """
    SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 alarm pidfd_send_signal
    pthread_sigmask setitimer
"""
LACKS: dict[str, dict[Any, str]] = {
    "Windows": {os: WINDOWS_OS, signal: WINDOWS_SIGNALS},
    "Darwin": {
        os: "O_PATH memfd_create pidfd_open pipe2 posix_fallocate sched_getaffinity",
        signal: "pidfd_send_signal",
    },
}


def become(system: str) -> None:
    """Take away what Python lacks on a system."""
    for name in OTHER_PACKAGES.split():
        importlib.import_module(name)
    for owner, names in LACKS[system].items():
        for name in names.split():
            if hasattr(owner, name):
                delattr(owner, name)
    if system == "Windows":
        vars(sys)["modules"].update(dict.fromkeys(WINDOWS_MODULES.split()))
        vars(shutil)["disk_usage"] = lambda path: SimpleNamespace(total=1 << 40, used=0, free=1 << 40)
    vars(ctypes)["CDLL"] = lambda *args: SimpleNamespace()  # there is no prctl in it
    vars(platform)["system"] = lambda: system


def run(arguments: list[str]) -> tuple[int, str, str]:
    from wtb.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    sys.argv = ["wtb", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    return int(code or 0), out.getvalue(), err.getvalue()


if __name__ == "__main__":
    become(sys.argv[1])
    print(json.dumps([run(arguments) for arguments in json.loads(sys.argv[2])]))
