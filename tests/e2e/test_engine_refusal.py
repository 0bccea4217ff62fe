"""An engine that the connector refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from disaggpair_bed.controlplane.addresses import LoopbackPrefix
from disaggpair_bed.controlplane.errors import ProcessDiedError
from disaggpair_bed.cpu.install import Engines
from disaggpair_bed.cpu.pair import Engine, addresses, kv_transfer_config


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
