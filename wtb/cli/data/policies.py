"""The commands about policies, which need no database: policy check, policy explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, get_args

import typer

from wtb.authoring.policies import cedar, recorded
from wtb.cli import options
from wtb.cli.console import say
from wtb.cli.output import put_as
from wtb.core.errors import InputError
from wtb.operations import context as contexts
from wtb.operations.policy import engine, vocabulary

if TYPE_CHECKING:
    from wtb.core.documents.storage.policies import PoliciesDocument, PolicyDecisionDocument
    from wtb.operations.policy.vocabulary import Fact, Resource

_ARGUMENT = "arguments."  # before the name of one, in --with


def check(format: options.Show = options.Format.table) -> None:
    """Check the policies of this folder against their schema, and list them.

    They are `policy/*.cedar`, or those of `[policy] folder` of wtb.toml or of WTB_POLICY.

    Example: wtb policy check
    """
    policies = engine.find_policies(reread=True)
    document: PoliciesDocument = {
        "folder": None if policies is None else str(policies.folder),
        "policies": [] if policies is None else list(policies.names),
    }
    put_as(document, "\n".join(document["policies"]), format)
    count = len(document["policies"])
    many = "1 policy is" if count == 1 else f"{count:,} policies are"
    say("there are no policies here: all is allowed" if policies is None else f"{many} as the schema wants it")


def explain(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="The id of an operation, such as sweeps.submit.")],
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who does it \\[default: you].")] = None,
    resource: Annotated[
        str, typer.Option("--resource", metavar="KIND:ID", help="On what: Sweep, Workflow or Tool.")
    ] = "Database:here",
    given: Annotated[
        list[str] | None, typer.Option("--with", metavar="KEY=VALUE", help="What is known, such as limit_cents=4000.")
    ] = None,
    format: options.Show = options.Format.table,
) -> None:
    """Say whether policies allow something, and which of them decide. The exit code is 1 where they do not.

    See also: `wtb log SWEEP` has the decisions about a sweep, `policy.decided`.

    Example: wtb policy explain sweeps.submit --by ana --resource Workflow:support --with limit_cents=6000
    """
    if why := vocabulary.why_unknown(action):
        raise InputError(why, argument="action")
    kind, _, id = resource.partition(":")
    kinds = get_args(vocabulary.Resource)
    if kind not in kinds or not id:
        raise InputError(f"--resource {resource!r}: expected KIND:ID, with a kind of: {', '.join(kinds)}")
    facts, arguments = _facts(given or [])
    asked = vocabulary.Asked(action, by or contexts.current_user(), _kind(kind), id, facts)
    policies = engine.find_policies(reread=True)
    if policies is None:
        decision, why = cedar.Decision(True, ()), "there are no policies here, and so all is allowed"
    elif action not in recorded.NODE_ACTIONS:
        decision = policies.decide(asked)
        why = decision.why
    elif (for_nodes := policies.recorded(asked.by)) is None or action not in for_nodes["actions"]:
        decision, why = cedar.Decision(True, ()), f"no policy names {action!r}, and so all of them are allowed"
    else:
        known_facts = {"node": "", "variant": "", "case": "", **{key: str(fact) for key, fact in facts.items()}}
        nodes = recorded.NodePolicies(for_nodes, {})
        if action == recorded.CALL:
            decision = nodes.decide_call(id, arguments, known_facts)
        else:
            decision = nodes.decide_act(action, (kind, id), {**known_facts, **_of_act(action, id)})
        why = decision.why
    document: PolicyDecisionDocument = {
        "allowed": decision.allowed,
        "action": asked.action,
        "by": asked.by,
        "resource": f"{asked.kind}:{asked.id}",
        "context": dict(asked.context),
        "rules": list(decision.rules),
        "errors": list(decision.errors),
        "why": why,
    }
    outcome = "allowed" if decision.allowed else "denied" if decision.question is None else "asks a person"
    put_as(document, f"{outcome}: {why}", format)
    if not decision.allowed:
        raise typer.Exit(1)


def _kind(kind: str) -> Resource:
    found: Resource = kind  # type: ignore[assignment]
    return found


def _facts(given: list[str]) -> tuple[dict[str, Fact], dict[str, str | float]]:
    """Return what is known, and the arguments of a call of a tool."""
    facts: dict[str, Fact] = {}
    arguments: dict[str, str | float] = {}
    kinds = {name.rstrip("?"): kind for name, kind in {**vocabulary.FACTS, **vocabulary.NODE_FACTS}.items()}
    for text in given:
        key, equals, value = text.partition("=")
        if equals and key.startswith(_ARGUMENT):
            arguments[key.removeprefix(_ARGUMENT)] = _argument(value)
        elif not equals or key not in kinds:
            raise InputError(f"--with {text!r}: expected KEY=VALUE, with a key of: {', '.join(kinds)}, arguments.NAME")
        elif kinds[key] == "Long":
            if not value.lstrip("-").isdigit():
                raise InputError(f"--with {text!r}: expected a whole number")
            facts[key] = int(value)
        else:
            facts[key] = value
    return facts, arguments


def _of_act(action: str, id: str) -> dict[str, str | int]:
    """Return what policies know of a file, a host with its port, or a program."""
    if action == recorded.WRITE:
        return {"path": id}
    if action == recorded.START:
        return {"command": id}
    host, _, port = id.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"--resource Host:{id}: expected Host:NAME:PORT")
    return {"host": host, "address": host, "port": int(port)}


def _argument(text: str) -> str | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


POLICY = {"check": check, "explain": explain}
