"""A sweep as JUnit XML, which most CI systems show: a test case for each gate and for each combination."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from wtb.analysis.comparison.verdicts import CANNOT_TELL, UNCLEAR, WORSE, is_unclear, passes
from wtb.core import texts
from wtb.core.texts import plural
from wtb.core.tree.combinations import in_words
from wtb.display import figures as matrix_figures
from wtb.display import recommendation, sentences, summary

if TYPE_CHECKING:
    from wtb.core.documents.comparison import ComparisonDocument
    from wtb.core.documents.matrix import MatrixDocument, RowDocument
    from wtb.core.documents.report import EvidenceDocument, Unscored
    from wtb.core.documents.shared_types import FailureCause, SweepHeading


# Characters that XML 1.0 forbids, even as character references.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
EXAMPLES = 20  # causes that a combination's failure tells


def render(document: EvidenceDocument) -> str:
    """XML of what `evidence.gather` found. A combination fails where any of its cells or scores did."""
    matrix = document["matrix"]
    suite = ElementTree.Element("testsuite", name=_text(matrix["sweep"]["name"]))
    properties = ElementTree.SubElement(suite, "properties")
    for name, figure in _properties(matrix):
        ElementTree.SubElement(properties, "property", name=_text(name), value=_text(figure))
    failures = skipped = 0
    for gate in document["gates"]:
        case = ElementTree.SubElement(suite, "testcase", classname="gates", name=_text(gate["gate"]), time="0")
        if is_unclear(gate):
            # JUnit has no status for unclear. Skipped tests are shown and do not fail a build.
            skipped += 1
            ElementTree.SubElement(case, "skipped", message=_text(f"unclear: {gate['because']}"))
        elif not gate["holds"]:
            failures += 1
            verdict = "cannot be decided" if gate["holds"] is None else "does not hold"
            values = ", ".join(f"{name} = {_figure(figure)}" for name, figure in gate["values"].items())
            _fail(case, f"{gate['gate']}: {verdict}", "gate", "\n".join(filter(None, [values, gate["because"]])))
    lacking: dict[int, list[Unscored]] = {}
    for missing in document["failures"]["unscored"]:
        lacking.setdefault(missing["combination"], []).append(missing)
    for number, row in enumerate(matrix["rows"]):
        name = summary.combination_name(matrix, row)
        case = ElementTree.SubElement(suite, "testcase", classname="combinations", name=_text(name), time=_time(row))
        unscored = lacking.get(number, [])
        if row["failed"] or unscored:
            failures += 1
            lost = [f"{row['failed']:,} of {row['n']:,} cells failed"] if row["failed"] else []
            lost += [f"{plural(missing['scores'], 'score')} of {missing['metric']} failed" for missing in unscored]
            causes = _causes(document["failures"]["cells"], number)
            causes += [f"{missing['metric']}: {missing['message']}" for missing in unscored]
            _fail(case, "; ".join(lost), "cells" if row["failed"] else "scores", "\n".join(causes))
        elif not row["n"]:
            skipped += 1
            ElementTree.SubElement(case, "skipped", message="no cell has an outcome yet")
        ElementTree.SubElement(case, "system-out").text = _text("\n".join(_figures(row)))
    count = len(document["gates"]) + len(matrix["rows"])
    suite.attrib |= {"tests": str(count), "failures": str(failures), "errors": "0", "skipped": str(skipped)}
    suite.set("time", f"{_took(matrix['sweep']):.3f}")
    if matrix["sweep"]["started_at"]:
        # Most schemas of JUnit files allow neither a time zone nor fractions of a second here.
        suite.set("timestamp", matrix["sweep"]["started_at"][:19])
    return _document(suite)


def comparison(document: ComparisonDocument, *, strict: bool = False) -> str:
    """Two sweeps that are compared as JUnit XML.

    Args:
        document: The comparison.
        strict: What is unclear fails; else it is skipped.

    Returns:
        A test case for the whole, each combination, pool of them, and gate; what is worse, or not known, fails.
    """
    suite = ElementTree.Element("testsuite", name=_text(document["after"]["name"]))
    tested = [("sweep", f"against {document['before']['name']} ({document['before']['id']})", document["verdict"])]
    tested += [("combinations", in_words(row["combination"]), row["verdict"]) for row in document["rows"]]
    tested += [("together", pool["what"], pool["verdict"]) for pool in document["pools"]]
    for kind, name, verdict in tested:
        case = ElementTree.SubElement(suite, "testcase", classname=kind, name=_text(name), time="0")
        if verdict in (WORSE, CANNOT_TELL) or (verdict == UNCLEAR and strict):
            _fail(case, f"{name}: {verdict}", "verdict", "\n".join(document["because"]))
        elif verdict == UNCLEAR:
            ElementTree.SubElement(case, "skipped", message="unclear")
    for gate in matrix_figures.found_in(document):
        case = ElementTree.SubElement(suite, "testcase", classname="gates", name=_text(gate["gate"]), time="0")
        if not passes(gate, strict=strict):
            _fail(case, f"{matrix_figures.mark(gate)}: {matrix_figures.gate_text(gate)}", "gate", gate["because"] or "")
        elif is_unclear(gate):
            ElementTree.SubElement(case, "skipped", message=_text(matrix_figures.gate_text(gate)))
    counts = {"tests": "testcase", "failures": "testcase/failure", "skipped": "testcase/skipped"}
    suite.attrib |= {key: str(len(suite.findall(path))) for key, path in counts.items()} | {"errors": "0", "time": "0"}
    return _document(suite)


def _document(suite: ElementTree.Element) -> str:
    root = ElementTree.Element(
        "testsuites", {key: suite.get(key, "0") for key in ("tests", "failures", "errors", "time")}
    )
    root.append(suite)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _properties(matrix: MatrixDocument) -> list[tuple[str, object]]:
    properties: list[tuple[str, object]] = [("sweep", matrix["sweep"]["id"]), ("status", matrix["sweep"]["status"])]
    properties += [("primary", matrix["primary"])] if matrix["primary"] else []
    properties += [("decision", " ".join(recommendation.lines(matrix)))] if "decision" in matrix else []
    properties += [(f"answer.{metric}", sentences.answer(matrix, metric)) for metric in matrix["metrics"]]
    properties += [(f"cells.{status}", count) for status, count in matrix["cells"].items()]
    properties += [("cost_usd.total", _figure(None if matrix["cost"].get("unknown") else matrix["cost"]["usd"]))]
    properties += [("node_runs.executed", matrix["node_runs"]["executed"])]
    properties += [("node_runs.unshared", matrix["node_runs"]["unshared"])]
    return properties + [("warning", warning) for warning in matrix["warnings"]]


def _figures(row: RowDocument) -> list[str]:
    """The figures of a combination, a line each."""
    figures = []
    for metric, estimate in row["metrics"].items():
        ci = "" if estimate["ci"] is None else f" [{_figure(estimate['ci'][0])}, {_figure(estimate['ci'][1])}]"
        delta = "" if estimate["delta"] is None else f", {estimate['delta']:+.6g} from the baseline"
        figures.append(f"{metric} = {_figure(estimate['mean'])}{ci}{delta}")
    figures.append(f"cost_usd = {_figure(row['cost_usd'])}")
    if row["cost_failed_usd"]:
        figures.append(f"cost_failed_usd = {_figure(row['cost_failed_usd'])}")
        figures.append(f"cost_per_success_usd = {_figure(row['cost_per_success_usd'])}")
    return [*figures, f"latency_s.p50 = {_figure(row['latency_s']['p50'])}"]


def _causes(groups: list[FailureCause], number: int) -> list[str]:
    causes = []
    for cause in groups:
        if number in cause["combinations"]:
            where = f"node {cause['node']!r}: " if cause["node"] else ""
            example = cause["example"]
            what = ": ".join(filter(None, [cause["type"], cause["message"]])) or "no error was recorded"
            causes.append(f"{where}{what} (such as case {example['case']}: wtb show {example['execution']})")
    return causes[:EXAMPLES]


def _fail(case: ElementTree.Element, message: str, kind: str, details: str) -> None:
    ElementTree.SubElement(case, "failure", message=_text(message), type=kind).text = _text(details)


def _took(sweep: SweepHeading) -> float:
    """Seconds from the start of a sweep to its end; 0 where it has none yet."""
    started, finished = sweep["started_at"], sweep["finished_at"]
    if not started or not finished:
        return 0.0
    return (datetime.fromisoformat(finished) - datetime.fromisoformat(started)).total_seconds()


def _time(row: RowDocument) -> str:
    """Seconds of its median cell."""
    return f"{row['latency_s']['p50'] or 0.0:.6f}"


def _figure(figure: float | None) -> str:
    return texts.MISSING if figure is None else f"{figure:.6g}"


def _text(content: object) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", str(content))
