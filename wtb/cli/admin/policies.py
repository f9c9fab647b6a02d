"""The commands about policies, which need no database: policy check, policy explain."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from wtb.authoring import cedar_policies
from wtb.cli import options
from wtb.cli.console import say
from wtb.cli.output import put_as
from wtb.core.errors import InputError
from wtb.operations import context as contexts
from wtb.operations import policy_rules

if TYPE_CHECKING:
    from wtb.core.documents.access import PoliciesDocument, PolicyDecisionDocument
    from wtb.operations.policy_rules import Fact, Resource

_ARGUMENT = "arguments."  # before the name of one, in --with


def check(format: options.Show = options.Format.table) -> None:
    """Check the policies of this folder against their schema, and list them.

    They are `policy/*.cedar`, or those of `policy.folder` in wtb.toml or of WTB_POLICY.

    Example: wtb admin policy check
    """
    policies = policy_rules.find_policies(reread=True)
    document: PoliciesDocument = {
        "folder": None if policies is None else str(policies.folder),
        "policies": [] if policies is None else list(policies.names),
    }
    put_as(document, "\n".join(document["policies"]), options.Form(format))
    count = len(document["policies"])
    many = "1 policy is" if count == 1 else f"{count:,} policies are"
    say("there are no policies here: all is allowed" if policies is None else f"{many} as the schema wants it")


def explain(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="The id of an operation, such as sweeps.submit.")],
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="The user \\[default: you].")] = None,
    resource: Annotated[
        str, typer.Option("--resource", metavar="KIND:ID", help="The resource: Sweep, Workflow or Tool.")
    ] = "Database:here",
    fact_texts: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="KEY=VALUE", help="A fact of the request, such as limit_cents=4000."),
    ] = None,
    format: options.Show = options.Format.table,
) -> None:
    """Show whether policies allow an operation, and which of them decide. Exits with 1 if they do not.

    See also: `wtb log SWEEP` has the decisions about a sweep, `policy.decided`.

    Example: wtb admin policy explain sweeps.submit --by ana --resource Workflow:support --with limit_cents=6000
    """
    if why := policy_rules.why_unknown(action):
        raise InputError(why, argument="action")
    kind, _, id = resource.partition(":")
    kinds = get_args(policy_rules.Resource)
    if kind not in kinds or not id:
        raise InputError(f"--resource {resource!r}: expected KIND:ID, with a kind of: {', '.join(kinds)}")
    facts, arguments = _facts(fact_texts or [])
    request = policy_rules.Asked(action, by or contexts.current_user(), cast("Resource", kind), id, facts)
    policies = policy_rules.find_policies(reread=True)
    if policies is None:
        decision, why = cedar_policies.Decision(True, ()), "there are no policies here, and so all is allowed"
    elif action not in cedar_policies.NODE_ACTIONS:
        decision = policies.decide(request)
        why = decision.why
    elif (for_nodes := policies.recorded(request.by)) is None or action not in for_nodes["actions"]:
        decision, why = cedar_policies.Decision(True, ()), f"no policy names {action!r}, and so all of them are allowed"
    else:
        known_facts = {"node": "", "variant": "", "case": "", **{key: str(fact) for key, fact in facts.items()}}
        nodes = cedar_policies.NodePolicies(for_nodes, {})
        if action == cedar_policies.CALL:
            decision = nodes.decide_call(id, arguments, known_facts)
        else:
            decision = nodes.decide_act(action, (kind, id), {**known_facts, **_of_act(action, id)})
        why = decision.why
    document: PolicyDecisionDocument = {
        "allowed": decision.allowed,
        "action": request.action,
        "by": request.by,
        "resource": f"{request.kind}:{request.id}",
        "context": dict(request.context),
        "rules": list(decision.rules),
        "errors": list(decision.errors),
        "why": why,
    }
    outcome = "allowed" if decision.allowed else "denied" if decision.question is None else "asks a person"
    put_as(document, f"{outcome}: {why}", options.Form(format))
    if not decision.allowed:
        raise typer.Exit(1)


def _facts(texts: list[str]) -> tuple[dict[str, Fact], dict[str, str | float]]:
    """Return what is known, and the arguments of a call of a tool."""
    facts: dict[str, Fact] = {}
    arguments: dict[str, str | float] = {}
    # A question mark is Cedar's sign for an attribute that may be missing.
    kinds = {name.rstrip("?"): kind for name, kind in {**policy_rules.FACTS, **policy_rules.NODE_FACTS}.items()}
    for text in texts:
        key, equals, fact_text = text.partition("=")
        if equals and key.startswith(_ARGUMENT):
            arguments[key.removeprefix(_ARGUMENT)] = _argument(fact_text)
        elif not equals or key not in kinds:
            raise InputError(f"--with {text!r}: expected KEY=VALUE, with a key of: {', '.join(kinds)}, arguments.NAME")
        elif kinds[key] == "Long":
            if not fact_text.lstrip("-").isdigit():
                raise InputError(f"--with {text!r}: expected a whole number")
            facts[key] = int(fact_text)
        else:
            facts[key] = fact_text
    return facts, arguments


def _of_act(action: str, id: str) -> dict[str, str | int]:
    """Return what policies know of a file, a host with its port, or a program."""
    if action == cedar_policies.WRITE:
        return {"path": id}
    if action == cedar_policies.START:
        return {"command": id}
    host, _, port = id.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"--resource Host:{id}: expected Host:NAME:PORT")
    return {"host": host, "address": host, "port": int(port)}


def _argument(text: str) -> str | float:
    for read in (int, float):
        with suppress(ValueError):
            return read(text)
    return text


POLICY = {"check": check, "explain": explain}
