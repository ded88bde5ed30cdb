"""For tests on Kubernetes: the cluster that `make test-k8s` has brought up, or the one that KUBECONFIG names."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.namespaces import own_namespace
from tests.k8s.user import User


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pods take their time, and more of it where two cores carry a whole cluster."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """Any cluster."""
    found = Cluster.attach()
    if found is None:
        pytest.skip("no cluster: `make test-k8s` brings one up, KUBECONFIG names another")
    return found


@pytest.fixture
def own_cluster(cluster: Cluster) -> Cluster:
    """The development cluster, whose machines can be reached."""
    if not cluster.own:
        pytest.skip("needs the development cluster; KUBECONFIG leads to another")
    return cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own, ready for pods; all in it goes with it."""
    with own_namespace(cluster) as name:
        yield name


@pytest.fixture
def user(cluster: Cluster, namespace: str, tmp_path: Path) -> User:
    """Somebody who has a project, and petctl's documented role in the namespace."""
    return User(cluster, namespace, tmp_path)
