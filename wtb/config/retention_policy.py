"""The retention policy: how long outputs, checkpoints, sweeps and files are kept."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from wtb.config.project_settings import find_setting, table_of
from wtb.core.arguments import AtLeastZero, FromZero, Number, check_fields
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.units import parse_duration

NEVER = "never"
LEAST_GRACE_S = 60.0


@frozen
class Policy:
    """The periods for which things are kept, in seconds; None is forever.

    Attributes:
        outputs: stdout and stderr of attempts.
        superseded: Checkpoints that are on no line of a head that counts.
        sweeps: Ended sweeps.
        keep: How many of the newest ended sweeps of each session and name stay in any case.
        files: Stored files that nothing names. Running attempts store files before they name them.
    """

    outputs: AtLeastZero | None = 30 * 86400.0
    superseded: AtLeastZero | None = 86400.0
    sweeps: AtLeastZero | None = None
    keep: FromZero = 10
    files: Annotated[float, Number(LEAST_GRACE_S)] = 3600.0

    def __post_init__(self) -> None:
        check_fields(self)


def read_policy(start: Path | None = None, **overrides: str | int | None) -> Policy:
    """Return the policy: overrides, else settings of the project, else the defaults.

    The settings are `[retention]` of the nearest wtb.toml, or `[tool.wtb.retention]` of the nearest pyproject.toml
    upwards.

    Raises:
        InputError: For a wrong setting.
    """
    setting = find_setting("retention", start)
    names = [field.name for field in fields(Policy)]
    settings: dict[str, Any] = {}
    if setting is not None:
        settings = {
            key: _setting(f"{setting.file}: {key}", key, amount) for key, amount in table_of(setting, names).items()
        }
    options = {key: option for key, option in overrides.items() if option is not None}
    settings |= {key: option if key == "keep" else _setting(f"--{key}", key, option) for key, option in options.items()}
    return Policy(**settings)


def read_age(argument: str, text: str) -> float | None:
    """Return an age such as `90d` in seconds; None for `never`. Raises InputError, which names the argument."""
    try:
        return _age(argument, text)
    except InputError as error:
        raise InputError(str(error), argument=argument) from None


def _setting(where: str, key: str, setting: object) -> float | int | None:
    if key == "keep":
        if isinstance(setting, int) and not isinstance(setting, bool) and 0 <= setting <= 1_000_000:
            return setting
        raise InputError(f"{where} = {setting!r}: expected a number of sweeps, 0 or more")
    seconds = _age(where, setting, may_be_never=key != "files")
    if key == "files" and (seconds or 0) < LEAST_GRACE_S:
        raise InputError(f"{where} = {setting!r}: expected at least 60s; attempts store files before they name them")
    return seconds


def _age(where: str, age: object, *, may_be_never: bool = True) -> float | None:
    if age == NEVER and may_be_never:
        return None
    try:
        seconds = parse_duration(age)
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        or_never = f", or {NEVER!r}" if may_be_never else ""
        raise InputError(f"{where} = {age!r}: expected a duration such as 12h, 7d or 2w{or_never}")
    return seconds
