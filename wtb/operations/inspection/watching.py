"""Looking now and then at how sweeps, workers and queues stand."""

from __future__ import annotations

from wtb.config.broker import Broker, has_client
from wtb.config.stack_file import broker_url
from wtb.core.arguments.checking import checked
from wtb.display.views.progress import Standing, Watch
from wtb.operations.context import Context
from wtb.store.read.queries import find_sweep


@checked
def watch(context: Context, ref: str | None = None) -> Watch:
    """Return what looks at how a sweep, or all open ones, stand, with workers and queues.

    Args:
        context: Where. The broker is asked, too, if one is named and its client is installed.
        ref: A sweep: its id, the beginning of it, or its name; None for all that are open.

    Returns:
        Its `look` returns how things stand as a document; what happens in a second is counted between two looks.

    Raises:
        InputError: If there is no such sweep, or the broker that was named cannot be used.
    """
    sweep_id = None if ref is None else str(find_sweep(context.database, ref).id)
    return Watch(Standing(context.database, sweep_id, _broker(context.broker)).read, sweep_id)


def _broker(url: str | None) -> Broker | None:
    named = broker_url(url)
    if named is None or (url is None and not has_client()):
        return None
    return Broker(named, answer_s=1.0)
