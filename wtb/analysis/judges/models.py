"""Which models judges were answered by."""

from __future__ import annotations

from wtb.authoring.evaluation.parts import ASKING
from wtb.store.database import Database
from wtb.store.read.aggregates import judge_versions
from wtb.store.tables.sweeps import SweepRow


def models_of_judges(database: Database, sweep: SweepRow) -> dict[str, list[str]]:
    """The versions of the models that judges of a sweep were answered by, in order, by metric.

    Its scores, which may be millions, are looked at only where an evaluator of it may ask a judge.
    """
    versions: dict[str, list[str]] = {}
    if any(ASKING & dict(evaluator).keys() for evaluator in sweep.spec.get("evaluate") or ()):
        for metric, version in sorted(judge_versions(database, sweep.id)):
            versions.setdefault(metric, []).append(version)
    return versions
