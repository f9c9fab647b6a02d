"""Promises on nights that are compared with a baseline one after the other, through the functions of `wtb regress`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from simulations.promises import Promise, counted, seed_from
from wtb.analysis.comparison.regressions import Question, answer, of_sweep
from wtb.analysis.comparison.verdicts import WORSE
from wtb.analysis.statistics import Floats
from wtb.analysis.statistics.anytime import BASELINE, FIRST, JOINING, night_tests

Rng = np.random.Generator
Sweep = Callable[[float], Floats]  # how much worse it is than at first -> its scores
NIGHTS: Final = 20
WRONG: Final = 0.05
KINDS: Final = ("pass rate 0.9", "cases of unequal difficulty, pass rate 0.9", "noisy judge, 1 to 5")


def promises() -> Iterator[Promise]:
    """All of them."""
    yield from _false_alarms()
    yield from _one_night()
    yield from _slides()


def _sweeps(rng: Rng, kind: str, rows: int, cases: int) -> Sweep:
    """Sweeps of the same cases, each cell drawn by itself."""
    shape = (rows, cases)
    if kind.startswith("noisy"):
        quality = 3.8 + 0.7 * rng.normal(size=(1, cases))
        return lambda fall: np.clip(np.round(quality - fall + 0.8 * rng.normal(size=shape)), 1, 5)
    rates = rng.beta(4.5, 0.5, (1, cases)) if kind.startswith("cases") else np.full((1, cases), 0.9)
    return lambda fall: (rng.random(shape) < rates - fall) * 1.0


def alarms(
    rng: Rng, sweep: Sweep, falls: Sequence[float], *, best_of: int = 1, updates: bool = False, nightly: bool = True
) -> list[bool]:
    """Return which nights are alarmed.

    Args:
        rng: Of random signs.
        sweep: Draws a sweep.
        falls: How much worse the truth is each night than at first.
        best_of: How many equal sweeps the baseline is the best of.
        updates: Whether each night that passes becomes the baseline.
        nightly: Whether nights are a series; else each is compared with the baseline alone, at 5%.
    """
    first = max((sweep(0.0) for _ in range(best_of)), key=lambda scores: float(scores.mean()))
    baseline, block, nights, alarms_so_far = first, [first], list[Floats](), list[bool]()
    for fall in falls:
        tonight = sweep(fall)
        nights.append(tonight)
        level = 0.05 if not nightly else BASELINE if alarms_so_far else FIRST
        is_alarm = _is_worse(rng, baseline, tonight, level)
        if nightly:
            tests = night_tests(block, nights)
            is_alarm |= any(test.is_fall for part in tests for test in part)
        alarms_so_far.append(is_alarm)
        if updates and not is_alarm:
            baseline = tonight
        if not is_alarm and len(block) <= JOINING and len(alarms_so_far) == len(block):
            block.append(nights.pop())
    return alarms_so_far


def _is_worse(rng: Rng, before: Floats, after: Floats, level: float) -> bool:
    rates = bool(np.isin(after, (0, 1)).all())
    questions = {"m": Question(after - before, rates=rates)}
    pools = [list(range(len(after)))] if len(after) > 1 else []
    return of_sweep(answer(questions, pools, seed=seed_from(rng), level=level), questions) == WORSE


def _false_alarms() -> Iterator[Promise]:
    ways = (
        ("nothing changed", {}),
        ("nothing changed, --update every night", {"updates": True}),
        ("nothing changed, baseline the best of five equal sweeps", {"best_of": 5}),
    )
    for (situation, way), kind, rows in itertools.product(ways, KINDS, (1, 6)):

        def some(rng: Rng, kind: str = kind, rows: int = rows, way: dict[str, int] = way) -> bool:  # type: ignore[assignment]
            return any(alarms(rng, _sweeps(rng, kind, rows, 100), [0.0] * NIGHTS, **way))  # type: ignore[arg-type]

        yield Promise(
            "some night of 20 is alarmed",
            f"{situation}: {kind}",
            f"{rows} row{'s' * (rows > 1)}, 100 cases",
            counted(some),
            at_most=WRONG,
            runs=300,
        )

    def each_alone(rng: Rng) -> bool:
        return any(alarms(rng, _sweeps(rng, KINDS[0], 1, 100), [0.0] * NIGHTS, nightly=False))

    yield Promise(
        "some night of 20 is alarmed",
        f"nothing changed, each night compared alone at 5%: {KINDS[0]}",
        "1 row, 100 cases",
        counted(each_alone),
        runs=300,
    )


def _one_night() -> Iterator[Promise]:
    for night, rows in itertools.product((1, 2, 10), (1, 6)):

        def seen(rng: Rng, night: int = night, rows: int = rows) -> bool:
            falls = [0.0] * (night - 1) + [0.15]
            return alarms(rng, _sweeps(rng, KINDS[0], rows, 200), falls)[-1]

        yield Promise(
            "one night with a fall of 0.15 is alarmed",
            f"pass rate 0.9 -> 0.75 on night {night}",
            f"{rows} row{'s' * (rows > 1)}, 200 cases",
            counted(seen),
            at_least=0.8,
            runs=300,
        )


def _slides() -> Iterator[Promise]:
    falls = [0.2 * (night + 1) / NIGHTS for night in range(NIGHTS)]
    for updates, rows in itertools.product((False, True), (1, 6)):
        for nightly in (True, False) if rows == 1 else (True,):

            def seen(rng: Rng, updates: bool = updates, rows: int = rows, nightly: bool = nightly) -> bool:
                return any(alarms(rng, _sweeps(rng, KINDS[0], rows, 100), falls, updates=updates, nightly=nightly))

            yield Promise(
                "a slide from 0.9 to 0.7 by night 20 is alarmed",
                ("--update every night" if updates else "the baseline stays")
                + ("" if nightly else ", each night compared alone at 5%"),
                f"{rows} row{'s' * (rows > 1)}, 100 cases",
                counted(seen),
                at_least=0.9 if nightly else None,
                runs=200,
            )
