"""Templates that make other tokens of equal messages: what is read is what is common (2d)."""

from dataclasses import replace
from typing import Any

import pytest

from disaggpair_bed.chaos.bench import lease_bench, tokens_read
from disaggpair_bed.chaos.truth import Truth
from disaggpair_bed.routing import Dialogue, as_message
from disaggpair_bed.simengine.template import ChatTemplate
from disaggpair_bed.simengine.toymodel import ToyModel

ID = {"conversation_id": "c"}
LONG = "Tell me of the river and of all the towns that lie on it, one after the other. " * 4
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("a", "b")]


async def _right(bench: Any, talk: Dialogue, **fields: Any) -> None:
    """One turn, compared with an engine that reads nothing, and with a salt that nobody had."""
    talk.messages.append(as_message(LONG))
    body = {"model": "toy", "messages": talk.messages, **talk.fields, **fields}
    reply = await talk.routed.post("/v1/chat/completions", body)
    assert reply.status == 200
    message = reply.json["choices"][0]["message"]
    found = Truth(bench.decode.ranks.options).answers("/v1/chat/completions", body)
    assert found is not None
    assert message["content"] == found[0].text
    control = await talk.routed.post(
        "/v1/chat/completions",
        {**body, "conversation_id": "control", "cache_salt": f"fresh-{len(talk.messages)}"},
    )
    assert control.json["choices"][0]["message"]["content"] == found[0].text
    kept = {key: value for key, value in message.items() if value}
    talk.messages.append(kept)


@pytest.mark.parametrize(
    ("template", "answers"),
    [
        pytest.param(
            ChatTemplate(unstable_generation_prompt=True), ToyModel(), id="h70-generation-prompt"
        ),
        pytest.param(
            ChatTemplate(strip_reasoning=True), ToyModel(thinking=30), id="h66-strips-reasoning"
        ),
        pytest.param(ChatTemplate(trim=True), ToyModel(), id="h74-trims"),
        pytest.param(ChatTemplate(), ToyModel(two_spellings=True), id="h72-two-spellings"),
        pytest.param(ChatTemplate(date="2026-11-30"), ToyModel(), id="h71-date"),
    ],
)
async def test_a_template_that_drifts_gives_right_answers_under_leases(
    template: ChatTemplate, answers: ToyModel
) -> None:
    async with (
        lease_bench(template=template, answers=answers, reasoning=True) as bench,
        bench.router() as front,
    ):
        talk = Dialogue(front, dict(ID))
        for _ in range(4):
            await _right(bench, talk)
        assert front.hits == 3
        assert tokens_read(bench.prefill) > 0


async def test_h71_a_date_that_changes_at_midnight_gives_right_answers_under_leases() -> None:
    async with (
        lease_bench(template=ChatTemplate(date="2026-11-30")) as bench,
        bench.router() as front,
    ):
        talk = Dialogue(front, dict(ID))
        await _right(bench, talk)
        for engine in bench.engines:
            engine.ranks.options = replace(
                engine.ranks.options, template=ChatTemplate(date="2026-12-01")
            )
        read = tokens_read(bench.prefill)
        await _right(bench, talk)
        # The date stands near the top, so nothing worth a read is common.
        assert tokens_read(bench.prefill) == read
        await _right(bench, talk)
        assert tokens_read(bench.prefill) > read


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"tools": TOOLS}, {"tools": TOOLS[::-1]}, id="h69-reordered"),
        pytest.param({}, {"tools": TOOLS}, id="h69-added"),
        pytest.param(
            {}, {"chat_template_kwargs": {"enable_thinking": False}}, id="h70-template-kwargs"
        ),
        pytest.param({}, {"cache_salt": "mine"}, id="h79-salt-under-leases"),
        pytest.param({"cache_salt": "theirs"}, {"cache_salt": "mine"}, id="h79-other-salt"),
    ],
)
async def test_another_scope_reads_nothing_under_leases(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    async with lease_bench() as bench, bench.router() as front:
        talk = Dialogue(front, dict(ID))
        await talk.say(LONG, **before)
        read = tokens_read(bench.prefill)
        await talk.say(LONG, **after)
        assert front.misses["scope"] == 1
        assert tokens_read(bench.prefill) == read


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda messages: messages.insert(0, {"role": "system", "content": "New."}),
            id="h68-system-under-leases",
        ),
        pytest.param(
            lambda messages: messages[0].update(content="Other. " + LONG),
            id="h65-edited-under-leases",
        ),
        pytest.param(
            lambda messages: messages.__delitem__(slice(-2, None)),
            id="h67-regenerated-under-leases",
        ),
    ],
)
async def test_a_changed_history_gives_right_answers_under_leases(change: Any) -> None:
    async with lease_bench() as bench, bench.router() as front:
        talk = Dialogue(front, dict(ID))
        await _right(bench, talk)
        await _right(bench, talk)
        change(talk.messages)
        await _right(bench, talk)
        await _right(bench, talk)
