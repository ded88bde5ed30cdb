"""The words of `petctl-operator`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

EXAMPLES = """\
in a pod, for all namespaces (its service account says where and who it is):
  petctl-operator.pyz
from a laptop, for one namespace:
  petctl operator run --kubeconfig ~/.kube/config --namespace research
"""


class Options(NamedTuple):
    """What an operator was told at its start."""

    namespace: str = ""  # whose jobs; empty: all
    lease_namespace: str = ""  # empty: its own
    workers: int = 4
    health_port: int = 0  # 0: none
    kubeconfig: str = ""
    context: str = ""


def parse_options(words: Sequence[str]) -> Options:
    """The options; argparse itself ends the process for --help and for wrong words."""
    parser = argparse.ArgumentParser(
        prog="petctl-operator",
        description="Keeps the ElasticJobs of a Kubernetes cluster going.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--namespace", default="", metavar="NS", help="only the jobs of this namespace (default: all)")
    parser.add_argument(
        "--lease-namespace", default="", metavar="NS", help="where the Lease is kept (default: its own)"
    )
    parser.add_argument("--workers", type=int, default=4, metavar="N", help="jobs handled in parallel (default: 4)")
    parser.add_argument("--health-port", type=int, default=0, metavar="PORT", help="/healthz, /readyz and /metrics")
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="kubeconfig file, outside of a cluster")
    parser.add_argument("--context", default="", metavar="NAME", help="context of the kubeconfig")
    chosen = parser.parse_args(list(words))
    if chosen.workers < 1:
        parser.error("--workers must be at least 1")
    if not 0 <= chosen.health_port < 1 << 16:
        parser.error("--health-port must be a port, or 0 for none")
    return Options(**vars(chosen))
