"""An early start of the node process that a run will need, while the command still imports: both take as long."""

from __future__ import annotations

from pathlib import Path

from wtb.config.credentials import DATABASE_URL, credential, guard
from wtb.config.run_options import Run
from wtb.config.stack_file import find_stack
from wtb.config.yaml_reader import read
from wtb.core.errors import WTBError
from wtb.execution.sandbox.launch.launching import environment, is_walled, launch_of, start_ahead
from wtb.store.process_identity import next_runner_id


def start_node_process(*, file: Path, pdb: bool = False, db: Path | str | None = None, **_: object) -> None:
    """Start the node process that `wtb run` with these options will need, if it will need one."""
    try:
        stack = find_stack()
        run = Run.model_validate(read(file).data.get("run", {}))
    except (WTBError, ValueError):
        return  # who reads it all says what is wrong
    if run.pool != "thread" and not pdb:
        guard(str(db or credential(DATABASE_URL) or (stack.database_url if stack else "")))
        if is_walled():  # walls that a node process starts with depend on the project, which the database knows
            return
        inherited = environment(run.env, next_runner_id())
        start_ahead(launch_of(inherited, run.rlimits.model_dump(), Path.cwd()))
