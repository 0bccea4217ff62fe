"""A model of leases without any order, and a pool of counted blocks, for tests of the table.

The model keeps one record for each lease. Which are due, which is the oldest and what a listing
says is worked out from all records each time. It answers with the refusal that is wanted, or None.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from disaggpair_connector.lease import EndReason, Lease, Purpose, State


class Pool:
    """Blocks with counts of references, and the number of the request that wrote each last."""

    def __init__(self, blocks: int) -> None:
        self.references = [0] * blocks
        self.writer = [0] * blocks
        self.writes = 0

    def free(self) -> list[int]:
        return [block for block, count in enumerate(self.references) if count == 0]

    def write(self, blocks: Iterable[int]) -> None:
        self.writes += 1
        for block in blocks:
            assert self.references[block] == 0
            self.writer[block] = self.writes

    def pin(self, blocks: list[int]) -> None:
        for block in blocks:
            self.references[block] += 1

    def unpin(self, blocks: list[int]) -> None:
        for block in blocks:
            self.references[block] -= 1
            assert self.references[block] >= 0


@dataclass
class Record:
    """A lease as the model has it."""

    id: str
    conversation: str
    serial: int
    blocks: list[int]
    contents: list[int]
    created: float
    expires: float
    token: str
    state: State = "granted"
    deadline: float | None = None
    purpose: Purpose | None = None
    used: bool = False

    def shown(self, unix_offset_s: float) -> dict[str, Any]:
        """As a listing has it."""
        deadline = self.deadline
        return {
            "id": self.id,
            "conversation": self.conversation,
            "state": self.state,
            "tokens": 0,
            "blocks": len(self.blocks),
            "created": self.created + unix_offset_s,
            "expires": self.expires + unix_offset_s,
            "deadline": None if deadline is None else deadline + unix_offset_s,
        }


class LeaseModel:
    """Records, and what is wanted of the table."""

    def __init__(self, ttl_s: float, claim_s: float, read_s: float) -> None:
        self.now = 50.0
        self.records: dict[str, Record] = {}
        self.ended: dict[str, EndReason] = {}
        self.owed: dict[str, list[int]] = {}
        """Blocks by lease that are to come out of `take_ended`."""
        self.spent: list[tuple[str, str]] = []
        """Leases with tokens that must not work any more."""
        self.block_seconds = 0.0
        self._ttl_s = ttl_s
        self._claim_s = claim_s
        self._read_s = read_s

    def wait(self, seconds: float) -> None:
        for record in self.records.values():
            deadline = record.deadline if record.state == "reading" else None
            end = record.expires if deadline is None else deadline
            self.block_seconds += len(record.blocks) * min(seconds, end - self.now)
        self.now += seconds

    def settle(self) -> None:
        """Let the clock act."""
        for record in list(self.records.values()):
            due = record.expires if record.deadline is None else record.deadline
            if due > self.now:
                continue
            if record.state == "reading":
                self.close(record, "overdue")
            elif record.expires <= self.now:
                self.close(record, "expired")
            else:
                self._spend(record)
                record.state, record.deadline = "granted", None
                record.purpose, record.used = None, False

    def add(self, lease: Lease, blocks: list[int], contents: list[int]) -> None:
        self.records[lease.id] = Record(
            id=lease.id,
            conversation=f"c-{lease.id}",
            serial=lease.serial,
            blocks=blocks,
            contents=contents,
            created=self.now,
            expires=self.now + self._ttl_s,
            token=lease.token,
        )

    def oldest_granted(self) -> Record | None:
        granted = [record for record in self.records.values() if record.state == "granted"]
        return min(granted, key=lambda record: record.serial, default=None)

    def token_of(self, name: str) -> str:
        """What whoever was told last has; nobody is told the token after a lapse."""
        record = self.records.get(name)
        return record.token if record is not None and record.token else "void"

    def claim_refusal(self, name: str) -> str | None:
        record = self.records.get(name)
        if record is None:
            return "unknown"
        return None if record.state == "granted" else "taken"

    def claim(self, name: str, purpose: Purpose, token: str) -> None:
        record = self.records[name]
        self._spend(record)
        record.token, record.purpose = token, purpose
        self._protect(record, "claimed", self._claim_s)

    def redeem_refusal(self, name: str, token: str, purpose: Purpose) -> str | None:
        record = self.records.get(name)
        if record is None:
            return "unknown"
        if record.state == "reading":
            return "taken"
        if token != record.token:
            return "token"
        return "taken" if record.used or record.purpose not in (None, purpose) else None

    def redeem(self, name: str, purpose: Purpose, token: str) -> None:
        """A use begins; `token` is what the lease has from now on."""
        record = self.records[name]
        record.used, record.purpose = True, purpose
        if purpose == "read":
            self._spend(record)
            record.token = token
            self._protect(record, "reading", self._read_s)
        else:
            assert token == record.token
            self._protect(record, "claimed", self._claim_s)

    def finish_read_refusal(self, name: str, token: str) -> str | None:
        record = self.records.get(name)
        if record is None:
            return "unknown"
        if token != record.token:
            return "token"
        return None if record.state == "reading" else "taken"

    def release_refusal(self, name: str, token: str | None) -> str | None:
        record = self.records.get(name)
        if record is None:
            return "unknown"
        if token is None:
            return "taken" if record.state == "reading" else None
        return None if token == record.token else "token"

    def is_in_use(self, name: str, purpose: str) -> bool:
        record = self.records.get(name)
        return record is not None and record.used and record.purpose == purpose

    def close(self, record: Record, reason: EndReason) -> None:
        del self.records[record.id]
        self.ended[record.id] = reason
        if reason != "reclaimed":
            self.owed[record.id] = record.blocks
        self._spend(record)

    def _protect(self, record: Record, state: State, lasting_s: float) -> None:
        record.state, record.deadline = state, self.now + lasting_s
        record.expires = max(record.expires, record.deadline)

    def _spend(self, record: Record) -> None:
        if record.token:
            self.spent.append((record.id, record.token))
        record.token = ""
