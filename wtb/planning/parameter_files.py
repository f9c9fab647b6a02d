"""Files as parameters: the client reads `file://PATH`, and its text is stored with the sweep."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

from wtb.config.field_types import problem
from wtb.config.yaml_reader import Loc, Located
from wtb.core.errors import InputError, did_you_mean
from wtb.core.factors import (
    EVALUATOR_ARGUMENTS,
    LEVEL_ARGUMENTS,
    SCHEME,
    FileReference,
    file_reference,
    replace_files,
    sha256_of,
    texts_of,
    with_texts,
)
from wtb.core.serialization.plain_json import wrong_text
from wtb.core.values import Arguments, SweepKeys

MAX_BYTES: Final = 1024 * 1024
MAX_FILES: Final = 1_000  # that one sweep names
_KEYS: Final = ("vary", "params", "evaluate", "baseline", "exclude", "combinations")  # where parameters stand
Levels = TypeVar("Levels", bound=Mapping[str, Any] | None)
Forms = TypeVar("Forms")

_PROJECT: Final = ("wtb.toml", "pyproject.toml")  # whichever is there marks the project's folder


def check_texts(texts: dict[str, str]) -> dict[str, str]:
    """Reject texts that are too long, or do not have the hashes that their keys name."""
    for place, wrong in _wrong_texts(texts):
        raise problem(wrong, at=place)
    return texts


def _wrong_texts(texts: Mapping[str, str]) -> Iterator[tuple[Loc, str]]:
    if len(texts) > MAX_FILES:
        yield (), f"{len(texts):,} texts; expected at most {MAX_FILES:,}"
        return
    for sha256, text in texts.items():
        if wrong := wrong_text(text):
            yield (sha256,), wrong
        elif len(text) > MAX_BYTES or len(text.encode()) > MAX_BYTES:
            yield (sha256,), f"a text of more than {MAX_BYTES:,} bytes; expected a shorter one"
        elif sha256_of(text) != sha256:
            yield (sha256,), "a text with another SHA-256; expected the one that its key names"


@dataclass
class _Reader:
    """Reader of the files that parameters name, each once.

    Attributes:
        folder: The folder that paths are relative to.
        located: Names the places of problems.
        texts: The texts by SHA-256.
        references: `file://PATH` -> its reference; None if it cannot be read.
        problems: A line for each file that cannot be read.
    """

    folder: Path
    located: Located
    texts: dict[str, str]
    references: dict[str, FileReference | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def refer(self, place: Loc, written: str) -> str:
        """Return the reference of a file; the text itself if it is a reference, or the file cannot be read."""
        if (reference := file_reference(written)) is not None and reference.sha256 in self.texts:
            return written
        if written not in self.references:
            self.references[written] = self._read(place, written)
        return str(self.references[written] or written)

    def _read(self, place: Loc, written: str) -> FileReference | None:
        if len(self.references) >= MAX_FILES:
            raise InputError(self.located.problem(place, f"more than {MAX_FILES:,} files; expected fewer"))
        path = written.removeprefix(SCHEME)
        try:
            text = read_text(path, self.folder)
        except InputError as error:
            self.problems += [self.located.problem(place, text) for text in error.problems]
            return None
        reference = FileReference(path, sha256_of(text))
        self.texts[reference.sha256] = text
        return reference


def read_parameter_files(keys: SweepKeys, folder: Path, located: Located) -> dict[str, Any]:
    """Read the files that parameters of a sweep name.

    Args:
        keys: The keys of a sweep file.
        folder: The folder that paths are relative to.
        located: Names the places of problems.

    Returns:
        The keys with `file://PATH#SHA256` instead of `file://PATH`, and with the texts under `texts`.

    Raises:
        InputError: With every file that cannot be read, and the reason.
    """
    texts = keys.get("texts")
    reader = _Reader(folder, located, dict(texts) if isinstance(texts, dict) else {})
    changed = {key: replace_files(keys[key], reader.refer, (key,)) for key in _KEYS if key in keys}
    if reader.problems:
        raise InputError(*reader.problems)
    return {**keys, **changed, **({"texts": reader.texts} if reader.references else {})}


def read_level_files(
    levels: Levels, where: str, texts: Mapping[str, str] | None = None
) -> tuple[Levels, dict[str, str]]:
    """Read the files that levels or variants name, relative to the working directory.

    Args:
        levels: Node, or `node.parameter` -> variants or levels; None without any.
        where: The name of the argument in messages, such as `--variant`.
        texts: Texts of files that were read before, by SHA-256.

    Returns:
        The levels with `file://PATH#SHA256` instead of `file://PATH`, and the texts by SHA-256.

    Raises:
        InputError: With every file that cannot be read, and the reason.
    """
    reader = _Reader(Path(), Located(where=where), dict(texts or {}))
    read = replace_files(levels, reader.refer)
    if reader.problems:
        raise InputError(*reader.problems)
    return read, reader.texts


def with_file_texts(forms: Forms, where: str) -> Forms:
    """Return evaluators, as a sweep file writes them, with the texts of the files that their options name.

    Args:
        forms: A name, a mapping of a name to its options, or a list of these.
        where: The name of the argument in messages, such as `--evaluate`.

    Returns:
        The evaluators with the text of each `file://PATH`, relative to the working directory.

    Raises:
        InputError: With every file that cannot be read, and the reason.
    """
    read, texts = read_level_files({where: forms}, "")
    return with_texts(read[where], texts)  # type: ignore[no-any-return]


def with_files_read(arguments: Arguments) -> Arguments:
    """Return arguments of an operation with the texts of the files that parameters name, since operations read none.

    Args:
        arguments: Arguments by name; those without files are unchanged.

    Raises:
        InputError: With every file that cannot be read, and the reason.
    """
    changed = dict(arguments)
    if isinstance(keys := arguments.get("keys"), Mapping):
        changed["keys"] = read_parameter_files(keys, Path(), Located(where="keys"))
    for name in EVALUATOR_ARGUMENTS:
        if arguments.get(name) is not None:
            changed[name] = with_file_texts(arguments[name], name)
    for name in LEVEL_ARGUMENTS:
        if isinstance(arguments.get(name), Mapping):
            levels, texts = read_level_files(arguments[name], name, arguments.get("texts"))
            changed |= {name: levels} | ({"texts": texts} if texts else {})
    return changed


def check_no_files(forms: Any, argument: str) -> None:
    """Reject evaluators whose options name files, because clients send their texts instead. Raises InputError."""
    sent_texts({argument: forms}, None, argument)


def sent_texts(levels: Mapping[str, Any] | None, texts: Mapping[str, str] | None, argument: str) -> dict[str, str]:
    """Check the texts that a client sent for the files that levels or variants name.

    Args:
        levels: Node, or `node.parameter` -> variants or levels.
        texts: Texts by SHA-256.
        argument: The name of the argument that has the levels.

    Returns:
        The texts that the levels refer to.

    Raises:
        InputError: With a line for each file without its text, and each wrong text.
    """
    if unread := list(_unread({argument: levels}, texts or {}, Located())):
        raise InputError(*unread, argument=argument)
    if wrong := [Located().problem(("texts", *place), text) for place, text in _wrong_texts(texts or {})]:
        raise InputError(*wrong, argument="texts")
    return texts_of(levels, texts or {})


def unread_problems(keys: SweepKeys, located: Located) -> Iterator[str]:
    """Yield a line for each file that parameters of a sweep name and whose text is missing."""
    texts = keys.get("texts")
    yield from _unread({key: keys.get(key) for key in _KEYS}, texts if isinstance(texts, dict) else {}, located)


def _unread(values: SweepKeys, texts: Mapping[str, str], located: Located) -> Iterator[str]:
    unread: dict[str, Loc] = {}

    def note(place: Loc, written: str) -> str:
        reference = file_reference(written)
        if reference is None or reference.sha256 not in texts:
            unread.setdefault(written, place)
        return written

    replace_files(values, note)
    for written, place in unread.items():
        yield located.problem(
            place,
            f"{written!r:.200} names a file, which the server does not read; expected its text, which `wtb` and its "
            f"Python client send",
        )


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
    label = f"{SCHEME}{path}"
    parts = PurePosixPath(path)
    if not path or parts.is_absolute() or ".." in parts.parts or "\0" in path or not path.isprintable():
        raise InputError(
            f"{label!r:.200}: expected a path within the project, relative to the sweep file and without '..'"
        )
    if len(path) > 1_000:
        raise InputError(f"{label[:60]!r}...: expected a path of at most 1,000 characters")
    project = project_folder(folder)
    target = next((base / path for base in (folder, project) if os.path.lexists(base / path)), None)
    if target is None:
        raise InputError(f"{label}: no such file in {folder.absolute()}{_near(folder / path)}")
    try:
        real = target.resolve(strict=True)
        if not real.is_relative_to(project.resolve()):
            raise InputError(f"{label}: leads out of {project.absolute()}; expected a file within the project")
        content = _content(real, label)
    except (OSError, RuntimeError) as error:  # the latter of links that go round
        raise InputError(f"{label}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{label}: byte 0x{content[error.start]:02x} in line {line} is not UTF-8; expected a text file in UTF-8"
        ) from None
    if wrong := wrong_text(text):
        raise InputError(f"{label}: a binary file ({wrong.partition(';')[0]}); expected a text file in UTF-8")
    return text


def _content(real: Path, label: str) -> bytes:
    """Read a file by its real path. It is opened without waiting, and is checked by its descriptor."""
    # O_NONBLOCK, or opening a named pipe would wait for its writer; O_NOFOLLOW, because the checked path may have been
    # replaced by a link.
    descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        os.close(descriptor)
        raise InputError(f"{label}: a folder; expected a text file")
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{label}: not a regular file; expected a text file")
        # A hard link would make a file from outside of the project look as if it were inside.
        if status.st_nlink > 1:
            raise InputError(f"{label}: has {status.st_nlink} hard links, so it may be from elsewhere; expected one")
        if status.st_size > MAX_BYTES:
            raise InputError(f"{label}: has {status.st_size:,} bytes; expected at most {MAX_BYTES:,}")
        # The file may grow after `fstat`, so the limit applies to what is read, too.
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise InputError(f"{label}: more than {MAX_BYTES:,} bytes; expected fewer")
    return content


def project_folder(folder: Path) -> Path:
    """Return the nearest parent folder with a wtb.toml or pyproject.toml; the folder itself if there is none."""
    start = folder.absolute()
    return next(
        (parent for parent in (start, *start.parents) if any((parent / name).is_file() for name in _PROJECT)), start
    )


def _near(path: Path) -> str:
    try:
        names = [file.name for file in path.parent.iterdir()]
    except OSError:
        names = []
    return did_you_mean(path.name, names) or "; paths are relative to the sweep file, else to the project"
