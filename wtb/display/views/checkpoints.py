"""One checkpoint as a document: its state and files, who wrote it, and what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtb.core.tree.checkpoints import Checkpoint, visible_state
from wtb.core.tree.history import inside_document
from wtb.display.views.executions import readable_values
from wtb.store.database import Database
from wtb.store.files.store import FileStore
from wtb.store.read import details, histories, queries

if TYPE_CHECKING:
    from wtb.core.documents.lineage import CheckpointDetails


def checkpoint_details(
    database: Database, checkpoint: Checkpoint, sweep_id: str, files: FileStore
) -> CheckpointDetails:
    """Return a checkpoint as `wtb show CHECKPOINT` prints it.

    Raises:
        StoreError: If its snapshot of files is missing or damaged.
    """
    sweep = queries.find_sweep(database, sweep_id)
    line = histories.with_reasons(database, sweep_id, histories.read_line(database, checkpoint.id))
    history = histories.with_notes(database, sweep_id, line)
    inside = checkpoint.inside
    saved = {} if inside is None else inside.saved
    values = readable_values(database, {*visible_state(checkpoint.state).values(), *saved.values()})
    manifest = files.of_project(sweep.project).manifest(checkpoint.workspace)
    return {
        "sweep": {"id": sweep.id, "name": sweep.name, "status": sweep.status},
        "execution": details.execution_of(database, checkpoint.id),
        "checkpoint": history.checkpoint_document(checkpoint, values),
        "inside": None if inside is None else inside_document(checkpoint),
        "saved": {key: values[digest] for key, digest in saved.items()},
        "files": [
            {"path": path, "size": entry.size, "mode": f"{entry.mode & 0o777:04o}", "sha256": entry.digest}
            for path, entry in sorted(manifest.items())
        ],
    }
