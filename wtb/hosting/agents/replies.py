"""What an agent is told: the decision first, then as much of the document as a reply may hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NotRequired

from typing_extensions import TypedDict

from wtb.core.values import Json
from wtb.display.json_text import as_json

MOST_TOKENS: Final = 10_000
CHARACTERS_PER_TOKEN: Final = 2.5  # of JSON full of numbers and ids; of prose there are more
MOST_CHARACTERS: Final = int(MOST_TOKENS * CHARACTERS_PER_TOKEN)
_ROOM: Final = 4_000  # for what stands around the document
_PATHS: Final = (20, 100)  # that are named of what was cut, and characters of each
_DECISION: Final = 4_000
_STEPS: Final = ((10, 500), (5, 200), (3, 100), (1, 60), (0, 40))  # items of lists and characters of texts that stay


class ConfirmDocument(TypedDict):
    """What has to be sent again for anything to be done."""

    token: str
    expires_s: float
    how: str


class Reply(TypedDict):
    """A reply of any tool."""

    decision: str
    done: bool
    document: dict[str, Json]
    left_out: list[str]
    confirm: NotRequired[ConfirmDocument]


REPLY_SCHEMA: Final[dict[str, object]] = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "description": "What was found or done, in words."},
        "done": {"type": "boolean", "description": "False where nothing is done until it is confirmed."},
        "document": {"type": "object", "description": "The document of the command, cut where it is long."},
        "left_out": {"type": "array", "items": {"type": "string"}, "description": "What was cut, and where it is."},
        "confirm": {
            "type": "object",
            "properties": {
                "token": {"type": "string"},
                "expires_s": {"type": "number"},
                "how": {"type": "string"},
            },
            "required": ["token", "expires_s", "how"],
        },
    },
    "required": ["decision", "done", "document", "left_out"],
}


def make_reply(decision: str, document: object, *, done: bool = True, confirm: ConfirmDocument | None = None) -> Reply:
    """Make a reply that is short enough.

    Args:
        decision: What was found or done, in words.
        document: The rest.
        done: Whether anything was done that was asked for.
        confirm: What is to be sent again first.
    """
    decision = _shortened(decision, _DECISION)
    whole = json.loads(as_json(document))
    whole = whole if isinstance(whole, dict) else {"items": whole}
    room = MOST_CHARACTERS - _ROOM - len(decision)
    reply: Reply = {"decision": decision, "done": done, "document": whole, "left_out": []}
    for items, characters in _STEPS:
        if len(json.dumps(reply["document"])) <= room:
            break
        left_out: list[str] = []
        reply["document"] = {key: _cut(value, key, (items, characters), left_out) for key, value in whole.items()}
        reply["left_out"] = [_shortened(one, _PATHS[1]) for one in left_out[: _PATHS[0]]]
    else:
        if len(json.dumps(reply["document"])) > room:  # of very many keys
            reply["document"], reply["left_out"] = {}, ["all of it: it is too large for a reply"]
    if confirm is not None:
        reply["confirm"] = confirm
    return reply


def _cut(value: Json, path: str, step: tuple[int, int], left_out: list[str]) -> Json:
    """Return a value with short lists and texts; note what is gone."""
    items, characters = step
    if isinstance(value, str):
        return _shortened(value, characters)
    if isinstance(value, Mapping):
        return {key: _cut(one, f"{path}.{key}", step, left_out) for key, one in value.items()}
    if isinstance(value, Sequence):
        if len(value) > items:
            left_out.append(f"{len(value) - items:,} of {len(value):,} of {path}")
        return [_cut(one, f"{path}[]", step, left_out) for one in value[:items]]
    return value


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
