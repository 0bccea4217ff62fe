"""vLLM's own multi-turn benchmark against the router: it verifies each answer that it gets.

The conversations that it is given hold the answers of an engine that serves alone.
"""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from disaggpair_bed.clients import environments
from disaggpair_bed.clients.bench import ClientBench, client_bench, run
from disaggpair_bed.routing import Dialogue, eventually, routed

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

MAKE_TOKENIZER = Path(__file__).parent / "clients" / "make_tokenizer.py"
RIVER = "Tell me of the river and of all the towns that lie on it, one after the other. " * 4
CONVERSATIONS = 4
TURNS = 4


def say(line: str) -> None:
    """Progress, which pytest shows when a test fails."""
    sys.stderr.write(line + "\n")


@pytest.fixture
async def bench() -> AsyncIterator[ClientBench]:
    async with client_bench() as bench:
        yield bench


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the benchmark takes from vLLM itself."""
    folder = tmp_path_factory.mktemp("benchmark")
    package = folder / "vllm" / "benchmarks" / "lib"
    package.mkdir(parents=True)
    hides = "def redact_sensitive_namespace(arguments, *_, **__):\n    return arguments\n"
    (package / "utils.py").write_text(hides)
    return folder


async def conversations(bench: ClientBench) -> list[Any]:
    """Questions with the answers of the engine that serves alone."""
    made = []
    async with routed([bench.alone], ["http://127.0.0.1:1"], wait_ready=False) as direct:
        await eventually(lambda: any(one.ready for one in direct.router.parts.endpoints))
        for number in range(CONVERSATIONS):
            talk = Dialogue(direct)
            for turn in range(TURNS):
                await talk.say(f"{number} {turn} {RIVER}")
            made.append({"id": f"c-{number}", "messages": talk.messages})
    return made


@pytest.mark.parametrize(
    "flags", [["--send-conversation-id"], ["--no-stream"]], ids=["id-streamed", "history-plain"]
)
async def test_vllms_benchmark_gets_the_answers_that_it_expects(
    bench: ClientBench, work: Path, flags: list[str]
) -> None:
    python = environments.python("benchmark", say)
    source = environments.benchmark(say)
    await run([python, MAKE_TOKENIZER, work / "tokenizer"])
    given = await conversations(bench)
    (work / "input.json").write_text(json.dumps(given))
    command: list[str | Path] = [
        *(python, source / "benchmark_serving_multi_turn.py", "--verify-output"),
        *("--model", work / "tokenizer", "--served-model-name", "toy"),
        *("--url", bench.front.url, "--input-file", work / "input.json"),
        *("--output-file", work / "output.json", "--no-early-stop"),
        *("--num-clients", "2", "--max-active-conversations", "2"),
        *("--limit-min-tokens", "1", "--limit-max-tokens", "500"),
        *flags,
    ]
    await run(command, work, PYTHONPATH=str(work), HF_HUB_OFFLINE="1")
    told = json.loads((work / "output.json").read_text())
    assert told
    assert all(one in given for one in told)
    turns = CONVERSATIONS * TURNS
    assert bench.front.misses == {"first_turn": CONVERSATIONS}
    assert bench.front.hits == turns - CONVERSATIONS
    assert bench.reads > 0
