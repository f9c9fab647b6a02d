"""A folder of policies, checked against a schema when it is loaded, and decisions by them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from wtb.authoring.policies.cedar import ASK, Decision, ParsedPolicy, PolicySet, parse_policies
from wtb.authoring.policies.recorded import CALL, NODE_ACTIONS
from wtb.config.distribution import pip_install
from wtb.config.project_settings import find_setting, table_of
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError
from wtb.core.tree.stored_spec import StoredPolicies
from wtb.operations.policy.vocabulary import Asked, Fact, schema, why_unknown

FOLDER = "WTB_POLICY"
_REMEMBERED = 10_000  # decisions
KEEP_S = 1.0  # before files are looked at again
_DEFAULT = "policy"
_SUFFIX = ".cedar"


class Policies:
    """The policies of a folder.

    Attributes:
        folder: Where they are.
        names: The name of each, in order.
        actions: Actions of nodes that they name.
    """

    def __init__(self, folder: Path, policies: PolicySet, actions: Sequence[str]) -> None:
        self.folder = folder
        self.names = policies.names
        self.actions = actions
        self._policies = policies
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._decide)

    def decide(self, request: Asked) -> Decision:
        """Decide about what is asked. Whatever goes wrong denies."""
        # It follows from these alone, and the library takes a tenth of a millisecond to read a request.
        return self._remembered(request.by, request.action, request.kind, request.id, tuple(request.context.items()))

    def recorded(self, by: str) -> StoredPolicies | None:
        """Return what a sweep of somebody records; None if no policy names an action of nodes: these cost nothing."""
        if not self.actions:
            return None
        return {"by": by, "text": self._policies.text, "names": list(self.names), "actions": list(self.actions)}

    def _decide(self, by: str, action: str, kind: str, id: str, context: tuple[tuple[str, Fact], ...]) -> Decision:
        return self._policies.decide(by, action, (kind, id), dict(context))


@frozen
class _Found:
    """What was found where, and when: a process looks for it before each operation."""

    where: tuple[str | None, str]
    at: float
    policies: Policies | None
    folder_changed_at: int | None

    @property
    def is_whole(self) -> bool:
        """Whether no file was added to the folder or removed since; files themselves are looked at once a second."""
        return self.policies is None or _changed_at(self.policies.folder) == self.folder_changed_at


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
    default = Path(_DEFAULT)
    return default.absolute() if any(default.glob(f"*{_SUFFIX}")) else None


def find_policies(*, reread: bool = False) -> Policies | None:
    """Return the policies of this process's folder, as they were at most a second ago.

    Args:
        reread: Read them now.

    Returns:
        None where there are none, and all is allowed.

    Raises:
        InputError: If they are wrong, or cannot be read.
    """
    global _last
    where = os.environ.get(FOLDER), os.getcwd()
    loaded = _last
    is_old = loaded is None or loaded.where != where or time.monotonic() - loaded.at > KEEP_S or not loaded.is_whole
    if reread or loaded is None or is_old:
        at, folder = time.monotonic(), policy_folder()
        changed_at = None if folder is None else _changed_at(folder)  # before they are read
        loaded = _last = _Found(where, at, None if folder is None else _read(folder), changed_at)
    return loaded.policies


def _changed_at(folder: Path) -> int | None:
    """Return when a file was last added to a folder or removed; None if it is gone."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return None


def _read(folder: Path) -> Policies:
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
    parsed: list[ParsedPolicy] = []
    for path in (Path(name) for name, _, _ in stamps):
        text = path.read_text("utf-8", "replace")
        try:
            policies = parse_policies(text)
        except ValueError as error:
            problems.append(f"{path}: {' '.join(str(error).split())}")
            continue
        texts.append(text)
        named = [policy.name or f"{path.name} #{number}" for number, policy in enumerate(policies, 1)]
        problems += [
            f"{path}: {name}: {_ASKS}"
            for name, policy in zip(named, policies, strict=True)
            if _misplaces_question(policy)
        ]
        problems += [
            f"{path}: {name}: {why}"
            for name, policy in zip(named, policies, strict=True)
            for why in filter(None, map(why_unknown, sorted(policy.actions or ())))
        ]
        names += named
        parsed += policies
    if problems:
        raise InputError(*problems)
    whole = "\n".join(texts)
    checked = cedar.validate_policies(whole, schema())
    if not checked.validation_passed:
        raise InputError(*(_problem(folder, names, error) for error in checked.errors))
    mentioned = frozenset[str]().union(*(policy.actions or () for policy in parsed))
    return Policies(folder, PolicySet(whole, names), [action for action in NODE_ACTIONS if action in mentioned])


_ASKS = f"@{ASK} is for a forbid policy whose action is {CALL!r} alone"


def _misplaces_question(policy: ParsedPolicy) -> bool:
    """Return whether a policy is to ask a person where nothing waits for an answer."""
    return policy.question is not None and not (policy.forbids and policy.actions == frozenset({CALL}))


def _problem(folder: Path, names: Sequence[str], error: Any) -> str:
    number = str(error.policy_id).removeprefix("policy")
    where = names[int(number)] if number.isdigit() and int(number) < len(names) else str(error.policy_id)
    return f"{folder}: {where}: {' '.join(str(error.error).split())}"
