"""Values of options that are read from a file, or from stdin if the file is `-`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from wtb.core.errors import InputError
from wtb.planning import case_files


def read_text(option: str, file: str | Path, max_bytes: int) -> str:
    """Return the text of a file of at most `max_bytes`. Raises InputError that names the option and the file."""
    where = f"{option} {'stdin' if str(file) == '-' else file}"
    try:
        if str(file) == "-":
            # One byte more than allowed shows that the input is too long, without reading all of it.
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
        # Some editors begin a file with a byte order mark, which is no part of the text.
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: byte 0x{content[error.start]:02x} is not UTF-8; expected text in UTF-8") from None


def read_json(option: str, file: str | Path, max_bytes: int) -> Any:
    """The JSON value in a file; see `read_text`."""
    return parse_json(f"{option} {'stdin' if str(file) == '-' else file}", read_text(option, file, max_bytes))


def parse_json(where: str, text: str) -> Any:
    """Return the value of a JSON text. Raises InputError with the place of the mistake."""
    parsed = case_files.loads(text)
    if isinstance(parsed, case_files.Wrong):
        raise InputError(f"{where}: {parsed}")
    return parsed
