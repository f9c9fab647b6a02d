"""The combinations of variants that a sweep runs: the grid, a part of it, or a list.

A combination is a mapping from each varied node to the name of one of its variants. Within this module it is a number,
its rank in the full grid (mixed radix, the last node turning fastest), so that a hundred thousand of them are one
array, and only requested combinations are built. Callers first compare `count(...)`, which is arithmetic, with their
limit.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import shlex
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from wtb.core.errors import InputError, meant_or_known
from wtb.core.factors import labels_of, level_label, split_name
from wtb.core.frozen import frozen

Loc = tuple[str | int, ...]
# Prefixes a problem with its place (file and line, or key), as `Located.problem` does.
Report = Callable[[Loc, str], str]
Vary = Mapping[str, Sequence[str]]
Exclude = Sequence[Mapping[str, Sequence[str]]]

# Up to here a random draw enumerates all combinations, which is exact; beyond, it draws and rejects.
_ENUMERABLE = 100_000
_ENUMERABLE_AT_LAST = 10_000_000


@frozen
class Random:
    """`n` distinct combinations drawn with `seed`; the baseline is always one of them."""

    n: int
    seed: int = 0


AS_IS = "the workflow as it is"  # the name of the empty combination

# `is_step(node, variant, other)`: whether one-at-a-time goes from a variant of a node to another one.
IsStep = Callable[[str, str, str], bool]

Mode = Literal["grid", "one-at-a-time"] | Random | Sequence[Mapping[str, str]]


def in_words(choices: Mapping[str, str]) -> str:
    """Return a combination in words such as `retrieve=bm25 answer=terse`, with grid points by their levels."""
    return " ".join(f"{key}={label}" for key, label in labels_of(choices).items()) or AS_IS


def chosen_in_shell(choices: Mapping[str, str]) -> str:
    """Return options that choose a combination, or a part of it, quoted for shells: by levels if these suffice.

    Args:
        choices: Variants by node, or levels by `node.parameter`.

    Returns:
        For example `--combination answer.model=mini --combination 'answer.prompt=Be brief, please.'`.
    """
    pairs: list[tuple[str, str]] = []
    for key, variant in choices.items():
        base, levels = split_name(variant)
        if base is not None or not levels:
            pairs.append((key, variant))
        else:
            pairs += [(f"{key}.{parameter}", _plain_level(label)) for parameter, label in levels.items()]
    return " ".join(f"--combination {shlex.quote(f'{key}={text}')}" for key, text in pairs)


def _plain_level(label: str) -> str:
    """Return the text of a level without the quotes of its label, unless it would then be a level of another type."""
    text = json.loads(label) if label.startswith('"') else label
    return text if label in (text, level_label(text)) and not _is_json(text) else label


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


class Combinations:
    """The combinations of one sweep, in order; each is built when it is read."""

    def __init__(self, grid: _Grid, ranks: Sequence[int], baseline: int | None) -> None:
        self._grid = grid
        self._ranks = ranks
        self._baseline = baseline

    def __len__(self) -> int:
        return len(self._ranks)

    def __getitem__(self, position: int) -> dict[str, str]:
        return self._grid.combination(self._ranks[position])

    def __iter__(self) -> Iterator[dict[str, str]]:
        return map(self._grid.combination, self._ranks)

    @property
    def baseline(self) -> dict[str, str] | None:
        """The combination that the others are compared with; None if none was named and the default one is not run."""
        return None if self._baseline is None else self._grid.combination(self._baseline)


def count_grid(vary: Vary) -> int:
    """Return the number of combinations of the full grid, before exclusions."""
    return math.prod(len(names) for names in vary.values())


def count(vary: Vary, mode: Mode) -> int:
    """Return the largest number of combinations that `expand` can return, before exclusions, by arithmetic only."""
    if mode == "grid":
        return count_grid(vary)
    if mode == "one-at-a-time":
        return 1 + sum(len(names) - 1 for names in vary.values())
    if isinstance(mode, Random):
        return min(mode.n, count_grid(vary))
    return len(mode)


def expand(
    vary: Vary,
    mode: Mode = "grid",
    *,
    exclude: Exclude = (),
    baseline: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
    is_step: IsStep | None = None,
    report: Report,
) -> Combinations:
    """Return the combinations of a sweep in the order of its mode.

    Args:
        vary: Distinct variant names by node, none empty.
        mode: The grid, one at a time, a random sample, or a list.
        exclude: A combination is excluded if one of these mappings names one of its variants for every node in it.
        baseline: Variants of the baseline. For other nodes it has the node's own default, if that is varied, else the
            first listed variant.
        defaults: The default variants of nodes; without one it is the variant called `default`.
        is_step: With one at a time, only variants of a node for which this holds, seen from the baseline.
        report: Prefixes problems with their place.

    Raises:
        InputError: With all problems at once: unknown nodes and variants, a named baseline that is not run, a
            combination that is listed twice, and an empty result.
    """
    grid = _Grid(vary)
    problems = [*_unknown_in(vary, mode, exclude, baseline or {}, report)]
    if problems:
        raise InputError(*problems)
    rules = [grid.rule(exclusion) for exclusion in exclude]
    own = defaults or {}
    unnamed = {node: _default(names, own.get(node, "default")) for node, names in vary.items()}
    base = grid.rank(unnamed | dict(baseline or {}))
    ranks = _ranks(grid, mode, rules, base, report)
    if mode == "one-at-a-time" and is_step is not None:
        ranks = [rank for rank in ranks if grid.is_step(base, rank, is_step)]
    if not ranks:
        raise InputError(report(("exclude",), "every combination is excluded; expected at least one left"))
    if base in ranks:
        return Combinations(grid, ranks, base)
    # An error only if a baseline was named, or the sweep is built around it.
    if baseline or mode == "one-at-a-time":
        named = ", ".join(f"{node}={name}" for node, name in grid.combination(base).items())
        why = "it is excluded" if grid.excluded(base, rules) else "it is not listed under 'combinations'"
        text = f"a baseline that is not in the sweep ({named}): {why}; expected a combination that is run"
        raise InputError(report(("baseline",), text))
    return Combinations(grid, ranks, None)


class _Grid:
    """The full grid as numbers: a rank for each combination, a digit for each node."""

    def __init__(self, vary: Vary) -> None:
        self.nodes = tuple(vary)
        self.names = tuple(tuple(names) for names in vary.values())
        self.sizes = tuple(len(names) for names in self.names)
        self.total = math.prod(self.sizes)
        # A step of a node's digit moves the rank by the product of the sizes of all nodes that turn faster.
        self.steps = tuple(math.prod(self.sizes[place + 1 :]) for place in range(len(self.sizes)))

    def digits(self, rank: int) -> tuple[int, ...]:
        return tuple(rank // step % size for step, size in zip(self.steps, self.sizes, strict=True))

    def combination(self, rank: int) -> dict[str, str]:
        picked = (names[digit] for names, digit in zip(self.names, self.digits(rank), strict=True))
        return dict(zip(self.nodes, picked, strict=True))

    def rank(self, combination: Mapping[str, str]) -> int:
        places = zip(self.nodes, self.names, self.steps, strict=True)
        return sum(names.index(combination[node]) * step for node, names, step in places)

    def is_step(self, base: int, rank: int, is_step: IsStep) -> bool:
        """Return whether all differences between two combinations are steps."""
        before, after = self.combination(base), self.combination(rank)
        return all(is_step(node, before[node], after[node]) for node in self.nodes if before[node] != after[node])

    def rule(self, exclusion: Mapping[str, Sequence[str]]) -> _Rule:
        """Return an exclusion as (place of the node, digits of the named variants)."""
        places = {node: place for place, node in enumerate(self.nodes)}
        return [
            (places[node], frozenset(self.names[places[node]].index(name) for name in names))
            for node, names in exclusion.items()
        ]

    def excluded(self, rank: int, rules: Sequence[_Rule]) -> bool:
        return bool(rules) and _matches(self.digits(rank), rules)

    def allowed(self, rules: Sequence[_Rule]) -> Sequence[int]:
        """Return the ranks of the whole grid that no rule excludes, in order."""
        if not rules:
            return range(self.total)
        # The product turns the last node fastest, so it enumerates the ranks in order. An array takes 8 bytes for each.
        every = itertools.product(*map(range, self.sizes))
        return array("q", (rank for rank, digits in enumerate(every) if not _matches(digits, rules)))


_Rule = list[tuple[int, frozenset[int]]]


def _matches(digits: tuple[int, ...], rules: Sequence[_Rule]) -> bool:
    return any(all(digits[place] in named for place, named in rule) for rule in rules)


def _ranks(grid: _Grid, mode: Mode, rules: Sequence[_Rule], base: int, report: Report) -> Sequence[int]:
    """Return the ranks of the combinations to run, in the order of the mode."""
    if mode == "grid":
        return grid.allowed(rules)
    if mode == "one-at-a-time":
        return [rank for rank in _around(grid, base) if not grid.excluded(rank, rules)]
    if isinstance(mode, Random):
        return _draw(grid, mode, rules, base, report)
    return _listed(grid, mode, rules, base, report)


def _around(grid: _Grid, base: int) -> Iterable[int]:
    yield base
    for digit, size, step in zip(grid.digits(base), grid.sizes, grid.steps, strict=True):
        yield from (base + (other - digit) * step for other in range(size) if other != digit)


def _draw(grid: _Grid, mode: Random, rules: Sequence[_Rule], base: int, report: Report) -> Sequence[int]:
    """Draw distinct ranks that no rule excludes, including the baseline. Raises InputError if too few are left."""
    rng = random.Random(mode.seed)
    # A sample without the baseline would have nothing to be compared with.
    drawn = set() if grid.excluded(base, rules) else {base}
    if grid.total > max(_ENUMERABLE, 4 * mode.n):
        # Most draws of a large grid are new; the bound is for exclusions that leave little of it.
        draws = 20 * mode.n + 1_000
        while len(drawn) < mode.n and draws:
            draws -= 1
            rank = rng.randrange(grid.total)
            if not grid.excluded(rank, rules):
                drawn.add(rank)
        if len(drawn) == mode.n:
            return sorted(drawn)
        if grid.total > _ENUMERABLE_AT_LAST:
            text = (
                f"nearly all of {grid.total:,} combinations are excluded: found {len(drawn):,} of {mode.n:,}"
                "; expected fewer exclusions, or the combinations as a list"
            )
            raise InputError(report(("combinations",), text))
    rest = [rank for rank in grid.allowed(rules) if rank not in drawn]
    return sorted(drawn.union(rng.sample(rest, min(mode.n - len(drawn), len(rest)))))


def _listed(
    grid: _Grid, combinations: Sequence[Mapping[str, str]], rules: Sequence[_Rule], base: int, report: Report
) -> Sequence[int]:
    """Return the ranks of listed combinations. Raises InputError for one that is listed twice."""
    first: dict[int, int] = {}
    problems: list[str] = []
    default = grid.combination(base)
    for position, combination in enumerate(combinations):
        rank = grid.rank(default | dict(combination))
        if (before := first.setdefault(rank, position)) != position:
            named = ", ".join(f"{node}={name}" for node, name in grid.combination(rank).items())
            text = f"{named} twice (item {position + 1} is item {before + 1}); expected each once"
            problems.append(report(("combinations", position), text))
    if problems:
        raise InputError(*problems)
    return [rank for rank in first if not grid.excluded(rank, rules)]


def _default(names: Sequence[str], own: str) -> str:
    return own if own in names else names[0]


def _unknown_in(vary: Vary, mode: Mode, exclude: Exclude, baseline: Mapping[str, str], report: Report) -> Iterator[str]:
    """Yield a problem for every node or variant that is not in `vary`."""
    named: list[tuple[Loc, str, Sequence[str]]] = []
    for position, rule in enumerate(exclude):
        named += [(("exclude", position, node), node, names) for node, names in rule.items()]
    named += [(("baseline", node), node, [name]) for node, name in baseline.items()]
    if not isinstance(mode, str | Random):
        for position, combination in enumerate(mode):
            named += [(("combinations", position, node), node, [name]) for node, name in combination.items()]
    for loc, node, names in named:
        if node not in vary:
            yield report(loc, f"no node '{node}' under 'vary'{meant_or_known(node, vary)}")
            continue
        for name in names:
            if name not in vary[node]:
                text = f"no variant '{name}' of node '{node}' under 'vary'{meant_or_known(name, vary[node])}"
                yield report(loc, text)
