"""The life of one container: its runs one after the other, with back-off between them."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from disaggpair_bed.node.backoff import Backoff
from disaggpair_bed.node.context import PodContext
from disaggpair_bed.node.errors import (
    ApiError,
    ConfigError,
    MissingReference,
    SpecError,
    StartError,
    UnknownImage,
)
from disaggpair_bed.node.launch import RunFiles, prepare_launch
from disaggpair_bed.node.logs import ContainerLog, tail_text
from disaggpair_bed.node.process import Exit, Launch, Process
from disaggpair_bed.node.registration import rfc3339
from disaggpair_bed.node.spec import Container
from disaggpair_bed.node.status import ContainerView, Running, Terminated, Waiting
from disaggpair_bed.node.supervise import Supervision
from disaggpair_bed.node.waits import happens_within

logger = logging.getLogger(__name__)

_CONFIG_RETRY_S = 2.0
_MESSAGE_LIMIT = 4096


class ContainerRunner:
    """Runs one container of a pod until it is done for good or stopped.

    `view` is its state for the pod's status; `context.changed` is called after each change.
    `restart_policy` is the pod's, or the container's own where it has one.
    """

    def __init__(self, context: PodContext, view: ContainerView, restart_policy: str) -> None:
        self._context, self._policy = context, restart_policy
        self.view = view
        self.started = asyncio.Event()
        """Set while the container runs and its startup probe has passed."""
        self.log: ContainerLog | None = None
        self.previous_log: ContainerLog | None = None
        self._stop = asyncio.Event()
        self._process: Process | None = None

    @property
    def container(self) -> Container:
        """The container it runs."""
        return self.view.container

    def stop(self) -> None:
        """Ask it to stop within the pod's grace."""
        self._stop.set()

    def signal(self, number: int) -> None:
        """Send its process a signal, if it runs."""
        if self._process is not None:
            self._process.signal(number)

    def explain_waiting(self, reason: str, message: str) -> None:
        """Say in the status why it does not run yet."""
        self._set(state=Waiting(reason, message))

    async def run(self) -> None:
        """Return when the container will not run any more. Cancelling kills it without grace."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(self._context.node.bed.backoff_s)
        while not self._stop.is_set() and not isinstance(self.view.state, Terminated):
            began = loop.time()
            end = await self._run_once()
            if end is None:
                return
            self.started.clear()
            self._set(state=end, ready=False, started=False)
            if self._stop.is_set() or not self._starts_again(end):
                return
            wait_s = backoff.wait_after(loop.time() - began)
            if wait_s:
                text = f"back-off {wait_s:g}s restarting failed container={self.container.name}"
                self.event("BackOff", f"{text} pod={self._context.pod.key}", warning=True)
                self._set(state=Waiting("CrashLoopBackOff", text), last=end)
                if await happens_within(self._stop, wait_s):
                    self._set(state=end, last=None)
                    return
            self._set(state=Waiting("ContainerCreating"), last=end, restarts=self.view.restarts + 1)

    def set_health(self, *, started: bool, ready: bool) -> None:
        """Called by the supervision of the current run."""
        self._set(started=started, ready=ready)
        if started:
            self.started.set()

    def event(self, reason: str, message: str, warning: bool = False) -> None:
        """Write an event about this container."""
        logger.info("%s %s: %s: %s", self._context.pod.key, self.container.name, reason, message)
        self._context.node.events.record(
            self._context.pod, reason, message, self.container.name, warning
        )

    def _starts_again(self, end: Terminated) -> bool:
        return self._policy == "Always" or (self._policy == "OnFailure" and end.exit_code != 0)

    async def _run_once(self) -> Terminated | None:
        """One run; None when it was stopped before it could start."""
        files = RunFiles(self._context.directory / "containers" / self.container.name)
        launch = await self._launch_when_possible(files)
        delay_s = self._context.slow_start_s
        if launch is None or (delay_s and await happens_within(self._stop, delay_s)):
            return None
        container_id = f"process://{uuid.uuid4().hex}"
        started_at = rfc3339(datetime.now(UTC))
        with self._next_log() as log:
            try:
                process = await self._context.node.runtime.start(launch, log)
            except StartError as exc:
                self.event("Failed", f"Error: {exc}", warning=True)
                self._set(container_id=container_id)
                return Terminated(
                    128, "StartError", started_at, started_at, str(exc), 0, container_id
                )
            self.event("Started", f"Started container {self.container.name}")
            self._set(state=Running(started_at), container_id=container_id)
            self._process = process
            try:
                supervision = Supervision(self._context, self.container, process, self)
                end = await supervision.run(self._stop)
            finally:
                self._process = None
        return Terminated(
            exit_code=end.code,
            reason="Completed" if end.code == 0 else "Error",
            started_at=started_at,
            finished_at=rfc3339(datetime.now(UTC)),
            message=self._message(files, log, end),
            signal=end.signal,
            container_id=container_id,
        )

    async def _launch_when_possible(self, files: RunFiles) -> Launch | None:
        """Wait for image, ConfigMaps and Secrets; None when stopped meanwhile."""
        if self._context.node.config.hollow:
            return Launch((), {}, "/")
        pulls = Backoff(self._context.node.bed.backoff_s)
        pulls.wait_after(0)
        pull_reason = "ErrImagePull"
        while True:
            wait_s = _CONFIG_RETRY_S
            try:
                return await prepare_launch(self._context, self.container, files)
            except UnknownImage as exc:
                self._complain(pull_reason, str(exc))
                pull_reason, wait_s = "ImagePullBackOff", pulls.wait_after(0)
            except (MissingReference, SpecError, ConfigError, OSError) as exc:
                self._complain("CreateContainerConfigError", str(exc))
            except ApiError as exc:
                logger.warning("%s: %s", self._context.pod.key, exc)
            if await happens_within(self._stop, wait_s):
                return None

    def _complain(self, reason: str, message: str) -> None:
        self.event("Failed", f"Error: {reason}: {message}", warning=True)
        self.explain_waiting(reason, message)

    @contextlib.contextmanager
    def _next_log(self) -> Iterator[ContainerLog]:
        """A log for this run; the one before is kept, older ones are removed."""
        directory = self._context.directory / "logs"
        directory.mkdir(parents=True, exist_ok=True)
        if self.previous_log is not None:
            self.previous_log.path.unlink(missing_ok=True)
        self.previous_log = self.log
        self.log = ContainerLog(directory / f"{self.container.name}-{self.view.restarts}.log")
        try:
            yield self.log
        finally:
            self.log.close()

    def _message(self, files: RunFiles, log: ContainerLog, end: Exit) -> str:
        with contextlib.suppress(OSError), files.message.open("rb") as file:
            text = file.read(_MESSAGE_LIMIT).decode(errors="replace")
            if text:
                return text
        return tail_text(log.path) if self.container.message_from_logs and end.code else ""

    def _set(self, **changes: Any) -> None:
        view = replace(self.view, **changes)
        if view != self.view:
            self.view = view
            self._context.changed()
