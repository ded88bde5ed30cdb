"""File systems as objects for an administrator."""

from __future__ import annotations

import pytest

from petctl.clusters.kubernetes.commands.admin_volumes import volume_objects
from petctl.errors import UsageError


def test_efs_is_as_the_driver_wants_it() -> None:
    kind, volume = volume_objects("efs", "data", "fs-0123456789abcdef0", "5Gi", "", "")
    assert (kind["kind"], kind["provisioner"], kind["metadata"]["name"]) == ("StorageClass", "efs.csi.aws.com", "data")
    spec = volume["spec"]
    assert spec["csi"] == {"driver": "efs.csi.aws.com", "volumeHandle": "fs-0123456789abcdef0"}
    assert (spec["accessModes"], spec["persistentVolumeReclaimPolicy"]) == (["ReadWriteMany"], "Retain")
    assert (spec["storageClassName"], spec["capacity"]) == ("data", {"storage": "5Gi"})
    assert "claimRef" not in spec


def test_azure_files_and_nfs() -> None:
    _, azure = volume_objects("azure-files", "data", "account/share", "5Gi", "team", "keys")
    assert azure["spec"]["csi"]["volumeAttributes"] == {"storageAccount": "account", "shareName": "share"}
    assert azure["spec"]["csi"]["nodeStageSecretRef"] == {"name": "keys", "namespace": "team"}
    assert azure["spec"]["claimRef"] == {"namespace": "team", "name": "data"}
    _, nfs = volume_objects("nfs", "data", "server:/export", "5Gi", "", "")
    assert nfs["spec"]["nfs"] == {"server": "server", "path": "/export"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("efs", "data", "vol-1", "1Gi", "", ""), "'vol-1' is not the id of an EFS file system"),
        (("efs", "Data", "fs-01234567", "1Gi", "", ""), "'Data' is not a valid volume name"),
        (("efs", "data", "fs-01234567", "1Gi", "", "x"), "--secret is for azure-files"),
        (("azure-files", "data", "account", "1Gi", "a", "b"), "such as ACCOUNT/SHARE"),
        (("azure-files", "data", "account/share", "1Gi", "", ""), "needs --secret NAME and --namespace"),
        (("nfs", "data", "server", "1Gi", "", ""), "such as SERVER:/PATH"),
    ],
)
def test_what_is_refused(words: tuple[str, str, str, str, str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        volume_objects(*words)
