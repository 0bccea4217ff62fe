"""What differs between vLLM releases, as data, and the choice of a release for a pair.

The facts were read from the released wheels and run where that was possible on a CPU: the flag
since 0.21; `decoder_kv_blocks_ttl` and `kv_lease_duration` since 0.22.1; roles producer and
consumer since 0.23; expired handles declined since 0.26; kv_rank, kv_parallel_size,
kv_buffer_size and kv_ip gone since 0.32; the handle in a stream since 0.33. P tells D how much of a
prompt it had cached since 0.31.
"""

from dataclasses import dataclass
from typing import Final

from disaggpair_operator.api.v1alpha1 import Engine, Spec
from disaggpair_operator.api.versions import Minor, minor_of, version_of_tag


@dataclass(frozen=True)
class Release:
    """How one minor release of vLLM wants to be configured."""

    minor: Minor
    lease_keys: bool
    """Reads `decoder_kv_blocks_ttl` and `kv_lease_duration`."""
    split_roles: bool
    """Wants kv_producer and kv_consumer; kv_both only warns."""
    declines_expired: bool
    """P declines a handle whose blocks D may have dropped; without it a late read is garbage."""
    handle_in_stream: bool
    """D's handle is in the last chunk of a streamed answer."""
    tells_cached_at_p: bool
    """D's usage tells what P had cached. Before, it tells what D got from P: nearly everything."""
    our_connector: bool
    """The DisaggPair connector supports it."""

    @property
    def text(self) -> str:
        """The release as people write it, such as 0.33."""
        return f"{self.minor[0]}.{self.minor[1]}"


def _release(minor: int) -> Release:
    return Release(
        minor=(0, minor),
        lease_keys=minor >= 22,
        split_roles=minor >= 23,
        declines_expired=minor >= 26,
        handle_in_stream=minor >= 33,
        tells_cached_at_p=minor >= 31,
        our_connector=minor >= 31,
    )


RELEASES: Final = {(0, minor): _release(minor) for minor in range(21, 34)}
"""Every release that can transfer in both directions and was looked at."""

OLDEST: Final = min(RELEASES)
NEWEST: Final = max(RELEASES)


class UnsupportedEngine(ValueError):
    """The pair asks for an engine that cannot do what it wants. The text is for the user."""


@dataclass(frozen=True)
class Choice:
    """The release a pair runs, and what is at risk with it."""

    release: Release
    risk: str = ""
    """Sentence for the EngineSupported condition; empty when nothing is at risk."""


def _version(engine: Engine) -> Minor:
    if engine.version:
        return minor_of(engine.version)
    tagged = version_of_tag(engine.image)
    if tagged is None:
        raise UnsupportedEngine(
            f"spec.engine.version is required: the tag of {engine.image} names no vLLM version"
        )
    return tagged


def choose_release(spec: Spec) -> Choice:
    """The release of the pair's engines.

    Raises:
        UnsupportedEngine: too old for the feature or the connector, or outside the table without
            spec.engine.allowUntestedVersion.
    """
    minor = _version(spec.engine)
    text = f"{minor[0]}.{minor[1]}"
    if minor < OLDEST:
        raise UnsupportedEngine(
            f"spec.engine: vLLM {text} cannot transfer KV from decode to prefill; "
            f"the oldest that can is {RELEASES[OLDEST].text}"
        )
    release = RELEASES.get(minor, RELEASES[NEWEST])
    if spec.engine.connector == "DisaggPair" and not release.our_connector:
        raise UnsupportedEngine(
            f"spec.engine.connector: DisaggPair supports vLLM 0.31 to {RELEASES[NEWEST].text}, "
            f"and the engine is {text}; use a newer engine or connector: Nixl"
        )
    risk = _risk(spec, minor, release)
    if risk and not spec.engine.allow_untested_version:
        raise UnsupportedEngine(f"{risk}; set spec.engine.allowUntestedVersion to accept that")
    return Choice(release, risk)


def _risk(spec: Spec, minor: Minor, release: Release) -> str:
    if minor > NEWEST:
        return (
            f"spec.engine: vLLM {minor[0]}.{minor[1]} is newer than {RELEASES[NEWEST].text}, the "
            "newest this operator knows"
        )
    if spec.kv_transfer.bidirectional and not release.declines_expired:
        return (
            f"spec.engine: vLLM {release.text} reads blocks that decode has already dropped when a "
            "turn comes late, and answers wrongly; 0.26 and later decline such a read"
        )
    return ""
