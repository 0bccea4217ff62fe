"""What a digest covers, where it can be taken, and what two of them prove."""

import hashlib
from array import array
from itertools import pairwise

import pytest

from disaggpair_connector.digest import (
    CHUNK_TOKENS,
    DIGEST_BYTES,
    Digests,
    Media,
    TokenDigests,
    common_prefix,
    common_tokens,
    digests_of,
)

C = CHUNK_TOKENS
IDS = [7 * number % 50_021 for number in range(3 * C + 40)]


def test_a_digest_is_sha_256_of_the_identity_and_the_ids_cut_to_16_bytes() -> None:
    packed = array("I", IDS).tobytes()
    wanted = [
        hashlib.sha256(b"\x00model" + packed[: 4 * end]).digest()[:16]
        for end in (C, 2 * C, 3 * C, 3 * C + 40)
    ]
    found = digests_of(IDS, len(IDS), b"model")
    assert found == Digests(3 * C + 40, b"".join(wanted[:3]), wanted[3])


def test_a_full_last_chunk_leaves_no_tail() -> None:
    found = digests_of(IDS, 2 * C, b"")
    assert (len(found.chunks), found.tail) == (2 * DIGEST_BYTES, b"")


def test_no_tokens_have_no_digest() -> None:
    found = digests_of([], 0, b"model")
    assert found == Digests(0, b"", b"")
    assert common_tokens(IDS, b"another", (), found) == 0


@pytest.mark.parametrize("ids", [tuple(IDS), array("I", IDS), array("q", IDS), range(700)])
def test_any_sequence_of_ids_has_the_digests_of_a_list(ids: "tuple[int, ...]") -> None:
    assert digests_of(ids, len(ids), b"") == digests_of(list(ids), len(ids), b"")


def test_pieces_may_end_anywhere() -> None:
    digests = TokenDigests(b"m")
    for start, end in pairwise([0, 0, 10, C - 1, C, 2 * C + 5, 3 * C, len(IDS)]):
        digests.extend(IDS[start:end])
        assert (digests.tokens, digests.at(end)) == (end, digests_of(IDS, end, b"m"))


@pytest.mark.parametrize("wrong", [-1, 2**32])
def test_an_id_that_is_none_is_refused_and_nothing_fed(wrong: int) -> None:
    digests = TokenDigests(b"")
    digests.extend(IDS[:300])
    with pytest.raises(OverflowError):
        digests.extend([1, wrong])
    assert digests.at(300) == digests_of(IDS, 300, b"")


def test_digests_can_be_taken_at_the_end_of_each_chunk_and_within_the_open_one() -> None:
    digests = TokenDigests(b"")
    digests.extend(IDS)
    assert digests.tokens == len(IDS)
    for count in (0, C, 3 * C, 3 * C + 1, 3 * C + 40):
        assert digests.at(count) == digests_of(IDS, count, b"")


@pytest.mark.parametrize("count", [-1, -C, 1, C + 1, 3 * C + 41, 4 * C])
def test_digests_at_any_other_place_are_refused(count: int) -> None:
    digests = TokenDigests(b"")
    digests.extend(IDS)
    with pytest.raises(ValueError, match=rf"no digest at {count} of {len(IDS)} tokens"):
        digests.at(count)


@pytest.mark.parametrize("count", [-1, len(IDS) + 1])
def test_digests_of_more_tokens_than_there_are_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="no digest at"):
        digests_of(IDS, count, b"")


@pytest.mark.parametrize(
    ("tokens", "chunks", "tail"),
    [(-1, 0, 0), (-C, 0, 0), (C, 0, 0), (C, 2, 0), (C, 1, 1), (C + 1, 1, 0), (1, 0, 2)],
)
def test_lengths_that_do_not_fit_are_refused(tokens: int, chunks: int, tail: int) -> None:
    with pytest.raises(ValueError, match=f"{tokens} tokens with"):
        Digests(tokens, bytes(DIGEST_BYTES * chunks), bytes(DIGEST_BYTES * tail))


def test_a_continuation_has_all_that_is_held() -> None:
    held = digests_of(IDS, 2 * C + 17, b"m")
    assert common_tokens(IDS, b"m", (), held) == 2 * C + 17
    assert common_tokens(IDS[: 2 * C + 17], b"m", (), held) == 2 * C + 17


@pytest.mark.parametrize(
    ("place", "common"),
    [(0, 0), (C - 1, 0), (C, C), (2 * C - 1, C), (2 * C, 2 * C), (3 * C + 39, 3 * C)],
)
def test_a_changed_token_ends_what_is_common_at_its_chunk(place: int, common: int) -> None:
    changed = [*IDS[:place], IDS[place] + 1, *IDS[place + 1 :]]
    assert common_tokens(changed, b"", (), digests_of(IDS, len(IDS), b"")) == common


def test_of_a_shorter_prompt_whole_chunks_are_common() -> None:
    held = digests_of(IDS, len(IDS), b"")
    assert common_tokens(IDS[: 2 * C + 9], b"", (), held) == 2 * C


def test_digests_of_more_than_is_held_have_its_chunks_in_common() -> None:
    assert common_prefix(digests_of(IDS, 3 * C, b""), digests_of(IDS, 2 * C, b"")) == 2 * C


def test_another_identity_has_nothing_in_common() -> None:
    assert common_tokens(IDS, b"a", (), digests_of(IDS, len(IDS), b"b")) == 0


PICTURE = Media(C + 10, b"cat")


@pytest.mark.parametrize(
    ("mine", "common"),
    [
        ((PICTURE,), 3 * C + 40),
        ((), C),
        ((Media(C + 10, b"dog"),), C),
        ((Media(C + 11, b"cat"),), C),
        ((Media(10, b"cat"),), 0),
        ((PICTURE, Media(2 * C, b"dog")), 2 * C),
        ((PICTURE, Media(3 * C, b"dog")), 3 * C),
        ((PICTURE, Media(3 * C + 40, b"dog")), 3 * C + 40),
    ],
)
def test_media_belong_to_the_chunk_that_they_start_in(mine: tuple[Media, ...], common: int) -> None:
    held = digests_of(IDS, len(IDS), b"", [PICTURE])
    assert common_tokens(IDS, b"", mine, held) == common


def test_the_order_in_which_media_are_named_has_no_part() -> None:
    media = [Media(3, b"a"), Media(C + 3, b"b"), Media(3 * C + 3, b"c")]
    named = digests_of(IDS, len(IDS), b"", media)
    assert digests_of(IDS, len(IDS), b"", media[::-1]) == named


def test_media_do_not_read_as_other_media_or_tokens() -> None:
    lists = [
        [],
        [Media(0, b"")],
        [Media(0, b"ab")],
        [Media(0, b"a"), Media(0, b"b")],
        [Media(0, b"a"), Media(1, b"b")],
        [Media(1, b"ab")],
    ]
    assert len({digests_of([1, 2], 2, b"", media).tail for media in lists}) == len(lists)
