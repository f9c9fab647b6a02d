"""Commands on baselines: names for sweeps that later ones are held against."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from wtb.cli.console import Db, Format, FormatOption, Output, SweepArgument, open_database, put, say
from wtb.cli.presenting import present

baseline_app = typer.Typer(no_args_is_help=True, help="Baselines: names for sweeps that later ones are held against.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The baseline's name.")]
Session = Annotated[
    str | None, typer.Option("--session", metavar="NAME", help="Its session \\[default: $WTB_SESSION, else default].")
]


def register(app: typer.Typer) -> None:
    baseline_app.command("set", epilog="Example: wtb baseline set main nightly")(set_)
    baseline_app.command("list", epilog="Example: wtb baseline list --format json")(list_)
    baseline_app.command(epilog="Example: wtb baseline show main")(show)
    baseline_app.command(epilog="Example: wtb baseline remove main")(remove)
    app.add_typer(baseline_app, name="baseline")


def set_(
    name: Name,
    sweep: SweepArgument,
    anyway: Annotated[bool, typer.Option("--anyway", help="Although it is not at its end.")] = False,
    db: Db = None,
) -> None:
    """Give a finished sweep a name, for `wtb regress` and the gate `no_worse_than`.

    The name is of the sweep's session. `wtb gc` and `wtb delete` keep the sweep while it has one.
    """
    from wtb.errors import ConflictError
    from wtb.status import FINAL_CELLS
    from wtb.store.baselines import check_name, set_baseline
    from wtb.store.reading import cell_counts, find_sweep

    check_name(name)
    database = open_database(db)
    row = find_sweep(database, sweep)
    called = f"sweep {row['name']} ({row['id']})"
    open_cells = sum(count for status, count in cell_counts(database, row["id"]).items() if status not in FINAL_CELLS)
    if (open_cells or row["status"] != "completed") and not anyway:
        raise ConflictError(
            f"{called} is {row['status']}, and {open_cells:,} of its cells have no outcome: go on with "
            f"`wtb resume {row['id']}`, or give --anyway"
        )
    before = set_baseline(database, name, row["id"])
    was = f"; it was sweep {before}" if before not in (None, row["id"]) else ""
    put(f"baseline {name}: {called}{was}")


def list_(session: Session = None, db: Db = None, format: FormatOption = Format.table, output: Output = None) -> None:
    """List the baselines of a session, or of all where none is named.

    JSON: {"baselines": [{name, session, set_at, sweep: {id, name, status, finished_at}}]}.
    """
    import os

    from wtb.render.baselines import listed
    from wtb.store.baselines import baseline_rows
    from wtb.store.sessions import find_session

    database = open_database(db)
    wanted = session or os.environ.get("WTB_SESSION") or None
    if wanted is not None:
        find_session(database, wanted)
    found = [_document(row) for row in baseline_rows(database, wanted)]
    if found or format is Format.json:
        present({"baselines": found}, listed, format, output)
    else:
        say("there are no baselines yet; `wtb baseline set NAME SWEEP` makes one")


def show(
    name: Name, session: Session = None, db: Db = None, format: FormatOption = Format.table, output: Output = None
) -> None:
    """Show which sweep a baseline is, and what that sweep found.

    JSON: as of `wtb baseline list`, with the matrix of the sweep.
    """
    from wtb.judging import judged
    from wtb.render.baselines import one
    from wtb.store.baselines import baseline_rows, named_baseline
    from wtb.store.sessions import session_name

    database = open_database(db)
    belongs = session_name(session)
    sweep = named_baseline(database, belongs, name)
    row = next(row for row in baseline_rows(database, belongs) if row["name"] == name)
    present({**_document(row), "matrix": judged(database, sweep)}, one, format, output)


def remove(name: Name, session: Session = None, db: Db = None) -> None:
    """Let go of a baseline. Its sweep stays, and `wtb gc` may remove it when its time has come."""
    from wtb.store.baselines import named_baseline, remove_baseline
    from wtb.store.sessions import session_name

    database = open_database(db)
    belongs = session_name(session)
    named_baseline(database, belongs, name)
    sweep_id = remove_baseline(database, belongs, name)
    put(f"removed baseline {name}; sweep {sweep_id} stays")


def _document(row: dict[str, Any]) -> dict[str, Any]:
    from wtb.plain import iso

    return {
        "name": row["name"],
        "session": row["session"],
        "set_at": iso(row["set_at"]),
        "sweep": {
            "id": row["sweep_id"],
            "name": row["sweep"],
            "status": row["status"],
            "finished_at": iso(row["finished_at"]),
        },
    }
