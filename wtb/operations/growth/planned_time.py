"""How many node runs of a plan are made at a time, how long they take then, and what makes them take longer."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.core.documents.plan import PlannedConcurrency
from wtb.core.errors import InputError
from wtb.core.texts import plural, took
from wtb.execution.engine.protocol import engine_of
from wtb.execution.runtime.thread_pool import slots_of
from wtb.planning.estimate import Estimate
from wtb.planning.prepare import Prepared
from wtb.store.database import Database
from wtb.store.limits.sessions import Quota, find_session, session_name
from wtb.store.read.costs import MeasuredRuns, mean_seconds


def planned_concurrency(
    prepared: Prepared, runs: Estimate, earlier: Sequence[MeasuredRuns] | None
) -> PlannedConcurrency:
    """Return how many node runs are made at a time on one machine, and how long all of them take then.

    Args:
        prepared: The sweep.
        runs: The node runs of one case and repeat.
        earlier: What node runs of earlier sweeps took; None if there are none.
    """
    bound = prepared.bound
    means = mean_seconds(earlier or ())
    at_once = slots_of(bound.spec.run, engine_of(bound.adapter), bound.vary, lambda: means)
    planned: PlannedConcurrency = {"at_once": at_once, "is_default": bound.spec.run.concurrency is None}
    needed = {key: count for key, count in runs.by_variant.items() if count.high != 0}
    if needed and needed.keys() <= means.keys():
        times = prepared.cases * bound.spec.repeats
        highs = [None if count.high is None else count.high * means[key] for key, count in needed.items()]
        low = sum(count.low * means[key] for key, count in needed.items()) * times / at_once
        bounded = [high for high in highs if high is not None]
        planned["seconds"] = [low, sum(bounded) * times / at_once if len(bounded) == len(highs) else None]
    return planned


def narrow_places(
    database: Database | None,
    prepared: Prepared,
    runs: Estimate,
    earlier: Sequence[MeasuredRuns] | None,
    at_once: int,
) -> list[str]:
    """Return warnings of limits that allow fewer node runs at a time than the sweep makes.

    Args:
        database: Where its session is; None if there is none yet.
        prepared: The sweep.
        runs: The node runs of one case and repeat.
        earlier: What node runs of earlier sweeps took; None if there are none.
        at_once: How many node runs it makes at a time.
    """
    means = mean_seconds(earlier or ())
    times = prepared.cases * prepared.bound.spec.repeats
    warnings = []
    for name, node in prepared.bound.workflow.nodes.items():
        rules, count = node.rules, runs.executed[name].low * times
        if rules.limit is not None and rules.limit < at_once:
            warnings.append(f"node {name!r} has `limit` {rules.limit:,}, lower than the concurrency of {at_once:,}")
        seconds = max((mean for (of, _), mean in means.items() if of == name), default=0.0)
        if rules.rate is not None and count and rules.rate * seconds < at_once:
            least = took(count / rules.rate)
            warnings.append(
                f"node {name!r} has `rate` {rules.rate:g}: {plural(count, 'node run')} take {least} or longer, "
                f"whatever the concurrency is"
            )
    if (quota := _quota(database, prepared)) is not None and quota < at_once:
        warnings.append(
            f"the session has a quota of {plural(quota, 'node run')} at a time, lower than the concurrency of "
            f"{at_once:,}"
        )
    return warnings


def _quota(database: Database | None, prepared: Prepared) -> int | None:
    """Return how many node runs at a time the session allows; None if there is no limit."""
    if database is None:
        return None
    try:
        session = find_session(database, session_name(prepared.bound.spec.session))
    except InputError:  # the default one of a project, which its first sweep makes
        return None
    return Quota.of(session.quota).node_runs
