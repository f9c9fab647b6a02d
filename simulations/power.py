"""Promises of power: detectable changes, the next step, and the margins of a plan."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from simulations.promises import Promise, seed_from
from wtb.analysis.comparison.regressions import Question, answer, of_sweep
from wtb.analysis.statistics import Design, Floats, compare
from wtb.analysis.statistics.best import Leads, next_step
from wtb.analysis.statistics.claims import SIGNIFICANT
from wtb.analysis.statistics.margins import cases_for
from wtb.analysis.statistics.paired import paired_tests
from wtb.analysis.statistics.power import detectable
from wtb.analysis.statistics.running import share_of_next

Rng = np.random.Generator
PILOT = 100  # cases
DETECTED = "a detectable difference is seen"
SETTLED_AS_PLANNED = "as many cases as are said settle it, if the leads are real"
MARGIN_SHOWN = "as many cases as are planned show that no row lost its margin"


def promises() -> Iterator[Promise]:
    """Changes of pass rates, sweeps that go on as they were advised to, and sweeps as large as `wtb plan` asks for."""
    yield from _detectable()
    yield from _settled_as_planned()
    yield from _margin_shown()


def _detectable() -> Iterator[Promise]:
    for rate, rows, cases, falls in itertools.product((0.5, 0.8, 0.9, 0.97), (1, 6), (50, 200), (True, False)):
        change = _change(rate, rows, cases, falls)
        if change is None:  # there is no room
            continue

        def count(
            rng: Rng, runs: int, rate: float = rate, rows: int = rows, change: float = change, falls: bool = falls,
            cases: int = cases,
        ) -> tuple[int, int]:  # fmt: skip
            seen = 0
            for _ in range(runs):
                scores = _passes(rng, rate, rows + 1, cases)
                if falls:
                    scores[1] *= rng.random(cases) < 1 - change / rate
                else:
                    scores[1] = np.maximum(scores[1], rng.random(cases) < change / (1 - rate))
                p = compare(scores, Design(baseline=0, seed=seed_from(rng))).rows[1].p_adjusted
                seen += p is not None and p < 0.05
            return seen, runs

        what = f"pass rate of {rate:.0%}, one of {rows} rows {'falls' if falls else 'rises'}"
        yield Promise(DETECTED, what, f"{rows} rows, {cases} cases", count, 0.75, 0.85, 300)


def _change(rate: float, rows: int, cases: int, falls: bool) -> float | None:
    """Return the change that is detectable among rows whose cases differ half as often as independent ones."""
    fall, rise = detectable(math.sqrt(rate * (1 - rate)), cases, rows, rate)
    return fall if falls else rise


def _passes(rng: Rng, rate: float, rows: int, cases: int) -> Floats:
    """Draw passes whose chances differ from case to case, so that two rows differ in rate x (1 - rate) of cases."""
    chances = rng.beta(rate, 1 - rate, cases)
    return (rng.random((rows, cases)) < chances).astype(np.float64)


def _settled_as_planned() -> Iterator[Promise]:
    """A pilot gives the spreads and how rows vary together; the leads are the true ones."""
    for (kind, rows), lead in itertools.product((("normal", 2), ("normal", 6), ("pass rate 60%", 2)), (0.1, 0.15)):

        def count(rng: Rng, runs: int, kind: str = kind, rows: int = rows, lead: float = lead) -> tuple[int, int]:
            clear = 0
            for _ in range(runs):
                needed = _needed(_drawn(rng, kind, rows, lead, PILOT), lead)
                if needed is not None:
                    design = Design(seed=seed_from(rng), share=_share(rows, needed))  # it is a further look
                    clear += compare(_drawn(rng, kind, rows, lead, needed), design).clear
            return clear, runs

        yield Promise(SETTLED_AS_PLANNED, f"{kind}, a lead of {lead:g}", f"{rows} rows", count, 0.75, 0.85, 200)


def _drawn(rng: Rng, kind: str, rows: int, lead: float, cases: int) -> Floats:
    """Draw scores in which the first row leads all others by as much."""
    leads = np.zeros((rows, 1))
    leads[0] = lead
    if kind == "normal":
        return rng.normal(size=cases) + rng.normal(leads, 1, (rows, cases))
    return (rng.random((rows, cases)) < 0.6 + leads).astype(np.float64)


def _needed(pilot: Floats, lead: float) -> int | None:
    """Return how many cases the next step asks for, were the leads of a pilot the true ones."""
    leads = pilot[0] - pilot[1:]
    rates = np.isin(pilot[1:], (0, 1)).all(axis=1)
    tested = [replace(test, delta=lead) for test in paired_tests(leads, rates=rates)]
    level = partial(_level, len(pilot))
    return next_step(Leads(leads, tested, rates, None, True), level).cases


def _share(rows: int, cases: int) -> float:
    """Return the part of 5% that a sweep of so many cases may use, which has those of the pilot."""
    return share_of_next((), PILOT, rows - 1, cases)


def _level(rows: int, cases: int) -> float:
    return SIGNIFICANT * _share(rows, cases)


def _margin_shown() -> Iterator[Promise]:
    for rows, margin in itertools.product((1, 6, 24), (0.1, 0.2)):

        def count(rng: Rng, runs: int, rows: int = rows, margin: float = margin) -> tuple[int, int]:
            cases = cases_for(margin, np.ones(rows))
            hits = 0
            for _ in range(runs):
                questions = {"m": Question(rng.normal(size=(rows, cases)), margin=margin)}
                hits += of_sweep(answer(questions, seed=seed_from(rng)), questions) in ("not worse", "better")
            return hits, runs

        yield Promise(MARGIN_SHOWN, f"normal, margin {margin:g}", f"{rows} rows", count, 0.75, 0.85, 200)
