"""Encoded state is decoded to an equal state of the same types, or rejected with the place and the reason."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import math
import os
import pathlib
import subprocess
import sys
import uuid
import zoneinfo
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from langchain_core.messages import AIMessage, HumanMessage

from tests.support.prose import sentence
from wtb.core.errors import StateError
from wtb.core.serialization import codec
from wtb.core.serialization.codec import decode, digest, encode


class Colour(enum.Enum):
    RED = "r"
    CRIMSON = "r"  # noqa: PIE796


class Level(enum.IntEnum):
    HIGH = 3


class Mode(enum.StrEnum):
    FAST = "fast"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Doc:
    text: str
    meta: Any = None
    words: int = dataclasses.field(init=False)
    kind: ClassVar[str] = "doc"

    def __post_init__(self) -> None:
        self.words = len(self.text.split())


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: tuple[int, ...] = ()


@dataclasses.dataclass
class LateField:
    filled: int = dataclasses.field(init=False)


@dataclasses.dataclass
class DictLike(dict):  # type: ignore[type-arg]
    name: str = ""


class Message(pydantic.BaseModel):
    """Shaped as LangChain's messages are: extra fields, an own __init__, defaults, private state."""

    model_config = pydantic.ConfigDict(extra="allow")
    content: str | list[Any]
    kwargs: dict[str, Any] = pydantic.Field(default_factory=dict)
    id: str | None = None
    _seen: int = 0
    _never_set: int

    def __init__(self, content: str | list[Any], **kwargs: Any) -> None:
        super().__init__(content=content, **kwargs)


class Frozen(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    at: dt.datetime


class Numbers(pydantic.RootModel[list[int]]):
    pass


T = TypeVar("T")


class Box(pydantic.BaseModel, Generic[T]):
    item: T


class Text(str):
    __slots__ = ()


class Plain:
    pass


class Outer:
    @dataclasses.dataclass
    class Inner:
        n: int


Pair = namedtuple("Pair", "a b")


def same(left: Any, right: Any) -> bool:
    """Equal, with identical types at every depth; NaN is itself and 0.0 is not -0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return repr(left) == repr(right)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, set | frozenset):
        return len(left) == len(right) and all(any(same(a, b) for b in right) for a in left)
    if isinstance(left, pydantic.BaseModel):
        hidden = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__")
        return all(same(getattr(left, name), getattr(right, name)) for name in hidden)
    if dataclasses.is_dataclass(left):
        return all(same(getattr(left, f.name), getattr(right, f.name)) for f in dataclasses.fields(left))
    return bool(left == right)


ZONES = st.sampled_from([None, dt.UTC, dt.timezone(dt.timedelta(hours=-3, minutes=-30), "X")]) | st.sampled_from(
    ["UTC", "Europe/Paris", "America/New_York"]
).map(zoneinfo.ZoneInfo)
FOLDS = st.integers(0, 1)
HASHABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.dates()
    | st.timedeltas()
    | st.builds(lambda at, fold: at.replace(fold=fold), st.datetimes(timezones=ZONES), FOLDS)
    | st.builds(lambda at, fold: at.replace(fold=fold), st.times(timezones=st.just(dt.UTC) | st.none()), FOLDS)
    | st.sampled_from([*Colour, *Level, *Mode, Rights.READ, Rights.READ | Rights.WRITE, Rights(0)]),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(inner, max_size=3)
        | st.builds(Point, st.integers(), st.lists(inner, max_size=2).map(tuple))
    ),
    max_leaves=6,
)
KEYS = st.text() | st.sampled_from(["$", "$tuple", "$dict", "$map", "$dataclass"])
VALUES = st.recursive(
    HASHABLE
    | hnp.arrays(hnp.scalar_dtypes() | hnp.array_dtypes(), hnp.array_shapes(min_dims=0, max_dims=2, min_side=0)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.sets(HASHABLE, max_size=3)
        | st.builds(Doc, st.text(), inner)
        | st.builds(Message, st.text(), kwargs=st.dictionaries(st.text(), inner, max_size=2))
    ),
    max_leaves=10,
)


@given(VALUES)
def test_any_storable_value_comes_back_with_the_same_types(value: Any) -> None:
    json_bytes = encode(value)
    assert same(decode(json_bytes), value)
    assert encode(decode(json_bytes)) == json_bytes


def test_the_comparison_used_here_sees_a_changed_type() -> None:
    assert not same([1], [True])
    assert not same((1,), [1])
    assert not same({"a": 0.0}, {"a": -0.0})
    assert same(math.nan, math.nan)


def test_plain_json_is_stored_as_itself_in_its_own_order() -> None:
    assert encode({"b": [1, 2.5, None, True], "a": "é"}) == '{"b":[1,2.5,null,true],"a":"é"}'.encode()
    assert list(decode(encode({"b": 1, "a": 2}))) == ["b", "a"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((1, "a"), '{"$tuple":[1,"a"]}'),
        ({3, 1, 2}, '{"$set":[1,2,3]}'),
        (b"\x00\xff", '{"$bytes":"AP8="}'),
        (math.inf, '{"$float":"inf"}'),
        (2**64, '{"$int":"0x10000000000000000"}'),
        (2**64 - 1, "18446744073709551615"),
        ({1: "a"}, '{"$map":[[1,"a"]]}'),
        ({"$set": 1}, '{"$dict":{"$set":1}}'),
        ({"$set": 1, "b": 2}, '{"$set":1,"b":2}'),
        (decimal.Decimal("1.50"), '{"$decimal":"1.50"}'),
        (dt.date(2024, 2, 29), '{"$date":"2024-02-29"}'),
        (pathlib.PurePosixPath("a/b"), '{"$PurePosixPath":"a/b"}'),
    ],
)
def test_an_extension_has_this_form(value: Any, text: str) -> None:
    assert encode(value).decode() == text
    assert same(decode(encode(value)), value)


HUMAN = (
    '{"$pydantic":{"type":"langchain_core.messages.human:HumanMessage","fields":{"content":"hi","additional_kwargs":{},'
    '"response_metadata":{},"type":"human","name":null,"id":"1"},"set":{"$set":["content","id"]},"extra":{},'
    '"private":null}}'
)
CALLING = (
    '{"$pydantic":{"type":"langchain_core.messages.ai:AIMessage","fields":{"content":"","additional_kwargs":{},'
    '"response_metadata":{},"type":"ai","name":null,"id":"2","tool_calls":[{"name":"f","args":{"a":{"$tuple":[1]}},'
    '"id":"c","type":"tool_call"}],"invalid_tool_calls":[],"usage_metadata":null},"set":{"$set":["content","id",'
    '"tool_calls"]},"extra":{},"private":null}}'
)
INNER = (
    '{"$pydantic":{"type":"%:Message","fields":{"content":"in","kwargs":{},"id":null},"set":{"$set":["content"]},'
    '"extra":{},"private":{"_seen":0}}}'
)
NESTED = (
    '{"$pydantic":{"type":"%:Message","fields":{"content":"out","kwargs":{"of":' + INNER + '},"id":null},'
    '"set":{"$set":["content","kwargs","more"]},"extra":{"more":{"$tuple":[]}},"private":{"_seen":0}}}'
)
DOC = '{"$dataclass":{"type":"%:Doc","fields":{"text":"a b","meta":{"$tuple":[1]},"words":2,"note":[]}}}'


def test_objects_are_stored_as_these_bytes_since_values_are_known_by_their_hash() -> None:
    doc = Doc("a b", (1,))
    doc.note = []  # type: ignore[attr-defined]
    calls = [{"name": "f", "args": {"a": (1,)}, "id": "c"}]
    nested = Message("out", kwargs={"of": Message("in")}, more=())
    values = [HumanMessage("hi", id="1"), AIMessage("", id="2", tool_calls=calls), nested, doc]
    texts = [text.replace("%", __name__) for text in (HUMAN, CALLING, NESTED, DOC)]
    assert [encode(value).decode() for value in values] == texts
    assert encode(values * 2).decode() == f"[{','.join(texts * 2)}]"


@pytest.mark.parametrize(
    "value",
    [
        -(2**63),
        -(2**63) - 1,
        pytest.param(-(10**5000), id="5001 digits"),
        {},
        [],
        (),
        set(),
        "",
        {"$dict": {"$dict": 1}},
        [{"$tuple": []}, ({"$x": (1,)},)],
        {(1, 2): {"x": (3,)}, "a": 1, None: 2},
        decimal.Decimal("-0E+5"),
        decimal.Decimal("-Infinity"),
        uuid.UUID(int=5),
        pathlib.Path("x/y"),
        np.float32(1.5),
        np.int8(-1),
        np.bool_(True),
        np.str_("é"),
        np.str_(""),
        np.complex128(1j),
        np.datetime64("2024-01-01", "ns"),
        np.array([1, 2], dtype=">i4"),
        np.array(["a", "bcd"]),
        np.zeros((0, 3)),
        np.array([(1, 2.0)], dtype=[("a", "<i4"), ("b", "<f8")]),
        Outer.Inner(3),
        Numbers([1, 2]),
        Box[int](item=1),
        Frozen(at=dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
        sys.float_info.min / 3,
    ],
    ids=lambda value: f"{value!r:.30}",
)
def test_a_corner_of_a_type_comes_back(value: Any) -> None:
    assert same(decode(encode(value)), value)


def test_a_decoded_value_shares_nothing_with_the_original_or_with_another_decoding() -> None:
    shared = [1]
    value = {"a": shared, "b": shared, "c": (shared,), "array": np.arange(3)}
    json_bytes = encode(value)
    assert same(value, {"a": [1], "b": [1], "c": ([1],), "array": np.arange(3)})
    first, second = decode(json_bytes), decode(json_bytes)
    first["a"].append(2)
    first["c"][0].append(3)
    first["array"][0] = 9
    assert value["a"] == first["b"] == second["a"] == second["c"][0] == [1]
    assert second["array"][0] == 0


def test_an_array_in_another_memory_order_keeps_its_elements() -> None:
    array = np.arange(12).reshape(3, 4).T[::2]
    assert np.array_equal(decode(encode(array)), array)


def test_zone_and_fold_of_a_time_are_kept() -> None:
    paris = zoneinfo.ZoneInfo("Europe/Paris")
    decoded = decode(encode(dt.datetime(2024, 10, 27, 2, 30, tzinfo=paris, fold=1)))
    assert decoded.tzinfo is paris
    assert decoded.fold == 1
    assert decoded.utcoffset() == dt.timedelta(hours=1)
    assert decode(encode(dt.datetime(2024, 1, 1, tzinfo=dt.UTC))).tzinfo is dt.UTC


def test_a_dataclass_keeps_every_field_and_runs_no_code() -> None:
    doc = Doc("a b c", meta={"tags": ("x",)})
    doc.words = 99
    doc.note = "added"  # type: ignore[attr-defined]
    decoded = decode(encode(doc))
    assert same(decoded, doc)
    assert (decoded.words, decoded.note) == (99, "added")


def test_a_pydantic_model_keeps_extras_private_state_and_which_fields_were_set() -> None:
    message = Message("hi", kwargs={"calls": [(1, {2})]}, usage={"tokens": 3})
    message._seen = 7
    decoded = decode(encode([message]))[0]
    assert same(decoded, message)
    assert decoded.model_fields_set == message.model_fields_set == {"content", "kwargs", "usage"}
    assert decoded.model_extra == {"usage": {"tokens": 3}}
    assert decoded._seen == 7
    with pytest.raises(AttributeError):
        _ = decoded._never_set


def test_a_set_is_encoded_alike_under_every_hash_seed() -> None:
    value = "{frozenset('abcdef'), 'g', ('h',), None, 2}"
    script = f"from wtb.core.serialization.codec import encode; print(encode({value}).decode(), end='')"
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert run.stdout == encode(eval(value)).decode()  # noqa: S307
    assert '"$frozenset"' in run.stdout


class Remembering(pydantic.BaseModel):
    size: int

    @functools.cached_property
    def twice(self) -> int:
        return 2 * self.size


def test_what_a_pydantic_model_only_remembers_is_not_stored() -> None:
    model, fresh = Remembering(size=3), Remembering(size=3)
    assert model.twice == 6

    assert encode(model) == encode(fresh)
    assert decode(encode(model)).twice == 6


def test_the_text_of_a_langchain_message_is_stored_as_plain_text() -> None:
    text = AIMessage("hello").text
    assert type(text) is not str

    stored = decode(encode({"said": text, "all": [text], text: "key"}))

    assert stored == {"said": "hello", "all": ["hello"], "hello": "key"}
    assert {type(stored["said"]), type(stored["all"][0]), *map(type, stored)} == {str}


def test_importing_the_codec_imports_no_numpy_or_pydantic() -> None:
    script = (
        "import sys, wtb.core.serialization.codec; wtb.core.serialization.codec.encode({'a': (1, {2})}); "
        "print(sorted({'numpy', 'pydantic', 'sqlalchemy', 'zoneinfo'} & set(sys.modules)))"
    )
    # -S leaves out what an editable install imports at start.
    run = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=True,
        capture_output=True,
        text=True,
    )
    assert run.stdout == "[]\n"


def local_class() -> Any:
    @dataclasses.dataclass
    class Hidden:
        n: int = 1

    return Hidden()


def local_generic() -> Any:
    return Box[bytes](item=b"")


def local_enum() -> Any:
    return enum.Enum("Nowhere", "A", module=__name__)["A"]


@pytest.mark.parametrize(
    ("value", "path", "type_name", "advice"),
    [
        ({"docs": [0, 1, 2, {"meta": print}]}, "docs[3].meta", "builtin_function_or_method", "import path"),
        ({"docs": [0, {"a key": lambda: 0}]}, "docs[1]['a key']", "builtins.function", "import path"),
        ({"f": functools.partial(print)}, "f", "functools.partial", "import path"),
        ({"cls": int}, "cls", "builtins.type", "import path"),
        ({"a": OrderedDict(b=1)}, "a", "collections.OrderedDict", "dict(...)"),
        ({"a": defaultdict(list)}, "a", "collections.defaultdict", "dict(...)"),
        ({"a": Text("x")}, "a", "Text", "str(...)"),
        ([Pair(1, 2)], "[0]", "Pair", "tuple(...)"),
        ([DictLike(name="x")], "[0]", "DictLike", "dict(...)"),
        ({"a": bytearray(b"x")}, "a", "bytearray", "plain data"),
        ({"a": Plain()}, "a", "Plain", "dataclass"),
        ({"a": object()}, "a", "builtins.object", "dataclass"),
        ({"a": local_class()}, "a", "Hidden", "inside a function"),
        ({"a": local_enum()}, "a", "Nowhere", sentence("top of a module")),
        ({"a": local_generic()}, "a", "Box[bytes]", sentence("top of a module")),
        ({"a": LateField()}, "a", "filled", "give it one"),
        ({"a": Message.model_construct(id="x")}, "a", "content", "give it one"),
        ({"a": np.array([object()])}, "a", "dtype object", "list"),
        ({"a": np.ma.masked_array([1])}, "a", "MaskedArray", "plain data"),
        ({"a": np.str_("x\0")}, "a", "numpy.str_", "str(...)"),
        ({"a": "x\ud800"}, "a", "'\\ud800'", "errors='replace'"),
        ("\udfff", "the value", "'\\udfff'", "bytes"),
        ({"\ud800": 1}, "the value", "'\\ud800'", "bytes"),
        ([Doc("x", meta=[{1: Plain()}])], "[0].meta[0][1]", "Plain", "dataclass"),
        ([Doc("x", meta={Plain(): 1})], "[0].meta.keys()[0]", "Plain", "dataclass"),
        ([Message("x", extra=(1, Plain()))], "[0].extra[1]", "Plain", "dataclass"),
        ({"a": {10**5000: Plain}}, "a[<int>]", "builtins.type", "import path"),
        ({"s": {Plain}}, "s[0]", "builtins.type", "import path"),
        ({"at": dt.datetime(2024, 1, 1, tzinfo=type("Odd", (dt.tzinfo,), {})())}, "at", "Odd", "plain data"),
    ],
    ids=lambda item: f"{item!r:.30}" if isinstance(item, str) else "",
)
def test_what_cannot_come_back_is_refused_with_place_type_and_advice(
    value: Any, path: str, type_name: str, advice: str
) -> None:
    with pytest.raises(StateError) as error:
        encode(value)
    message = str(error.value)
    assert message.startswith(f"{path} cannot be stored: ")
    assert type_name in message
    assert advice in message


def test_an_open_file_is_refused(tmp_path: pathlib.Path) -> None:
    with (tmp_path / "x").open("w") as file, pytest.raises(StateError, match=r"^log cannot .*ctx\.workspace"):
        encode({"log": file})


def test_a_value_that_contains_itself_is_refused_with_the_way_into_it() -> None:
    loop: dict[str, Any] = {"next": [0]}
    loop["next"].append(loop)
    with pytest.raises(StateError, match=r"^start\.next\[1\]\.next.*\.\.\. cannot be stored: it contains itself"):
        encode({"start": loop})


@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: (x,), lambda x: Doc("", x), lambda x: frozenset({x})])
@pytest.mark.parametrize("depth", [300, 5000])
def test_nesting_that_json_cannot_hold_is_refused(wrap: Any, depth: int) -> None:
    value: Any = 0
    for _ in range(depth):
        value = wrap(value) if not isinstance(value, Doc) else Doc("", value)
        if isinstance(value, frozenset):
            hash(value)
    with pytest.raises(StateError, match="nested deeper"):
        encode(value)


@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: (x,), lambda x: Doc("", x), lambda x: Message("", m=x)])
def test_nesting_of_fifty_levels_comes_back(wrap: Any) -> None:
    value: Any = 0
    for _ in range(50):
        value = wrap(value)
    assert encode(decode(encode(value))) == encode(value)


def test_a_value_is_refused_from_the_first_byte_over_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_BYTES", 100)
    assert decode(encode("x" * 98)) == "x" * 98
    with pytest.raises(StateError, match=r"larger than 100 bytes.*ctx\.workspace"):
        encode("x" * 99)
    for value in (b"x" * 101, ["x" * 60, "x" * 60], {"k" * 101: 1}, np.zeros(20), list(range(60)), "é" * 60):
        with pytest.raises(StateError, match=sentence("larger than {} bytes", 100)):
            encode({"a": value})


def test_a_small_object_that_stands_for_a_huge_value_is_refused_without_building_it() -> None:
    value: Any = "x" * 1000
    for _ in range(200):
        value = [value] * 2
    value = [value]
    with pytest.raises(StateError):
        encode(value)
    wide: Any = b"x" * (1 << 20)
    with pytest.raises(StateError, match=sentence("larger than {} bytes", "67,108,864")):
        encode([wide] * 1000)
    with pytest.raises(StateError, match=sentence("larger than {} bytes", "67,108,864")):
        encode(np.broadcast_to(np.float64(1), (1 << 40,)))


@pytest.mark.parametrize(
    "json_bytes",
    [
        b"",
        b"{",
        b"\xff",
        b'{"$tuple":"ab"}',
        b'{"$tuple":{}}',
        b'{"$what":1}',
        b'{"$":1}',
        b'{"$set":[[1]]}',
        b'{"$map":[[1]]}',
        b'{"$dict":1}',
        b'{"$int":"x"}',
        b'{"$int":5}',
        b'{"$float":"1.5"}',
        b'{"$bytes":"a"}',
        b'{"$datetime":"2024-01-01"}',
        b'{"$datetime":["2024-13-01T00:00:00",0,null]}',
        b'{"$datetime":["2024-01-01T00:00:00",0,"UTC"]}',
        b'{"$zoneinfo":"No/Where"}',
        b'{"$zoneinfo":"../../etc/passwd"}',
        b'{"$decimal":"x"}',
        b'{"$timedelta":[1e300]}',
        b'{"$ndarray":["|O",[1],{"$bytes":"AAAAAAAAAAA="}]}',
        b'{"$ndarray":["<f8",[2],{"$bytes":"AAAAAAAAAAA="}]}',
        b'{"$ndarray":["<f8",[1],{"$bytes":"AAAAAAAAAAAAAAAAAAAAAA=="}]}',
        b'{"$ndarray":["<f8",[99999999999999],{"$bytes":""}]}',
        b'{"$enum":{"type":"enum:Enum","name":"A"}}',
        b'{"$enum":{"type":"os:system","name":"A"}}',
        b'{"$enum":[]}',
        b'{"$dataclass":{"type":"subprocess:Popen","fields":{}}}',
        b'{"$dataclass":{"type":"builtins:eval","fields":{}}}',
        b'{"$dataclass":{"type":"","fields":{}}}',
        b'{"$dataclass":{"type":"no.such.module:X","fields":{}}}',
        b'{"$dataclass":{"type":"decimal:Gone","fields":{}}}',
        b'{"$dataclass":{}}',
        b'{"$pydantic":{"type":"collections:OrderedDict","fields":{}}}',
        b"[" * 2000 + b"]" * 2000,
        b'{"$ndarray":["01<",[2],{"$bytes":"AQAAAAAAAAACAAAAAAAAAA=="}]}',
    ],
)
def test_damaged_or_hostile_data_raises_a_state_error(json_bytes: bytes) -> None:
    with pytest.raises(StateError, match="stored value"):
        decode(json_bytes)


@given(VALUES, st.data())
def test_data_with_a_changed_byte_is_decoded_or_refused_and_nothing_else(value: Any, data: st.DataObject) -> None:
    stored = bytearray(encode(value))
    stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 127))
    with contextlib.suppress(StateError):
        decode(bytes(stored))


def test_an_object_stored_before_its_class_gained_a_field_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    json_bytes = encode([Point(1)])

    @dataclasses.dataclass
    class Longer:
        x: int
        y: tuple[int, ...]
        z: int

    monkeypatch.setattr(sys.modules[__name__], "Point", Longer)
    with pytest.raises(StateError, match=r"no longer fits: .*Longer has no value for z"):
        decode(json_bytes)


def test_a_class_that_its_name_no_longer_leads_to_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    point = Point(1)
    encode(point)
    monkeypatch.setattr(sys.modules[__name__], "Point", Doc)
    with pytest.raises(StateError, match=sentence("its name does not lead to it")):
        encode(point)


def test_an_object_whose_class_is_gone_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    json_bytes = encode(Outer.Inner(1))
    monkeypatch.delattr(Outer, "Inner")
    with pytest.raises(StateError, match=r"test_codec:Outer\.Inner was removed"):
        decode(json_bytes)


def test_a_digest_is_the_sha256_of_the_bytes() -> None:
    assert digest(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
