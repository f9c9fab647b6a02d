"""Cedar in this process: a folder of policies, checked against a schema when it is loaded, and decisions by them.

Policies are parsed once. Cedar skips a policy that cannot be evaluated, so that a `forbid` that fails would not forbid;
here any error denies.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from wtb.config.distribution import pip_install
from wtb.config.project_settings import find_setting, table_of
from wtb.core.errors import InputError
from wtb.operations.policy.vocabulary import Asked, Fact, schema

FOLDER = "WTB_POLICY"
_REMEMBERED = 10_000  # decisions
KEEP_S = 1.0  # before files are looked at again
_DEFAULT = "policy"
_SUFFIX = ".cedar"


@dataclass(frozen=True)
class Decision:
    """What policies say.

    Attributes:
        allowed: Whether it may be done.
        rules: The policies that decided; none where none permits it.
        errors: What could not be evaluated, each of which denies.
    """

    allowed: bool
    rules: tuple[str, ...]
    errors: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """The reason in words."""
        if self.errors:
            return f"a policy could not be evaluated, which denies: {'; '.join(self.errors)}"
        if not self.rules:
            return "no policy permits it"
        return f"policy {', '.join(self.rules)} {'permits' if self.allowed else 'forbids'} it"


class Policies:
    """The policies of a folder."""

    def __init__(self, folder: Path, names: Sequence[str], cedar: Any, parsed: Any) -> None:
        self.folder = folder
        self.names = names
        self._cedar = cedar
        self._parsed = parsed
        self._nobody = cedar.Entities.from_json_str("[]")
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._decide)

    def decide(self, asked: Asked) -> Decision:
        """Decide about what is asked. Whatever goes wrong denies."""
        # It follows from these alone, and the library takes a tenth of a millisecond to read a request.
        return self._remembered(asked.by, asked.action, asked.kind, asked.id, tuple(asked.context.items()))

    def _decide(self, by: str, action: str, kind: str, id: str, context: tuple[tuple[str, Fact], ...]) -> Decision:
        request = {
            "principal": {"type": "User", "id": by},
            "action": {"type": "Action", "id": action},
            "resource": {"type": kind, "id": id},
            "context": json.dumps(dict(context)),  # as the library would, after a copy
        }
        try:
            result = self._cedar.is_authorized(request, self._parsed, self._nobody)
            errors, reasons = list(result.diagnostics.errors), list(result.diagnostics.reasons)
            allowed = bool(result.allowed)
        except Exception as error:  # noqa: BLE001 - of the library: whatever it is denies
            return Decision(False, (), (f"{type(error).__name__}: {error}",))
        rules = tuple(sorted(self._name(one) for one in reasons))
        return Decision(allowed and not errors, rules, tuple(str(error) for error in errors))

    def _name(self, id: str) -> str:
        number = id.removeprefix("policy")
        return self.names[int(number)] if number.isdigit() and int(number) < len(self.names) else id


@dataclass(frozen=True)
class _Found:
    """What was found where, and when: a process looks for it before each operation."""

    where: tuple[str | None, str]
    at: float
    policies: Policies | None


_last: _Found | None = None


def policy_folder() -> Path | None:
    """The folder of policies: WTB_POLICY, else `[policy] folder` of the project's settings, else `policy` here.

    Returns:
        None where there is none, or where the last has no policies.

    Raises:
        InputError: If one is named that is not there.
    """
    named, named_by = os.environ.get(FOLDER), FOLDER
    setting = find_setting("policy")
    if not named and setting is not None:
        named_by = f"{setting.file}: {setting.title} folder"
        named = table_of(setting, ("folder",)).get("folder")
        if not isinstance(named, str) or not named:
            raise InputError(f"{named_by} = {named!r}: expected the path of a folder")
        named = os.path.join(setting.file.parent, named)
    if named:
        if not Path(named).is_dir():
            raise InputError(
                f"{named_by}: there is no folder {named}; nothing is allowed until it is there or not named"
            )
        return Path(named)
    here = Path(_DEFAULT)
    return here.absolute() if any(here.glob(f"*{_SUFFIX}")) else None


def find_policies() -> Policies | None:
    """Return the policies of this process's folder, as they were at most a second ago.

    Returns:
        None where there are none, and all is allowed.

    Raises:
        InputError: If they are wrong, or cannot be read.
    """
    global _last
    where = os.environ.get(FOLDER), os.getcwd()
    found = _last
    if found is None or found.where != where or time.monotonic() - found.at > KEEP_S:
        found = _last = _Found(where, time.monotonic(), _find())
    return found.policies


def _find() -> Policies | None:
    folder = policy_folder()
    if folder is None:
        return None
    files = sorted(folder.glob(f"*{_SUFFIX}"))
    try:
        stamps = tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    except OSError as error:
        raise InputError(f"{folder}: policies cannot be read ({error.strerror or error})") from None
    return _load(folder, stamps)


@lru_cache(maxsize=4)
def _load(folder: Path, stamps: Sequence[tuple[str, int, int]]) -> Policies:
    """Load policies, again once a file has changed."""
    try:
        cedar: Any = import_module("cedarpy")
    except ModuleNotFoundError:
        raise InputError(
            f"{folder} has policies, and what evaluates them is not installed: {pip_install('policy')}"
        ) from None
    texts, names, problems = [], [], []
    for path in (Path(name) for name, _, _ in stamps):
        text = path.read_text("utf-8", "replace")
        try:
            count, annotated = _named(cedar, text)
        except ValueError as error:
            problems.append(f"{path}: {' '.join(str(error).split())}")
            continue
        texts.append(text)
        names += [annotated.get(number, f"{path.name} #{number + 1}") for number in range(count)]
    if problems:
        raise InputError(*problems)
    whole = "\n".join(texts)
    checked = cedar.validate_policies(whole, schema())
    if not checked.validation_passed:
        raise InputError(*(_problem(folder, names, error) for error in checked.errors))
    return Policies(folder, names, cedar, cedar.PolicySet.from_str(whole))


def _named(cedar: Any, text: str) -> tuple[int, dict[int, str]]:
    """How many policies a text has, and the `@id` of those that have one, by their number. Raises ValueError."""
    cedar.PolicySet.from_str(text)
    document = json.loads(cedar.policies_to_json_str(text))
    found = document.get("staticPolicies", {})
    if document.get("templates"):
        raise ValueError("it has a template, which nothing links; write a policy for each")
    ids = {int(id.removeprefix("policy")): (policy.get("annotations") or {}).get("id") for id, policy in found.items()}
    return len(found), {number: name for number, name in ids.items() if name}


def _problem(folder: Path, names: Sequence[str], error: Any) -> str:
    number = str(error.policy_id).removeprefix("policy")
    where = names[int(number)] if number.isdigit() and int(number) < len(names) else str(error.policy_id)
    return f"{folder}: {where}: {' '.join(str(error.error).split())}"
