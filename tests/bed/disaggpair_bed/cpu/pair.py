"""A pair of CPU engines as plain processes, without a cluster around them.

    with Pair(engines, model, folder, PairOptions(connector="Nixl")) as pair:
        pair.prefill.url, pair.decode.url

Each engine has a loopback address of its own, as its pod would have.
"""

from pathlib import Path
from types import TracebackType
from typing import Final, Self

from disaggpair_bed.controlplane.addresses import LoopbackPrefix
from disaggpair_bed.cpu.engine import Engine
from disaggpair_bed.cpu.install import Engines
from disaggpair_bed.cpu.options import (
    PairOptions,
    RoleName,
    RoleOptions,
    kv_transfer_config,
)

__all__ = ["Engine", "Pair", "PairOptions", "RoleOptions", "addresses", "kv_transfer_config"]

_ROLES: Final[tuple[RoleName, RoleName]] = ("prefill", "decode")


class Pair:
    """Both engines, started together: healthy inside the `with`, gone after it.

    Args:
        engines: the environment.
        model: the folder of the model.
        folder: where the logs go.
        options: how they differ from a pair with our connector.
    """

    def __init__(
        self, engines: Engines, model: Path, folder: Path, options: PairOptions | None = None
    ) -> None:
        self.options = options or PairOptions()
        self._prefix = LoopbackPrefix()
        self.prefill, self.decode = (
            self._engine(engines, model, role, address, folder)
            for role, address in zip(_ROLES, addresses(self._prefix), strict=True)
        )

    def _engine(
        self, engines: Engines, model: Path, role: RoleName, address: str, folder: Path
    ) -> Engine:
        options = self.options.of(role)
        config = kv_transfer_config(
            role,
            connector=self.options.connector,
            policy=options.load_failure_policy,
            **options.extra,
        )
        return Engine(
            engines,
            model,
            role,
            address,
            config,
            folder,
            options=options,
            block_size=self.options.block_size,
            calm=self.options.calm,
        )

    def __enter__(self) -> Self:
        try:
            self.prefill.start()
            self.decode.start()
            self.prefill.wait_until_healthy()
            self.decode.wait_until_healthy()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        self.decode.stop()
        self.prefill.stop()
        self._prefix.release()


def addresses(prefix: LoopbackPrefix) -> tuple[str, str]:
    """An address for P and one for D, as on two nodes."""
    return f"{prefix.text}.1.1", f"{prefix.text}.2.1"
