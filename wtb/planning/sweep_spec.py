"""The sweep file: what may stand in it, its defaults, and the errors for what may not.

`load_spec` reads a file and `parse_spec` a mapping; both give a SweepSpec or one InputError with all
problems, each a line that names the place, what was found and what is expected. The user's code is not
imported here: whether a node, variant, parameter or evaluator exists is asked later, with
`spec.located.problem(loc, text)` to name the line. `loc` is the path of keys in the file, such as
`("vary", "retrieve", 2)`; positions in lists stay what they were.
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
    VariantName,
    bounded,
    condition,
    form_of,
    import_path,
    is_import_path,
    name_of,
    one_or_more,
    seconds,
    stored,
    variant_name,
)
from wtb.config.keeping.redaction import Redact
from wtb.config.run_options import (
    JudgingLimits,
    Limits,
    NodeLimits,
    Recycle,
    Rlimits,
    Run,
    ServerName,
    TimedCheckpoints,
    ToolServer,
    Workspace,
)
from wtb.config.validation_messages import expected, lines, problem
from wtb.config.yaml_reader import Document, Loc, Located, parse, read
from wtb.core.errors import InputError, describe, meant_or_known
from wtb.core.factors.factors import levels_of
from wtb.core.scoring.failure_scores import KINDS
from wtb.core.scoring.judgement import BY_HAND
from wtb.core.scoring.scales import ON_FAILURE, OnFailure, failure_score
from wtb.core.tree import stored_spec
from wtb.core.tree.combinations import Mode, Random
from wtb.core.tree.stored_spec import StoredSpec

Variant = str | Mapping[str, Any]  # as a sweep file has it: a name, an import path, or a mapping with parameters

NO_WORSE_THAN = "no_worse_than"  # a gate: not worse than a baseline


def baseline_of(gate: str) -> str | None:
    """The name of the baseline that a gate asks for; None where the gate is a condition."""
    key, _, name = gate.partition(":")
    return name.strip() if key.strip() == NO_WORSE_THAN else None


def _variant(item: object) -> object:
    """The three ways to write a variant, as the fields of VariantRef."""
    if isinstance(item, VariantRef):
        return item
    if isinstance(item, str):
        return {"name": variant_name(item), "with": item if is_import_path(item) else None}
    if not isinstance(item, dict):
        raise expected("the name of a variant, an import path 'pkg.mod:fn' or a mapping with 'name'")
    if "name" not in item:
        raise problem("no 'name'; expected the name of the variant")
    if item.get("with") is not None and item.get("of") is not None:
        raise problem("both 'with' and 'of'; expected one of them")
    own = {key: item[key] for key in ("name", "with", "of") if key in item}
    if levels := levels_of(item):  # a grid point, as it is stored
        return own | {"params": stored(levels), "levels": levels}
    return own | {"params": stored({key: value for key, value in item.items() if key not in own})}


def _evaluator(item: object) -> object:
    """The three ways to write an evaluator, as the fields of EvaluatorRef."""
    if isinstance(item, EvaluatorRef):
        return item
    if isinstance(item, str):
        return {"name": item}
    if isinstance(item, dict) and len(item) == 1:
        ((name, options),) = item.items()
        if isinstance(options, list):  # such as `all_of: [...]`
            options = {"of": options}
        return {"name": name, "options": {} if options is None else _options(name, options)}
    raise expected("a name, an import path 'pkg.mod:fn', or one name with a mapping of options")


def _options(name: object, options: object) -> object:
    """Check the options of an evaluator; a timeout becomes seconds."""
    if isinstance(options, dict) and "timeout" in options:
        try:
            options = {**options, "timeout": seconds(options["timeout"])}
        except PydanticCustomError:
            raise problem(f"{describe(options['timeout'])}; expected {DURATION}", at=(str(name), "timeout")) from None
    return stored({str(name): options})[str(name)]


def _on_failure(value: object) -> object:
    score = failure_score(value)
    if score is None:
        raise expected(ON_FAILURE)
    return score


def _kind(value: object) -> object:
    if value not in KINDS:
        raise expected(f"a kind of failure: {', '.join(KINDS)}")
    return value


def _gate(item: object) -> object:
    """A gate: a condition, or `no_worse_than: NAME`, as text or as a mapping."""
    if isinstance(item, dict) and list(item) == [NO_WORSE_THAN]:
        return f"{NO_WORSE_THAN}: {name_of(item[NO_WORSE_THAN])}"
    if isinstance(item, str):
        name = baseline_of(item)
        return condition(item) if name is None else f"{NO_WORSE_THAN}: {name_of(name)}"
    raise expected(f"a comparison such as 'ndcg.mean >= 0.25', or '{NO_WORSE_THAN}: NAME' of a baseline")


def _agreement(value: object) -> object:
    """How far scores have to agree with people before gates rest on them."""
    if value == BY_HAND or (isinstance(value, int | float) and not isinstance(value, bool) and -1 <= value <= 1):
        return value
    raise expected(f"an agreement from -1 to 1, or '{BY_HAND}'")


def _distinct(refs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuses a variant of the same name, or an evaluator with the same options, as one before it."""
    seen: set[str] = set()
    for position, ref in enumerate(refs):
        key = ref.name if isinstance(ref, VariantRef) else repr(ref)
        if key in seen:
            raise problem(f"'{ref.name}' a second time; expected each once", at=(position,))
        seen.add(key)
    return refs


class VariantRef(Strict):
    """One variant of a varied node.

    With `source` (an import path), `of` (the variant it derives from) or `params` the sweep makes it;
    otherwise it is the workflow's own of that name. levels: of a grid point, whose parameters they are, in declared
    order.
    """

    name: Name
    source: Annotated[str, BeforeValidator(import_path)] | None = Field(default=None, validation_alias="with")
    of: VariantName | None = None
    params: dict[str, Any] = {}
    levels: dict[str, Any] = {}

    @property
    def is_own(self) -> bool:
        """Whether the workflow must have it."""
        return self.source is None and self.of is None and not self.params

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        extra = {"with": self.source, "of": self.of}
        made = {"name": self.name} | {key: text for key, text in extra.items() if text}
        # As pairs, since PostgreSQL keeps no order of keys.
        return made | ({"levels": [list(pair) for pair in self.levels.items()]} if self.levels else self.params)


class EvaluatorRef(Strict):
    """One evaluator: a name or an import path, and its options."""

    name: Name
    options: dict[str, Any] = {}

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        return {self.name: self.options}


class RandomDraw(Strict):
    """`n` distinct combinations, drawn with `seed`."""

    n: Positive = Field(description="how many combinations to draw")
    seed: Seed = 0


class RandomMode(Strict):
    """`combinations: {random: {n: 20, seed: 7}}`."""

    random: RandomDraw = Field(description="{n: 20, seed: 7}")


class Best(Strict):
    """Which combination the sweep is to find: of those for which `subject_to` holds, the best by one metric.

    That is the metric that decides where none is named. indifferent: of those that are worse than the best by no more
    than this, the one that costs least.
    """

    maximize: Name | None = None
    minimize: Name | None = None
    subject_to: Annotated[str, BeforeValidator(condition)] | None = None
    indifferent: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] | None = None

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
    """Notifications, and the target that they go to: a URL or a command.

    allow_private: the URL may lead to an address that is not public. payload: the form of what the URL is sent.
    """

    to: Text = Field(description="an http or https URL, or a command")
    on: Annotated[tuple[Occasion, ...], NotEmpty] = get_args(Occasion)
    allow_private: Annotated[bool, Field(strict=True)] = False
    payload: Literal["json", "slack", "teams"] | None = Field(default=None, description="json, slack or teams")


def _notify(item: object) -> object:
    if isinstance(item, str):
        return {"to": item}
    if not isinstance(item, dict | Notify):
        raise expected("a URL, a command, or a mapping with 'to', 'on', 'allow_private' and 'payload'")
    if isinstance(item, dict) and (unknown := [key for key in item if key not in Notify.model_fields]):
        raise problem(f"unknown key '{unknown[0]}'{meant_or_known(str(unknown[0]), Notify.model_fields)}")
    if isinstance(item, dict) and "to" not in item:
        raise problem("no 'to'; expected a URL or a command")
    return item


_Notify = Annotated[Notify, BeforeValidator(_notify)]
_OneOrMore = Annotated[tuple[VariantName, ...], NotEmpty, BeforeValidator(one_or_more)]
_Variant = Annotated[VariantRef, BeforeValidator(_variant)]
_Variants = Annotated[tuple[_Variant, ...], NotEmpty, BeforeValidator(bounded), AfterValidator(_distinct), Tag(LIST)]
_Vary = Annotated[
    Annotated[Literal["all"], Tag(WORD)] | _Variants, form_of("the word 'all' or a list of variants", "all")
]
_Rule = Annotated[dict[Name, _OneOrMore], NotEmpty]
_Combination = Annotated[dict[Name, VariantName], NotEmpty]
_Combinations = Annotated[
    Annotated[Literal["grid", "one-at-a-time"], Tag(WORD)]
    | Annotated[RandomMode, Tag(MAPPING)]
    | Annotated[tuple[_Combination, ...], NotEmpty, BeforeValidator(bounded), Tag(LIST)],
    form_of("grid, one-at-a-time, random: {n: 20, seed: 7} or a list of mappings", "grid", "one-at-a-time"),
]
_OnFailure = Annotated[OnFailure, BeforeValidator(_on_failure)]
_Kind = Annotated[str, BeforeValidator(_kind)]
_Evaluator = Annotated[EvaluatorRef, BeforeValidator(_evaluator)]
_Gate = Annotated[str, BeforeValidator(_gate)]
_CASES = "a file, an import path 'pkg.mod:fn' or a list of cases"
_Cases = Annotated[Annotated[Text, Tag(WORD)] | Annotated[tuple[Any, ...], Tag(LIST)], form_of(_CASES)]


class SweepSpec(Strict):
    """Everything a sweep file says, with its defaults. Durations are in seconds.

    `model_dump(mode="json")` gives a mapping that `parse_spec` reads back as an equal SweepSpec.
    """

    sweep: Name = "sweep"
    project: Name | None = None
    session: Name | None = None
    workflow: Text = Field(description="an import path 'pkg.mod:attr' or a registered name")
    params: Params = {}
    cases: _Cases = Field(description=_CASES)
    files_from: Annotated[tuple[Text, ...], BeforeValidator(bounded)] = ()
    equal_inputs: Literal["cluster", "independent"] = Field(default="cluster", description="cluster or independent")
    vary: dict[Name, _Vary] = Field(min_length=1, description="a mapping from nodes to 'all' or a list of variants")
    exclude: Annotated[tuple[_Rule, ...], BeforeValidator(bounded)] = ()
    combinations: _Combinations = "grid"
    repeats: Positive = 1
    seed: Seed = 0
    baseline: dict[Name, VariantName] = {}
    evaluate: Annotated[tuple[_Evaluator, ...], BeforeValidator(bounded), AfterValidator(_distinct)] = ()
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

    _located: Located = PrivateAttr(default_factory=Located)
    _fork_variants: Mapping[str, Sequence[VariantRef]] = PrivateAttr(default_factory=dict)

    @property
    def fork_variants(self) -> Mapping[str, Sequence[VariantRef]]:
        """Variants by node that people made for forks. They are no part of what the sweep varies."""
        return self._fork_variants

    def with_fork_variants(self, refs: Mapping[str, Sequence[VariantRef]]) -> SweepSpec:
        """Return the sweep with variants that people made for forks."""
        changed = self.model_copy()
        changed._fork_variants = refs
        return changed

    @property
    def located(self) -> Located:
        """Names the place in the file, or the key, for problems that are found later."""
        return self._located

    @property
    def folder(self) -> Path:
        """What paths in the sweep are relative to: the file's folder, else the working directory."""
        return Path(self._located.document.file).parent if self._located.document else Path()

    def as_stored(self) -> StoredSpec:
        """As JSON, without notifications: their URLs may be secrets."""
        return cast("StoredSpec", self.model_dump(mode="json", exclude={"notify"}))

    @property
    def mode(self) -> Mode:
        """`combinations` as `wtb.core.tree.combinations.expand` takes it."""
        if isinstance(self.combinations, RandomMode):
            return Random(self.combinations.random.n, self.combinations.random.seed)
        return self.combinations


class SingleSpec(SweepSpec):
    """A single execution as the sweep of one cell that it is: it varies nothing but what was chosen for it."""

    vary: dict[Name, _Vary] = {}


class _Sections(dict[Loc, type[BaseModel]]):
    """Models by their place; nodes are named by whoever writes the file."""

    def __missing__(self, loc: Loc) -> type[BaseModel]:
        if loc[:2] == ("limits", "nodes") and len(loc) == 3:
            return NodeLimits
        if loc[:1] == ("mcp",) and len(loc) == 2:
            return ToolServer
        raise KeyError(loc)


_PLACES: dict[Loc, type[BaseModel]] = {
    (): SweepSpec,
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
    """The sweep that a document describes. Raises InputError with all problems."""
    named = {"sweep": Path(document.file).stem.removesuffix(".sweep")}
    return _validated(named | document.data, Located(document))


def parse_spec(data: dict[str, Any], where: str = "") -> SweepSpec:
    """The same from a mapping with the keys of the file; `where` is what messages call it."""
    return _validated(data, Located(where=where))


def parse_single(data: dict[str, Any], where: str = "") -> SweepSpec:
    """The same of a single execution, which need not vary anything."""
    return _validated(data, Located(where=where), SingleSpec)


_FILLER: Final = {"workflow": "a:b", "cases": "a", "vary": {"a": "all"}}  # what a part of a sweep lacks


def parse_part(text: str, where: str) -> SweepSpec:
    """A sweep of which only a part is given, as YAML on a command line. Raises InputError."""
    return _validated(_FILLER | parse(text.encode(), where).data, Located(where=where))


def read_limits(given: stored_spec.Limits) -> stored_spec.Limits:
    """Return limits as a sweep file has them, those that are given; null lifts one. Raises InputError."""
    try:
        spec = _validated(_FILLER | {"limits": dict(given)}, Located())
    except InputError as error:
        raise InputError(*error.problems, argument="limits") from None
    found = spec.limits.model_dump(exclude_unset=True, exclude={"cell_timeout"})
    return cast("stored_spec.Limits", found)


def read_evaluators(given: Sequence[str | Mapping[str, Any]]) -> Sequence[EvaluatorRef]:
    """Read evaluators as a sweep file has them. Raises InputError."""
    return _validated(_FILLER | {"evaluate": list(given)}, Located()).evaluate


def derived(form: Variant, of_forks: Sequence[Mapping[str, Any]]) -> Variant:
    """Return a variant that derives from one of forks as one that derives from what that does."""
    if isinstance(form, str):
        return form
    base = next((one for one in of_forks if one["name"] == form.get("of")), None)
    return form if base is None else {**base, **{key: value for key, value in form.items() if key != "of"}}


def read_variants(given: Mapping[str, Sequence[Variant]]) -> Mapping[str, Sequence[VariantRef]]:
    """Read variants by node as a sweep file has them. Raises InputError."""
    vary = _validated(
        _FILLER | {"vary": {node: list(forms) for node, forms in given.items()}}, Located(), SingleSpec
    ).vary
    return {node: refs for node, refs in vary.items() if refs != "all"}


def _validated(data: dict[str, Any], located: Located, model: type[SweepSpec] = SweepSpec) -> SweepSpec:
    try:
        spec = model.model_validate(data)
    except ValidationError as error:
        raise InputError(*lines(error, located, _SECTIONS)) from None
    spec._located = located
    return spec
