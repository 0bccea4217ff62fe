"""Settings of one simulated engine; `commandline` reads them."""

from dataclasses import dataclass, field

from disaggpair_bed.simengine.coresettings import CoreSettings
from disaggpair_bed.simengine.costs import Costs
from disaggpair_bed.simengine.identity import Adapter
from disaggpair_bed.simengine.release import Release
from disaggpair_bed.simengine.template import ChatTemplate
from disaggpair_bed.simengine.toymodel import ToyModel
from disaggpair_bed.simengine.transferconfig import TransferConfig

DEFAULT_VERSION = "0.33.0"


@dataclass(frozen=True)
class Ports:
    """Where one data-parallel rank listens, besides the API; 0 for any free port."""

    side_channel: int = 0
    lease: int = 0


@dataclass(frozen=True)
class EngineOptions:
    """One engine."""

    model: str = "toy"
    served_names: tuple[str, ...] = ()
    """Names for clients; the model itself when empty."""
    revision: str = ""
    release: Release = field(default_factory=lambda: Release.parse(DEFAULT_VERSION))
    host: str | None = None
    """Address of the API; every address when None."""
    port: int = 8000
    side_channel_host: str = "localhost"
    side_channel_port: int = 5600
    lease_key: str = ""
    """Bearer key of the lease listener."""
    tp_size: int = 1
    dp_size: int = 1
    """Data-parallel ranks behind the one API server."""
    transfer: TransferConfig | None = None
    core: CoreSettings = field(default_factory=CoreSettings)
    template: ChatTemplate = field(default_factory=ChatTemplate)
    answers: ToyModel = field(default_factory=ToyModel)
    reasoning: bool = False
    """Thinking is taken out of the text and sent in its own field."""
    prompt_tokens_details: bool = False
    """Usage has `prompt_tokens_details.cached_tokens`."""
    adapters: tuple[Adapter, ...] = ()
    """`--lora-modules`; a request may use their names for models."""
    api_keys: tuple[str, ...] = ()
    shutdown_timeout_s: float = 0.0
    costs: Costs = field(default_factory=Costs)
    development: bool = False
    """`VLLM_SERVER_DEV_MODE`: the routes for sleep and new weights exist."""
    control: bool = False
    """The /sim endpoints exist and the oracle records."""

    @property
    def lease_port(self) -> int:
        """Port of the first lease listener; any when the side channel's is any."""
        pair = self.transfer.pair if self.transfer else None
        if pair is None or (pair.lease_port is None and self.side_channel_port == 0):
            return 0
        return pair.lease_port_from(self.side_channel_port)

    def adapter(self, model: str) -> Adapter | None:
        """The LoRA adapter of that name."""
        return next((one for one in self.adapters if one.lora_name == model), None)

    @property
    def names(self) -> tuple[str, ...]:
        """Model names that a request may use."""
        return self.served_names or (self.model,)

    def ports(self, rank: int) -> Ports:
        """Where a rank listens: after the first one's port, or anywhere."""
        return Ports(*(port and port + rank for port in (self.side_channel_port, self.lease_port)))
