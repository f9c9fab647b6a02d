"""Files as parameters: `file://PATH` in a sweep file is read by whoever submits it, and stored with the sweep."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from wtb.config.validation_messages import problem
from wtb.config.yaml_reader import Loc, Located
from wtb.core.errors import InputError, did_you_mean
from wtb.core.factors.file_levels import SCHEME, FileReference, file_reference, names_file, replace_files, sha256_of
from wtb.core.serialization.storable import wrong_text

MAX_BYTES: Final = 1024 * 1024
MAX_FILES: Final = 1_000  # that one sweep names
_KEYS: Final = ("vary", "params", "evaluate", "baseline", "exclude", "combinations")  # where parameters stand
_PROJECT: Final = ("wtb.toml", "pyproject.toml")  # whichever is there marks the project's folder


def check_texts(texts: dict[str, str]) -> dict[str, str]:
    """Refuse texts that are not what their hashes say, or too long."""
    if len(texts) > MAX_FILES:
        raise problem(f"{len(texts):,} texts; expected at most {MAX_FILES:,}")
    for sha256, text in texts.items():
        if wrong := wrong_text(text):
            raise problem(wrong, at=(sha256,))
        if len(text) > MAX_BYTES or len(text.encode()) > MAX_BYTES:
            raise problem(f"a text of more than {MAX_BYTES:,} bytes; expected a shorter one", at=(sha256,))
        if sha256_of(text) != sha256:
            raise problem("a text with another SHA-256; expected the one that its key names", at=(sha256,))
    return texts


def read_parameter_files(data: Mapping[str, Any], folder: Path, located: Located) -> dict[str, Any]:
    """Read the files that parameters of a sweep name.

    Args:
        data: The keys of a sweep file.
        folder: What paths are relative to.
        located: Names the places of problems.

    Returns:
        The keys with `file://PATH#SHA256` for `file://PATH`, and with the texts under `texts`.

    Raises:
        InputError: With every file that cannot be read, and why.
    """
    texts: dict[str, str] = dict(data.get("texts") or {}) if isinstance(data.get("texts") or {}, dict) else {}
    references: dict[str, FileReference] = {}
    problems: list[str] = []

    def reference(place: Loc, written: str) -> str:
        if (known := file_reference(written)) is not None and known.sha256 in texts:
            return written
        if written not in references:
            if len(references) >= MAX_FILES:
                raise InputError(located.problem(place, f"more than {MAX_FILES:,} files; expected fewer"))
            try:
                text = read_text(written.removeprefix(SCHEME), folder)
            except InputError as error:
                problems.extend(located.problem(place, one) for one in error.problems)
                return written
            references[written] = FileReference(written.removeprefix(SCHEME), sha256_of(text))
            texts[references[written].sha256] = text
        return str(references[written])

    changed = {key: _replaced(data[key], (key,), reference) for key in _KEYS if key in data}
    if problems:
        raise InputError(*problems)
    return {**data, **changed, **({"texts": texts} if references else {})}


def _replaced(value: Any, place: Loc, change: Callable[[Loc, str], str]) -> Any:
    if names_file(value):
        return change(place, value)
    if isinstance(value, dict):
        return {key: _replaced(part, (*place, str(key)), change) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(part, (*place, number), change) for number, part in enumerate(value)]
    return value


def unread_problems(data: Mapping[str, Any], located: Located) -> Iterator[str]:
    """Yield a line for each file that parameters name and whose text is not there."""
    texts = data.get("texts")
    known = texts if isinstance(texts, dict) else {}
    unread: list[tuple[Loc, str]] = []

    def note(place: Loc, written: str) -> str:
        reference = file_reference(written)
        if reference is None or reference.sha256 not in known:
            unread.append((place, written))
        return written

    for key in _KEYS:
        _replaced(data.get(key), (key,), note)
    for place, written in unread:
        yield located.problem(
            place,
            f"{written!r:.200} names a file, and no file is read here, only where `wtb` reads a sweep file; expected "
            f"its text",
        )


def with_read_texts(value: Any, folder: Path) -> Any:
    """Return plain data with the text in place of each `file://PATH`. Raises InputError as `read_text`."""
    return replace_files(value, lambda named: read_text(named.removeprefix(SCHEME), folder))


def read_text(path: str, folder: Path) -> str:
    """Read a file that a parameter names.

    Args:
        path: As the sweep file has it: relative to the folder, or else to the folder of the project.
        folder: The folder of the sweep file.

    Returns:
        Its text.

    Raises:
        InputError: If it is not a text file within the project.
    """
    shown = f"{SCHEME}{path}"
    parts = PurePosixPath(path)
    if not path or parts.is_absolute() or ".." in parts.parts or "\0" in path or not path.isprintable():
        raise InputError(
            f"{shown!r:.200}: expected a path within the project, relative to the sweep file and without '..'"
        )
    if len(path) > 1_000:
        raise InputError(f"{shown[:60]!r}...: expected a path of at most 1,000 characters")
    project = project_folder(folder)
    target = next((one / path for one in (folder, project) if os.path.lexists(one / path)), None)
    if target is None:
        raise InputError(f"{shown}: no such file in {folder.absolute()}{_near(folder / path)}")
    try:
        real = target.resolve(strict=True)
        if not real.is_relative_to(project.resolve()):
            raise InputError(f"{shown}: leads out of {project.absolute()}; expected a file within the project")
        content = _content(real, shown)
    except (OSError, RuntimeError) as error:  # the latter of links that go round
        raise InputError(f"{shown}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{shown}: byte 0x{content[error.start]:02x} in line {line} is not UTF-8; expected a text file in UTF-8"
        ) from None
    if wrong := wrong_text(text):
        raise InputError(f"{shown}: a binary file ({wrong.partition(';')[0]}); expected a text file in UTF-8")
    return text


def _content(real: Path, shown: str) -> bytes:
    """Read a file by its real path. It is opened without waiting, and is checked by its descriptor."""
    descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        os.close(descriptor)
        raise InputError(f"{shown}: a folder; expected a text file")
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{shown}: not a regular file; expected a text file")
        if status.st_nlink > 1:
            raise InputError(f"{shown}: has {status.st_nlink} hard links, so it may be from elsewhere; expected one")
        if status.st_size > MAX_BYTES:
            raise InputError(f"{shown}: has {status.st_size:,} bytes; expected at most {MAX_BYTES:,}")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise InputError(f"{shown}: more than {MAX_BYTES:,} bytes; expected fewer")
    return content


def project_folder(folder: Path) -> Path:
    """Return the nearest folder upwards that has a wtb.toml or pyproject.toml; the folder itself if none has."""
    start = folder.absolute()
    return next((one for one in (start, *start.parents) if any((one / name).is_file() for name in _PROJECT)), start)


def _near(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        names = []
    return did_you_mean(path.name, names) or "; paths are relative to the sweep file, else to the project"
