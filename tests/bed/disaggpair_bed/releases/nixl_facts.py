"""What the halves of vLLM's NIXL connector do, found as in `facts`."""

import ast
from typing import Final

from disaggpair_bed.releases import syntax
from disaggpair_bed.releases.surface import find_class, find_method
from disaggpair_bed.releases.wheel import Modules

V1: Final = "vllm.distributed.kv_transfer.kv_connector.v1"
PULL_CONNECTOR: Final = f"{V1}.nixl.connector:NixlPullConnector"
PULL_SCHEDULER: Final = f"{V1}.nixl.pull_scheduler:NixlPullConnectorScheduler"
PULL_WORKER: Final = f"{V1}.nixl.pull_worker:NixlPullConnectorWorker"
BASE_WORKER: Final = f"{V1}.nixl.base_worker:NixlBaseConnectorWorker"
METADATA: Final = f"{V1}.nixl.metadata:NixlConnectorMetadata"
HANDSHAKE: Final = f"{V1}.nixl.metadata:NixlHandshakePayload"


def makes_its_halves_and_nothing_else(modules: Modules) -> bool:
    """NixlPullConnector's constructor makes its two halves and does nothing else."""
    found = find_class(modules, PULL_CONNECTOR)
    made = found.own("__init__") if found else None
    targets = {ast.unparse(target) for target, _ in syntax.assignments(made)}
    halves = {"NixlPullConnectorScheduler", "NixlPullConnectorWorker"}
    return targets == {"self.connector_scheduler", "self.connector_worker"} and syntax.called_names(
        made
    ) == {"super().__init__", "super", *halves}


def expects_what_was_in_a_batch(modules: Modules) -> bool:
    """The worker takes notifications for what was in a batch and is not said to be over."""
    begin = syntax.text(find_method(modules, PULL_WORKER, "start_load_kv"))
    heard = syntax.text(find_method(modules, PULL_WORKER, "_get_new_notifs"))
    return (
        syntax.stand(begin, "metadata.reqs_in_batch", "self._reqs_to_process.add(")
        and syntax.stand(begin, "metadata.reqs_not_processed", "self._reqs_to_process.discard(")
        and "not in self._reqs_to_process" in heard
    )


def sets_timers_for_what_was_in_a_batch(modules: Modules) -> bool:
    """The worker counts down only what the scheduler half put into _reqs_need_send."""
    begin = syntax.text(find_method(modules, PULL_WORKER, "start_load_kv"))
    return syntax.stand(begin, "metadata.reqs_to_send", "self._reqs_to_send[")


def sees_reads_end_in_one_place(modules: Modules) -> bool:
    """get_transfer_results reports as failed what _pop_done_transfers names in its second set."""
    results = find_method(modules, PULL_WORKER, "get_transfer_results")
    named = {
        ast.unparse(target.elts[1])
        for target, value in syntax.assignments(results)
        if syntax.called(value) == "self._pop_done_transfers" and isinstance(target, ast.Tuple)
    }
    return any(f"_failures.update({one})" in syntax.text(results) for one in named)


def sees_what_was_sent_in_one_place(modules: Modules) -> bool:
    """get_transfer_results reports as sent what _get_new_notifs returns."""
    results = find_method(modules, PULL_WORKER, "get_transfer_results")
    sent = {
        ast.unparse(target)
        for target, value in syntax.assignments(results)
        if syntax.called(value) == "self._get_new_notifs"
    }
    return any(f"finished_sending={one}" in syntax.text(results) for one in sent)


def queues_one_read_for_a_request(modules: Modules) -> bool:
    """update_state_after_alloc queues a read once and marks the parameters for it."""
    allocated = syntax.text(find_method(modules, PULL_SCHEDULER, "update_state_after_alloc"))
    return syntax.stand(
        allocated,
        "not params.get('_remote_blocks_processed')",
        "self._reqs_need_recv[",
        "params['do_remote_prefill'] = False",
        "params['_remote_blocks_processed'] = True",
    )


def beats_for_what_will_be_read(modules: Modules) -> bool:
    """on_new_request begins heartbeats for parameters with do_remote_prefill and a layout."""
    told = syntax.text(find_method(modules, PULL_SCHEDULER, "on_new_request"))
    wanted = ("'do_remote_prefill'", "'tp_size'", "self._heartbeat_req_engine[")
    return syntax.stand(told, *wanted)


def renews_by_two_thirds(modules: Modules) -> bool:
    """A heartbeat lengthens P's lease to two thirds of kv_lease_duration from then."""
    made = syntax.text(find_method(modules, PULL_WORKER, "__init__"))
    base = syntax.text(find_method(modules, BASE_WORKER, "__init__"))
    beaten = syntax.text(find_method(modules, PULL_WORKER, "_handle_heartbeat"))
    extension = "self._lease_extension = kv_lease_duration * 2 // 3"
    return extension in made + base and "max(" in beaten and "self._lease_extension" in beaten


def lets_metadata_carry_more(modules: Modules) -> bool:
    """Attributes can be set on the metadata to the workers and on that of the handshake."""
    for name in (METADATA, HANDSHAKE):
        found = find_class(modules, name)
        if found is None:
            return False
        decorators = " ".join(ast.unparse(one) for one in found.line[0].decorator_list)
        if "__slots__" in found.members() or "slots" in decorators or "frozen" in decorators:
            return False
    return True
