"""What the engines load and run. Pure."""

from typing import Annotated, Final, Literal

from pydantic import Field

from disaggpair_operator.api.rules import Part, Rule
from disaggpair_operator.api.v1alpha1.field_rules import owned_rules, word_rule
from disaggpair_operator.api.v1alpha1.fields import (
    WORD,
    Args,
    Env,
    KeyRef,
    Name,
)
from disaggpair_operator.api.versions import VERSION, VERSION_TAG, version_of_tag

API_KEY_VARIABLE: Final = "VLLM_API_KEY"
"""With it an engine asks every caller of its API for this key."""


class ModelCache(Part):
    """Where model files are kept on a node. Exactly one of the fields."""

    claim: Name | None = None
    """Name of a PersistentVolumeClaim."""
    host_path: Annotated[str, Field(min_length=2, max_length=1024, pattern=r"^/[^:]+$")] | None = (
        None
    )
    """Absolute folder of the node."""
    ephemeral: bool = False
    """A volume that lives and ends with the pod."""

    rules = (
        Rule(
            cel=(
                "[has(self.claim), has(self.hostPath), has(self.ephemeral) && self.ephemeral]"
                ".filter(x, x).size() == 1"
            ),
            message="spec.model.cache needs exactly one of claim, hostPath and ephemeral: true",
            check=lambda self: (
                [self.claim is not None, self.host_path is not None, self.ephemeral].count(True)
                == 1
            ),
        ),
        Rule(
            cel=r"!has(self.hostPath) || !self.hostPath.matches(r'/\.\.(/|$)')",
            message="spec.model.cache.hostPath must not have .. as a part: Kubernetes refuses it",
            check=lambda self: ".." not in (self.host_path or "").split("/"),
            field_path=".hostPath",
        ),
    )


class Model(Part):
    """The model both roles load."""

    name: Annotated[str, Field(min_length=1, max_length=1024, pattern=rf"^{WORD}$")]
    """Model as vLLM is told: a hub name or a folder in the image or cache. Both roles get the same
    string, because it is part of vLLM's compatibility hash."""
    served_name: Annotated[str, Field(max_length=253, pattern=rf"^$|^{WORD}$")] = ""
    """Name clients use in requests. Default: `name`."""
    revision: Annotated[str, Field(max_length=253, pattern=rf"^$|^{WORD}$")] = ""
    """Revision of the model on its hub. Default: the hub's."""
    cache: ModelCache | None = None
    """Where downloaded files are kept. Default: in the container, lost with it."""
    token_secret_ref: KeyRef | None = None
    """Secret key with the hub's access token, given to the engines as HF_TOKEN."""

    rules = (
        word_rule("spec.model.name", "name"),
        word_rule("spec.model.servedName", "served_name"),
        word_rule("spec.model.revision", "revision"),
    )


class Engine(Part):
    """The vLLM engine of both roles.

    There is one image, because version and connector are in vLLM's compatibility hash.
    """

    image: Annotated[str, Field(min_length=1, max_length=512, pattern="^[!-~]+$")]
    """Container image with vLLM, NIXL and, for the DisaggPair connector, our wheel."""
    version: Annotated[str, Field(max_length=32, pattern=VERSION)] = ""
    """vLLM's version in the image, such as 0.33.0. Default: read from the image's tag."""
    allow_untested_version: bool = False
    """Accept a vLLM outside the range that is known to be safe; the condition EngineSupported then
    says what is at risk."""
    connector: Literal["DisaggPair", "Nixl"] = "DisaggPair"
    """KV connector in both engines: ours, which compares tokens before P reads D's blocks and
    computes what it cannot read, or vLLM's own NixlConnector, which does neither."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the image is pulled."""
    api_key_secret_ref: KeyRef | None = None
    """Secret key with an API key that the engines ask for (VLLM_API_KEY) and the router gives them.
    Callers of the router need not know it. Default: engines ask for none, and only the network
    policy keeps others away. Read when a pod starts."""
    args: Args = []
    """More vLLM arguments for both roles."""
    env: Env = []
    """More environment variables for both roles."""

    rules = (
        *owned_rules("spec.engine"),
        Rule(
            cel=(
                f"(has(self.version) && self.version != '') || self.image.matches(r'{VERSION_TAG}')"
            ),
            message=(
                "spec.engine.version is required when the image's tag does not begin with vLLM's "
                "version, such as v0.33.0"
            ),
            check=lambda self: bool(self.version) or version_of_tag(self.image) is not None,
            field_path=".version",
        ),
    )
