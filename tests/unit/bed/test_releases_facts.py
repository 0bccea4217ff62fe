"""Facts about vLLM's code are found in code that has them, and missed in code that has not."""

import pytest

from disaggpair_bed.releases import facts
from disaggpair_bed.releases.facts import Fact
from disaggpair_bed.releases.relied import FACTS
from disaggpair_bed.releases.wheel import Modules


class Text:
    """Sources that are one module."""

    def __init__(self, class_name: str, body: str) -> None:
        module, _, self._name = class_name.partition(":")
        self._path = f"{module.replace('.', '/')}.py"
        self._body = body

    def text(self, path: str) -> str | None:
        return f"class {self._name}:\n{self._body}" if path == self._path else None


ALLOCATE = """
    def allocate_slots(self):
        if needed_blocks > self.pool.free_blocks():
            return None
        self.coordinator.allocate_new_computed_blocks()
        self.coordinator.allocate_new_blocks()
        return found
"""
OUTPUT = """
    def _update_from_kv_xfer_finished(self, output):
        self.connector.update_connector_output(output)
        for req_id in output.finished_sending or ():
            self._free_blocks(req_id)
"""
FREE = """
    def _free_request(self, request, delay):
        delayed, params = self._connector_finished(request)
        if not delayed:
            self._free_blocks(request)
"""
SCHEDULE = """
    def schedule(self):
        self.kv_cache_manager.allocate_slots(running)
        tokens, later = self.connector.get_num_new_matched_tokens(request, 0)
        if tokens is None:
            skip(request)
            continue
        self.kv_cache_manager.allocate_slots(request)
        self.connector.update_state_after_alloc(request)
        self._build_kv_connector_meta(self.connector, output)

    def _build_kv_connector_meta(self, connector, output):
        return connector.build_connector_meta(output)
"""
INIT = """
    def __init__(self, config):
        transfer = config.kv_transfer_config
        self.connector = KVConnectorFactory.create_connector(config)
        if overlap and transfer.is_kv_consumer:
            self.defer_block_free = True
        self.connector.bind_kv_cache_manager(self.kv_cache_manager)
"""
LATE_INIT = """
    def __init__(self, config):
        transfer = config.kv_transfer_config
        self.connector = KVConnectorFactory.create_connector(config)
        self.connector.bind_kv_cache_manager(self.kv_cache_manager)
        if overlap and transfer.is_kv_consumer:
            self.defer_block_free = True
"""
POOL = """
    def touch(self, blocks):
        block.ref_cnt += 1

    def free_blocks(self, blocks):
        block.ref_cnt -= 1
        if block.ref_cnt == 0:
            self.free.append(block)
"""


@pytest.mark.parametrize(
    ("fact", "class_name", "body", "part", "instead"),
    [
        (
            facts.refuses_for_lack_of_blocks_only,
            facts.MANAGER,
            ALLOCATE,
            "self.coordinator.allocate_new_blocks()",
            "if asleep: return None",
        ),
        (
            facts.refuses_before_it_takes,
            facts.MANAGER,
            ALLOCATE,
            "return found",
            "return None",
        ),
        (
            facts.shows_outputs_before_it_frees,
            facts.SCHEDULER,
            OUTPUT,
            "        self.connector.update_connector_output(output)\n",
            "",
        ),
        (facts.finishes_before_it_frees, facts.SCHEDULER, FREE, "if not delayed:", "if True:"),
        (
            facts.skips_a_request_that_waits,
            facts.SCHEDULER,
            SCHEDULE,
            "continue",
            "break",
        ),
        (
            facts.tells_after_it_allocated,
            facts.SCHEDULER,
            SCHEDULE,
            "self.kv_cache_manager.allocate_slots(request)",
            "pass",
        ),
        (
            facts.allocates_through_the_manager,
            facts.SCHEDULER,
            SCHEDULE,
            "self.kv_cache_manager.allocate_slots(request)",
            "allocate_slots(request)",
        ),
        (
            facts.builds_metadata_last,
            facts.SCHEDULER,
            SCHEDULE,
            "connector.build_connector_meta(output)",
            "output",
        ),
        (facts.looks_at_the_role_in_between, facts.SCHEDULER, INIT, INIT, LATE_INIT),
        (
            facts.looks_at_the_role_in_between,
            facts.SCHEDULER,
            INIT,
            "transfer.is_kv_consumer",
            "reads",
        ),
        (facts.counts_references, facts.POOL, POOL, "ref_cnt += 1", "holders += 1"),
        (facts.counts_references, facts.POOL, POOL, "ref_cnt == 0", "holders == 0"),
    ],
)
def test_a_fact_is_found_and_missed(
    fact: Fact, class_name: str, body: str, part: str, instead: str
) -> None:
    assert part in body
    assert fact(Modules(Text(class_name, body)))
    assert not fact(Modules(Text(class_name, body.replace(part, instead))))


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_no_fact_is_found_in_nothing(fact: Fact) -> None:
    assert not fact(Modules(Text("vllm.other:Nothing", "    pass")))


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_a_fact_says_in_one_sentence_what_it_is(fact: Fact) -> None:
    assert fact.__doc__ is not None
    assert fact.__doc__.endswith(".")
    assert "\n" not in fact.__doc__
