"""The vocabulary of policies, and a folder of them: found, checked against it when loaded, and asked for decisions."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from wtb.authoring.cedar_policies import (
    ASK,
    CALL,
    CONNECT,
    NODE_ACTIONS,
    START,
    WRITE,
    Decision,
    ParsedPolicy,
    PolicySet,
    parse_policies,
)
from wtb.config.distribution import pip_install
from wtb.config.project_settings import find_setting, table_of
from wtb.core.errors import InputError, meant_or_known
from wtb.core.frozen import frozen
from wtb.core.tree.stored_spec import StoredPolicies
from wtb.operations.registry import OPERATIONS, Operation, id_of_spelling

CALL_TOOL = "call tool"  # an action that is no operation: a workflow that has a tool is submitted

# Functions that are evaluated as another operation: parts of one, and what does the same as one and more.
_STANDS_FOR = {
    "operations.running.local:begin": "operations.running.local:run",  # in Python
    "operations.inspection.cells:cell_columns": "operations.inspection.sweeps:cells",  # in pages
    "operations.results.comparing:repeat_baseline": "operations.results.comparing:set_baseline",  # a policy covers both
}

Resource = Literal["Database", "Sweep", "Workflow", "Tool", "File", "Host", "Program"]
Fact = str | int

# The attributes that a context may have, with their types in Cedar; the first three it always has.
FACTS: Mapping[str, str] = {
    **dict.fromkeys(("by", "needs", "effect"), "String"),
    **dict.fromkeys(("project?", "session?", "workflow?", "sweep?", "submitted_by?"), "String"),
    **dict.fromkeys(("cells?", "limit_cents?"), "Long"),
    **dict.fromkeys(("node?", "answer?", "name?"), "String"),
}


# The further attributes that the context of an action of nodes always has, and that of a call of a tool.
NODE_FACTS: Mapping[str, str] = {"node": "String", "variant": "String", "case": "String"}
CALL_FACTS: Mapping[str, str] = {"arguments": "Arguments", "numbers": "Numbers"}
# Further actions of nodes, with the kind of their resource, and the attributes that their context always has.
ACTS: Mapping[str, tuple[Resource, Mapping[str, str]]] = {
    WRITE: ("File", {"path": "String"}),
    CONNECT: ("Host", {"host": "String", "address": "String", "port": "Long"}),
    START: ("Program", {"command": "String"}),
}
_OF_NODES = {**{name: kind for name, kind in FACTS.items() if name != "node?"}, **NODE_FACTS}


@frozen
class Asked:
    """A request that a policy decides about.

    Attributes:
        action: The id of an operation, or `CALL_TOOL`.
        by: Who acts.
        kind: Of the resource.
        id: Of the resource.
        facts: The context: what is known of it.
    """

    action: str
    by: str
    kind: Resource = "Database"
    id: str = "here"
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def context(self) -> dict[str, Fact]:
        """All facts of the request's context."""
        operation = OPERATIONS.get(self.action)
        # A call of a tool is no operation. It counts as submitting, which is when a workflow's tools are asked about.
        needs, effect = ("submit", "spends") if operation is None else (operation.needs.value, operation.effect.value)
        return {"by": self.by, "needs": needs, "effect": effect, **self.facts}


@cache
def actions() -> Mapping[str, str]:
    """Return the action of each operation by the path of its function: the first id that has that path."""
    by_path: dict[str, str] = {}
    for name, operation in OPERATIONS.items():
        # Two ids may share a function, as `sweeps.run` and `executions.start` do. One action stands for both.
        by_path.setdefault(operation.path, name)
    return by_path | {path: by_path[operation] for path, operation in _STANDS_FOR.items()}


def action_of(module: str, function: str) -> tuple[str, Operation] | None:
    """Return the action of a function and its operation; None if the function is no operation."""
    name = actions().get(f"{module.removeprefix('wtb.')}:{function}")
    return None if name is None else (name, OPERATIONS[name])


@cache
def known_actions() -> tuple[str, ...]:
    """Return the actions that policies can name."""
    return (*dict.fromkeys(actions().values()), CALL_TOOL, *NODE_ACTIONS)


def why_unknown(action: str) -> str | None:
    """Explain why no policy can name an action, with the one to name instead; None for a known action."""
    if action in known_actions():
        return None
    # A policy may still have the spelling of a command, also a removed one: the message then has the id.
    id = id_of_spelling(action) or action
    if id not in OPERATIONS:
        return f"there is no action {action!r}{meant_or_known(action, known_actions())}"
    evaluated_as = actions()[OPERATIONS[id].path]
    return f"there is no action {action!r}; write {evaluated_as!r}"


@cache
def schema() -> str:
    """Return the schema that policies are checked against, in Cedar's language."""
    # Actions of nodes come below, each with the context of its own: they have facts that operations lack.
    named = ", ".join(f'"{name}"' for name in known_actions() if name not in NODE_ACTIONS)
    return (
        "entity User; entity Database; entity Sweep; entity Workflow; entity Tool;\n"
        "entity Arguments tags String; entity Numbers tags Long;\n"
        f"action {named} appliesTo {{ principal: User, resource: [Database, Sweep, Workflow, Tool], "
        f"context: {{ {_types(FACTS)} }} }};\n"
        f'action "{CALL}" appliesTo {{ principal: User, resource: [Tool], '
        f"context: {{ {_types({**_OF_NODES, **CALL_FACTS})} }} }};\n"
        "entity File; entity Host; entity Program;\n"
        + "".join(
            f'action "{action}" appliesTo {{ principal: User, resource: [{kind}], '
            f"context: {{ {_types({**_OF_NODES, **facts})} }} }};\n"
            for action, (kind, facts) in ACTS.items()
        )
    )


def _types(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in facts.items())


FOLDER = "WTB_POLICY"
_REMEMBERED = 10_000  # decisions
KEEP_S = 1.0  # before files are looked at again
_DEFAULT = "policy"
_SUFFIX = ".cedar"


class Policies:
    """The policies of a folder, ready to decide.

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
        # A cache of each object's own: policies that were read again begin with none of the earlier decisions.
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._decide)

    def decide(self, request: Asked) -> Decision:
        """Decide about a request. The answer is to deny when anything goes wrong."""
        # It follows from these alone, and the library takes a tenth of a millisecond to read a request.
        return self._remembered(request.by, request.action, request.kind, request.id, tuple(request.context.items()))

    def recorded(self, by: str) -> StoredPolicies | None:
        """Return the policies as a sweep stores them with who submits it.

        Returns:
            None if no policy names an action of nodes. Such policies cost a sweep nothing.
        """
        # Policies about operations alone are not stored: nodes would ask them in vain at each of their actions.
        if not self.actions:
            return None
        return {"by": by, "text": self._policies.text, "names": list(self.names), "actions": list(self.actions)}

    def _decide(self, by: str, action: str, kind: str, id: str, context: tuple[tuple[str, Fact], ...]) -> Decision:
        return self._policies.decide(by, action, (kind, id), dict(context))


@frozen
class _Found:
    """The policies that this process found last, with where and when. They are looked for before each operation."""

    where: tuple[str | None, str]
    at: float
    policies: Policies | None
    folder_changed_at: int | None

    @property
    def is_whole(self) -> bool:
        """True if no file was added to the folder or removed from it since.

        Changes within a file are looked for only once a second; added and removed files at every operation.
        """
        return self.policies is None or _changed_at(self.policies.folder) == self.folder_changed_at


_last: _Found | None = None


def policy_folder() -> Path | None:
    """Return the folder of policies: WTB_POLICY, else `[policy] folder` of the project's settings, else `policy` here.

    Returns:
        None if there is no such folder, or if `policy` here has no policies.

    Raises:
        InputError: If a folder is named that is not there.
    """
    named, named_by = os.environ.get(FOLDER), FOLDER
    setting = find_setting("policy")
    if not named and setting is not None:
        named_by = f"{setting.file}: {setting.title} folder"
        named = table_of(setting, ("folder",)).get("folder")
        if not isinstance(named, str) or not named:
            raise InputError(f"{named_by} = {named!r}: expected the path of a folder")
        # A path in the settings is relative to their file, so that it means the same in every directory.
        named = os.path.join(setting.file.parent, named)
    if named:
        # A named folder that is missing must not let everything through: somebody wanted policies.
        if not Path(named).is_dir():
            raise InputError(
                f"{named_by}: there is no folder {named}; nothing is allowed until it is there or not named"
            )
        return Path(named)
    default = Path(_DEFAULT)
    # The default is taken only if it has policies: any project may have a folder of this name.
    return default.absolute() if any(default.glob(f"*{_SUFFIX}")) else None


def find_policies(*, reread: bool = False) -> Policies | None:
    """Return the policies of this process's folder, as they were at most a second ago.

    Args:
        reread: Read them now.

    Returns:
        None if there are none, so that everything is allowed.

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
    """Return when a file was last added to a folder or removed from it; None if the folder is gone."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return None


def _read(folder: Path) -> Policies:
    files = sorted(folder.glob(f"*{_SUFFIX}"))
    try:
        # Sizes besides times: a file that is written twice within a tick of the clock may keep its time.
        stamps = tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    except OSError as error:
        raise InputError(f"{folder}: policies cannot be read ({error.strerror or error})") from None
    return _load(folder, stamps)


@lru_cache(maxsize=4)
def _load(folder: Path, stamps: Sequence[tuple[str, int, int]]) -> Policies:
    """Load the policies of a folder. The stamps are part of the key, so that changed files are read again."""
    try:
        cedar: Any = import_module("cedarpy")
    except ModuleNotFoundError:
        raise InputError(
            f"{folder} has policies, and what evaluates them is not installed: {pip_install('policy')}"
        ) from None
    texts, names, problems = [], [], []
    parsed: list[ParsedPolicy] = []
    for path in (Path(name) for name, _, _ in stamps):
        # A byte that is no UTF-8 would otherwise end the load of all files, without the name of the one that has it.
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
    # All problems of all files are shown at once, before the library checks what is left.
    if problems:
        raise InputError(*problems)
    # The library sees one text, so that its errors have numbers over all files: `names` is in the same order.
    whole = "\n".join(texts)
    checked = cedar.validate_policies(whole, schema())
    if not checked.validation_passed:
        raise InputError(*(_problem(folder, names, error) for error in checked.errors))
    mentioned = frozenset[str]().union(*(policy.actions or () for policy in parsed))
    return Policies(folder, PolicySet(whole, names), [action for action in NODE_ACTIONS if action in mentioned])


_ASKS = f"@{ASK} is for a forbid policy whose action is {CALL!r} alone"


def _misplaces_question(policy: ParsedPolicy) -> bool:
    """Return whether a policy asks a person about an action that cannot wait for an answer."""
    return policy.question is not None and not (policy.forbids and policy.actions == frozenset({CALL}))


def _problem(folder: Path, names: Sequence[str], error: Any) -> str:
    number = str(error.policy_id).removeprefix("policy")
    where = names[int(number)] if number.isdigit() and int(number) < len(names) else str(error.policy_id)
    return f"{folder}: {where}: {' '.join(str(error.error).split())}"
