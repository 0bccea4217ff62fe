"""A vLLM general plugin that lets two engines share two cores. Test bed only.

vLLM calls `register` in each of its processes (API server, engine core, worker) before the engine
is built. Two waits are changed, no outcome:

- NIXL's progress thread polls without a pause, which is a whole core for every idle engine. It
  pauses between polls here.
- A worker busy-waits for a second after each step of its engine core, and a core that has pinned
  blocks steps about every millisecond, so one lease costs a core until it ends. The worker sleeps
  until the next message here.

Names of vLLM and NIXL are those of the pinned releases; a name that is gone stops the engine at
its start, since an engine that spins would only look slow.
"""

import os
import time
from typing import Any, Final

PROGRESS_DELAY_US: Final = 500
"""Pause of NIXL's progress thread between two polls."""

NOTIFICATION_POLL_MS: Final = 1
"""Longest sleep of a reader that would spin; the price of a notification that was dropped."""


def register() -> None:
    """Apply both changes; calling it again changes nothing."""
    # vLLM sets this limit itself, but only as long as nobody imported NIXL before it.
    os.environ.setdefault("UCX_RCACHE_MAX_UNRELEASED", "1024")
    from nixl import _api as nixl_api
    from vllm.distributed.device_communicators import shm_broadcast

    pause_progress_thread(nixl_api.nixlBind)
    wait_for_notification(shm_broadcast.SpinCondition)


def pause_progress_thread(bindings: Any) -> None:
    """Make every agent configuration of `bindings` keep at least `PROGRESS_DELAY_US`."""
    original = bindings.nixlAgentConfig
    if getattr(original, "calm", False):
        return
    delay = original.pthrDelay

    def set_delay(config: Any, value_us: int) -> None:
        delay.fset(config, max(value_us, PROGRESS_DELAY_US))

    # NIXL's Python API makes the configuration and writes a delay of 0 into it.
    members = {"calm": True, "pthrDelay": property(delay.fget, set_delay)}
    bindings.nixlAgentConfig = type("CalmAgentConfig", (original,), members)


def wait_for_notification(spin_condition: Any) -> None:
    """Make readers of `spin_condition` poll its sockets where they would spin.

    The poll has to be short. A writer drops a notification that follows another within about a
    millisecond (its queue holds one, and ZeroMQ looks seldom whether that one has left), so a
    reader that trusts notifications alone sleeps until its time limit: five seconds a token.
    """
    original = spin_condition.wait
    if getattr(original, "calm", False):
        return

    def calm_wait(self: Any, timeout_ms: int | None = None) -> None:
        if time.monotonic() > self.last_read + self.busy_loop_s:
            original(self, timeout_ms)
            return
        ready = dict(self.poller.poll(timeout=NOTIFICATION_POLL_MS))
        if self.local_notify_socket in ready:
            self.local_notify_socket.recv(copy=False)

    calm_wait.calm = True  # type: ignore[attr-defined]  # a mark
    spin_condition.wait = calm_wait
