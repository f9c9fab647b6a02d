"""What the heads of frames hold, by kind: as they are sent, and as they are read, where blobs stand as numbers.

What a node process claims is checked where it is read: user code can write into the connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

from wtb.core.providers.faults import ProviderFault
from wtb.core.questions import Kind
from wtb.core.tree.checkpoints import StoredPosition
from wtb.core.tree.stored_code import StoredCode
from wtb.core.tree.stored_spec import DataFinding
from wtb.store.files.store import Place

# What frames hold where values travel: a value's digest, with its bytes as they are sent and their number as they are
# read. A node process sends no digests.
SentValues = Mapping[str, tuple[str, bytes]]
ReadValues = Mapping[str, tuple[str, int]]
SentCase = tuple[str, Sequence[str], Mapping[str, bytes]]
ReadCase = tuple[str, Sequence[str], Mapping[str, int]]


class ReadPrevious(TypedDict):
    """A `Previous` as it is read."""

    attempt: int
    limit: int
    error: str
    output: int
    suggestions: Sequence[str]
    feedback: str | None


class ReadQuestion(TypedDict):
    """A `Question` as it is read; a node process may claim anything of it."""

    kind: Kind
    node: str
    text: str
    number: int
    options: Sequence[str]
    context: int | None
    timeout: float | None
    default: str | None


class ReadFailure(TypedDict):
    """A `Failure` as a node process claims it."""

    kind: str
    type: str
    message: str
    trace: str
    final: bool
    node: str | None
    asked: Sequence[str]
    provider: ProviderFault | None


class ReadResult(TypedDict):
    """A `Result` as a node process claims it: what has its default is not there."""

    started_at: float
    duration_s: float
    lag_s: NotRequired[float]
    writes: NotRequired[Mapping[str, int]]
    failure: NotRequired[ReadFailure]
    question: NotRequired[ReadQuestion]
    asked: NotRequired[Sequence[str]]
    workspace: NotRequired[str]
    joined: NotRequired[object]
    files: NotRequired[Sequence[tuple[str, int]]]


class Beginning(TypedDict):
    """A case to begin with."""

    state: SentValues
    root: Sequence[object]


class StepToJoin(TypedDict):
    """A step to be joined. writes: by the key of the task."""

    state: SentValues
    position: StoredPosition
    writes: Sequence[tuple[str, SentValues]]
    root: Sequence[object]


class Scoring(TypedDict):
    """A cell to be scored by the evaluators from number `first` on."""

    first: int
    task: Mapping[str, object]


# A case of a sweep as it is to be stored: id, input, expected value, tags, files (its snapshot, and the digest and the
# bytes of each), cluster.
SentNewCase = tuple[
    str, Mapping[str, bytes], bytes | None, Sequence[str], str | None, Sequence[tuple[str, int]], str | None
]
ReadNewCase = tuple[
    str, Mapping[str, int], int | None, Sequence[str], str | None, Sequence[tuple[str, int]], str | None
]


class PreparedHead(TypedDict):
    """The parts of a prepared sweep besides its file and its code.

    Attributes:
        choices: The variant of each varied node, of each combination.
        baseline: That of the combination that the others are compared with.
        cases: The number of cases.
        clusters: The cluster of each case, if any case has one.
        findings: What the check of the cases found.
        tools: The version of each tool, by server.
    """

    choices: list[dict[str, str]]
    baseline: dict[str, str] | None
    cases: int
    clusters: list[str | None]
    findings: list[DataFinding]
    tools: dict[str, dict[str, str]]


class CodeHead(TypedDict):
    """What a node process must find of the code: the fingerprints of its variants, and the outline of the workflow.

    code: what the fingerprints rest on.
    """

    fingerprints: Mapping[str, Mapping[str, str]]
    code: NotRequired[StoredCode]
    outline: str | None


NO_CODE: CodeHead = {"fingerprints": {}, "outline": None}  # of one that is asked for evaluators only

# What the first frame of a node process says: the code, or a draft or names whose code it is to describe, or a sweep
# file that it is to prepare; where it works, how many attempts it takes at a time, and what it prints between the
# outputs of two attempts, as hexadecimal digits.
SetupHead = TypedDict(
    "SetupHead",
    {
        "recipe": str,
        "draft": NotRequired[str],
        "names": NotRequired[Sequence[Mapping[str, str]]],
        "prepare": NotRequired[str],
        "fingerprints": Mapping[str, Mapping[str, str]],
        "code": NotRequired[StoredCode | None],
        "outline": str | None,
        "files": Place,
        "growth": int,
        "bounds": Mapping[str, int],
        "places": int,
        "async": NotRequired[bool],
        "directory": NotRequired[str],
        "mark": NotRequired[str],
        "hidden": NotRequired[Sequence[str]],
    },
)
