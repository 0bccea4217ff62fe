"""Heads of answers, as they are written."""

import pytest

from disaggpair_router.inbound.message import rendered


@pytest.mark.parametrize("value", ["a\r\nX-B: c", "a\nb", "a\rb", "\u0100"])
@pytest.mark.parametrize("where", ["name", "value", "type"])
def test_a_header_that_would_end_its_line_is_never_rendered(value: str, where: str) -> None:
    headers = {"name": {value: "a"}, "value": {"X-A": value}, "type": {}}[where]
    kind = value if where == "type" else "text/plain"
    with pytest.raises(ValueError, match=r"line break|encode"):
        rendered(200, headers, kind=kind, length=0, date="now", keep=True)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("length", [None, -1, 0, 5])
def test_every_head_ends_with_an_empty_line(length: int | None, keep: bool) -> None:
    head = rendered(299, {"X-A": "b"}, kind="a/b", length=length, date="now", keep=keep)
    assert head.endswith(b"\r\nX-A: b\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 299 \r\nContent-Type: a/b\r\nDate: now\r\n")
    assert (b"Connection: close" in head) is not keep
    assert (b"Transfer-Encoding: chunked" in head) is (length is None)
    assert (b"Content-Length: %d\r\n" % (length or 0) in head) is (
        length is not None and length >= 0
    )
