"""Commands on baselines: names for sweeps that later ones are compared with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, open_context, prints_to_stderr, put, say
from wtb.cli.output import present, present_all
from wtb.cli.progress import progress_display
from wtb.cli.run.outcome import say_how_it_ended
from wtb.display.text import comparisons
from wtb.operations.results import comparing as operations

if TYPE_CHECKING:
    from wtb.operations.results.comparing import BaselineSet

Name = Annotated[str, typer.Argument(metavar="NAME", help="The baseline's name.")]
Anyway = Annotated[bool, typer.Option("--anyway", help="Even if it has not ended.")]
Session = Annotated[
    str | None, typer.Option("--session", metavar="NAME", help="Its session \\[default: $WTB_SESSION, else default].")
]


def set_(name: Name, ref: options.Sweep, anyway: Anyway = False, db: options.Db = None) -> None:
    """Give a finished sweep a name, for `wtb regress` and the gate `no_worse_than`.

    The name is of the sweep's session. `wtb admin gc` and `wtb delete` keep the sweep while it has one.

    See also: `wtb baseline repeat` measures its noise, too.

    Example: wtb baseline set main nightly
    """
    _say_which(name, open_backend(db).call(operations.set_baseline, name, ref, anyway=anyway))


def repeat(
    name: Name,
    ref: options.Sweep,
    repeat: Annotated[int, typer.Option("--times", metavar="N", help="Number of further runs.")] = 1,
    anyway: Anyway = False,
    db: options.Db = None,
    quiet: options.Quiet = False,
) -> None:
    """Run a sweep again to measure its noise, and make it the baseline.

    Comparisons then know what noise is: where repeats agree in every case, any fall is worse.

    See also: `wtb baseline set` makes it the baseline without running it.

    Example: wtb baseline repeat main nightly --times 4
    """
    # Not `open_backend`, because the repeats run in this process.
    context = open_context(db)
    with prints_to_stderr(), progress_display(quiet) as show:
        done = operations.repeat_baseline(context, name, ref, repeat=repeat, anyway=anyway, progress=show)
    if done.unfinished is not None:
        ran = done.unfinished
        say_how_it_ended(ran)
        say(f"repeat {ran.sweep.id} is {ran.sweep.status}, so no baseline was set")
        raise typer.Exit(130 if ran.interrupted else 1)
    _say_which(name, done)
    if done.noise_floor is not None:
        put(comparisons.floor_in_words(done.noise_floor))


def _say_which(name: str, done: BaselineSet) -> None:
    before = "" if done.before is None else f"; it was sweep {done.before}"
    put(f"baseline {name}: sweep {done.name} ({done.sweep}){before}")


def list_(session: Session = None, db: options.Db = None, form: options.Form = options.TABLE) -> None:
    """List the baselines of a session, or of all sessions.

    JSON: {"baselines": [{name, session, set_at, noise_floor, sweep: {id, name, status, finished_at}}]}.

    Example: wtb baseline list --format json
    """
    listed_baselines = open_backend(db).call(
        operations.list_baselines, session=os.environ.get("WTB_SESSION") or None if session is None else session
    )
    nothing = "there are no baselines yet; `wtb baseline set NAME SWEEP` makes one"
    present_all("baselines", listed_baselines, comparisons.listed, form, nothing)


def show(name: Name, session: Session = None, db: options.Db = None, form: options.Form = options.TABLE) -> None:
    """Show the sweep of a baseline, and its results.

    JSON: as of `wtb baseline list`, with the matrix of the sweep.

    Example: wtb baseline show main
    """
    present(open_backend(db).call(operations.show_baseline, name, session=session), comparisons.baseline_details, form)


def remove(name: Name, session: Session = None, db: options.Db = None) -> None:
    """Remove a baseline. Its sweep stays until the retention policy lets `wtb admin gc` remove it.

    Example: wtb baseline remove main
    """
    sweep = open_backend(db).call(operations.remove_baseline, name, session=session)
    put(f"removed baseline {name}; sweep {sweep} stays")


BASELINE = {"set": set_, "repeat": repeat, "list": list_, "show": show, "remove": remove}
