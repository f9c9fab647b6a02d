"""Baselines in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from wtb.render import summary, words
from wtb.render.grid import facts, grid

Document = Mapping[str, Any]


def listed(document: Document, width: int, color: bool = False) -> str:
    """The baselines, each with its sweep."""
    found = document["baselines"]
    several = len({one["session"] for one in found}) > 1
    headers = ["name", *(["session"] if several else []), "sweep", "id", "finished", "set"]
    rows = [
        [
            one["name"],
            *([one["session"]] if several else []),
            one["sweep"]["name"],
            one["sweep"]["id"],
            _moment(one["sweep"]["finished_at"]),
            _moment(one["set_at"]),
        ]
        for one in found
    ]
    return grid(headers, rows, width, whole={"id", "finished", "set"}, color=color)


def one(document: Document, width: int, color: bool = False) -> str:
    """One baseline: its sweep, and that sweep's answers."""
    sweep, matrix = document["sweep"], document["matrix"]
    answers = summary.answers(matrix)
    pairs = [
        ("baseline", document["name"]),
        ("session", document["session"]),
        ("sweep", f"{sweep['name']} ({sweep['id']}, {sweep['status']})"),
        ("finished", _moment(sweep["finished_at"])),
        ("set", _moment(document["set_at"])),
        *(("" if number else "answer", answer) for number, answer in enumerate(answers)),
    ]
    return facts(pairs, width) + f"more: wtb matrix {sweep['id']}\n"


def floor_in_words(floor: Document) -> str:
    """What repeats of a sweep differ by: `score the same in 100 cells of 2 repeats, tokens in 12% (sd 3.1)`."""
    said = []
    for name, one in (("outcomes", floor["cells"]), *floor["metrics"].items()):
        if one["deterministic"]:
            said.append(f"{name} the same in {one['compared']:,}")
        else:
            spread = "" if one.get("sd") is None else f", sd {one['sd']:.3g}"
            said.append(f"{name} in {one['differ']:.0%} of {one['compared']:,} other{spread}")
    repeats = words.plural(floor["repeats"], "repeat")
    return f"{repeats}: {'; '.join(said)}"


def _moment(iso: str | None) -> str:
    return words.moment(None if iso is None else datetime.fromisoformat(iso).timestamp())
