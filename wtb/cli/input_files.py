"""What is given to an option in a file, or on stdin where the file is `-`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from wtb.core.errors import InputError
from wtb.planning import case_files


def read_text(option: str, file: str | Path, max_bytes: int) -> str:
    """The text of a file of at most `most` bytes. Raises InputError that names the option and the file."""
    where = f"{option} {'stdin' if str(file) == '-' else file}"
    try:
        if str(file) == "-":
            content = sys.stdin.buffer.read(max_bytes + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{where}: cannot be read ({why}); expected a file") from None
    if len(content) > max_bytes:
        raise InputError(f"{where}: more than {max_bytes:,} bytes; expected at most that many")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: byte 0x{content[error.start]:02x} is not UTF-8; expected text in UTF-8") from None


def read_json(option: str, file: str | Path, max_bytes: int) -> Any:
    """The JSON value in a file; see `read_text`."""
    return parse_json(f"{option} {'stdin' if str(file) == '-' else file}", read_text(option, file, max_bytes))


def parse_json(where: str, text: str) -> Any:
    """What a JSON text says. Raises InputError with what was found, and where in it."""
    found = case_files.loads(text)
    if isinstance(found, case_files.Wrong):
        raise InputError(f"{where}: {found}")
    return found
