"""What vLLM's scheduler and cache do around the connector, found in their syntax trees.

Each function answers whether its first line holds in a release. It looks for the calls and
comparisons that make it true, so it says no as well when vLLM does the same in another way: a
person has to read then, which is the purpose. What NIXL's halves do is in `nixl_facts`.
"""

import ast
from collections.abc import Callable
from typing import Final

from disaggpair_bed.releases import syntax
from disaggpair_bed.releases.surface import find_method
from disaggpair_bed.releases.wheel import Modules

SCHEDULER: Final = "vllm.v1.core.sched.scheduler:Scheduler"
MANAGER: Final = "vllm.v1.core.kv_cache_manager:KVCacheManager"
POOL: Final = "vllm.v1.core.block_pool:BlockPool"
REQUEST: Final = "vllm.v1.request:Request"

Fact = Callable[[Modules], bool]


def binds_the_cache_manager(modules: Modules) -> bool:
    """The scheduler's constructor makes the connector and binds the cache manager to it."""
    return syntax.starts_with(
        find_method(modules, SCHEDULER, "__init__"),
        "KVConnectorFactory.create_connector",
        "self.connector.bind_kv_cache_manager",
    )


def looks_at_the_role_in_between(modules: Modules) -> bool:
    """The scheduler makes the connector, asks whether its role reads, and binds the manager."""
    made = find_method(modules, SCHEDULER, "__init__")
    asked = [
        branch.lineno
        for branch in syntax.branches(made)
        if ".is_kv_consumer" in ast.unparse(branch.test)
        and ast.unparse(branch.body[0]) == "self.defer_block_free = True"
    ]
    lines: dict[str, int] = {}
    for (line, _), name in syntax.calls(made):
        lines.setdefault(name, line)
    before = lines.get("KVConnectorFactory.create_connector")
    after = lines.get("self.connector.bind_kv_cache_manager")
    return (
        len(asked) == 1 and before is not None and after is not None and before < asked[0] < after
    )


def has_the_names_outside_of_classes(modules: Modules) -> bool:
    """vLLM has a version, a logger, a current platform and a port of the side channel."""
    looked_for = {
        "vllm": "__version__",
        "vllm.logger": "def init_logger(",
        "vllm.platforms": "current_platform",
        "vllm.envs": "VLLM_NIXL_SIDE_CHANNEL_PORT: int",
    }
    trees = {module: modules.tree(module) for module in looked_for}
    return all(
        tree is not None and looked_for[module] in ast.unparse(tree)
        for module, tree in trees.items()
    )


def tells_of_new_requests(modules: Modules) -> bool:
    """Scheduler.add_request calls the connector's on_new_request."""
    added = find_method(modules, SCHEDULER, "add_request")
    return "self.connector.on_new_request" in syntax.called_names(added)


def skips_a_request_that_waits(modules: Modules) -> bool:
    """A request for which get_num_new_matched_tokens says None is left for a later step."""
    schedule = find_method(modules, SCHEDULER, "schedule")
    counts = {
        ast.unparse(target.elts[0])
        for target, value in syntax.assignments(schedule)
        if syntax.called(value) == "self.connector.get_num_new_matched_tokens"
        and isinstance(target, ast.Tuple)
    }
    return any(
        ast.unparse(branch.test) in {f"{count} is None" for count in counts}
        and isinstance(branch.body[-1], ast.Continue)
        for branch in syntax.branches(schedule)
    )


def tells_after_it_allocated(modules: Modules) -> bool:
    """schedule asks the connector, allocates, and then calls update_state_after_alloc."""
    return syntax.follow(
        find_method(modules, SCHEDULER, "schedule"),
        "self.connector.get_num_new_matched_tokens",
        "self.kv_cache_manager.allocate_slots",
        "self.connector.update_state_after_alloc",
    )


def builds_metadata_last(modules: Modules) -> bool:
    """schedule has the workers' metadata built after all requests of the step."""
    built = find_method(modules, SCHEDULER, "_build_kv_connector_meta")
    return "connector.build_connector_meta" in syntax.called_names(built) and syntax.follow(
        find_method(modules, SCHEDULER, "schedule"),
        "self.connector.update_state_after_alloc",
        "self._build_kv_connector_meta",
    )


def shows_outputs_before_it_frees(modules: Modules) -> bool:
    """update_connector_output is called before the scheduler looks at finished_sending."""
    update = find_method(modules, SCHEDULER, "_update_from_kv_xfer_finished")
    shown = [
        line
        for (line, _), name in syntax.calls(update)
        if name == "self.connector.update_connector_output"
    ]
    looked_at = [
        loop.lineno for loop in syntax.loops(update) if "finished_sending" in ast.unparse(loop.iter)
    ]
    return bool(shown) and bool(looked_at) and min(shown) < min(looked_at)


def takes_statistics_of_the_scheduler_half(modules: Modules) -> bool:
    """Every update_from_output takes the connector's statistics, after the step's transfers."""
    return syntax.starts_with(
        find_method(modules, SCHEDULER, "update_from_output"),
        "self._update_from_kv_xfer_finished",
        "self.connector.get_kv_connector_stats",
    )


def finishes_before_it_frees(modules: Modules) -> bool:
    """_free_request calls _connector_finished first and frees the blocks unless it said no."""
    free = find_method(modules, SCHEDULER, "_free_request")
    frees_on_a_condition = any(
        isinstance(branch.test, ast.UnaryOp) and "self._free_blocks" in ast.unparse(branch.body[0])
        for branch in syntax.branches(free)
    )
    return frees_on_a_condition and syntax.starts_with(
        free, "self._connector_finished", "self._free_blocks"
    )


def finishes_with_every_group(modules: Modules) -> bool:
    """_connector_finished gives a connector that SupportsHMA the block ids of all groups."""
    finished = find_method(modules, SCHEDULER, "_connector_finished")
    return "SupportsHMA" in syntax.text(finished) and syntax.follow(
        finished,
        "self.kv_cache_manager.get_block_ids_for_computed_tokens",
        "self.connector.request_finished_all_groups",
    )


def steps_for_requests_only(modules: Modules) -> bool:
    """An engine steps while it has requests, or a connector that says it has work to push."""
    asked = syntax.called_names(find_method(modules, SCHEDULER, "has_requests"))
    return {name for name in asked if "ec_connector" not in name} == {
        "self.has_unfinished_requests",
        "self.has_finished_requests",
        "self.connector.has_pending_push_work",
    }


def resets_through_the_manager(modules: Modules) -> bool:
    """Scheduler.reset_prefix_cache calls the method of its KVCacheManager."""
    reset = find_method(modules, SCHEDULER, "reset_prefix_cache")
    return "self.kv_cache_manager.reset_prefix_cache" in syntax.called_names(reset)


def allocates_through_the_manager(modules: Modules) -> bool:
    """schedule allocates through its KVCacheManager, whose method is looked up at each call."""
    names = syntax.called_names(find_method(modules, SCHEDULER, "schedule"))
    allocating = {name for name in names if name.endswith("allocate_slots")}
    return allocating == {"self.kv_cache_manager.allocate_slots"}


def refuses_for_lack_of_blocks_only(modules: Modules) -> bool:
    """allocate_slots returns None where it needs more blocks than there are, nowhere else."""
    allocate = find_method(modules, MANAGER, "allocate_slots")
    guarded = [
        statement
        for branch in syntax.branches(allocate)
        if isinstance(branch.test, ast.Compare)
        and isinstance(branch.test.ops[0], ast.Gt)
        and "blocks" in ast.unparse(branch.test.left)
        and "blocks" in ast.unparse(branch.test.comparators[0])
        for statement in branch.body
    ]
    refusals = syntax.returns_of_none(allocate)
    return bool(refusals) and all(refusal in guarded for refusal in refusals)


def refuses_before_it_takes(modules: Modules) -> bool:
    """allocate_slots takes no block before the last place where it can return None."""
    allocate = find_method(modules, MANAGER, "allocate_slots")
    refusals = [refusal.lineno for refusal in syntax.returns_of_none(allocate)]
    takings = [
        line for (line, _), name in syntax.calls(allocate) if "coordinator.allocate_new" in name
    ]
    return bool(refusals) and bool(takings) and max(refusals) < min(takings)


def counts_references(modules: Modules) -> bool:
    """touch adds a reference to a block, free_blocks drops one, and a block without is free."""
    touch = syntax.text(find_method(modules, POOL, "touch"))
    free = syntax.text(find_method(modules, POOL, "free_blocks"))
    dropped = free.find("ref_cnt -= 1")
    return "ref_cnt += 1" in touch and 0 <= dropped < free.find("ref_cnt == 0")


def takes_parameters_of_the_sampling(modules: Modules) -> bool:
    """A request has the kv_transfer_params of its sampling parameters' extra_args."""
    made = syntax.text(find_method(modules, REQUEST, "__init__"))
    return "self.kv_transfer_params = sampling_params.extra_args.get('kv_transfer_params')" in made
