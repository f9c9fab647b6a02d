"""The words for claims that hang on missing cells, the same wherever they are shown."""

from __future__ import annotations

from collections.abc import Collection

from wtb.core.texts import plural


def hangs_on(count: int) -> str:
    """Return `hangs on 41 missing cells`."""
    return f"hangs on {plural(count, 'missing cell')}"


def unseen(one_in: int, *, is_gain: bool) -> str:
    """Return why small gains, or small losses, in all cases are not claimed.

    Args:
        one_in: Differences rarer than 1 in so many cases cannot show.
        is_gain: Whether it is gains that are small.
    """
    rare, small = ("loss", "gains") if is_gain else ("gain", "losses")
    return f"a {rare} rarer than 1 in {one_in:,} cases cannot show here and could cancel {small} this small"


def cure(sweep_id: str, reasons: Collection[str], *, can_declare: bool) -> str:
    """Return what to do about missing cells.

    Args:
        sweep_id: The sweep that lacks them.
        reasons: Why they are missing: `provider`, `evaluator` or `failed`.
        can_declare: Whether nothing is declared yet for failed cells.
    """
    commands = []
    if "provider" in reasons:
        commands.append(f"run lost cells again with `wtb retry {sweep_id} --provider`")
    if "evaluator" in reasons:
        commands.append(f"score again with `wtb score {sweep_id}`")
    if "failed" in reasons:
        declare = "declare `scale` or `on_failure`, or " if can_declare else ""
        commands.append(f"{declare}run failed cells again with `wtb retry {sweep_id} --failed`")
    return " and ".join(commands) or "with these at their worst it could be chance"
