"""However tokens are fed, the digests are the same; equal ones mean equal tokens."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from disaggpair_connector.digest import (
    CHUNK_TOKENS,
    Digests,
    Media,
    TokenDigests,
    common_tokens,
    digests_of,
)

# Runs of one id make prompts of several chunks cheap to draw, and edits rare enough to be met.
RUNS = st.lists(
    st.tuples(st.integers(0, 3) | st.just(2**32 - 1), st.integers(1, 2 * CHUNK_TOKENS)), max_size=5
)
PROMPTS = RUNS.map(lambda runs: [token for token, length in runs for _ in range(length)])
IDENTITIES = st.sampled_from([b"", b"a", b"b"])
MEDIA = st.lists(
    st.builds(Media, st.integers(0, 5 * CHUNK_TOKENS), st.sampled_from([b"x", b"y"])), max_size=3
)


@given(PROMPTS, IDENTITIES, MEDIA, st.lists(st.integers(0), max_size=6))
def test_pieces_have_no_part_in_the_result(
    tokens: list[int], identity: bytes, media: list[Media], cuts: list[int]
) -> None:
    places = sorted({0, len(tokens), *(cut % (len(tokens) + 1) for cut in cuts)})
    digests = TokenDigests(identity, media)
    for start, end in pairwise(places):
        digests.extend(tokens[start:end])
        assert digests.tokens == end
        assert digests.at(end) == digests_of(tokens, end, identity, media)
    whole = digests_of(tokens, len(tokens), identity, media)
    assert digests.at(len(tokens)) == whole


@given(PROMPTS, PROMPTS, st.integers(0), IDENTITIES, IDENTITIES, MEDIA, MEDIA)
def test_what_is_common_is_equal_and_is_all_that_chunks_can_show(
    mine: list[int],
    theirs: list[int],
    count: int,
    identity: bytes,
    their_identity: bytes,
    media: list[Media],
    their_media: list[Media],
) -> None:
    held = digests_of(theirs, count := count % (len(theirs) + 1), their_identity, their_media)

    def equal(end: int) -> bool:
        """Whether the first `end` tokens are the same in all that makes their KV."""
        before, theirs_before = (
            sorted((item.offset, item.identity) for item in items if item.offset < end)
            for items in (media, their_media)
        )
        return (
            identity == their_identity
            and before == theirs_before
            and len(mine) >= end
            and mine[:end] == theirs[:end]
        )

    chunks = range(0, min(len(mine), count) + 1, CHUNK_TOKENS)
    best = max((end for end in chunks if end == 0 or equal(end)), default=0)
    wanted = count if equal(count) else best
    assert common_tokens(mine, identity, media, held) == wanted


@given(PROMPTS, PROMPTS, MEDIA)
def test_a_continuation_is_found_in_full_whatever_follows(
    history: list[int], more: list[int], media: list[Media]
) -> None:
    known = [item for item in media if item.offset < len(history)]
    held = digests_of(history, len(history), b"", known)
    assert common_tokens(history + more, b"", media, held) == len(history)


@given(PROMPTS, st.integers(0), st.integers(0))
def test_a_shorter_prefix_has_the_same_chunks(tokens: list[int], first: int, second: int) -> None:
    short, long = sorted(count % (len(tokens) + 1) for count in (first, second))
    less, more = (digests_of(tokens, count, b"i") for count in (short, long))
    assert more.chunks.startswith(less.chunks)
    rest = short % CHUNK_TOKENS
    assert Digests(short - rest, less.chunks, b"") == digests_of(tokens, short - rest, b"i")
