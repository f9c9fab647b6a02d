"""Executions as files that can be carried elsewhere: `wtb export` and `wtb import`.

An archive is a zip. `execution.json` says what it is, `history/*.jsonl` hold the rows of its history, `values/` and
`files/` what these refer to, each under its SHA-256.
"""

from wtb.operations.archive.exporter import export_execution
from wtb.operations.archive.importer import import_execution

__all__ = ["export_execution", "import_execution"]
