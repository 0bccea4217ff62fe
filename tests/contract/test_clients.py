"""Client libraries as they are, in front of simulated engines with our connector.

Every turn after a conversation's first one reads what D holds, every answer is the one of an engine
that serves alone, and no engine sees a read that is not safe.
"""

import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from disaggpair_bed.clients import environments
from disaggpair_bed.clients.bench import ClientBench, client_bench

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

PROGRAMS = Path(__file__).parent / "clients"


def say(line: str) -> None:
    """Progress, which pytest shows when a test fails."""
    sys.stderr.write(line + "\n")


@pytest.fixture
async def bench() -> AsyncIterator[ClientBench]:
    async with client_bench() as bench:
        yield bench


@pytest.mark.parametrize(
    ("name", "conversations", "turns"),
    [
        ("openai", 7, 18),
        ("anthropic", 4, 10),
        ("langchain", 8, 24),
        ("litellm", 8, 20),
        ("agents", 4, 12),
    ],
)
async def test_a_python_client_keeps_its_conversations(
    bench: ClientBench, name: str, conversations: int, turns: int
) -> None:
    python = environments.python(name, say)
    routed, direct = await bench.ask(python, PROGRAMS / f"ask_{name}.py")
    assert routed == direct
    assert bench.front.misses == {"first_turn": conversations}
    assert bench.front.hits == turns - conversations
    assert bench.reads > 0


async def test_the_node_client_keeps_its_conversations(bench: ClientBench) -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node or npm is not on PATH")
    folder = environments.node(say)
    routed, direct = await bench.ask("node", PROGRAMS / "ask_openai.mjs", folder)
    assert routed == direct
    assert bench.front.misses == {"first_turn": 6}
    assert bench.front.hits == 10
    assert bench.reads > 0
