"""What was run: the workflow and its code, the settings, where and when, and how to run it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from wtb.config.field_types import is_import_path
from wtb.core.errors import InputError
from wtb.core.serialization.plain_json import iso
from wtb.core.tree.stored_spec import StoredSpec
from wtb.planning.prepare import as_written, stored_spec
from wtb.store.database import Database
from wtb.store.read import evidence, queries
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument
    from wtb.core.documents.report import HowToRepeat, ProvenanceDocument


def provenance(database: Database, sweep: SweepRow, matrix: MatrixDocument) -> ProvenanceDocument:
    """Only what the sweep itself recorded: nothing is taken from the machine that reads it."""
    spec = sweep.spec
    repeats = spec.get("repeats", 1)
    recorded = spec.get("environment")
    return {
        "sweep": {
            **matrix["sweep"],
            "project": sweep.project,
            "session": sweep.session,
            "created_at": iso(sweep.created_at),
            "reason": sweep.reason,
        },
        "workflow": spec.get("workflow"),
        "graph": queries.workflow_graph(database, sweep.workflow_id),
        "fingerprints": sweep.fingerprints,
        "size": {
            "combinations": len(matrix["rows"]),
            "cases": evidence.case_count(database, sweep.id),
            "repeats": repeats,
            "cells": sweep.cells,
        },
        "environment": recorded,
        "because": None if recorded else "the sweep recorded no versions of Python, WTB or packages",
        "folder": spec.get("folder"),
        "settings": _settings(sweep),
        **_again(spec),
    }


def _settings(sweep: SweepRow) -> str:
    """The sweep file that says the same: YAML without what is as by default."""
    try:
        settings = stored_spec(sweep).model_dump(mode="json", exclude_defaults=True)
    except InputError:  # of a version that knew other keys
        settings = as_written(sweep.spec)
    return yaml.safe_dump({"sweep": sweep.name, **settings}, sort_keys=False, allow_unicode=True, width=100)


def _again(spec: StoredSpec) -> HowToRepeat:
    """The command that runs it again; None, and why, where a part of it is in no file to import."""
    evaluators = [name for one in spec.get("evaluate", ()) for name in one]
    for path in (str(spec.get("workflow")), *evaluators):
        if path.startswith("__main__:") or (":" in path and not is_import_path(path)):
            return {"command": None, "command_because": f"{path} is in a script or notebook that it was started from"}
    if spec.get("cases") == "inline":
        return {"command": None, "command_because": "its cases stood in the sweep file itself, which is not kept"}
    return {"command": "wtb run sweep.yaml", "command_because": None}
