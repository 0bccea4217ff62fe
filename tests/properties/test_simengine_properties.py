"""Invariants of the simulated engine."""

from array import array
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from disaggpair_bed.simengine import kv, tokens
from disaggpair_bed.simengine.decisions import Ending
from disaggpair_bed.simengine.findings import findings
from disaggpair_bed.simengine.identity import Adapter
from disaggpair_bed.simengine.job import Output
from disaggpair_bed.simengine.localnet import LocalNet, Result
from disaggpair_bed.simengine.pool import BlockPool, block_hashes
from disaggpair_bed.simengine.sequence import Detokenizer
from disaggpair_bed.simengine.template import ChatTemplate
from disaggpair_bed.simengine.twolegs import TURN_1

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
PROMPT = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=120).map(lambda x: array("Q", x))


@given(TEXT)
def test_text_survives_the_tokenizer(text: str) -> None:
    encoded = tokens.encode(text)
    assert tokens.decode(encoded) == text
    assert all(map(tokens.is_token, encoded))


@given(st.lists(TEXT, min_size=1, max_size=5), TEXT)
def test_a_longer_history_begins_with_the_shorter_one(texts: list[str], more: str) -> None:
    template = ChatTemplate()
    messages = [{"role": "user", "content": text} for text in texts]
    shorter = template.render(messages, {}, add_generation_prompt=False)
    longer = template.render([*messages, {"role": "user", "content": more}], {})
    assert longer[: len(shorter)] == shorter


@given(PROMPT, st.data())
def test_kv_does_not_depend_on_how_a_prompt_is_cut(prompt: "array[int]", data: Any) -> None:
    cut = data.draw(st.integers(0, len(prompt)))
    whole = kv.extend(kv.seed("m"), prompt)
    first = kv.extend(kv.seed("m"), prompt[:cut])
    rest = kv.extend(first[-1] if cut else kv.seed("m"), prompt[cut:])
    assert first + rest == whole


@given(PROMPT, st.data())
def test_another_token_changes_all_kv_after_it(prompt: "array[int]", data: Any) -> None:
    place = data.draw(st.integers(0, len(prompt) - 1))
    other = prompt[:]
    other[place] ^= 1
    right, wrong = kv.extend(1, prompt), kv.extend(1, other)
    assert right[:place] == wrong[:place]
    assert all(a != b for a, b in zip(right[place:], wrong[place:], strict=True))


@given(PROMPT, st.integers(1, 16), st.data())
def test_hashes_go_on_where_they_stopped(prompt: "array[int]", size: int, data: Any) -> None:
    cut = data.draw(st.integers(0, len(prompt)))
    whole = block_hashes(prompt, size)
    first = block_hashes(prompt[:cut], size)
    assert block_hashes(prompt, size, after=first) == whole
    assert len(whole) == len(prompt) // size


@given(st.lists(st.tuples(st.sampled_from("asr"), st.integers(1, 6)), max_size=40))
def test_no_block_is_lost_or_given_twice(actions: list[tuple[str, int]]) -> None:
    pool = BlockPool(20, 4)
    held: list[list[int]] = []
    for action, count in actions:
        if action == "a":
            free = pool.free_blocks
            blocks = pool.allocate(count)
            assert (blocks is None) == (count > free)
            if blocks is not None:
                assert 0 not in blocks
                assert not {block for taken in held for block in taken} & set(blocks)
                held.append(blocks)
        elif held and action == "s":
            pool.share(held[count % len(held)])
            held.append(held[count % len(held)])
        elif held:
            pool.release(held.pop(count % len(held)))
        in_use = {block for taken in held for block in taken}
        assert pool.free_blocks == 19 - len(in_use)


@given(PROMPT, st.integers(0, 40))
def test_written_kv_is_read_back(prompt: "array[int]", start: int) -> None:
    pool = BlockPool(64, 4)
    blocks = pool.allocate(-(-(start + len(prompt)) // 4))
    assert blocks is not None
    blocks.reverse()
    pool.write(blocks, start, prompt)
    assert pool.span(blocks, start, start + len(prompt)) == prompt.tobytes()
    assert pool.value(blocks, start) == prompt[0]


@given(st.text("abc", min_size=1, max_size=40), st.text("abc", min_size=1, max_size=3))
def test_a_stop_string_ends_the_text_wherever_tokens_are_cut(text: str, stop: str) -> None:
    detokenizer = Detokenizer(stop=(stop,))
    shown = ""
    stopped = False
    pieces = list(tokens.encode(text))
    for index, token in enumerate(pieces):
        ending = Ending.LENGTH if index == len(pieces) - 1 else None
        delta = detokenizer.feed(Output("r", token, ending=ending))
        shown += delta.text
        if delta.stop_reason is not None:
            stopped = True
            break
    assert stopped == (stop in text)
    assert shown == text.partition(stop)[0]


TURNS = st.lists(
    st.tuples(st.integers(1, 150), st.sampled_from(["pull", "full", "twice", "edit", "short"])),
    min_size=1,
    max_size=4,
)


@settings(deadline=None, max_examples=40)
@given(TURNS, st.booleans(), st.integers(1, 40))
def test_an_answer_is_wrong_only_where_the_oracle_saw_it(
    turns: list[tuple[int, str]], caching: bool, answer_tokens: int
) -> None:
    """Any mixture of good and bad uses of handles: right text, or a violation on one side."""
    net = LocalNet()
    prefill = net.engine("P", prefix_caching=caching)
    decode = net.engine("D", num_blocks=200)
    alone = net.engine("alone", prefix_caching=False)
    prompt = array("Q")
    handle: dict[str, Any] | None = None
    for number, (length, way) in enumerate(turns):
        prompt = prompt + array("Q", range(1000 * number, 1000 * number + length))
        if way == "edit":
            prompt[len(prompt) // 2] += 7
        elif way == "short":
            prompt = prompt[: max(1, len(prompt) // 2)]
        params = TURN_1 if way == "full" or handle is None else handle
        if way == "twice":
            net.ask(prefill, prompt, params, max_tokens=1)
        first = net.ask(prefill, prompt, params, max_tokens=1)
        assert first.params is not None
        answer: Result = net.ask(decode, prompt, first.params, max_tokens=answer_tokens)
        assert answer.ending is Ending.LENGTH
        right = net.ask(alone, prompt, max_tokens=answer_tokens)
        seen = prefill.oracle.violations or decode.oracle.violations
        assert answer.tokens == right.tokens or seen
        handle = answer.params
        prompt = prompt + array("Q", answer.tokens)
    net.pass_time(1000)
    assert (prefill.pool.usage, decode.pool.usage) == (0, 0)


@settings(deadline=None, max_examples=40)
@given(TURNS, st.booleans(), st.integers(1, 40), st.integers(60, 200), st.data())
def test_with_our_connector_no_use_of_a_handle_is_unsafe_and_every_answer_is_right(
    turns: list[tuple[int, str]],
    caching: bool,
    answer_tokens: int,
    decode_blocks: int,
    data: Any,
) -> None:
    """Any mixture of good and bad uses of handles, on Ds that may have to give leases up.

    What P or D returned is sent again, to the same or to another, with its own prompt or another.
    """
    net = LocalNet()
    prefill = net.engine("P", pair="prefill", prefix_caching=caching)
    decodes = [
        net.engine(name, pair="decode", num_blocks=decode_blocks) for name in ("D", "another D")
    ]
    alone = net.engine("alone", prefix_caching=False)
    prompt = array("Q")
    handle: dict[str, Any] | None = None
    replies: list[dict[str, Any] | None] = []
    for number, (length, way) in enumerate(turns):
        prompt = prompt + array("Q", range(1000 * number, 1000 * number + 4 * length))
        if way == "edit":
            prompt[len(prompt) // 2] += 7
        elif way == "short":
            prompt = prompt[: max(1, len(prompt) // 2)]
        prompt = prompt[-(decode_blocks - 20) * 16 :]
        params = TURN_1 if way == "full" or handle is None else handle
        if way == "twice":
            net.ask(prefill, prompt, params, max_tokens=1)
        replies.append(net.ask(prefill, prompt, params, max_tokens=1).params)
        right = net.ask(alone, prompt, max_tokens=answer_tokens).tokens
        reused, answer = (
            net.ask(data.draw(st.sampled_from(decodes)), prompt, reply, max_tokens=answer_tokens)
            for reply in (data.draw(st.sampled_from(replies)), replies[-1])
        )
        assert reused.tokens == answer.tokens == right
        handle = data.draw(st.sampled_from([reused.params, answer.params]))
        prompt = prompt + array("Q", right)
    net.pass_time(1000)
    assert [core.oracle.violations for core in (prefill, *decodes)] == [[], [], []]
    assert [core.pool.usage for core in (prefill, *decodes)] == [0, 0, 0]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 150), st.booleans()), min_size=1, max_size=4),
    st.booleans(),
    st.integers(1, 60),
    st.sampled_from([1, 4, 16]),
)
def test_a_handle_used_once_for_the_same_history_is_always_right(
    turns: list[tuple[int, bool]], caching: bool, answer_tokens: int, block_size: int
) -> None:
    net = LocalNet()
    prefill = net.engine("P", prefix_caching=caching, block_size=block_size)
    decode = net.engine("D", block_size=block_size)
    alone = net.engine("alone", prefix_caching=False)
    prompt = array("Q")
    handle: dict[str, Any] | None = None
    for number, (length, pull) in enumerate(turns):
        prompt = prompt + array("Q", range(1000 * number, 1000 * number + length))
        params = handle if pull and handle else TURN_1
        first = net.ask(prefill, prompt, params, max_tokens=1)
        answer = net.ask(decode, prompt, first.params, max_tokens=answer_tokens)
        assert answer.tokens == net.ask(alone, prompt, max_tokens=answer_tokens).tokens
        handle = answer.params
        prompt = prompt + array("Q", answer.tokens)
    assert prefill.oracle.violations == decode.oracle.violations == []
    assert decode.oracle.count("leaked") == prefill.oracle.count("leaked") == 0


ADAPTERS = (None, Adapter("poet", "/poet"), Adapter("poet", "/another"))
USES = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["", "a", "b"]), st.integers(1, 150)),
    min_size=1,
    max_size=5,
)


@settings(deadline=None, max_examples=40)
@given(USES, st.booleans(), st.data())
def test_with_our_connector_nobody_reads_kv_of_another_adapter_or_salt(
    uses: list[tuple[int, str, int]], caching: bool, data: Any
) -> None:
    """One history under several adapters and salts, each leg with any handle there is."""
    net = LocalNet()
    prefill = net.engine("P", pair="prefill", prefix_caching=caching)
    decode = net.engine("D", pair="decode")
    alone = net.engine("alone", prefix_caching=False)
    handles: list[dict[str, Any] | None] = [dict(TURN_1)]
    prompt = array("Q", range(600))
    for index, salt, length in uses:
        prompt = prompt + array("Q", range(length))
        identity: dict[str, Any] = {"adapter": ADAPTERS[index], "salt": salt}
        handle = data.draw(st.sampled_from(handles))
        first = net.ask(prefill, prompt, handle, max_tokens=1, **identity)
        answer = net.ask(decode, prompt, first.params, **identity)
        assert answer.tokens == net.ask(alone, prompt, **identity).tokens
        handles.append(answer.params)
    assert findings(prefill, net.now) == findings(decode, net.now) == []
    net.pass_time(1000)
    assert findings(prefill, net.now) == findings(decode, net.now) == []
