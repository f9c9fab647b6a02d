"""Baselines in a terminal."""

from __future__ import annotations

from wtb.core import texts
from wtb.core.documents.comparison import BaselineMatrixDocument, BaselinesDocument, NoiseFloorDocument
from wtb.display.matrix import sentences
from wtb.display.tables import facts, grid


def listed(document: BaselinesDocument, width: int, color: bool = False) -> str:
    """The baselines, each with its sweep."""
    baselines = document["baselines"]
    several = len({one["session"] for one in baselines}) > 1
    repeated = any(one["noise_floor"] for one in baselines)
    headers = ["name", *(["session"] if several else []), "sweep", "id", "finished", "set"]
    headers += ["noise"] if repeated else []
    rows = [
        [
            one["name"],
            *([one["session"]] if several else []),
            one["sweep"]["name"],
            one["sweep"]["id"],
            texts.moment(one["sweep"]["finished_at"]),
            texts.moment(one["set_at"]),
            *([_noise(one["noise_floor"])] if repeated else []),
        ]
        for one in baselines
    ]
    return grid(headers, rows, width, whole={"id", "finished", "set"}, color=color)


def one(document: BaselineMatrixDocument, width: int, color: bool = False) -> str:
    """One baseline: its sweep, and that sweep's answers."""
    sweep, matrix = document["sweep"], document["matrix"]
    answers = sentences.answers(matrix)
    pairs = [
        ("baseline", document["name"]),
        ("session", document["session"]),
        ("sweep", f"{sweep['name']} ({sweep['id']}, {sweep['status']})"),
        ("finished", texts.moment(sweep["finished_at"])),
        ("set", texts.moment(document["set_at"])),
        ("noise", floor_in_words(document["noise_floor"]) if document["noise_floor"] else ""),
        ("reference", _reference(document)),
        *(("" if number else "answer", answer) for number, answer in enumerate(answers)),
    ]
    return facts(pairs, width) + f"more: wtb matrix {sweep['id']}\n"


def _reference(document: BaselineMatrixDocument) -> str:
    """The sweep that does not move, of a baseline that some nights were compared with."""
    nights = document.get("nights", 0)
    return f"sweep {document.get('reference')}, {texts.plural(nights, 'night')} since" if nights else ""


def _noise(floor: NoiseFloorDocument | None) -> str:
    """What repeats of a sweep differ in, in a word or two."""
    if floor is None:
        return ""
    parts = {"outcomes": floor["cells"], **floor["metrics"]}
    return ", ".join(name for name, one in parts.items() if not one["deterministic"]) or "none"


def floor_in_words(floor: NoiseFloorDocument) -> str:
    """What repeats of a sweep differ by: `2 repeats: outcomes the same in every case; f1 differs in 12% (sd 0.3)`."""
    parts = {"outcomes": floor["cells"], **floor["metrics"]}
    same = [name for name, one in parts.items() if one["deterministic"]]
    sentences = [f"{', '.join(same)} the same in every case"] if same else []
    for name, one in parts.items():
        if not one["compared"]:
            sentences.append(f"{name} nowhere compared")
        elif not one["deterministic"]:
            sentences.append(f"{name} differs in {one['differ']:.0%} (sd {one['sd']:.3g})")
    return f"{texts.plural(floor['repeats'], 'repeat')}: {'; '.join(sentences)}"
