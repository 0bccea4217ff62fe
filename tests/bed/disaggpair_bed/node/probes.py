"""What a series of probe results means. No clock and no I/O: `container` runs the probes."""

from dataclasses import dataclass

from disaggpair_bed.node.spec import Probe


@dataclass
class ProbeState:
    """Counts results of one probe of one run of a container.

    `passing` is the last settled result: it changes only after `success_threshold` or
    `failure_threshold` equal results in a row.
    """

    probe: Probe
    passing: bool
    run: int = 0
    last: bool | None = None

    def record(self, success: bool) -> bool:
        """Count one result; true when the settled result is now `success`."""
        self.run = self.run + 1 if success == self.last else 1
        self.last = success
        threshold = self.probe.success_threshold if success else self.probe.failure_threshold
        if self.run < threshold:
            return False
        self.passing = success
        return True
