"""Outputs of combinations side by side: pages of cases, filtered by the database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

import orjson

from wtb.core.arguments import FromZero, Number, checked
from wtb.core.documents import outputs as documents
from wtb.core.errors import DamagedError, InputError, did_you_mean
from wtb.core.failures import Failure
from wtb.core.scoring.measure import Measure
from wtb.core.scoring.unknown_costs import is_concerned
from wtb.core.serialization.plain_json import readable
from wtb.core.tree.checkpoints import is_hidden, visible_state
from wtb.operations.context import Context
from wtb.operations.results.matrix import row_numbers
from wtb.store.control.labels import comments_by_place
from wtb.store.database import Database
from wtb.store.read import details, evidence, queries
from wtb.store.read import outputs as output_rows
from wtb.store.read.costs import unknown_costs
from wtb.store.read.details import find, find_one
from wtb.store.tables.sweeps import CaseRow, SweepRow

_LONGEST_ESCAPE = 12  # characters: two halves of a pair


def output_value(beginning: output_rows.Beginning, whole: str) -> documents.OutputValue:
    """Return a value for a page of outputs.

    Args:
        beginning: What was read of it.
        whole: The path that returns all of it.

    Raises:
        DamagedError: If it is no JSON.
    """
    # The beginning alone shows the kind: the rest may not have been read.
    is_text = beginning.data.startswith(b'"')
    value, is_cut = _shortened(_whole(beginning.data)) if beginning.is_whole else (_part(beginning.data), True)
    return {
        "value": value,
        "kind": "text" if is_text else "json",
        "cut": is_cut,
        "bytes": beginning.size,
        "whole": whole if is_cut else None,
    }


def value_of_text(text: str, whole: str) -> documents.OutputValue:
    """Return a value that is stored as typed JSON in a row, such as the expected value of a case."""
    encoded = text.encode()
    return output_value(output_rows.Beginning(encoded[: output_rows.WHOLE_BYTES], len(encoded)), whole)


def path_of_output(execution: str, key: str) -> str:
    """Return the path of the REST API that returns a whole value of the state of an execution."""
    return f"/executions/{_quoted(execution)}/value?key={_quoted(key)}"


def path_of_case(sweep: str, case: str, key: str | None) -> str:
    """Return the path of the REST API that returns a whole value of the input of a case, or its expected value."""
    path = f"/sweeps/{_quoted(sweep)}/value?case={_quoted(case)}"
    return path if key is None else f"{path}&key={_quoted(key)}"


def _quoted(text: str) -> str:
    return quote(text, safe="")


def as_text(encoded: bytes) -> str:
    """Return a stored value as text: text as it is, all else as JSON."""
    content = _whole(encoded)
    if isinstance(content, str):
        return content
    return orjson.dumps(content, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()


def _whole(encoded: bytes) -> Any:
    try:
        return readable(encoded)
    except orjson.JSONDecodeError as error:
        raise DamagedError(f"a stored value is damaged: {error}") from error


def _part(encoded: bytes) -> str:
    """Return the beginning of a text, or of JSON as it stands."""
    text = encoded.decode("utf-8", "ignore")  # a character that is cut in half is left out
    if not text.startswith('"'):
        return text[: documents.CUT]
    for end in range(len(text), len(text) - _LONGEST_ESCAPE, -1):
        try:
            beginning: str = orjson.loads(text[:end] + '"')
        except orjson.JSONDecodeError:
            continue  # an escape is cut in two
        return beginning[: documents.CUT]
    raise DamagedError("a stored value is damaged: it is no JSON")


def _shortened(content: Any) -> tuple[Any, bool]:
    """Return a value with its texts cut, and whether any was."""
    if isinstance(content, str):
        return content[: documents.CUT], len(content) > documents.CUT
    if isinstance(content, list):
        parts = [_shortened(part) for part in content]
        return [part for part, _ in parts], any(is_cut for _, is_cut in parts)
    if isinstance(content, dict):
        shortened = {key: _shortened(part) for key, part in content.items()}
        return {key: part for key, (part, _) in shortened.items()}, any(is_cut for _, is_cut in shortened.values())
    return content, False


PAGE: Final = 20
MOST_KEYS: Final = 16
BLOCK: Final = 1 << 20

PageSize = Annotated[int, Number(1, documents.MOST_CASES, whole=True)]


@checked
def outputs(
    context: Context,
    ref: str,
    *,
    rows: Sequence[FromZero | str] = (),
    columns: Sequence[FromZero | str] = (),
    keys: Sequence[str] = (),
    failed: bool = False,
    differ: Sequence[FromZero | str] = (),
    worst: str | None = None,
    tag: str | None = None,
    text: str | None = None,
    wrong: Literal["all", "none"] | None = None,
    metric: str | None = None,
    cases: Sequence[str] = (),
    offset: FromZero = 0,
    limit: PageSize = PAGE,
) -> documents.OutputsDocument:
    """Return the outputs of combinations side by side, a page of cases at a time. All filters must hold.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name. Or an execution: its case under its combinations.
        rows: Combinations in the order to show them: their numbers, as the matrix has them, or their variants, such as
            `answer.model=mini,answer.temperature=0`; by default the first 64.
        columns: Those of `rows` that the page has; by default all. Filters and the order are by all of `rows`.
        keys: Keys of the final state; by default those that evaluators read, else those that are no input.
        failed: Only cases for which a cell of these combinations failed.
        differ: Two combinations: only cases for which they returned different outputs.
        worst: A metric: the cases with the worst mean score under these combinations first.
        tag: Only cases with this tag.
        text: Only cases in which this text is found: in their id, input, expected value, an output or an error.
        wrong: Only cases for which all combinations of the sweep are wrong, or none is. A cell is wrong if it failed,
            or if its score is not the best one of the scale of `metric`. Cells without a score do not count.
        metric: The metric of `wrong`; by default the one that decides.
        cases: Only the cases with these ids.
        offset: How many matching cases to skip.
        limit: How many to return at most.

    Returns:
        The page. Each repeat of a case is an entry of its own. Long values are cut, with a path to the whole.

    Raises:
        InputError: If there is no such sweep, combination, metric, key, tag or case.
    """
    database = context.database
    sweep, own_rows, own_cases = _target(database, ref)
    rows, cases = rows or own_rows, cases or own_cases
    # One snapshot for all queries: a running sweep would otherwise change between the count and the page.
    with database.snapshot():
        sight = _Sight(database, sweep, rows, columns, keys)
        filters = output_rows.OutputFilters(
            sight.rows,
            sight.keys,
            failed,
            sight.pair(differ),
            sight.checked_tag(tag),
            text or None,
            tuple(dict.fromkeys(cases)),
            sight.worst(worst),
            sight.wrong(wrong, metric),
        )
        # Cases that are not there are refused, rather than shown as an empty page.
        for case in filters.cases:
            details.check_case(database, sweep.id, case)
        total, places = output_rows.matching_places(database, sweep.id, filters, offset=offset, limit=limit)
        case_outputs = sight.cases(places)
    return {
        "sweep": sweep.heading,
        "rows": [{"row": row, "combination": sight.choices[row]} for row in sight.columns],
        "combinations": len(sight.choices),
        "metrics": {name: _metric(measure) for name, measure in sight.measures.items()},
        "keys": sight.keys,
        "other_keys": [key for key in sight.known_keys if key not in sight.keys],
        "tags": sight.tags,
        "repeats": output_rows.repeats_of(database, sweep.id),
        "total": total,
        "offset": offset,
        "cases": case_outputs,
    }


@checked
def read_value(context: Context, ref: str, *, key: str | None = None, case: str | None = None) -> Iterator[bytes]:
    """Return one value in full: text as it is, all else as JSON.

    Args:
        context: Where.
        ref: An execution, for a key of its state; or a sweep, for a case.
        key: The key of the state, or of the input of the case; for a case, None is its expected value.
        case: The id of the case, of a sweep.

    Returns:
        The value as UTF-8, in blocks.

    Raises:
        InputError: If there is no such sweep, execution, case or key.
    """
    database = context.database
    if case is None:
        row = find_one(database, ref)
        state = {} if row.head_id is None else queries.checkpoint_states(database, [row.head_id])[row.head_id]
        return _blocks(_value_at(database, state, key, f"the state of execution {row.id}"))
    sweep = _sweep(database, ref)
    details.check_case(database, sweep.id, case)
    number = evidence.case_numbers(database, sweep.id)[case]
    case_row = queries.case_rows(database, sweep.id, [number])[number]
    if key is not None:
        return _blocks(_value_at(database, case_row.input, key, f"the input of case {case!r}"))
    if case_row.expected is None:
        raise InputError(f"case {case!r} has no expected value", argument="case")
    return _blocks(case_row.expected.encode())


def _value_at(database: Database, state: Mapping[str, str], key: str | None, where: str) -> bytes:
    state = visible_state(state)
    if key not in state:
        near = did_you_mean(key or "", state) or f"; it has {', '.join(state) or 'no keys'}"
        raise InputError(f"{where} has no key {key!r}{near}", argument="key")
    return queries.load_values(database, [state[key]])[state[key]].data


def _blocks(encoded: bytes) -> Iterator[bytes]:
    text = as_text(encoded).encode()
    return (text[start : start + BLOCK] for start in range(0, len(text), BLOCK))


def _target(database: Database, ref: str) -> tuple[SweepRow, Sequence[int], Sequence[str]]:
    """Find a sweep; of an execution also the numbers of its combinations and the id of its case."""
    target = find(database, ref)
    if target.kind == "sweep":
        return target.row, (), ()
    sweep = queries.find_sweep(database, target.row.sweep_id)
    case, _ = details.execution_case(database, target.id)
    return sweep, target.row.combinations[: documents.MOST_ROWS], (case,)


def _sweep(database: Database, ref: str) -> SweepRow:
    target = find(database, ref)
    if target.kind == "execution":
        raise InputError(f"{ref!r} is an execution; cases are of a sweep")
    return target.row


class _Sight:
    """The visible part of a sweep: its combinations and the keys of its states."""

    def __init__(
        self,
        database: Database,
        sweep: SweepRow,
        rows: Sequence[int | str],
        columns: Sequence[int | str],
        keys: Sequence[str],
    ) -> None:
        self._database, self._sweep = database, sweep
        self.choices = queries.choices(database, sweep.id)
        self.measures = queries.measures(database, sweep.id)
        self.rows = self._rows(row_numbers(self.choices, "rows", rows))
        self.columns = self._columns(row_numbers(self.choices, "columns", columns))
        self.tags = output_rows.case_tags(database, sweep.id)
        inputs = output_rows.first_case_input(database, sweep.id)
        visible = {key for key in output_rows.state_keys(database, sweep.id) if not is_hidden(key)}
        # Keys of the input come last: every combination has the same value there.
        self.known_keys = sorted(visible, key=lambda key: (key in inputs, key))
        self.keys = self._keys(keys, inputs)

    def _rows(self, rows: Sequence[int]) -> list[int]:
        row_count = len(self.choices)
        for row in rows:
            self._check_row("rows", row)
        if len(set(rows)) > documents.MOST_ROWS:
            raise InputError(
                f"rows has {len(set(rows))} combinations; expected at most {documents.MOST_ROWS}", argument="rows"
            )
        return list(dict.fromkeys(rows)) or list(range(min(row_count, documents.MOST_ROWS)))

    def _columns(self, columns: Sequence[int]) -> list[int]:
        for row in columns:
            if row not in self.rows:
                raise InputError(f"columns has {row}; expected some of rows", argument="columns")
        return list(dict.fromkeys(columns)) or self.rows

    def _check_row(self, argument: str, row: int) -> None:
        row_count = len(self.choices)
        if row >= row_count:
            raise InputError(f"{argument} {row}: the sweep has the rows 0 to {row_count - 1}", argument=argument)

    def _keys(self, keys: Sequence[str], inputs: Mapping[str, str]) -> list[str]:
        for key in keys:
            if is_hidden(key) or (self.known_keys and key not in self.known_keys):
                hint = did_you_mean(key, self.known_keys) or f"; it has {', '.join(self.known_keys)}"
                raise InputError(f"the final state has no key {key!r}{hint}", argument="keys")
        if len(set(keys)) > MOST_KEYS:
            raise InputError(f"keys has {len(set(keys))} keys; expected at most {MOST_KEYS}", argument="keys")
        scored = [field for field in self._scored_fields() if field in self.known_keys]
        output_keys = [key for key in self.known_keys if key not in inputs] or self.known_keys
        return list(dict.fromkeys(keys or scored or output_keys))[:MOST_KEYS]

    def _scored_fields(self) -> list[str]:
        """Return the keys of the state that evaluators name in their options."""
        options = [
            settings for evaluator in self._sweep.spec.get("evaluate") or () for settings in dict(evaluator).values()
        ]
        fields = [settings.get("field") for settings in options if isinstance(settings, Mapping)]
        return list(dict.fromkeys(field for field in fields if isinstance(field, str)))

    def pair(self, differ: Sequence[int | str]) -> tuple[int, int] | None:
        """Return the two combinations that must differ. Raises InputError."""
        if not differ:
            return None
        numbers = row_numbers(self.choices, "differ", differ)
        for row in numbers:
            self._check_row("differ", row)
        if len(numbers) != 2 or numbers[0] == numbers[1]:
            named = ", ".join(map(str, differ))
            raise InputError(f"differ is {named}; expected two combinations", argument="differ")
        return numbers[0], numbers[1]

    def checked_tag(self, tag: str | None) -> str | None:
        """Return the tag after a check that a case has it. Raises InputError."""
        if tag is not None and tag not in self.tags:
            hint = did_you_mean(tag, self.tags) or f"; they are: {', '.join(self.tags) or 'none'}"
            raise InputError(f"no case has the tag {tag!r}{hint}", argument="tag")
        return tag

    def worst(self, metric: str | None) -> output_rows.WorstFirst | None:
        """Return the order by a metric, worst first. Raises InputError."""
        if metric is None:
            return None
        from wtb.analysis.scores import Scores  # with numpy, which all other pages are read without

        scores = Scores(self._database, self._sweep)
        measure = scores.measures[scores.chosen_metric(metric)]
        return output_rows.WorstFirst(metric, measure.better == "lower", scores.failure_score(measure))

    def wrong(self, which: Literal["all", "none"] | None, metric: str | None) -> output_rows.WrongIn | None:
        """Return the filter by how many combinations are wrong. Raises InputError."""
        if which is None:
            if metric is not None:
                raise InputError("metric is that of wrong; expected wrong, too", argument="metric")
            return None
        from wtb.analysis.scores import Scores

        name = Scores(self._database, self._sweep).chosen_metric(metric)
        measure = self.measures[name]
        if measure.best is None:
            scaled = [other for other, candidate in self.measures.items() if candidate.best is not None]
            expected = f"expected one of {', '.join(scaled)}" if scaled else "no metric of the sweep has one"
            raise InputError(f"metric {name!r} has no scale, so no score of it is wrong; {expected}", argument="metric")
        return output_rows.WrongIn(which, name, measure.better == "lower", measure.best)

    def cases(self, places: Sequence[output_rows.Place]) -> list[documents.CaseOutputs]:
        """Return the cases at these places, with their cells."""
        cells = output_rows.output_cells(self._database, self._sweep.id, places, self.columns, self.keys)
        scores = output_rows.output_scores(self._database, self._sweep.id, places, self.columns, self.measures)
        numbers = {number for number, _ in places}
        comments = comments_by_place(self._database, self._sweep.id, numbers)
        rows = queries.case_rows(self._database, self._sweep.id, numbers)
        # Equal values of many cells are read once.
        digests = {digest for cell in cells for digest in cell.digests if digest is not None}
        digests |= {digest for row in rows.values() for digest in row.input.values()}
        values = _Values(output_rows.beginnings(self._database, digests))
        unknown = unknown_costs(self._database, self._sweep.id)
        priced = [not is_concerned(choices, unknown) for choices in self.choices]
        by_place: dict[output_rows.CellPlace, documents.CellOutputs] = {}
        for cell in cells:
            place = (cell.case_number, cell.repeat, cell.combination)
            is_priced = priced[cell.combination]
            made_cell = cell_outputs(cell, self.keys, values.get, scores.get(place, {}), is_priced=is_priced)
            by_place[place] = {**made_cell, "comments": comments[place]} if place in comments else made_cell
        case_values = {number: _case_values(self._sweep.id, row, values) for number, row in rows.items()}
        return [
            {
                "case": rows[number].id,
                "repeat": repeat,
                "tags": list(rows[number].tags or ()),
                "input": case_values[number][0],
                "expected": case_values[number][1],
                "cells": [by_place.get((number, repeat, row)) for row in self.columns],
            }
            for number, repeat in places
        ]


def _metric(measure: Measure) -> documents.OutputMetric:
    return {"better": measure.better} if measure.best is None else {"better": measure.better, "best": measure.best}


class _Values:
    """The values of a page. Each is made once, and only a cut one gets a path for each place where it stands."""

    def __init__(self, beginnings: Mapping[str, output_rows.Beginning]) -> None:
        self._beginnings = beginnings
        self._by_digest: dict[str, documents.OutputValue] = {}

    def get(self, digest: str, path: Callable[[], str]) -> documents.OutputValue:
        """Return a value by its digest; `path` makes the path to the whole of it."""
        value = self._by_digest.get(digest)
        if value is None:
            value = self._by_digest[digest] = output_value(self._beginnings[digest], "")
        return {**value, "whole": path()} if value["cut"] else value


def _case_values(
    sweep_id: str, case: CaseRow, values: _Values
) -> tuple[dict[str, documents.OutputValue], documents.OutputValue | None]:
    """Return the input and the expected value of a case."""
    visible_state = {
        key: values.get(digest, lambda key=key: path_of_case(sweep_id, case.id, key))  # type: ignore[misc]
        for key, digest in case.input.items()
    }
    expected = None if case.expected is None else value_of_text(case.expected, path_of_case(sweep_id, case.id, None))
    return visible_state, expected


def cell_outputs(
    cell: output_rows.OutputCell,
    keys: Collection[str],
    value: Callable[[str, Callable[[], str]], documents.OutputValue],
    scores: dict[str, documents.OutputScore],
    *,
    is_priced: bool,
) -> documents.CellOutputs:
    """Return the document of a cell.

    Args:
        cell: Its row.
        keys: The keys of the state whose digests it has, in their order.
        value: Returns a value by its digest, given what makes the path to the whole of it.
        scores: Its scores by metric.
        is_priced: Whether all prices of its combination are known.
    """
    execution = cell.execution_id or ""
    outputs: dict[str, documents.OutputValue] = {}
    for key, digest in zip(keys, cell.digests, strict=True):
        if digest is not None:
            outputs[key] = value(digest, lambda key=key: path_of_output(execution, key))  # type: ignore[misc]
    failure: Any = cell.failure
    return {
        "row": cell.combination,
        "status": cell.status,  # type: ignore[typeddict-item]
        "execution": cell.execution_id,
        "outputs": outputs,
        "scores": scores,
        "error": None if failure is None else str(Failure(**failure)),
        "latency_s": cell.elapsed_s,
        # Part of a cost would look like all of it, so a row without all prices shows none.
        "cost_usd": cell.usd if is_priced else None,
        "tokens_in": cell.tokens_in,
        "tokens_out": cell.tokens_out,
    }
