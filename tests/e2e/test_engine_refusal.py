"""An engine that the connector refuses, and a pair whose roles refuse each other."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from disaggpair_bed.controlplane.addresses import LoopbackPrefix
from disaggpair_bed.controlplane.errors import ProcessDiedError
from disaggpair_bed.cpu.install import Engines
from disaggpair_bed.cpu.model import SERVED_NAME
from disaggpair_bed.cpu.pair import (
    Engine,
    Pair,
    PairOptions,
    RoleOptions,
    addresses,
    kv_transfer_config,
)
from disaggpair_connector import contract


@pytest.fixture
def misspelt(cpu_engines: Engines, tiny_model: Path, tmp_path: Path) -> Iterator[Engine]:
    """An engine with a key that vLLM would ignore."""
    prefix = LoopbackPrefix()
    config = kv_transfer_config("decode", bidirectional_kv_xfr=True)
    engine = Engine(cpu_engines, tiny_model, "decode", addresses(prefix)[1], config, tmp_path)
    yield engine
    engine.stop()
    prefix.release()


def test_a_misspelt_key_ends_the_engine_with_the_sentence_and_a_failure(misspelt: Engine) -> None:
    misspelt.start()
    with pytest.raises(ProcessDiedError, match="ended by itself with status 1"):
        misspelt.wait_until_healthy()
    assert (
        "kv_connector_extra_config has 'bidirectional_kv_xfr', which vLLM would ignore without a "
        "message: did you mean 'bidirectional_kv_xfer'?"
    ) in misspelt.log.read_text()


def test_a_flag_on_one_role_only_fails_the_first_turn_and_names_both_sides(
    cpu_engines: Engines, tiny_model: Path, tmp_path: Path
) -> None:
    without = RoleOptions(extra={contract.EXTRA_BIDIRECTIONAL: False})
    options = PairOptions(prefill=without)
    with Pair(cpu_engines, tiny_model, tmp_path, options) as pair:
        asked = {"model": SERVED_NAME, "prompt": list(range(5, 205)), "max_tokens": 1}
        first = {"do_remote_decode": True, "do_remote_prefill": False}
        p_leg = complete(pair.prefill.url, {**asked, contract.KV_TRANSFER_PARAMS: first})
        params = p_leg[contract.KV_TRANSFER_PARAMS]
        with pytest.raises(urllib.error.HTTPError) as failed:
            complete(pair.decode.url, {**asked, contract.KV_TRANSFER_PARAMS: params})
        with failed.value as answer:
            assert answer.code == 500
        log = pair.decode.log.read_text()
        assert "NIXL compatibility hash mismatch" in log
        for flag in ("on", "off"):
            assert f"+disaggpair/1,bidirectional={flag}" in log


def complete(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        answered: dict[str, Any] = json.load(response)
        return answered
