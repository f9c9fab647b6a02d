"""Commands on baselines: names for sweeps that later ones are compared with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.analysis import gates
from wtb.analysis.comparison import noise_floor
from wtb.cli import options
from wtb.cli.console import open_database, put, say
from wtb.cli.output import present, present_all
from wtb.cli.run.sweeps import rebind, run_to_end
from wtb.core.errors import ConflictError, InputError
from wtb.core.serialization.plain_json import iso
from wtb.core.status import FINAL_CELLS
from wtb.core.stop import INTERRUPTED
from wtb.display.text import baselines
from wtb.execution.runtime import sweep_run
from wtb.store.files import locations
from wtb.store.limits import sessions
from wtb.store.read import baselines as store
from wtb.store.read import queries
from wtb.store.runs import submit

if TYPE_CHECKING:
    from wtb.store.database import Database


Name = Annotated[str, typer.Argument(metavar="NAME", help="The baseline's name.")]
Session = Annotated[
    str | None, typer.Option("--session", metavar="NAME", help="Its session \\[default: $WTB_SESSION, else default].")
]


def set_(
    name: Name,
    sweep: options.Sweep,
    anyway: Annotated[bool, typer.Option("--anyway", help="Although it is not at its end.")] = False,
    repeat: Annotated[
        int,
        typer.Option("--repeat", metavar="N", min=0, max=100, help="Run it N more times, to measure noise."),
    ] = 0,
    db: options.Db = None,
    quiet: options.Quiet = False,
) -> None:
    """Give a finished sweep a name, for `wtb regress` and the gate `no_worse_than`.

    The name is of the sweep's session. `wtb gc` and `wtb delete` keep the sweep while it has one. With --repeat
    comparisons know what noise is: where repeats agree in every case, any fall is worse.

    Example: wtb baseline set main nightly
    """
    store.check_name(name)
    database = open_database(db)
    row = queries.find_sweep(database, sweep)
    called = f"sweep {row['name']} ({row['id']})"
    open_cells = sum(
        count for status, count in queries.cell_counts(database, row["id"]).items() if status not in FINAL_CELLS
    )
    if (open_cells or row["status"] != "completed") and not anyway:
        raise ConflictError(
            f"{called} is {row['status']}, and {open_cells:,} of its cells have no outcome: go on with "
            f"`wtb resume {row['id']}`, or give --anyway"
        )
    floor = _noise_floor(database, row, repeat, quiet) if repeat else None
    before = store.set_baseline(database, name, row["id"], floor)
    was = f"; it was sweep {before}" if before not in (None, row["id"]) else ""
    put(f"baseline {name}: {called}{was}")
    if floor is not None:
        put(baselines.floor_in_words(floor))


def _noise_floor(database: Database, row: Mapping[str, Any], repeat: int, quiet: bool) -> dict[str, Any]:
    """Run a sweep again so many times. Exits where a repeat does not come to its end; then nothing is set."""
    if row["kind"] == "single":
        raise InputError(f"--repeat runs a sweep again, and {row['id']} is a single execution")
    bound = rebind(row)
    noise_floor.check_code(row, bound)
    repeats = []
    for number in range(repeat):
        id = submit.submit_again(database, row)
        say(f"repeat {number + 1} of {repeat} ({id}): {row['cells']:,} cells")
        again, ended = run_to_end(
            database, sweep_run.new_run(database, id, bound, locations.workspaces_of(database)), bound, quiet
        )
        if again["status"] != "completed":
            say(f"repeat {id} is {again['status']}, so no baseline was set")
            raise typer.Exit(130 if ended.reason == INTERRUPTED else 1)
        repeats.append(id)
    return noise_floor.noise_floor(database, row, repeats)


def list_(
    session: Session = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """List the baselines of a session, or of all where none is named.

    JSON: {"baselines": [{name, session, set_at, noise_floor, sweep: {id, name, status, finished_at}}]}.

    Example: wtb baseline list --format json
    """
    database = open_database(db)
    session_filter = session or os.environ.get("WTB_SESSION") or None
    if session_filter is not None:
        sessions.find_session(database, session_filter)
    found = [_document(row) for row in store.baseline_rows(database, session_filter)]
    nothing = "there are no baselines yet; `wtb baseline set NAME SWEEP` makes one"
    present_all("baselines", found, baselines.listed, format, output, nothing)


def show(
    name: Name,
    session: Session = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Show which sweep a baseline is, and what that sweep found.

    JSON: as of `wtb baseline list`, with the matrix of the sweep.

    Example: wtb baseline show main
    """
    database = open_database(db)
    belongs = sessions.session_name(session)
    sweep = store.named_baseline(database, belongs, name)
    row = next(row for row in store.baseline_rows(database, belongs) if row["name"] == name)
    present({**_document(row), "matrix": gates.judged(database, sweep)}, baselines.one, format, output)


def remove(name: Name, session: Session = None, db: options.Db = None) -> None:
    """Remove a baseline. Its sweep stays until the retention policy lets `wtb gc` remove it.

    Example: wtb baseline remove main
    """
    database = open_database(db)
    belongs = sessions.session_name(session)
    store.named_baseline(database, belongs, name)
    sweep_id = store.remove_baseline(database, belongs, name)
    put(f"removed baseline {name}; sweep {sweep_id} stays")


def _document(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": row["name"],
        "session": row["session"],
        "set_at": iso(row["set_at"]),
        "noise_floor": row["noise_floor"],
        "sweep": {
            "id": row["sweep_id"],
            "name": row["sweep"],
            "status": row["status"],
            "finished_at": iso(row["finished_at"]),
        },
    }


BASELINE = {"set": set_, "list": list_, "show": show, "remove": remove}
