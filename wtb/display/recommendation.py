"""The decision of a sweep in words: what to ship, what that rests on, the next step, and what gates say.

Terminal, report and pages show the same sentences, and show them first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from typing_extensions import TypedDict

from wtb.analysis.comparison.verdicts import CANNOT_TELL, UNCLEAR, WORSE, is_unclear
from wtb.core.texts import duration, money, plural, printable
from wtb.display import figures, sentences, summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wtb.core.documents.matrix import (
        DecisionDocument,
        GateDocument,
        JudgedMatrixDocument,
        MatrixDocument,
        NightDocument,
    )

Tone = Literal["good", "bad", "open"]
_OPEN = (UNCLEAR, CANNOT_TELL)


class Card(NamedTuple):
    """The part of a sweep's results that is shown first.

    Attributes:
        tone: `bad` if a gate failed or a baseline was better, `good` if the recommendation is shown to be right.
        verdict: What gates say together; empty without gates.
        verdict_tone: Whether they hold; `open` without gates.
        title: What to ship.
        facts: Its figures, each with its name.
        lines: What it rests on, and the next step.
        gates: Each gate, whether it holds, and its numbers; and the verdict of a schedule.
        compared: The sweeps that a schedule compared, the earlier one first; None without.
    """

    tone: Tone
    verdict: str
    verdict_tone: Tone
    title: str
    facts: list[tuple[str, str]]
    lines: list[str]
    gates: list[tuple[Tone, str]]
    compared: tuple[str, str] | None = None


def card(document: MatrixDocument, judging: Sequence[GateDocument] | None = None) -> Card | None:
    """Return the decision of a matrix; None for documents that were made before there were decisions.

    Args:
        document: The matrix.
        judging: The gates, if they are not in the matrix itself.
    """
    decision = document.get("decision")
    if decision is None:
        return None
    gates = figures.found_in(document) if judging is None else judging
    judged = [(_tone_of(gate), f"{figures.mark(gate)}: {figures.gate_text(gate)}") for gate in gates]
    tones = [tone for tone, _ in judged]
    night = cast("JudgedMatrixDocument", document).get("night")
    if night is not None:
        judged.append((_tone_of_night(night), _night_in_words(night)))
        tones.append(judged[-1][0])
    return Card(
        tone="bad" if "bad" in tones else "open" if "open" in tones else _tone(decision),
        # The tone of a schedule stands last. It is no gate, so the verdict does not count it as one.
        verdict=_verdict(tones[: len(gates)], night),
        verdict_tone="bad" if "bad" in tones else "open" if "open" in tones or not tones else "good",
        title=_title(document, decision, "Leading candidate" if "bad" in tones else "Recommended"),
        facts=_facts(document, decision),
        lines=[*_basis(document, decision), *_next_step(document, decision)],
        gates=judged,
        compared=(night["baseline"], document["sweep"]["id"]) if night and night["baseline"] else None,
    )


def lines(document: MatrixDocument, judging: Sequence[GateDocument] | None = None) -> list[str]:
    """Return the decision as lines of text: the verdict of gates, what to ship with its figures, and the next step."""
    decision_card = card(document, judging)
    if decision_card is None:
        return []
    facts_text = ", ".join(f"{name} {fact}" for name, fact in decision_card.facts)
    return [
        *filter(None, [decision_card.verdict]),
        f"{decision_card.title}{f' ({facts_text})' if facts_text else ''}.",
        *decision_card.lines,
    ]


def warnings(document: MatrixDocument, *, all_of_them: bool = False) -> tuple[list[str], str]:
    """Return the warnings that are shown at once, and a line about the others; empty if there are none."""
    all_warnings = document["warnings"]
    # The warnings that could change the decision come first, and `decision.warnings` is their count.
    first = len(all_warnings) if all_of_them or "decision" not in document else document["decision"]["warnings"]
    more = len(all_warnings) - first
    name = printable(document["sweep"]["id"])
    line = f"{plural(more, 'more warning' if first else 'warning')}: wtb matrix {name} --warnings" if more else ""
    return all_warnings[:first], line


class Brief(TypedDict):
    """The part of a sweep's results that a list of sweeps shows."""

    title: str
    score: tuple[str, str] | None
    verdict: str
    verdict_tone: Tone


def brief(document: MatrixDocument) -> Brief | None:
    """Return what a list of sweeps shows of one: the score of what it recommends, and whether its gates hold."""
    decision_card = card(document)
    if decision_card is None or "decision" not in document:
        return None
    has_score = document["decision"]["metric"] is not None and document["decision"]["mean"] is not None
    return {
        "title": decision_card.title,
        "score": _score(document, document["decision"], brief=True) if has_score else None,
        "verdict": decision_card.verdict,
        "verdict_tone": decision_card.verdict_tone,
    }


def _tone_of(gate: GateDocument) -> Tone:
    if gate["holds"]:
        return "good"
    return "open" if gate["holds"] is None or is_unclear(gate) else "bad"


def _tone(decision: DecisionDocument) -> Tone:
    return "good" if decision["basis"] in ("within", "best", "figure") and decision["is_final"] else "open"


def _tone_of_night(night: NightDocument) -> Tone:
    return "bad" if night["verdict"] in (WORSE, "failed") else "open" if night["verdict"] in _OPEN else "good"


def _night_in_words(night: NightDocument) -> str:
    because = "; ".join(night["because"])
    of = f" (baseline: sweep {night['baseline']})" if night["baseline"] else ""
    return printable(f"schedule: {night['verdict']}{of}{f': {because}' if because else ''}")


def _verdict(tones: list[Tone], night: NightDocument | None = None) -> str:
    if night is not None and _tone_of_night(night) == "bad" and "bad" not in tones:
        return (
            "Do not ship: worse than the baseline." if night["verdict"] == WORSE else "Do not ship: the night failed."
        )
    if not tones:
        return ""
    if failed := tones.count("bad"):
        return f"Do not ship: {plural(failed, 'gate')} of {len(tones):,} failed."
    if unclear := tones.count("open"):
        return f"Not decided: {plural(unclear, 'gate')} of {len(tones):,} cannot be decided."
    return {1: "The gate holds.", 2: "Both gates hold."}.get(len(tones), f"All {len(tones):,} gates hold.")


def _title(document: MatrixDocument, decision: DecisionDocument, word: str) -> str:
    """Return what to ship; `word` is what it is called, which is no recommendation where a gate failed."""
    row = next((row for row in document["rows"] if row["combination"] == decision["combination"]), None)
    if row is None:
        return f"Nothing to recommend: {printable(decision['because'] or 'nothing is scored')}"
    name = summary.combination_name(document, row)
    if decision["basis"] == "only":
        return f"Only {name} is {'scored' if len(document['rows']) == 1 else 'ranked'}"
    of = summary.as_of(document).removeprefix(", ")
    return f"{word}{f' {of}' if of else ''}: {name}"


def _facts(document: MatrixDocument, decision: DecisionDocument) -> list[tuple[str, str]]:
    facts = []
    if decision["metric"] is not None and decision["mean"] is not None:
        facts.append(_score(document, decision))
    if decision["cost_usd"]:
        facts.append(("cost per answer", money(decision["cost_usd"])))
    if decision["latency_s"] is not None:
        facts.append(("median time", duration(decision["latency_s"])))
    return facts


def _score(document: MatrixDocument, decision: DecisionDocument, *, brief: bool = False) -> tuple[str, str]:
    """Return the metric that decides, and its mean with the interval, which is called so unless it is to be brief."""
    metric, ci = decision["metric"] or "", decision["ci"]
    digits = figures.decimals(document, metric)
    name = "" if brief else "95% interval from "
    between = "" if ci is None else f", {name}{figures.number(ci[0], digits)} to {figures.number(ci[1], digits)}"
    return printable(metric), f"{figures.number(decision['mean'], digits)}{between}"


def _basis(document: MatrixDocument, decision: DecisionDocument) -> list[str]:
    basis, ties, margin = decision["basis"], len(decision["ties"]), decision["margin"]
    under = _condition(decision)
    tied_with = plural(ties, "other")
    cheapest = "; this is the cheapest" if decision["is_cheapest"] else ""
    if basis == "within":
        first = f"It is shown to be within {margin:g} of the best{under}."
        if not ties:
            return [f"{first} No other combination is."]
        return [f"{first} {_capital(_ties(tied_with, cheapest))}."]
    if basis == "best":
        return [f"It beats every other combination{under}."]
    if basis == "only" and under:
        return [f"{_capital(under.removeprefix(' '))}."]
    if basis == "leads":
        if not ties:
            return [f"It has the best figure{under}."]
        named = "" if cheapest else _cheapest_tie(document, decision)
        return [f"It is not shown to be the best{under}: it {_ties(tied_with, cheapest)}{named}."]
    if basis == "not shown":
        return [
            f"No combination is shown to be within {margin:g} of the best{under} yet: it {_ties(tied_with, cheapest)}."
        ]
    return [f"By {printable(decision['objective'])}."] if basis == "figure" else []


def _ties(tied_with: str, cheapest: str) -> str:
    # plural() returns `0 others` if there are no ties.
    return f"ties with {tied_with}{cheapest}" if not tied_with.startswith("0 ") else "has the best figure"


def _condition(decision: DecisionDocument) -> str:
    _, _, condition = decision["objective"].partition(" subject to ")
    # `objective` is a sentence of wtb/analysis/matrix/selection.py: `maximize X subject to Y, within Z of the best`.
    condition, _, _ = condition.partition(", within ")
    return f" of those with {printable(condition)}" if condition else ""


def _cheapest_tie(document: MatrixDocument, decision: DecisionDocument) -> str:
    """Name the cheapest of the others that tie, if it is known."""
    rows = [row for row in document["rows"] if row["combination"] in decision["ties"]]
    priced = [(row["cost_per_success_usd"], number) for number, row in enumerate(rows) if row["cost_per_success_usd"]]
    own = decision["cost_usd"]
    # A combination without a known cost could be the cheapest, so none is named if one is missing.
    if len(priced) != len(rows) or not priced or own is None or min(priced)[0] is None or min(priced)[0] >= own:
        return ""
    return f"; the cheapest of them is {sentences.short_name(document, rows[min(priced)[1]])}"


def _next_step(document: MatrixDocument, decision: DecisionDocument) -> list[str]:
    """Return what would settle the decision; empty if it is settled."""
    if decision["basis"] not in ("leads", "not shown") or not decision["is_final"] or not decision["ties"]:
        return []
    cases, needed = decision["cases"], decision["cases_needed"]
    few = f"{plural(cases, 'case')} {'is' if cases == 1 else 'are'} too few to distinguish them"
    if needed is None:
        return [f"{few}."]
    lead = document["best"][decision["metric"] or ""]["lead"]
    digits = figures.decimals(document, decision["metric"] or "")
    return [
        f"{few}: about {sentences.rounded_up(needed):,} would, if the lead of {figures.number(lead, digits)} is real."
    ]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
