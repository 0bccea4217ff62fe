"""Where the toys are put in, once for the process."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_scheduler as base_scheduler
import vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker as base_worker
import vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler as pull_scheduler
import vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker as pull_worker
import vllm.v1.engine.core as core
from vllm.platforms import current_platform

import disaggpair_connector.decode
import disaggpair_connector.side as side
import disaggpair_connector.worker
from disaggpair_connector import digest, wire
from disaggpair_connector.book import LeaseBook
from disaggpair_connector.decode import DecodeScheduler
from disaggpair_connector.listener import LeaseListener
from disaggpair_connector.prefill import PrefillScheduler
from disaggpair_connector.reader import LeaseReader
from toypair.clock import CLOCK
from toypair.clock import install as tell_time
from toypair.network import ToyListener, ToyReader
from toypair.transport import ToyAgent

CHUNK_TOKENS = 8
"""Between two digests here, so that short prompts have several."""

_installed = False


def install() -> None:
    """Put the toys in; a second call does nothing."""
    global _installed
    if _installed:
        return
    _installed = True
    tell_time(base_scheduler, base_worker, pull_scheduler, pull_worker)
    tell_time(disaggpair_connector.decode, disaggpair_connector.worker)
    vars(base_worker).update(
        NixlWrapper=ToyAgent,
        nixl_agent_config=None,
        get_tensor_model_parallel_rank=lambda: 0,
        get_tensor_model_parallel_world_size=lambda: 1,
        # The platform's kernel takes blocks of 32 tokens only, and there is no kernel here.
        select_common_block_size=lambda size, backends, specs: size,
    )
    # It would bind this process to the machine's last core.
    type(current_platform).discover_numa_topology = classmethod(lambda cls: [])
    # Both engines have an environment of their own, and neither has the heap to itself.
    vars(core).update(enable_envs_cache=lambda: None, freeze_gc_heap=lambda: None)
    vars(digest).update(CHUNK_TOKENS=CHUNK_TOKENS, _CHUNK_BYTES=4 * CHUNK_TOKENS)
    vars(wire).update(CHUNK_TOKENS=CHUNK_TOKENS)
    vars(side).update(
        LeaseListener=ToyListener,
        LeaseReader=ToyReader,
        LeaseBook=ClockedBook,
        DecodeScheduler=ClockedDecode,
        PrefillScheduler=ClockedPrefill,
    )


@contextmanager
def sockets() -> Iterator[None]:
    """Let engines that are made meanwhile ask each other over sockets, and in time as it is."""
    install()
    vars(side).update(LeaseListener=LeaseListener, LeaseReader=LeaseReader)
    try:
        yield
    finally:
        vars(side).update(LeaseListener=ToyListener, LeaseReader=ToyReader)


class ClockedBook(LeaseBook):
    def __init__(self, **named: Any) -> None:
        super().__init__(**named, clock=CLOCK, wall_clock=CLOCK)


class ClockedDecode(DecodeScheduler):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named, clock=CLOCK)


class ClockedPrefill(PrefillScheduler):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named, clock=CLOCK)
