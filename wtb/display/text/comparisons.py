"""Two sweeps side by side, in a terminal and as Markdown; baselines and their noise floor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from rich.cells import cell_len

from wtb.analysis.comparison.reasons import figure
from wtb.analysis.comparison.verdicts import SAME, UNCLEAR
from wtb.core import texts
from wtb.core.documents.comparison import BaselineMatrixDocument, BaselinesDocument, NoiseFloorDocument
from wtb.core.texts import MISSING, plural, printable
from wtb.core.tree.combinations import in_words
from wtb.display import figures, markdown, sentences
from wtb.display.figures import probability
from wtb.display.summary import combination_name, label, shown_nodes
from wtb.display.tables import GAP, facts, grid, wrapped

if TYPE_CHECKING:
    from wtb.core.documents.comparison import (
        CaseChanges,
        ChangesDocument,
        CombinationChanges,
        ComparedCell,
        ComparedRow,
        ComparisonDocument,
        ContrastFigures,
        NightDocument,
        PairedRow,
        RegressionDocument,
        RowComparisonDocument,
    )
    from wtb.core.documents.matrix import WithinDocument


def listed(document: BaselinesDocument, width: int, color: bool = False) -> str:
    """The baselines, each with its sweep."""
    baselines = document["baselines"]
    several = len({baseline["session"] for baseline in baselines}) > 1
    repeated = any(baseline["noise_floor"] for baseline in baselines)
    headers = ["name", *(["session"] if several else []), "sweep", "id", "finished", "set"]
    headers += ["noise"] if repeated else []
    rows = [
        [
            baseline["name"],
            *([baseline["session"]] if several else []),
            baseline["sweep"]["name"],
            baseline["sweep"]["id"],
            texts.moment(baseline["sweep"]["finished_at"]),
            texts.moment(baseline["set_at"]),
            *([_noise(baseline["noise_floor"])] if repeated else []),
        ]
        for baseline in baselines
    ]
    return grid(headers, rows, width, whole={"id", "finished", "set"}, color=color)


def baseline_details(document: BaselineMatrixDocument, width: int, color: bool = False) -> str:
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
    """Return the names of the figures in which repeats of a sweep differ."""
    if floor is None:
        return ""
    parts = {"outcomes": floor["cells"], **floor["metrics"]}
    return ", ".join(name for name, spread in parts.items() if not spread["deterministic"]) or "none"


def floor_in_words(floor: NoiseFloorDocument) -> str:
    """Return how repeats differ: `2 repeats: outcomes the same in every case; f1 differs in 12% (sd 0.3)`."""
    parts = {"outcomes": floor["cells"], **floor["metrics"]}
    same = [name for name, spread in parts.items() if spread["deterministic"]]
    sentences = [f"{', '.join(same)} the same in every case"] if same else []
    for name, spread in parts.items():
        if not spread["compared"]:
            sentences.append(f"{name} nowhere compared")
        elif not spread["deterministic"]:
            sentences.append(f"{name} differs in {spread['differ']:.0%} (sd {spread['sd']:.3g})")
    return f"{texts.plural(floor['repeats'], 'repeat')}: {'; '.join(sentences)}"


Place = tuple[str, tuple[tuple[str, str], ...]]  # of a cell: its case and its combination

ROWS = 20  # combinations and metrics that are shown of those that differ
SPLIT = 3  # varied nodes that have a column each; more of them share one
DIFFERENCE = 20  # lines that are shown of what changed in a file
NAMES = 5  # variants, cases and settings that are named
_ANSWERING = ("environment.tools.", "environment.judges.")
# Rows are sorted in this order: verdicts that need attention come first.
_VERDICTS = {
    "worse": "Worse",
    "unclear": "Unclear",
    "better": "Better",
    "not worse": "Not worse",
    "same": "No difference",
    "cannot tell": "Cannot tell",
}
_COLORS = {"worse": "error", "unclear": "warning", "cannot tell": "warning"}  # all others: ok
_FIGURES = {"cases", "before", "after", "Δ", "p"}
_WHOLE = {"metric", "verdict", ""}  # columns that are never cut; the one without a header says what became of a cell
_FIRST_TO_GO = ("p", "before", "cases", "after", "differs from")  # columns, where width is short
_NAMES_LEAST = 36  # columns of a terminal that the names of variants keep until others have gone
_RESERVED_HEADERS = {*_FIGURES, "case", "metric", "verdict"}  # headers, which a node may be called, too


def comparison(document: ComparisonDocument, width: int, color: bool = False, cells: int = 20) -> str:
    """All that a comparison says; of the cells that differ the first `cells`."""
    parts = [_headline(document, width, color), _bullets(document["because"], width)]
    changes = [*_changes(document["changed"]), ("margin", _margin(document)), *_floor(document)]
    parts.append(facts([*changes, *series_facts(document)], width))
    parts += ["".join(f"{printable(line)}\n" for line in lines) for lines in _differences(document)]
    headers, rows, which = _rows(document)
    if rows:
        parts.append(_grid(headers, rows[:ROWS], which[:ROWS], width, color))
    headers, rows, which = _cells(document, cells)
    if rows:
        title = f"{_of(document, cells)}, the worst first:\n"
        parts.append(title + _grid(headers, rows, which, width, color))
        parts.append(f"more of the first: wtb diff {' '.join(map(str, document['cells'][0]['executions']))}\n")
    parts.append("".join(f"{line}\n" for line in figures.lines(figures.found_in(document))))
    return "\n".join(filter(None, parts))


def regression(document: RegressionDocument, width: int, color: bool = False, cells: int = 20) -> str:
    """Show what `wtb regress` found: one line if nothing is different, everything if it got worse."""
    if document["verdict"] in ("worse", "cannot tell"):
        return comparison(document, width, color, cells)
    failed = figures.lines(gate for gate in document["gates"] if not gate["holds"])
    code = [
        pair
        # Changed code is shown if cells differ: otherwise there is nothing for it to explain.
        for pair in _changes(document["changed"])
        if pair[0] in ("code", "causes", "files", "graph") and document["cells"]
    ]
    return f"{_quiet(document)}\n{_bullets([*document['because'], *failed], width)}{facts(code, width)}"


def _quiet(document: RegressionDocument) -> str:
    before, compared = document["before"], document["compared"]
    named = document["baseline"] or before["name"]
    count, every = compared["cells"], compared["of"]["before"]
    cells = texts.plural(count, "cell") if count == every else f"{count:,} of its {texts.plural(every, 'cell')}"
    against = f"against {named} (sweep {before['id']}): {cells}"
    if document["verdict"] == UNCLEAR:
        return printable(f"unclear {against}, a loss is neither shown nor ruled out")
    return printable(f"no regression {against}, {_verdict(document)[0].lower()}{_verdict(document)[1:]}")


def _verdict(document: ComparisonDocument) -> str:
    """The verdict in words; where results differ that do not decide, it names what decides."""
    by = f" in {document['primary'] or 'what decides'}" if document["verdict"] == SAME and document["cells"] else ""
    return _VERDICTS[document["verdict"]] + by


def as_markdown(document: ComparisonDocument, cells: int = 20) -> str:
    """Return a comparison as GitHub-flavoured Markdown."""
    before, after = document["before"], document["after"]
    names = " against ".join(f"{sweep['name']} ({sweep['id']})" for sweep in (after, before))
    parts = [f"### {_verdict(document)}: {markdown.escape(names)}", markdown.gate_list(figures.found_in(document))]
    parts.append(markdown.bullets(document["because"]))
    changes = [*_changes(document["changed"]), ("margin", _margin(document)), *_floor(document)]
    changes += series_facts(document)
    parts.append(markdown.bullets(f"{name}: {text}" for name, text in changes if text))
    parts += [markdown.fenced(lines, "diff") for lines in _differences(document)]
    headers, rows, _ = _rows(document)
    parts.append(_table(headers, rows[:ROWS]))
    headers, rows, _ = _cells(document, cells)
    if rows:
        parts += [f"{_of(document, cells)}, the worst first:", _table(headers, rows)]
    return markdown.joined(parts)


def _differences(document: ComparisonDocument) -> Iterator[list[str]]:
    """Yield the lines that differ in each file, at most so many of each."""
    for file in document["changed"].get("files", ()):
        more = len(file["difference"]) - DIFFERENCE
        rest = [f"... {texts.plural(more, 'more line')}: --format json"] if more > 0 else []
        yield [*file["difference"][:DIFFERENCE], *rest]


def series_facts(document: ComparisonDocument) -> Iterator[tuple[str, str]]:
    """Which night of a series it is, and what the fixed reference is; nothing of a comparison of its own."""
    series = cast("NightDocument", document).get("series")
    if series is not None:
        reference = series["reference"]
        repeats = f", with {texts.plural(series['repeats'] - 1, 'repeat')}" if series["repeats"] > 1 else ""
        yield "night", f"{series['night']:,} since sweep {reference['id']}{repeats}, the fixed reference"


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return markdown.table(headers, [list(map(markdown.escape, row)) for row in rows]) if rows else ""


def _headline(document: ComparisonDocument, width: int, color: bool) -> str:
    before, after = document["before"], document["after"]
    verdict = _verdict(document)
    names = " against ".join(f"{sweep['name']} ({sweep['id']})" for sweep in (after, before))
    first = "\n".join(wrapped(f"{verdict}: {names}", width))
    # Coloured after it is wrapped, because escape sequences would count as columns.
    first = texts.colored(verdict, _COLORS.get(document["verdict"], "ok"), color) + first.removeprefix(verdict)
    compared = document["compared"]
    size = (
        f"{texts.plural(compared['cells'], 'cell')} of "
        f"{texts.plural(compared['combinations'], 'combination')} and "
        f"{texts.plural(compared['cases'], 'case')} compared"
    )
    return f"{first}\n{size}\n"


def _bullets(sentences: Sequence[str], width: int) -> str:
    return "".join(
        f"- {line[2:]}\n" if not n else f"{line}\n" for s in sentences for n, line in enumerate(wrapped(s, width, "  "))
    )


def _changes(changed: ChangesDocument) -> Iterator[tuple[str, str]]:
    """Return changes besides the results as pairs of a name and a text; empty texts if there are none."""
    variants, combinations, cases = changed["variants"], changed["combinations"], changed["cases"]
    yield "code", _named([f"{change['node']}={change['variant']}" for change in changed["code"]])
    yield (
        "causes",
        _named(list(dict.fromkeys(cause for change in changed["code"] for cause in change.get("causes", ())))),
    )
    yield "files", _named([file["path"] for file in changed.get("files", ())])
    yield "graph", "changed" if changed["graph"] else ""
    for what, names in (("added", variants["added"]), ("removed", variants["removed"])):
        yield f"variants {what}", _named([f"{variant['node']}={variant['variant']}" for variant in names])
    yield "combinations", _counted(combinations, combinations["added"], combinations["removed"])
    yield "cases", _counted(cases, len(cases["added"]), len(cases["removed"]), len(cases["changed"]))
    settings = [
        f"{setting['key']}: {texts.short(setting['before'], 30)} to {texts.short(setting['after'], 30)}"
        # Tools and judges come before the packages, of which an upgrade changes many.
        for setting in sorted(changed["settings"], key=lambda setting: not setting["key"].startswith(_ANSWERING))
    ]
    yield "settings", _named(settings, "; ")


def _margin(document: ComparisonDocument) -> str:
    """Return the margins of a comparison, each with its source."""
    margin = document["margin"]
    requested = [f"{name} {size:g} (given)" for name, size in margin["given"].items()]
    return _named([*requested, *(f"{name} {size:g} (the later sweep's)" for name, size in margin["of_later"].items())])


def _floor(document: ComparisonDocument) -> list[tuple[str, str]]:
    """Return the noise of the earlier sweep, if it was repeated."""
    return [("noise", floor_in_words(document["noise_floor"]))] if document["noise_floor"] else []


def _counted(what: CombinationChanges | CaseChanges, added: int, removed: int, changed: int = 0) -> str:
    counts = {"added": added, "removed": removed, "changed": changed}
    parts = [f"{count:,} {name}" for name, count in counts.items() if count]
    return ", ".join([f"{what['common']:,} in both", *parts]) if parts else ""


def _named(names: Sequence[str], separator: str = ", ") -> str:
    more = f"{separator}and {len(names) - NAMES:,} more" if len(names) > NAMES else ""
    return separator.join(names[:NAMES]) + more


def _combination(document: ComparisonDocument, row: ComparedRow | ComparedCell) -> dict[str, str]:
    """Return what to show of a combination by column: the nodes that tell combinations apart, or one for all."""
    nodes = shown_nodes(document)
    # `grid` finds columns by their headers, so a node cannot have the header of another column.
    if len(nodes) > SPLIT or not _RESERVED_HEADERS.isdisjoint(nodes):
        return {"combination": combination_name(document, row)}
    return {node: label(row, node) for node in nodes}


def _choices(document: ComparisonDocument, row: ComparedRow | ComparedCell) -> dict[str, str]:
    """Return the choices of a combination at the nodes that tell combinations apart."""
    return {node: label(row, node) for node in shown_nodes(document)}


def _grid(
    headers: list[str], rows: list[list[str]], which: Sequence[Mapping[str, str]], width: int, color: bool
) -> str:
    """A table in the width. which: what each row chooses, where one column has all of it."""
    headers, rows = _fitting(headers, rows, width)
    named = {"combination": which} if "combination" in headers else None
    return grid(headers, rows, width, right=_FIGURES, whole=_WHOLE, combinations=named, color=color)


def _rows(document: ComparisonDocument) -> tuple[list[str], list[list[str]], list[dict[str, str]]]:
    """The headers, a line for each combination and metric that differs, those that got worse first, and its choices."""
    order = list(_VERDICTS)
    rows = [
        (
            (not contrast["decides"], order.index(contrast["verdict"])),
            {**_combination(document, row), "metric": name, **_figures(contrast), "verdict": _of_metric(contrast)},
            _choices(document, row),
        )
        for row in document["rows"]
        for name, contrast in row["metrics"].items()
        if contrast["verdict"] != SAME and contrast["n_pairs"]  # the others have nothing to show
    ]
    rows.sort(key=lambda row: row[0])
    return *_columns([line for _, line, _ in rows]), [choices for *_, choices in rows]


def _fitting(headers: list[str], rows: list[list[str]], width: int) -> tuple[list[str], list[list[str]]]:
    """A table without the columns that have to make way for others, so that those are not cut."""
    names = sum(header not in _FIGURES | _WHOLE for header in headers)
    widths = {}
    for header, *cells in zip(headers, *rows, strict=True):
        wide = max(map(cell_len, (header, *cells)))
        # Names can be cut by `grid`, so they count only with the width that they keep.
        widths[header] = (
            wide if header in _FIGURES | _WHOLE else min(wide, max(cell_len(header), _NAMES_LEAST // names))
        )
    for column in _FIRST_TO_GO:
        if sum(widths.values()) + GAP * (len(widths) - 1) > width:
            widths.pop(column, None)
    fitting = [number for number, header in enumerate(headers) if header in widths]
    return [headers[number] for number in fitting], [[row[number] for number in fitting] for row in rows]


def _columns(lines: Sequence[Mapping[str, str]]) -> tuple[list[str], list[list[str]]]:
    return list(lines[0]) if lines else [], [list(line.values()) for line in lines]


def _figures(contrast: ContrastFigures) -> dict[str, str]:
    cells = {"cases": str(contrast["n_pairs"]), **dict.fromkeys(("before", "after", "Δ", "p"), MISSING)}
    before, after, delta = contrast["before"], contrast["after"], contrast["delta"]
    if before is not None and after is not None and delta is not None:
        cells |= {"before": figure(before, delta), "after": figure(after, delta), "Δ": f"{delta:+.4g}"}
    tested = [p for p in (contrast["p_worse"], contrast["p_better"]) if p is not None]
    if tested:
        cells["p"] = probability(min(tested))
    return cells


def _of_metric(contrast: ContrastFigures) -> str:
    return str(contrast["verdict"]) if contrast["decides"] else f"{contrast['verdict']} (exploratory)"


def _cells(document: ComparisonDocument, limit: int) -> tuple[list[str], list[list[str]], list[dict[str, str]]]:
    """The headers, a line for each metric by which the first cells differ, and the choices of its combination."""
    first = set(_differing(document)[:limit])
    cells = [cell for cell in document["cells"] if _place(cell) in first]
    return *_columns([_cell(document, cell) for cell in cells]), [_choices(document, cell) for cell in cells]


def _differing(document: ComparisonDocument) -> list[Place]:
    """The cells that differ, the worst first. One that differs by several metrics counts once."""
    return list(dict.fromkeys(map(_place, document["cells"])))


def _place(cell: ComparedCell) -> Place:
    return cell["case"], tuple(cell["combination"].items())


def _cell(document: ComparisonDocument, cell: ComparedCell) -> dict[str, str]:
    return {
        "case": cell["case"],
        **_combination(document, cell),
        "": f"{cell['metric']} {cell['what']}" if cell["metric"] else cell["what"],
        "before": _score(cell["before"]),
        "after": _score(cell["after"]),
        "Δ": "" if cell["delta"] is None else f"{cell['delta']:+.4g}",
        "differs from": cell["diverged"] or "",
    }


def _score(score: float | str | None) -> str:
    return score if isinstance(score, str) else texts.score(score)


def _of(document: ComparisonDocument, limit: int) -> str:
    every = len(_differing(document))
    if every == 1:
        return "1 cell that differs"
    count = min(limit, every)
    return f"{every:,} cells that differ" if count == every else f"{count:,} of {every:,} cells that differ"


def two_rows(document: RowComparisonDocument, width: int) -> str:
    """All results of the comparison."""
    row, other = document["row"], document["other"]
    counts = f"{document['wins']:,} better, {document['losses']:,} worse, {document['ties']:,} the same"
    delta = f"difference {_figure(document['delta'])}{_test(document)}"
    lines = [
        f"{_name(row)} against {_name(other)} by {printable(document['metric'])} ({document['better']} is better)",
        f"{plural(document['n_pairs'], 'case')} of both: {counts}; {delta}",
    ]
    if within := document.get("within"):
        lines.append(_within(within, other))
    if document["unpaired"]:
        lines.append(f"{plural(document['unpaired'], 'case')} without a score of both are left out")
    if document["because"] is not None:
        lines.append(document["because"])
    if not document["cases"]:
        return "\n".join(lines)
    rows = [
        [printable(case["case"]), _figure(case["row"]), _figure(case["other"]), _figure(case["gain"])]
        for case in document["cases"]
    ]
    headers = ("case", f"row {row['combination']}", f"row {other['combination']}", "gain")
    table = grid(headers, rows, width, right=headers[1:])
    more = f"and {plural(document['more'], 'case')} more: --limit" if document["more"] else ""
    return "\n".join([*lines, "", table + more])


def _within(within: WithinDocument, other: PairedRow) -> str:
    behind, is_within = within["behind"], within["shown"]
    at_most = f" (at most {_figure(behind[1])} behind)" if behind and is_within is not False else ""
    at_least = f" (at least {_figure(behind[0])} behind)" if behind and is_within is False else ""
    words = {True: "yes", False: "no", None: "not shown yet"}[is_within]
    return f"within {within['margin']:g} of row {other['combination']}: {words}{at_most}{at_least}"


def _name(row: PairedRow) -> str:
    exploratory = ", exploratory" if row["exploratory"] else ""
    return f"row {row['combination']} ({printable(in_words(row['choices']))}{exploratory})"


def _test(document: RowComparisonDocument) -> str:
    interval = document["ci"]
    between = "" if interval is None else f" [{_figure(interval[0])}, {_figure(interval[1])}]"
    return between + ("" if document["p"] is None else f", p {probability(document['p'])}")


def _figure(number: float | None) -> str:
    return MISSING if number is None else f"{number:.4g}"
