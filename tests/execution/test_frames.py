"""Frames are unpacked as they were packed, however the bytes arrive."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtb.execution.sandbox.framing import Channel, Frame, Inbox, packed
from wtb.execution.sandbox.messages import as_step, step

json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
blobs = st.lists(st.binary(max_size=200), max_size=4, unique=True)
frames = st.builds(
    lambda kind, head, sent: Frame(kind, [head, *range(len(sent))], sent),
    st.text(min_size=1, max_size=10),
    json,
    blobs,
)


def as_bytes(frame: Frame) -> bytes:
    return packed(frame.kind, [frame.head[0], *frame.blobs])


@given(st.lists(frames, max_size=5), st.lists(st.integers(1, 40), min_size=1))
def test_frames_come_out_as_they_went_in_whatever_the_pieces(sent: list[Frame], sizes: list[int]) -> None:
    stream, inbox, received = b"".join(map(as_bytes, sent)), Inbox(), list[Frame]()
    for size in itertools.cycle(sizes):
        received += inbox.feed(stream[:size])
        stream = stream[size:]
        if not stream:
            break
    assert received == sent


def test_many_frames_in_one_piece_come_out_in_order() -> None:
    stream = b"".join(packed("report", [number, bytes([number % 256])]) for number in range(1000))
    received = list(Inbox().feed(stream))
    assert [frame.head for frame in received] == [[number, 0] for number in range(1000)]
    assert [frame.blobs for frame in received[:3]] == [[b"\0"], [b"\1"], [b"\2"]]


def test_a_frame_comes_out_only_when_it_is_whole() -> None:
    packet = packed("run", {"node": "a", "state": b"value"})
    inbox = Inbox()
    assert list(inbox.feed(packet[:-1])) == []
    (frame,) = inbox.feed(packet[-1:])
    assert frame == Frame("run", {"node": "a", "state": 0}, [b"value"])


def test_blobs_are_kept_apart_the_empty_ones_too() -> None:
    (frame,) = Inbox().feed(packed("x", [b"", b"a", b"bc"]))
    assert (frame.head, frame.blobs) == ([0, 1, 2], [b"", b"a", b"bc"])


def test_a_value_that_several_keys_share_travels_once() -> None:
    from wtb.authoring.context.attempt_record import CaseView
    from wtb.core.tree.checkpoints import Position
    from wtb.core.values import Value
    from wtb.execution.engine.protocol import Root

    big = Value.of("x" * 10_000)
    root = Root(CaseView("one", ("t",), {}), 2, {"k": 1}, 7)
    position = Position(0, ("n",), fan_out={"n": 1}, engine={"seen": [1]})
    sent = ({"a": big, "b": big}, position, [("n|0", {"c": big})], root)
    (frame,) = Inbox().feed(packed("join", step(*sent)))
    assert frame.blobs == [big.data]
    assert as_step(frame, {"k": 1}) == sent


def test_a_blob_is_referred_to_by_its_number() -> None:
    (frame,) = Inbox().feed(packed("x", [b"a", b"a", {"of": b"b"}]))
    assert (frame.head, frame.blobs) == ([0, 0, {"of": 1}], [b"a", b"b"])


def test_what_is_neither_json_nor_bytes_is_refused() -> None:
    with pytest.raises(TypeError):
        packed("x", [object()])


class Pair:
    """A channel, and the descriptor of its other end."""

    def __init__(self) -> None:
        import socket

        ours, theirs = socket.socketpair()
        self.channel = Channel(theirs.detach())
        self.other = Channel(ours.detach())


@pytest.fixture
def pair() -> Iterator[Pair]:
    ends = Pair()
    yield ends
    for channel in (ends.channel, ends.other):
        channel._socket.close()


def test_a_blob_larger_than_any_buffer_arrives_whole(pair: Pair) -> None:
    blob = os.urandom(1 << 20) * 20
    sending = threading.Thread(target=pair.channel.send, args=("result", [1, blob, b"after"]))
    sending.start()
    received = pair.other.receive()
    sending.join()
    assert received == Frame("result", [1, 0, 1], [blob, b"after"])


def test_threads_that_speak_at_a_time_do_not_mix_their_frames(pair: Pair) -> None:
    blob = b"z" * 300_000

    def speak(who: int) -> None:
        for n in range(20):
            pair.channel.send("report", [who, n, blob])

    speakers = [threading.Thread(target=speak, args=(who,)) for who in range(4)]
    for speaker in speakers:
        speaker.start()
    received = [pair.other.receive() for _ in range(80)]
    for speaker in speakers:
        speaker.join()
    assert all(frame is not None and frame.blobs == [blob] for frame in received)
    heads = [frame.head for frame in received if frame is not None]
    for who in range(4):
        assert [n for speaker, n, _ in heads if speaker == who] == list(range(20))


def test_the_end_of_the_other_side_is_not_a_frame(pair: Pair) -> None:
    pair.channel.send("report", 1)
    pair.channel._socket.close()
    assert pair.other.receive() == Frame("report", 1, [])
    assert pair.other.receive() is None


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_of_the_process_cannot_speak_for_it(pair: Pair) -> None:
    child = os.fork()
    if child == 0:
        try:
            pair.channel.send("report", "by the wrong one")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 70
    pair.channel.send("report", "by the right one")
    frame = pair.other.receive()
    assert frame is not None
    assert frame.head == "by the right one"
