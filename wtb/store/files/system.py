"""Requirements of the file store on the operating system, which Windows does not meet."""

from __future__ import annotations

import importlib.util
import os
from functools import reduce
from operator import or_
from typing import Final

from wtb.core.errors import InputError

HAS_FILES: Final = importlib.util.find_spec("fcntl") is not None  # locks, and files opened without following links


def open_flags(*names: str) -> int:
    """Combine flags of `os.open`. A flag that the system lacks counts as 0; `check_system` refuses such a system."""
    return reduce(or_, (getattr(os, name, 0) for name in names))


def check_system() -> None:
    """Raise InputError on a system that can neither keep files nor run nodes."""
    if not HAS_FILES:
        raise InputError(
            "WTB runs nodes and keeps their files on Linux and macOS only; on Windows use WSL 2, "
            "where WTB runs as on Linux"
        )
