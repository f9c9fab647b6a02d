"""The sweep file: its keys, their defaults, and the errors for everything else.

`load_spec` reads a file and `parse_spec` a mapping; both return a SweepSpec or raise one InputError with all problems,
each a line with the place, the value and the expectation. The user's code is not imported here: whether a node,
variant, parameter or evaluator exists is checked later, with `spec.located.problem(loc, text)` for the line. `loc` is
the path of keys in the file, such as `("vary", "retrieve", 2)`; positions in lists stay as written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PrivateAttr,
    Tag,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from wtb.config.field_types import (
    DURATION,
    LIST,
    MAPPING,
    WORD,
    Name,
    NotEmpty,
    Params,
    Positive,
    Seed,
    Strict,
    Text,
    bounded,
    condition,
    expected,
    form_of,
    lines,
    problem,
    seconds,
    stored,
)
from wtb.config.run_options import (
    JudgingLimits,
    Limits,
    NodeLimits,
    Recycle,
    Redact,
    Rlimits,
    Run,
    ServerName,
    TimedCheckpoints,
    ToolServer,
    Workspace,
)
from wtb.config.yaml_reader import Document, Loc, Located, parse, read
from wtb.core.errors import InputError, describe, meant_or_known
from wtb.core.factors import with_texts
from wtb.core.scoring.failure_scores import KINDS
from wtb.core.scoring.scores import BY_HAND, ON_FAILURE, OnFailure, failure_score
from wtb.core.tree import stored_spec
from wtb.core.tree.combinations import Mode, Random
from wtb.core.tree.stored_spec import StoredSpec
from wtb.core.values import Json, SweepKeys
from wtb.planning.case_columns import CaseTable, ColumnNames
from wtb.planning.parameter_files import check_texts, read_parameter_files, unread_problems
from wtb.planning.variant_forms import (
    KEYS_ARE_NODES,
    Choice,
    Grid,
    Rule,
    Unsettled,
    VariantRef,
    Vary,
    distinct,
    mark_choices,
    mark_vary,
    read_gate,
)

Variant = str | Mapping[str, Json]  # as a sweep file has it: a name, an import path, or a mapping with parameters


def _evaluator(form: object) -> object:
    """Convert the three ways to write an evaluator to the fields of EvaluatorRef."""
    if isinstance(form, EvaluatorRef):
        return form
    if isinstance(form, str):
        return {"name": form}
    if isinstance(form, dict) and len(form) == 1:
        ((name, options),) = form.items()
        if isinstance(options, list):  # such as `all_of: [...]`
            options = {"of": options}
        return {"name": name, "options": {} if options is None else _options(name, options)}
    raise expected("a name, an import path 'pkg.mod:fn', or one name with a mapping of options")


def _options(name: object, options: object) -> object:
    """Check the options of an evaluator, and convert a timeout to seconds."""
    if not isinstance(options, dict):
        raise problem(f"{describe(options)}; expected a mapping of options", at=(str(name),))
    if isinstance(options, dict) and "timeout" in options:
        try:
            options = {**options, "timeout": seconds(options["timeout"])}
        except PydanticCustomError:
            raise problem(f"{describe(options['timeout'])}; expected {DURATION}", at=(str(name), "timeout")) from None
    return stored({str(name): options})[str(name)]


def _on_failure(policy: object) -> object:
    score = failure_score(policy)
    if score is None:
        raise expected(ON_FAILURE)
    return score


def _kind(kind: object) -> object:
    if kind not in KINDS:
        raise expected(f"a kind of failure: {', '.join(KINDS)}")
    return kind


def _agreement(agreement: object) -> object:
    """Check the agreement with people that gates require of scores."""
    if agreement == BY_HAND or (
        isinstance(agreement, int | float) and not isinstance(agreement, bool) and -1 <= agreement <= 1
    ):
        return agreement
    raise expected(f"an agreement from -1 to 1, or '{BY_HAND}'")


class EvaluatorRef(Strict):
    """One evaluator: a name or an import path, and its options."""

    name: Name
    options: dict[str, Json] = {}

    @model_serializer
    def _as_written(self) -> dict[str, Json]:
        return {self.name: self.options}


class RandomDraw(Strict):
    """`n` distinct combinations, drawn with `seed`."""

    n: Positive = Field(description="how many combinations to draw")
    seed: Seed = 0


class RandomMode(Strict):
    """`combinations: {random: {n: 20, seed: 7}}`."""

    random: RandomDraw = Field(description="{n: 20, seed: 7}")


class Best(Strict):
    """The combination that the sweep is to find: the best by one metric of those for which `subject_to` holds.

    Without a named metric it is the deciding one. With a `margin` of that metric it is the cheapest combination that is
    shown to be within it of the best.
    """

    maximize: Name | None = None
    minimize: Name | None = None
    subject_to: Annotated[str, BeforeValidator(condition)] | None = None

    @model_validator(mode="after")
    def _one_metric(self) -> Best:
        if self.maximize is not None and self.minimize is not None:
            raise problem("both of 'maximize' and 'minimize'; expected one of them, with the name of a metric")
        if not self.model_fields_set:
            raise problem("neither of 'maximize' and 'minimize'; expected one of them, with the name of a metric")
        return self

    @property
    def metric(self) -> str:
        return self.maximize or self.minimize or ""


Occasion = Literal["stalled", "question", "budget", "paused", "failed", "completed"]


class Notify(Strict):
    """Notifications with their target: a URL or a command.

    Attributes:
        to: The target.
        on: The events that are notified.
        allow_private: True if the URL may lead to an address that is not public.
        payload: The format of the request to the URL.
    """

    to: Text = Field(description="an http or https URL, or a command")
    on: Annotated[tuple[Occasion, ...], NotEmpty] = get_args(Occasion)
    allow_private: Annotated[bool, Field(strict=True)] = False
    payload: Literal["json", "slack", "teams"] | None = Field(default=None, description="json, slack or teams")


def _notify(recipient: object) -> object:
    if isinstance(recipient, str):
        return {"to": recipient}
    if not isinstance(recipient, dict | Notify):
        raise expected("a URL, a command, or a mapping with 'to', 'on', 'allow_private' and 'payload'")
    if isinstance(recipient, dict) and (unknown := [key for key in recipient if key not in Notify.model_fields]):
        raise problem(f"unknown key '{unknown[0]}'{meant_or_known(str(unknown[0]), Notify.model_fields)}")
    if isinstance(recipient, dict) and "to" not in recipient:
        raise problem("no 'to'; expected a URL or a command")
    return recipient


_Notify = Annotated[Notify, BeforeValidator(_notify)]
_Combination = Annotated[dict[Name, Choice], NotEmpty, BeforeValidator(mark_choices)]
_Combinations = Annotated[
    Annotated[Literal["grid", "one-at-a-time"], Tag(WORD)]
    | Annotated[RandomMode, Tag(MAPPING)]
    | Annotated[tuple[_Combination, ...], NotEmpty, BeforeValidator(bounded), Tag(LIST)],
    form_of("grid, one-at-a-time, random: {n: 20, seed: 7} or a list of mappings", "grid", "one-at-a-time"),
]
_OnFailure = Annotated[OnFailure, BeforeValidator(_on_failure)]
_Kind = Annotated[str, BeforeValidator(_kind)]
_Evaluator = Annotated[EvaluatorRef, BeforeValidator(_evaluator)]
_Gate = Annotated[str, BeforeValidator(read_gate)]
_CASES = "a file, an import path 'pkg.mod:fn' or a list of cases"
_Cases = Annotated[
    Annotated[Text, Tag(WORD)] | Annotated[tuple[Any, ...], Tag(LIST)] | Annotated[CaseTable, Tag(MAPPING)],
    form_of(_CASES),
]


class SweepSpec(Strict):
    """The contents of a sweep file, with defaults. Durations are in seconds.

    `model_dump(mode="json")` returns a mapping that `parse_spec` reads back as an equal SweepSpec.
    """

    sweep: Name = "sweep"
    project: Name | None = None
    session: Name | None = None
    workflow: Text = Field(description="an import path 'pkg.mod:attr' or a registered name")
    params: Params = {}
    cases: _Cases = Field(description=_CASES)
    columns: ColumnNames = {}
    files_from: Annotated[tuple[Text, ...], BeforeValidator(bounded)] = ()
    equal_inputs: Literal["cluster", "independent"] = Field(default="cluster", description="cluster or independent")
    vary: Annotated[dict[Name, Vary], BeforeValidator(mark_vary)] = Field(
        min_length=1, description="a mapping from nodes to 'all', a list of variants or a grid of levels"
    )
    exclude: Annotated[tuple[Rule, ...], BeforeValidator(bounded)] = ()
    combinations: _Combinations = "grid"
    repeats: Positive = 1
    seed: Seed = 0
    baseline: Annotated[dict[Name, Choice], BeforeValidator(mark_choices)] = {}
    evaluate: Annotated[tuple[_Evaluator, ...], BeforeValidator(bounded), AfterValidator(distinct)] = ()
    primary: Name | None = None
    on_failure: _OnFailure | None = None
    failure_kinds: dict[_Kind, Literal["result", "missing"]] = {}
    best: Best | None = None
    gates: Annotated[tuple[_Gate, ...], BeforeValidator(bounded)] = ()
    margin: dict[Name, Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]] = {}
    agreement: dict[Name, Annotated[float | str, BeforeValidator(_agreement)]] = {}
    holdout: Annotated[float, Field(strict=True, gt=0, lt=1)] | None = None
    stop: Literal["when_known"] | None = Field(default=None, description="when_known")
    notify: Annotated[tuple[_Notify, ...], BeforeValidator(bounded)] = ()
    mcp: dict[ServerName, ToolServer] = {}
    limits: Limits = Limits()
    run: Run = Run()
    redact: Redact = Redact()
    texts: Annotated[dict[str, str], AfterValidator(check_texts)] = {}

    _located: Located = PrivateAttr(default_factory=Located)
    _fork_variants: Mapping[str, Sequence[VariantRef]] = PrivateAttr(default_factory=dict)

    @property
    def fork_variants(self) -> Mapping[str, Sequence[VariantRef]]:
        """Variants by node that people made for forks. They are not part of the sweep's variation."""
        return self._fork_variants

    def with_fork_variants(self, refs: Mapping[str, Sequence[VariantRef]]) -> SweepSpec:
        """Return the sweep with variants that people made for forks."""
        changed = self.model_copy()
        # A private attribute, so that the stored sweep does not depend on forks.
        changed._fork_variants = refs
        return changed

    def with_texts(self, texts: Mapping[str, str]) -> SweepSpec:
        """Return the sweep with the texts of further files, by SHA-256."""
        return self.model_copy(update={"texts": {**self.texts, **texts}}) if texts else self

    @property
    def variants(self) -> Mapping[str, Literal["all"] | Sequence[VariantRef]]:
        """Varied nodes of a sweep without grids: of a `Bound`, or as it is stored."""
        vary = self.vary.values()
        assert not any(isinstance(listed, Unsettled) for listed in vary), (
            "keys with dots are settled when a sweep is bound"
        )
        return cast("Mapping[str, Literal['all'] | Sequence[VariantRef]]", self.vary)

    @property
    def has_factors(self) -> bool:
        """True if parts of it need the names of nodes: grids, and keys with dots."""
        vary = self.vary.values()
        listed = self.combinations if isinstance(self.combinations, tuple) else ()
        choices: list[Mapping[str, Any]] = [self.baseline, *self.exclude, *listed]
        return any(
            isinstance(listed, Unsettled) or any(not isinstance(ref, VariantRef) for ref in listed if listed != "all")
            for listed in vary
        ) or any(isinstance(named, Unsettled) for choice in choices for named in choice.values())

    @property
    def located(self) -> Located:
        """Names of places in the file, or of keys, for problems that are found later."""
        return self._located

    @property
    def folder(self) -> Path:
        """Folder that paths in the sweep are relative to: the file's, else the working directory."""
        return Path(self._located.document.file).parent if self._located.document else Path()

    def as_stored(self) -> StoredSpec:
        """Return it as JSON, without notifications, because their URLs may be secrets."""
        excluded = {"notify"} if self.texts else {"notify", "texts"}
        return cast("StoredSpec", self.model_dump(mode="json", exclude=excluded))

    @property
    def mode(self) -> Mode:
        """`combinations` as `wtb.core.tree.combinations.expand` accepts it."""
        if isinstance(self.combinations, RandomMode):
            return Random(self.combinations.random.n, self.combinations.random.seed)
        return cast("Mode", self.combinations)


class SingleSpec(SweepSpec):
    """A single execution as a sweep of one cell, which varies nothing but explicit choices."""

    vary: Annotated[dict[Name, Vary], BeforeValidator(mark_vary)] = {}


class _Sections(dict[Loc, type[BaseModel]]):
    """Models by their place in the file; nodes and servers have names that users choose."""

    def __missing__(self, loc: Loc) -> type[BaseModel]:
        if loc[:2] == ("limits", "nodes") and len(loc) == 3:
            return NodeLimits
        if loc[:1] == ("mcp",) and len(loc) == 2:
            return ToolServer
        raise KeyError(loc)


_PLACES: dict[Loc, type[BaseModel]] = {
    (): SweepSpec,
    ("cases",): CaseTable,
    ("best",): Best,
    ("limits",): Limits,
    ("limits", "judging"): JudgingLimits,
    ("run",): Run,
    ("redact",): Redact,
    ("run", "rlimits"): Rlimits,
    ("run", "workspace"): Workspace,
    ("run", "recycle"): Recycle,
    ("run", "checkpoints"): TimedCheckpoints,
    ("combinations",): RandomMode,
    ("combinations", "random"): RandomDraw,
}
_SECTIONS = _Sections(_PLACES)


def load_spec(path: Path) -> SweepSpec:
    """Read a sweep file; its name is that of the file unless it says otherwise. Raises InputError."""
    return spec_of(read(path))


def spec_of(document: Document) -> SweepSpec:
    """Return the sweep that a document describes. Raises InputError with all problems."""
    named = {"sweep": Path(document.file).stem.removesuffix(".sweep")}
    return read_spec(named | document.data, Path(document.file).parent, Located(document))


def read_spec(keys: SweepKeys, folder: Path, located: Located) -> SweepSpec:
    """Read the keys of a sweep file, and the files that its parameters name. Raises InputError with all problems."""
    return _validated(read_parameter_files(keys, folder, located), located)


def parse_spec(keys: SweepKeys, where: str = "", *, is_stored: bool = False) -> SweepSpec:
    """Parse a mapping with the keys of the file.

    Args:
        keys: The mapping.
        where: Its name in messages.
        is_stored: True if it was bound to its code, so that keys with dots are nodes.
    """
    return _validated(keys, Located(where=where), context={KEYS_ARE_NODES: True} if is_stored else None)


def parse_single(keys: SweepKeys, where: str = "", *, is_stored: bool = False) -> SweepSpec:
    """Parse a single execution, which need not vary anything."""
    return _validated(keys, Located(where=where), SingleSpec, {KEYS_ARE_NODES: True} if is_stored else None)


_FILLER: Final = {"workflow": "a:b", "cases": "a", "vary": {"a": "all"}}  # what a part of a sweep lacks


def parse_part(text: str, where: str) -> SweepSpec:
    """Parse a part of a sweep, as YAML on a command line. Raises InputError."""
    return _validated(_FILLER | parse(text.encode(), where).data, Located(where=where))


def read_limits(limits: stored_spec.Limits) -> stored_spec.Limits:
    """Check limits as a sweep file writes them and return those that are set; null removes one. Raises InputError."""
    try:
        spec = _validated(_FILLER | {"limits": dict(limits)}, Located())
    except InputError as error:
        raise InputError(*error.problems, argument="limits") from None
    stored_limits = spec.limits.model_dump(exclude_unset=True, exclude={"cell_timeout"})
    return cast("stored_spec.Limits", stored_limits)


def read_evaluators(evaluators: Sequence[str | Mapping[str, Any]]) -> Sequence[EvaluatorRef]:
    """Read evaluators as a sweep file has them. Raises InputError."""
    return _validated(_FILLER | {"evaluate": list(evaluators)}, Located()).evaluate


def load_evaluators(path: Path) -> Sequence[EvaluatorRef]:
    """Read the evaluators of a sweep file, with the texts of the files that their options name. Raises InputError."""
    spec = load_spec(path)
    return [
        evaluator.model_copy(update={"options": with_texts(evaluator.options, spec.texts)})
        for evaluator in spec.evaluate
    ]


def derived(form: Variant, of_forks: Sequence[Mapping[str, Json]]) -> Variant:
    """Return a variant that derives from a fork's variant as one that derives from that variant's base."""
    if isinstance(form, str):
        return form
    base = next((fork for fork in of_forks if fork["name"] == form.get("of")), None)
    return form if base is None else {**base, **{key: content for key, content in form.items() if key != "of"}}


def read_variants(
    variants: Mapping[str, Sequence[Variant]], texts: Mapping[str, str] | None = None
) -> Mapping[str, Sequence[VariantRef]]:
    """Read variants by node as a sweep file writes them. `texts` has the files that they name. Raises InputError."""
    keys = _FILLER | {"vary": {node: list(forms) for node, forms in variants.items()}, "texts": dict(texts or {})}
    vary = _validated(keys, Located(), SingleSpec, {KEYS_ARE_NODES: True}).variants
    listed = {node: refs for node, refs in vary.items() if not isinstance(refs, str)}
    if grids := [node for node, refs in listed.items() if not all(isinstance(ref, VariantRef) for ref in refs)]:
        raise InputError(f"{', '.join(grids)}: a grid of levels; expected a single variant, or NODE.PARAMETER: LEVEL")
    return listed


def read_node_variants(node: str, listed: Any, located: Located) -> Sequence[VariantRef | Grid]:
    """Read the variation of a node whose name has a dot. Raises InputError, with places in the sweep file."""
    keys = _FILLER | {"vary": {node: listed}}
    return cast("Sequence[VariantRef | Grid]", _validated(keys, located, SingleSpec, {KEYS_ARE_NODES: True}).vary[node])


def _validated(
    keys: SweepKeys,
    located: Located,
    model: type[SweepSpec] = SweepSpec,
    context: Mapping[str, bool] | None = None,
) -> SweepSpec:
    if problems := list(unread_problems(keys, located)):
        raise InputError(*problems)
    try:
        spec = model.model_validate(keys, context=context)
    except ValidationError as error:
        # If the file is valid otherwise, binding it to its code finds these. Here they join the other problems.
        unknown = _unknown_evaluators(keys, located)
        problems = lines(error, located, _SECTIONS, except_at=unknown)
        raise InputError(*problems, *unknown.values()) from None
    spec._located = located
    return spec


def _unknown_evaluators(keys: SweepKeys, located: Located) -> dict[Loc, str]:
    """Return the problems of evaluators' names, by place."""
    from wtb.authoring.evaluation.declarations import unknown_evaluator  # which takes its time to import

    problems: dict[Loc, str] = {}
    written = keys.get("evaluate")
    for number, evaluator in enumerate(written if isinstance(written, list) else ()):
        name = next(iter(evaluator), None) if isinstance(evaluator, dict) and len(evaluator) == 1 else evaluator
        wrong = unknown_evaluator(name) if isinstance(name, str) else None
        if wrong is not None:
            problems["evaluate", number] = located.problem(("evaluate", number), wrong)
    return problems
