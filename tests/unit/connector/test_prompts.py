"""Of which tokens of a request digests are made, and what tells two requests apart."""

from array import array
from types import SimpleNamespace
from typing import Any

import pytest

from disaggpair_connector import identity
from disaggpair_connector.digest import Media, digests_of
from disaggpair_connector.prompts import Prompts
from disaggpair_connector.tally import Tally


def request(tokens: Any, prompt_tokens: int | None = None, **changes: Any) -> Any:
    """A request as vLLM has it."""
    values = {
        "request_id": "r",
        "prompt_token_ids": list(tokens[:prompt_tokens]),
        "num_prompt_tokens": len(tokens) if prompt_tokens is None else prompt_tokens,
        "num_tokens": len(tokens),
        "all_token_ids": tokens,
        "lora_request": None,
        "cache_salt": None,
        "mm_features": [],
        **changes,
    }
    return SimpleNamespace(**values)


def lora(name: str, path: str) -> Any:
    return SimpleNamespace(lora_name=name, lora_path=path)


def plain(tokens: Any, count: int) -> Any:
    return digests_of(tokens, count, identity.identity_of(request(range(0))))


# What tells two requests apart.


def test_adapter_and_salt_never_read_the_same() -> None:
    different = [
        {},
        {"lora_request": lora("a", "")},
        {"lora_request": lora("", "a")},
        {"cache_salt": "a"},
        {"lora_request": lora("a", "b")},
        {"lora_request": lora("ab", "")},
        {"lora_request": lora("a", ""), "cache_salt": "b"},
    ]
    found = [identity.identity_of(request([1], **changes)) for changes in different]
    assert len(set(found)) == len(different)


def test_an_adapter_without_a_path_is_told_by_its_name() -> None:
    nameless = request([1], lora_request=SimpleNamespace(lora_name="a"))
    assert identity.identity_of(nameless) == identity.identity_of(
        request([1], lora_request=lora("a", ""))
    )


def test_media_are_told_by_place_and_content() -> None:
    features = [
        SimpleNamespace(mm_position=SimpleNamespace(offset=3, length=9), identifier="hash-1"),
        SimpleNamespace(mm_position=SimpleNamespace(offset=20, length=9), identifier="hash-2"),
    ]
    assert identity.media_of(request([1], mm_features=features)) == (
        Media(3, b"hash-1"),
        Media(20, b"hash-2"),
    )


@pytest.mark.parametrize(
    ("changes", "comparable"),
    [({}, True), ({"prompt_token_ids": None}, False), ({"prompt_embeds": object()}, False)],
)
def test_embeddings_are_compared_with_nothing(changes: dict[str, Any], comparable: bool) -> None:
    prompts = Prompts(Tally())
    given = request(range(300), **changes)
    assert identity.is_comparable(given) == comparable
    assert (prompts.digests(given, 300) is not None) == comparable
    assert prompts.held_by(given, plain(range(300), 300)) == (300 if comparable else 0)


# Digests of requests that grow.


def test_a_prompt_is_digested_as_a_whole_or_in_pieces_alike() -> None:
    prompts = Prompts(Tally())
    tokens = array("I", range(700))
    growing = request(tokens[:300])
    assert prompts.digests(growing, 300) == plain(tokens, 300)
    growing = request(tokens, 300)
    assert prompts.digests(growing, 699) == plain(tokens, 699)


def test_each_token_is_hashed_once() -> None:
    class Tokens(list[int]):
        asked: list[slice]

        def __getitem__(self, key: Any) -> Any:
            self.asked.append(key)
            return super().__getitem__(key)

    tokens = Tokens(range(700))
    tokens.asked = []
    prompts = Prompts(Tally())
    given = request(range(700), all_token_ids=tokens)
    prompts.digests(given, 300)
    prompts.digests(given, 650)
    assert tokens.asked == [slice(0, 300), slice(300, 650)]


def test_fewer_tokens_than_before_are_digested_anew() -> None:
    prompts = Prompts(Tally())
    given = request(array("I", range(700)))
    prompts.digests(given, 700)
    assert prompts.digests(given, 300) == plain(range(700), 300)


def test_a_request_that_was_forgotten_may_come_again_with_other_tokens() -> None:
    prompts = Prompts(Tally())
    prompts.digests(request(array("I", range(300))), 300)
    prompts.forget(request([]))
    prompts.forget(request([]))
    assert prompts.digests(request(array("I", range(5, 305))), 300) == plain(range(5, 305), 300)


def test_more_tokens_than_there_are_have_no_digests() -> None:
    assert Prompts(Tally()).digests(request(array("I", range(10))), 11) is None


def test_places_whose_token_is_not_known_yet_have_no_digests() -> None:
    assert Prompts(Tally()).digests(request([1, 2, -1]), 3) is None


def test_only_the_prompt_is_compared() -> None:
    prompts = Prompts(Tally())
    tokens = list(range(600))
    held = plain(tokens, 600)
    assert prompts.held_by(request(tokens, 300), held) == 256
    assert prompts.held_by(request(tokens), held) == 600


def test_the_time_that_digests_take_is_counted() -> None:
    counts = Tally()
    prompts = Prompts(counts)
    prompts.digests(request(array("I", range(300))), 300)
    prompts.digests(request(array("I", range(10))), 11)
    (seconds,) = counts.take()["disaggpair:digest_seconds"]
    assert seconds > 0
