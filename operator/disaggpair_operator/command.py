"""`disaggpair operator`: flags to settings, then the process until it is told to stop."""

import argparse
import asyncio
import logging
import os
import sys

from disaggpair_operator.cluster import ClusterError
from disaggpair_operator.errors import OperatorError
from disaggpair_operator.handlers import serve
from disaggpair_operator.logs import set_up_logs
from disaggpair_operator.settings import BINDS, LOG_LEVELS, PULL_POLICIES, Settings

_log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `disaggpair operator`."""
    parser.add_argument(
        "--router-image",
        default=os.environ.get("ROUTER_IMAGE", ""),
        metavar="IMAGE",
        help="image with the disaggpair command, for routers (default: $ROUTER_IMAGE)",
    )
    parser.add_argument(
        "--router-pull-policy",
        choices=PULL_POLICIES,
        default=Settings.router_pull_policy,
        help="when the router's image is pulled (default: %(default)s)",
    )
    parser.add_argument(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="connection (default: $KUBECONFIG, else the pod's service account)",
    )
    parser.add_argument(
        "--namespace",
        action="append",
        default=[],
        dest="namespaces",
        metavar="NAME",
        help="namespace to serve; may be repeated (default: all)",
    )
    parser.add_argument(
        "--bind-address",
        choices=BINDS,
        default=Settings.bind,
        help="address that this process, engines and routers listen on; PodIP is $POD_IP "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--health-port",
        type=int,
        default=Settings.health_port,
        metavar="PORT",
        help="port of /healthz, 0 for none (default: %(default)s)",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        default=Settings.metrics_port,
        metavar="PORT",
        help="port of /metrics, 0 for none (default: %(default)s)",
    )
    parser.add_argument(
        "--resync-seconds",
        type=float,
        default=Settings.resync_s,
        metavar="N",
        help="seconds between looks at a pair without an event (default: %(default)g)",
    )
    parser.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        default=Settings.log_level,
        help="least level that is logged (default: %(default)s)",
    )


def settings_from(args: argparse.Namespace, pod_ip: str) -> Settings:
    """Settings from parsed flags. Raises BadSettings when they disagree."""
    return Settings(
        router_image=args.router_image,
        router_pull_policy=args.router_pull_policy,
        kubeconfig=args.kubeconfig,
        namespaces=tuple(dict.fromkeys(args.namespaces)),
        bind=args.bind_address,
        pod_ip=pod_ip,
        health_port=args.health_port,
        metrics_port=args.metrics_port,
        log_level=args.log_level,
        resync_s=args.resync_seconds,
    )


def run(args: argparse.Namespace) -> int:
    """Run the operator until SIGTERM or SIGINT; 1 when it cannot begin or cannot go on."""
    try:
        settings = settings_from(args, os.environ.get("POD_IP", ""))
    except OperatorError as error:
        print(f"disaggpair operator: {error}", file=sys.stderr)
        return 2
    set_up_logs(settings.log_level)
    _log.info(
        "started",
        extra={"namespaces": settings.namespaces or "all", "router_image": settings.router_image},
    )
    try:
        asyncio.run(serve(settings))
    except (OperatorError, ClusterError) as error:
        _log.error("stopped", extra={"text": str(error)})
        return 1
    _log.info("stopped", extra={"text": "told to stop"})
    return 0
