"""Containers of a real account: Azurite, by the words of `az storage`."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from tests.integration.batchai.conftest import Shell
from tests.integration.storage.conftest import running
from tests.integration.storage.servers import ACCOUNT, ACCOUNT_KEY, Azurite


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    yield from running(Azurite, tmp_path_factory)


def test_containers_and_blobs_of_a_real_account(shell: Shell, azurite: Azurite) -> None:
    endpoint = f"{azurite.url}/{ACCOUNT}"
    shell.environment["AZURE_STORAGE_CONNECTION_STRING"] = (
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};BlobEndpoint={endpoint};"
    )
    assert shell.json("az storage container create -n data") == {"created": True}
    assert shell.json("az storage container create -n data") == {"created": False}
    assert shell("az storage container list --query [].name -o tsv").stdout == "data\n"
    shell.write("x.bin", "12345")
    assert shell.json("az storage blob upload -c data -n train/x.bin -f x.bin")["contentLength"] == 5
    (shell.directory / "set").mkdir()
    shell.write("set/a", "a")
    shell("az storage blob upload-batch -d data -s set --destination-path more")
    names = shell("az storage blob list -c data --query [].name -o tsv").stdout.split()
    assert names == ["more/a", "train/x.bin"]
    assert azurite.client().get_container_client("data").get_blob_client("train/x.bin").exists()
    shell("az storage blob download -c data -n train/x.bin -f y.bin")
    assert (shell.directory / "y.bin").read_text() == "12345"
    assert shell.json("az storage blob url -c data -n train/x.bin") == f"{endpoint}/data/train/x.bin"
    shell("az storage blob delete -c data -n train/x.bin")
    shell("az storage blob show -c data -n train/x.bin", code=3)
    assert shell.json("az storage container exists -n data") == {"exists": True}
    assert shell.json("az storage container delete -n data") == {"deleted": True}
    assert shell.json("az storage container delete -n data") == {"deleted": False}
    told = shell("az storage share create -n logs", code=2).stderr
    assert "real az" in told


def test_an_account_is_named_by_its_key_too(shell: Shell, azurite: Azurite) -> None:
    words = f"--account-name {ACCOUNT} --account-key {ACCOUNT_KEY} --blob-endpoint {azurite.url}/{ACCOUNT}"
    shell(f"az storage container create -n keyed {words}")
    assert shell("az storage container list --query [].name -o tsv " + words).stdout == "keyed\n"
    told = shell(f"az storage container list --account-name {ACCOUNT}", code=3).stderr
    assert "no storage account" in told


def test_outputs_in_a_container_of_a_real_account_are_listed_with_links(shell: Shell, azurite: Azurite) -> None:
    endpoint = f"{azurite.url}/{ACCOUNT}"
    store = {"stores": {f"az://{ACCOUNT}": {"endpoint": endpoint}}}
    shell.write("petctl.yaml", store)
    azurite.make("models")
    root = "$AZ_BATCHAI_JOB_MOUNT_ROOT/models"
    container = {"accountName": ACCOUNT, "containerName": "models", "relativeMountPath": "models"}
    properties = {
        "nodeCount": 1,
        "customToolkitSettings": {"commandLine": "echo said; echo 12345 > $AZ_BATCHAI_OUTPUT_MODEL/model.txt"},
        "stdOutErrPathPrefix": root,
        "mountVolumes": {"azureBlobFileSystems": [{**container, "credentials": {"accountKey": ACCOUNT_KEY}}]},
        "outputDirectories": [{"id": "MODEL", "pathPrefix": root}],
    }
    shell.write("job.json", {"properties": properties})
    shell("batchai job create -n mnist -f job.json")
    assert shell("batchai job file stream -j mnist -f stdout.txt").stdout == "said\n"
    shell("batchai job wait -n mnist")
    (file,) = shell.json("batchai job file list -j mnist -d MODEL --expiry 5")
    assert (file["name"], file["contentLength"], file["fileType"]) == ("model.txt", 6, "file")
    assert file["downloadUrl"].startswith(f"{endpoint}/models/")
    with urllib.request.urlopen(file["downloadUrl"]) as answer:
        assert answer.read() == b"12345\n"
    assert shell("batchai job file stream -j mnist -d MODEL -f model.txt").stdout == "12345\n"
    told = shell("batchai job file stream -j mnist -d MODEL -f nothing", code=3).stderr
    assert "no file 'nothing'" in told
