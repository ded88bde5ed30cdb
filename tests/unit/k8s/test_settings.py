"""The pure parts of the development cluster: texts, certificates, images, versions."""

from __future__ import annotations

import base64
import json
import tarfile
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from tests.k8s.cluster import cgroups, images, network, programs, settings
from tests.k8s.cluster.certificates import Authority


def test_names_of_links_are_as_short_as_the_kernel_wants_them() -> None:
    assert all(len(name) <= 15 for name in network.links())


def test_a_kubeconfig_holds_all_it_needs() -> None:
    authority = Authority()
    pair = authority.issue("somebody", ("group",))
    read = yaml.safe_load(settings.kubeconfig(authority.certificate, "somebody", pair))
    user = read["users"][0]["user"]
    assert base64.b64decode(user["client-certificate-data"]) == pair.certificate
    assert base64.b64decode(user["client-key-data"]) == pair.key
    assert base64.b64decode(read["clusters"][0]["cluster"]["certificate-authority-data"]) == authority.certificate


def test_a_certificate_names_its_user_and_hosts_and_is_signed() -> None:
    authority = Authority()
    pair = authority.issue("kube-apiserver", ("system:masters",), settings.api_hosts())
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
    assert certificate.subject.rfc4514_string() == "CN=kube-apiserver,O=system:masters"
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "kubernetes.default.svc" in names.get_values_for_type(x509.DNSName)
    assert network.CONTROL in [str(address) for address in names.get_values_for_type(x509.IPAddress)]


def test_nodes_differ_where_they_must() -> None:
    kubelets = [json.loads(settings.kubelet(Path("/keys"), node)) for node in network.NODES]
    assert len({kubelet["cgroupRoot"] for kubelet in kubelets}) == len(network.NODES)
    networks = [json.loads(settings.pod_network(node)[1])["plugins"][0]["ipam"]["ranges"] for node in network.NODES]
    assert networks[0] != networks[1]


def test_control_groups_are_found_in_both_versions() -> None:
    mounts = (
        "30 25 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw\n"
        "31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu\n"
        "32 30 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
    )
    assert cgroups.hierarchies(mounts) == [Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/unified")]


def test_an_image_is_an_archive_whose_layer_is_the_root_file_system(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "true").write_text("#!/bin/sh\n")
    images.archive(root, tmp_path / "image.tar", "petctl.test/small:1", ["/bin/true"])
    assert not (tmp_path / "layer.tar").exists()
    with tarfile.open(tmp_path / "image.tar") as archive:
        manifest = json.load(archive.extractfile("manifest.json") or pytest.fail())
        config = json.load(archive.extractfile(manifest[0]["Config"]) or pytest.fail())
        with tarfile.open(fileobj=archive.extractfile("layer.tar")) as layer:
            assert "./bin/true" in layer.getnames()
    assert manifest[0]["RepoTags"] == ["petctl.test/small:1"]
    assert config["config"]["Cmd"] == ["/bin/true"]


@pytest.mark.parametrize(
    ("version", "enough"),
    [
        ("go version go1.26.0 linux/amd64", True),
        ("go version go1.30 linux/amd64", True),
        ("go version go1.19.8 linux/amd64", False),
        ("go version go1.9 linux/amd64", False),
        ("", False),
    ],
)
def test_a_go_that_is_too_old_is_not_used(version: str, enough: bool) -> None:
    assert programs.new_enough(version) is enough


def test_the_pins_name_one_kubernetes() -> None:
    text = (programs.MODULE / "go.mod").read_text()
    parts = {line.split()[-1] for line in text.splitlines() if " => k8s.io/" in line}
    assert parts == {programs.KUBERNETES.replace("v1.", "v0.")}
