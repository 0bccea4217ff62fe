"""Any bytes of an engine's stream, in any pieces, under every API: as `make fuzz` has them."""

from collections.abc import Iterator

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggpair_bed.fakes.upstream import chat_events, decode_handle
from disaggpair_bed.streamcheck import check

_DATA = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [
            b"[DONE]",
            b'{"choices":[{"index":0,"delta":{"content":"x"}}],"kv_transfer_params":null}',
            b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}',
            b'{"choices":"odd","usage":[],"error":0,"kv_transfer_params":3}',
            b'{"error":{"message":"m","code":500}}',
            b'{"error":"x"}',
            b'{"type":"response.completed","response":{"kv_transfer_params":{"a":1}}}',
            b'{"type":"response.completed","response":7}',
            b'{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{}}',
            b'{"type":"message_stop","kv_transfer_params":{"a":1}}',
            b'{"type":["odd"],"delta":[1]}',
            b'{"choices":[7,null,{"delta":3,"index":"a","finish_reason":1}]}',
            orjson.dumps({"kv_transfer_params": decode_handle()}),
            b"x" * 3_000,
        ]
    ),
)
_LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b""])
_LINES = st.tuples(st.sampled_from([b"data: ", b"data:", b"event: ", b": ", b"", b"id"]), _DATA)
STREAMS = st.lists(st.tuples(_LINES, _LINE_ENDS), max_size=12).map(
    lambda lines: b"".join(name + data + end for (name, data), end in lines)
)


@given(st.binary(min_size=3, max_size=3), STREAMS)
def test_h22_any_stream_in_any_pieces_is_relayed_as_one(how: bytes, stream: bytes) -> None:
    check(how + stream)


@given(st.binary(max_size=200))
def test_h22_bytes_that_are_no_stream_are_relayed_as_one(data: bytes) -> None:
    check(data)


def _splits() -> Iterator[bytes]:
    whole = chat_events(decode_handle())
    for end in (b"\n", b"\r\n", b"\r"):
        stream = whole.replace(b"\n", end)
        yield from (bytes([api, 63, first]) + stream for api in range(4) for first in range(64))


@pytest.mark.parametrize("api", range(4))
def test_h22_a_stream_is_the_same_at_every_split_point(api: int) -> None:
    cut = [data for data in _splits() if data[0] == api]
    for data in cut:
        check(data)
    assert len(cut) == 3 * 64
