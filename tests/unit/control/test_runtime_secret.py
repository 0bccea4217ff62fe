"""A pair's Secret on the cluster in memory: made once, filled where empty, never shown."""

import base64
import itertools
import logging
from collections.abc import Callable

import kubernetes_validate
import pytest

from disaggpair_bed.builders import FACTS, owner, pair, raw_pair
from disaggpair_bed.fakes.cluster import FakeCluster
from disaggpair_operator import names
from disaggpair_operator.apply import apply
from disaggpair_operator.cluster import Conflict, Forbidden, Rejected
from disaggpair_operator.errors import Incomplete
from disaggpair_operator.keys import Key
from disaggpair_operator.model import Object, Observed, Ref
from disaggpair_operator.ownership import ref_of
from disaggpair_operator.plan import desired
from disaggpair_operator.reconcile import REFUSED_S, Reconciler
from disaggpair_operator.secret import fill_secret, random_key

OWNER = owner()
PLAN = desired(pair(), OWNER, FACTS)
(WANTED,) = PLAN.secrets
REF = Ref("v1", "Secret", "default", "chat-keys")
KEY = Key("default", "chat")


def counted() -> Callable[[], str]:
    """Keys that a test can tell apart."""
    return map("secret-value-{}".format, itertools.count(1)).__next__


def values(cluster: FakeCluster) -> dict[str, str]:
    found = cluster.take(REF)
    assert found is not None
    return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}


def change(cluster: FakeCluster, **data: str) -> None:
    found = cluster.take(REF)
    assert found is not None
    cluster.put({**found, "data": data})


def reconciler(cluster: FakeCluster) -> Reconciler:
    return Reconciler(cluster, FACTS, lambda: "2026-11-30T05:00:00Z", counted())


async def test_it_is_made_with_a_random_value_for_each_key() -> None:
    cluster = FakeCluster()
    assert await fill_secret(cluster, WANTED, OWNER, counted())
    assert values(cluster) == {"lease-key": "secret-value-1", "conversation-key": "secret-value-2"}
    made = cluster.take(REF)
    assert made is not None
    assert made["metadata"]["ownerReferences"][0]["uid"] == OWNER.uid
    kubernetes_validate.validate({**WANTED.obj, "data": made["data"]}, "1.36", strict=True)


def test_a_key_is_32_random_bytes_as_base64url() -> None:
    one, other = random_key(), random_key()
    assert one != other
    assert len(base64.urlsafe_b64decode(one + "=")) == 32


async def test_it_stays_as_it_is_as_long_as_every_key_has_a_value() -> None:
    cluster = FakeCluster()
    new_key = counted()
    await fill_secret(cluster, WANTED, OWNER, new_key)
    before = cluster.take(REF)
    cluster.calls.clear()
    assert not await fill_secret(cluster, WANTED, OWNER, new_key)
    assert cluster.take(REF) == before
    assert cluster.writes() == []


async def test_a_value_that_somebody_chose_is_kept() -> None:
    cluster = FakeCluster()
    await fill_secret(cluster, WANTED, OWNER, counted())
    change(cluster, **{"lease-key": "dGhlaXJz", "conversation-key": "dGhlaXJz"})
    assert not await fill_secret(cluster, WANTED, OWNER, counted())
    assert set(values(cluster).values()) == {"theirs"}


@pytest.mark.parametrize("rest", [{}, {"conversation-key": ""}])
async def test_a_key_without_a_value_gets_one_and_the_others_keep_theirs(
    rest: dict[str, str],
) -> None:
    cluster = FakeCluster()
    cluster.put({**WANTED.obj, "data": {"lease-key": "a2VwdA==", **rest}})
    assert await fill_secret(cluster, WANTED, OWNER, lambda: "new")
    assert values(cluster) == {"lease-key": "kept", "conversation-key": "new"}


async def test_a_value_that_came_while_it_was_looked_at_is_not_lost() -> None:
    class Racing(FakeCluster):
        async def look_at_secret(self, ref: Ref) -> None:
            """As before somebody else made it."""

    cluster = Racing()
    await fill_secret(cluster, WANTED, OWNER, counted())
    with pytest.raises(Conflict):
        await fill_secret(cluster, WANTED, OWNER, lambda: "late")
    assert "late" not in values(cluster).values()


async def test_somebody_elses_secret_is_left_alone_and_named() -> None:
    cluster = FakeCluster()
    cluster.put({**WANTED.obj, "metadata": {"name": REF.name, "namespace": REF.namespace}})
    cluster.put(raw_pair())
    assert await reconciler(cluster).reconcile(KEY) == REFUSED_S
    left = cluster.take(REF)
    assert left is not None
    assert "data" not in left
    assert "Secret default/chat-keys exists and is not controlled" in str(cluster.take(KEY.ref))


async def test_without_its_secret_no_pod_is_replaced() -> None:
    cluster = FakeCluster()
    cluster.put(raw_pair())
    cluster.fail("get", "Secret", Forbidden("could not look at Secret default/chat-keys: no right"))
    with pytest.raises(Incomplete, match="no right"):
        await reconciler(cluster).reconcile(KEY)
    assert cluster.refs("Deployment") == []
    assert "no right" in str(cluster.take(KEY.ref))


async def test_it_is_made_before_what_refers_to_it() -> None:
    cluster = FakeCluster()
    applied = await apply(cluster, PLAN, Observed(OWNER), counted())
    assert applied.changed[0] == ref_of(WANTED.obj)
    assert set(applied.changed[1:]) == {ref_of(obj) for obj in PLAN.objects}


async def test_a_pair_that_turns_to_vllms_own_connector_keeps_it() -> None:
    cluster = FakeCluster()
    cluster.put(raw_pair())
    operator = reconciler(cluster)
    await operator.reconcile(KEY)
    before = values(cluster)
    cluster.put(raw_pair({"engine": {"connector": "Nixl"}}))
    await operator.reconcile(KEY)
    cluster.put(raw_pair())
    await operator.reconcile(KEY)
    assert values(cluster) == before


async def test_it_is_made_anew_after_it_was_deleted_and_goes_with_the_pair() -> None:
    cluster = FakeCluster()
    cluster.put(raw_pair())
    operator = reconciler(cluster)
    await operator.reconcile(KEY)
    before = values(cluster)
    cluster.remove(REF)
    await operator.reconcile(KEY)
    assert not set(before.values()) & set(values(cluster).values())
    cluster.remove(KEY.ref)
    assert cluster.take(REF) is None


async def test_a_refusal_that_quotes_the_values_is_told_without_them() -> None:
    class Quoting(FakeCluster):
        async def write_secret(self, obj: Object) -> None:
            """Refuse as an admission webhook might."""
            raise Rejected(f"denied: {dict(obj)} with secret-value-1")

    with pytest.raises(Rejected, match="denied") as refusal:
        await fill_secret(Quoting(), WANTED, OWNER, counted())
    encoded = base64.b64encode(b"secret-value-1").decode()
    assert encoded not in str(refusal.value)
    assert "secret-value" not in str(refusal.value)
    assert refusal.value.__suppress_context__


async def test_no_value_is_in_plan_status_or_log(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster()
    cluster.put(raw_pair())
    with caplog.at_level(logging.DEBUG):
        await reconciler(cluster).reconcile(KEY)
    told = [vars(record) for record in caplog.records]
    secret = [*values(cluster).values(), *(cluster.take(REF) or {})["data"].values()]
    for value in secret:
        assert value not in str(told)
        assert value not in str(cluster.take(KEY.ref))
    assert "data" not in WANTED.obj


def test_its_name_is_the_pairs() -> None:
    assert ref_of(WANTED.obj) == REF
    assert WANTED.obj["metadata"]["labels"][names.PAIR_LABEL] == "chat"
