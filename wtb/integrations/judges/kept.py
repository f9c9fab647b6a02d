"""Replies of judges that are kept by what was asked, in a folder that processes and sweeps share: beside stored files,
or where the environment says.

Their names are digests of questions. They hold scores, prices and, beside stored files, the reasons that judges gave,
which may quote an answer: erasing a case removes these files. It does not reach a folder that the environment names, so
that one gets no reasons.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
import warnings
from pathlib import Path

from wtb.core.errors import InputError, describe
from wtb.core.scoring.judgement import Judgement

FOLDER = "JUDGEMENTS_FOLDER"
_USED_S = 86_400.0  # until its time of use is written again


def folder() -> Path | None:
    """The folder that the environment names; None where it names none.

    Raises:
        InputError: It is not absolute, and would be another one for each node process.
    """
    named = os.environ.get(FOLDER)
    if not named:
        return None
    if not Path(named).is_absolute():
        raise InputError(f"{FOLDER} is {describe(named)}; expected a folder from the root on, such as /srv/judgements")
    return Path(named)


def find(digest: str, place: Path | None) -> Judgement | None:
    """What was kept; None where nothing was, or nothing that can be read."""
    if place is None:
        return None
    path = place / digest[:2] / digest
    try:
        score, usd, *rest = json.loads(path.read_bytes())
        if path.stat().st_mtime < time.time() - _USED_S:
            os.utime(path)  # it is in use: what is not goes with a garbage collection
        price = None if usd is None else _number(usd)
        return Judgement(_number(score), usd=price, model=_text(rest[:1]), reason=_text(rest[1:2]) or "")
    except (OSError, ValueError, TypeError):
        return None


def keep(digest: str, judgement: Judgement, place: Path | None) -> None:
    """Write down a judgement; it is not lost where that fails, and a warning says so."""
    if place is None or judgement.score is None:
        return
    try:
        (place / digest[:2]).mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=place / digest[:2], delete=False) as stream:
            reason = judgement.reason if folder() is None else ""
            json.dump([judgement.score, judgement.usd, judgement.model, reason], stream)
        Path(stream.name).replace(place / digest[:2] / digest)  # whole or not at all, whoever else writes it
    except OSError as error:
        warnings.warn(f"a judgement could not be kept in {place}: {error.strerror}", RuntimeWarning, stacklevel=2)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError("no number")
    return float(value)


def _text(given: list[object]) -> str | None:
    return given[0] if given and isinstance(given[0], str) else None
