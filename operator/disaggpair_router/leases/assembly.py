"""Builds what a router with leases consists of. Starts nothing."""

import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import get_args

from disaggpair_connector.contract import LEASE_KEY_ENV
from disaggpair_router.config import KVTransfer, LeaseAccess
from disaggpair_router.conversation import Keys
from disaggpair_router.endpoints import Endpoints
from disaggpair_router.environment import Environment
from disaggpair_router.errors import ConfigError
from disaggpair_router.leases.board import LeaseBoard
from disaggpair_router.leases.claims import Claims
from disaggpair_router.leases.client import LeaseClient
from disaggpair_router.leases.follow import Followers
from disaggpair_router.leases.release import LeaseReleases
from disaggpair_router.leases.rows import Row, State
from disaggpair_router.leases.source import Leases
from disaggpair_router.metrics import Metrics
from disaggpair_router.pauses import Pauses


def leases_of(
    kv: KVTransfer,
    access: LeaseAccess,
    endpoints: Endpoints,
    metrics: Metrics,
    environment: Environment,
    clock: Callable[[], float],
) -> Leases:
    """The leases of a pair; ConfigError when there is no key for them."""
    if not environment.lease_key:
        raise ConfigError(f"kv.leases is set, but {LEASE_KEY_ENV} is not: give the engines' key.")
    board = LeaseBoard()
    endpoints.on_loss(lambda name, incarnation: board.drop_endpoint(name, but=incarnation))
    metrics.handles.set_function(lambda: board.granted)
    for state in get_args(State):
        metrics.leases.labels(state).set_function(partial(board.count, state))
    client = LeaseClient(key=environment.lease_key, claim_s=access.claim_s)

    def seen(row: Row) -> None:
        claims.seen(row)

    followers = Followers(
        board,
        client,
        endpoints=endpoints,
        port=access.port,
        ranks=access.data_parallel_size,
        seen=seen,
        random=Random(),  # noqa: S311 - spreads retries
    )
    releases = LeaseReleases(client, metrics)
    claims = Claims(
        board,
        client=client,
        followers=followers,
        releases=releases,
        endpoints=endpoints,
        pauses=Pauses(kv.pull_pause_s, clock),
        metrics=metrics,
        clock=clock,
    )
    return Leases(
        board,
        claims=claims,
        client=client,
        followers=followers,
        releases=releases,
        keys=Keys(environment.conversation_secret),
        port=access.port,
        ranks=access.data_parallel_size,
        told_in_stream=kv.handle_in_stream,
        unix_clock=time.time,
    )
