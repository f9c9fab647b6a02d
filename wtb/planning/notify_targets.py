"""Whom a sweep tells of what, checked before it is submitted."""

from __future__ import annotations

from typing import Any

from wtb.core.errors import InputError
from wtb.planning.sweep_spec import SweepSpec


def targets(spec: SweepSpec) -> list[dict[str, Any]]:
    """Whom a sweep tells of what, as it is stored. Raises InputError naming the place in the file.

    A program with a relative path is looked up in the folder of the sweep file.
    """
    from wtb.config.webhooks import read_target

    found, problems = [], []
    for number, one in enumerate(spec.notify):
        try:
            target = read_target(one.to, allow_private=one.allow_private, folder=spec.folder, option="")
            found.append({**target, "on": list(one.on)})
        except InputError as error:
            text = str(error).replace("--allow-private allows it", "'allow_private: true' allows it")
            problems.append(spec.located.problem(("notify", number), text))
    if problems:
        raise InputError(*problems)
    return found
