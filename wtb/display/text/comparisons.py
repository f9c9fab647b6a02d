"""Two sweeps side by side, in a terminal and as Markdown: the verdict, what was changed, and what got worse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from rich.cells import cell_len

from wtb.analysis.comparison.reasons import figure
from wtb.analysis.comparison.verdicts import SAME, UNCLEAR
from wtb.core import texts
from wtb.core.texts import MISSING, printable
from wtb.display import markdown
from wtb.display.matrix import gates
from wtb.display.matrix.figures import probability
from wtb.display.matrix.summary import combination_name, label, shown_nodes
from wtb.display.tables import GAP, facts, grid, wrapped
from wtb.display.text.baselines import floor_in_words

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
        RegressionDocument,
    )


Place = tuple[str, tuple[tuple[str, str], ...]]  # of a cell: its case and its combination

ROWS = 20  # combinations and metrics that are shown of those that differ
SPLIT = 3  # varied nodes that have a column each; more of them share one
DIFFERENCE = 20  # lines that are shown of what changed in a file
NAMES = 5  # variants, cases and settings that are named
_ANSWERING = ("environment.tools.", "environment.judges.")
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
_TAKEN = {*_FIGURES, "case", "metric", "verdict"}  # headers, which a node may be called, too


def comparison(document: ComparisonDocument, width: int, color: bool = False, cells: int = 20) -> str:
    """All that a comparison says; of the cells that differ the first `cells`."""
    parts = [_headline(document, width, color), _bullets(document["because"], width)]
    changes = [*_changes(document["changed"]), ("margin", _margin(document)), *_floor(document)]
    parts.append(facts([*changes, *series_facts(document)], width))
    parts += ["".join(f"{printable(line)}\n" for line in lines) for lines in _differences(document)]
    headers, rows, which = _rows(document)
    if rows:
        parts.append(_grid(headers, rows[:ROWS], which[:ROWS], width, color))
    headers, rows = _cells(document, cells)
    if rows:
        title = f"{_of(document, cells)}, the worst first:\n"
        which = [_choices(document, cell) for cell in document["cells"][:cells]]
        parts.append(title + _grid(headers, rows, which, width, color))
        parts.append(f"more of the first: wtb diff {' '.join(map(str, document['cells'][0]['executions']))}\n")
    parts.append("".join(f"{line}\n" for line in gates.lines(gates.found_in(document))))
    return "\n".join(filter(None, parts))


def regression(document: RegressionDocument, width: int, color: bool = False, cells: int = 20) -> str:
    """What `wtb regress` found: one line where nothing is different, everything where it got worse."""
    if document["verdict"] in ("worse", "cannot tell"):
        return comparison(document, width, color, cells)
    failed = gates.lines(gate for gate in document["gates"] if not gate["holds"])
    code = [
        pair
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
    """The same as GitHub-flavoured Markdown."""
    before, after = document["before"], document["after"]
    names = " against ".join(f"{one['name']} ({one['id']})" for one in (after, before))
    parts = [f"### {_verdict(document)}: {markdown.escape(names)}", markdown.gate_list(gates.found_in(document))]
    parts.append(markdown.bullets(document["because"]))
    changes = [*_changes(document["changed"]), ("margin", _margin(document)), *_floor(document)]
    changes += series_facts(document)
    parts.append(markdown.bullets(f"{name}: {text}" for name, text in changes if text))
    parts += [markdown.fenced(lines, "diff") for lines in _differences(document)]
    headers, rows, _ = _rows(document)
    parts.append(_table(headers, rows[:ROWS]))
    headers, rows = _cells(document, cells)
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
    names = " against ".join(f"{one['name']} ({one['id']})" for one in (after, before))
    first = "\n".join(wrapped(f"{verdict}: {names}", width))
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
    """What was changed besides the results, as pairs of a name and a text; empty texts where nothing was."""
    variants, combinations, cases = changed["variants"], changed["combinations"], changed["cases"]
    yield "code", _named([f"{one['node']}={one['variant']}" for one in changed["code"]])
    yield "causes", _named(list(dict.fromkeys(cause for one in changed["code"] for cause in one.get("causes", ()))))
    yield "files", _named([file["path"] for file in changed.get("files", ())])
    yield "graph", "changed" if changed["graph"] else ""
    for what, names in (("added", variants["added"]), ("removed", variants["removed"])):
        yield f"variants {what}", _named([f"{one['node']}={one['variant']}" for one in names])
    yield "combinations", _counted(combinations, combinations["added"], combinations["removed"])
    yield "cases", _counted(cases, len(cases["added"]), len(cases["removed"]), len(cases["changed"]))
    settings = [
        f"{one['key']}: {texts.short(one['before'], 30)} to {texts.short(one['after'], 30)}"
        # What answers differently comes before all the packages that an upgrade changes.
        for one in sorted(changed["settings"], key=lambda one: not one["key"].startswith(_ANSWERING))
    ]
    yield "settings", _named(settings, "; ")


def _margin(document: ComparisonDocument) -> str:
    """By which margins it was judged, and whose they are."""
    margin = document["margin"]
    given = [f"{name} {most:g} (given)" for name, most in margin["given"].items()]
    return _named([*given, *(f"{name} {most:g} (the later sweep's)" for name, most in margin["of_later"].items())])


def _floor(document: ComparisonDocument) -> list[tuple[str, str]]:
    """What repeats of the earlier sweep differ by, where anybody made some."""
    return [("noise", floor_in_words(document["noise_floor"]))] if document["noise_floor"] else []


def _counted(what: CombinationChanges | CaseChanges, added: int, removed: int, changed: int = 0) -> str:
    counts = {"added": added, "removed": removed, "changed": changed}
    parts = [f"{count:,} {name}" for name, count in counts.items() if count]
    return ", ".join([f"{what['common']:,} in both", *parts]) if parts else ""


def _named(names: Sequence[str], separator: str = ", ") -> str:
    more = f"{separator}and {len(names) - NAMES:,} more" if len(names) > NAMES else ""
    return separator.join(names[:NAMES]) + more


def _combination(document: ComparisonDocument, row: ComparedRow | ComparedCell) -> dict[str, str]:
    """What to show of a combination, by column: the nodes that tell combinations apart, or one for all."""
    nodes = shown_nodes(document)
    if len(nodes) > SPLIT or not _TAKEN.isdisjoint(nodes):
        return {"combination": combination_name(document, row)}
    return {node: label(row, node) for node in nodes}


def _choices(document: ComparisonDocument, row: ComparedRow | ComparedCell) -> dict[str, str]:
    """What a combination chooses at the nodes that tell combinations apart."""
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
            (not one["decides"], order.index(one["verdict"])),
            {**_combination(document, row), "metric": name, **_figures(one), "verdict": _of_metric(one)},
            _choices(document, row),
        )
        for row in document["rows"]
        for name, one in row["metrics"].items()
        if one["verdict"] != SAME and one["n_pairs"]  # the others have nothing to show
    ]
    rows.sort(key=lambda one: one[0])
    return *_columns([line for _, line, _ in rows]), [choices for *_, choices in rows]


def _fitting(headers: list[str], rows: list[list[str]], width: int) -> tuple[list[str], list[list[str]]]:
    """A table without the columns that have to make way for others, so that those are not cut."""
    names = sum(header not in _FIGURES | _WHOLE for header in headers)
    widths = {}
    for header, *cells in zip(headers, *rows, strict=True):
        wide = max(map(cell_len, (header, *cells)))
        widths[header] = (
            wide if header in _FIGURES | _WHOLE else min(wide, max(cell_len(header), _NAMES_LEAST // names))
        )
    for column in _FIRST_TO_GO:
        if sum(widths.values()) + GAP * (len(widths) - 1) > width:
            widths.pop(column, None)
    kept = [number for number, header in enumerate(headers) if header in widths]
    return [headers[number] for number in kept], [[row[number] for number in kept] for row in rows]


def _columns(lines: Sequence[Mapping[str, str]]) -> tuple[list[str], list[list[str]]]:
    return list(lines[0]) if lines else [], [list(line.values()) for line in lines]


def _figures(one: ContrastFigures) -> dict[str, str]:
    shown = {"cases": str(one["n_pairs"]), **dict.fromkeys(("before", "after", "Δ", "p"), MISSING)}
    before, after, delta = one["before"], one["after"], one["delta"]
    if before is not None and after is not None and delta is not None:
        shown |= {"before": figure(before, delta), "after": figure(after, delta), "Δ": f"{delta:+.4g}"}
    tested = [p for p in (one["p_worse"], one["p_better"]) if p is not None]
    if tested:
        shown["p"] = probability(min(tested))
    return shown


def _of_metric(one: ContrastFigures) -> str:
    return str(one["verdict"]) if one["decides"] else f"{one['verdict']} (exploratory)"


def _cells(document: ComparisonDocument, most: int) -> tuple[list[str], list[list[str]]]:
    """The headers, and the lines of the first cells that differ: one for each metric that they differ by."""
    first = set(_differing(document)[:most])
    return _columns([_cell(document, cell) for cell in document["cells"] if _place(cell) in first])


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


def _score(value: float | str | None) -> str:
    return value if isinstance(value, str) else texts.score(value)


def _of(document: ComparisonDocument, most: int) -> str:
    every = len(_differing(document))
    if every == 1:
        return "1 cell that differs"
    shown = min(most, every)
    return f"{every:,} cells that differ" if shown == every else f"{shown:,} of {every:,} cells that differ"
