"""Files of mapped folders, between this machine and containers of Azurite: up, listed, down, across, removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from petctl.compat.act import data
from petctl.compat.act.config.config import Config, find_config
from petctl.errors import NoSuchPlace, Refused, StoreUnreachable, UsageError
from tests.integration.storage.conftest import fill, tree
from tests.integration.storage.proxy import Passed, Proxy
from tests.integration.storage.servers import ACCOUNT, ACCOUNT_KEY, Azurite
from tests.integration.waiting import until

MIB = 1 << 20
SIZES = {"img2.jpg": 3000, "img10.jpg": 20, "img1.jpg": 1, "deep/er/a b.bin": 9 * MIB, "empty": 0}


class Project:
    """A directory with configurations, each of which maps data and output into a container of its own."""

    def __init__(self, root: Path, server: Azurite) -> None:
        self.root, self.server = root, server
        (root / "aux_data/aml").mkdir(parents=True)
        (root / "aux_data/configs").mkdir()

    def cluster(self, name: str, make: bool = True, **account: str | None) -> Config:
        """A configuration; its container is made."""
        container = f"{name}-{time.time_ns()}"
        if make:
            self.server.make(container)
        keys = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY, "container_name": container}
        said = {**keys, "endpoint": f"{self.server.url}/{ACCOUNT}", **account}
        (self.root / f"aux_data/configs/{name}.yaml").write_text(json.dumps(said))
        places = {
            f"{folder}_folder": {"azure_blob_config_file": f"./aux_data/configs/{name}.yaml", "path": f"to/{folder}"}
            for folder in ("data", "output")
        }
        (self.root / f"aux_data/aml/{name}.yaml").write_text(json.dumps({"config_param": places}))
        return find_config(name)

    def blobs(self, config: Config) -> Any:
        """The container, by the official SDK."""
        return self.server.client().get_container_client(config.folders["data"].account.container)


@pytest.fixture
def project(tmp_path: Path, azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    for name in [name for name in os.environ if name.startswith(("AZURE_", "AML_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = Project(tmp_path / "project", azurite)
    monkeypatch.chdir(made.root)
    yield made


def names(config: Config, prefix: str) -> list[str]:
    return [item.name for item in data.listed(config, prefix)]


def test_up_listed_down_and_removed(project: Project) -> None:
    config = project.cluster("aml")
    here = fill(project.root / "data/voc20", SIZES)
    fill(project.root / "data", {"voc20.txt": 5, "voc2012/x": 7})
    before = tree(project.root / "data")

    moved = data.upload(config, "data/voc20")
    assert (moved.tally.files, moved.tally.bytes) == (len(SIZES), sum(SIZES.values()))
    assert moved.target.endswith("/to/data/voc20")
    assert data.upload(config, "data/voc20").tally.skipped == len(SIZES)
    assert data.upload(config, "./data/voc20.txt").tally.files == 1
    assert data.upload(config, str(project.root / "data/voc2012")).tally.files == 1
    there = sorted(blob.name for blob in project.blobs(config).list_blobs())
    assert there == sorted(f"to/data/{name}" for name in before)

    inside = [f"data/voc20/{name}" for name in ("deep/er/a b.bin", "empty", "img1.jpg", "img2.jpg", "img10.jpg")]
    assert names(config, "data/voc20/") == inside
    assert names(config, "data/voc20") == ["data/voc20.txt", *inside, "data/voc2012/x"]
    assert names(config, "data/voc20/img1") == ["data/voc20/img1.jpg", "data/voc20/img10.jpg"]
    assert names(config, "data") == names(config, "data/") == names(config, "data/voc20")
    assert names(config, "data/coco") == names(config, "output") == []
    (one,) = data.listed(config, "data/voc20.txt")
    assert one == data.info(config, "data/voc20.txt")
    assert one.size == 5
    assert abs(one.time - time.time()) < 60

    assert data.file_exists(config, "data/voc20.txt")
    assert not data.dir_exists(config, "data/voc20.txt")
    assert data.dir_exists(config, "data/voc20")
    assert not data.file_exists(config, "data/voc20")
    assert not data.exists(config, "data/voc")
    assert data.exists(config, "data/voc20/")

    here.rename(project.root / "aside")
    (project.root / "data/voc20.txt").unlink()
    assert data.download(config, "data/voc20").tally.files == len(SIZES)
    assert data.download(config, "data/voc20").tally.skipped == len(SIZES)
    assert data.download(config, "data/voc20.txt").tally.files == 1
    assert tree(project.root / "data") == before
    with pytest.raises(NoSuchPlace, match=r"to/data/coco does not exist"):
        data.download(config, "data/coco")

    with pytest.raises(NoSuchPlace):
        data.remove(config, "data/voc")
    assert data.count(config, "data/voc20") == data.remove(config, "data/voc20") == len(SIZES)
    assert names(config, "data/voc20") == ["data/voc20.txt", "data/voc2012/x"]
    assert data.remove(config, "data/voc20.txt") == 1
    with pytest.raises(NoSuchPlace):
        data.remove(config, "data/voc20.txt")
    assert names(config, "data") == ["data/voc2012/x"]
    assert tree(project.root / "data") == before, "rm is for blobs"


def test_between_two_clusters_nothing_touches_this_machines_folder(project: Project) -> None:
    west, east = project.cluster("we3v32"), project.cluster("eu")
    source = fill(project.root / "data/voc20", SIZES)
    fill(project.root / "data", {"one.txt": 5})
    data.upload(west, "data/voc20")
    data.upload(west, "data/one.txt")
    before = tree(source)
    source.rename(project.root / "aside")

    moved = data.upload(east, "data/voc20", source=west)
    assert (moved.tally.files, moved.same) == (len(SIZES), False)
    assert data.upload(east, "data/voc20", source=west).tally.skipped == len(SIZES)
    assert data.upload(east, "data/one.txt", source=west).tally.files == 1
    assert data.upload(east, "data/voc20", source=east).same
    assert names(east, "data") == names(west, "data")
    assert not source.exists()
    data.download(east, "data/voc20")
    assert tree(source) == before


def test_a_link_reads_one_file_and_does_nothing_else(project: Project) -> None:
    config = project.cluster("aml")
    (fill(project.root / "data", {"deep/x": 5}) / "a b.txt").write_text("hello")
    data.upload(config, "data")
    link = data.url(config, "data/a b.txt")
    with urllib.request.urlopen(link) as answer:
        assert answer.read() == b"hello"
    said = parse_qs(urlsplit(link).query)
    assert said["sp"] == ["r"]
    left = datetime.fromisoformat(said["se"][0].replace("Z", "+00:00")) - datetime.now(timezone.utc)
    assert timedelta(days=29.9) < left <= timedelta(days=30)
    headers = {"x-ms-blob-type": "BlockBlob"}
    for method, url in (("PUT", link), ("DELETE", link), ("GET", link.replace("a%20b.txt", "deep/x"))):
        request = urllib.request.Request(url, b"" if method == "PUT" else None, headers, method=method)
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request)
    with pytest.raises(UsageError, match="data/deep is a folder"):
        data.url(config, "data/deep")
    with pytest.raises(NoSuchPlace):
        data.url(config, "data/nothing")


def test_refusals_name_the_accounts_file(project: Project) -> None:
    from azure.storage.blob import ContainerSasPermissions, generate_container_sas

    fill(project.root / "data", {"x": 1})

    def sas(config: Config, days: float, rights: str = "rwdlc") -> str:
        account = config.folders["data"].account
        end = datetime.now(timezone.utc) + timedelta(days=days)
        permission = ContainerSasPermissions.from_string(rights)
        return "?" + generate_container_sas(
            ACCOUNT, account.container, account_key=ACCOUNT_KEY, permission=permission, expiry=end
        )

    def refused(config: Config, kind: type[Exception], *words: str) -> None:
        for act in (lambda: data.listed(config, "data/x"), lambda: data.upload(config, "data/x")):
            with pytest.raises(kind) as caught:
                act()
            told = str(caught.value)
            assert all(word in told for word in words), told
            assert "AZURE_STORAGE" not in told
            assert "sig=" not in told

    refused(project.cluster("wrong", account_key="b3RoZXI="), Refused, "key or SAS is wrong", "configs/wrong.yaml")
    refused(project.cluster("torn", account_key="xxxx!"), Refused, "not valid base64", "configs/torn.yaml")
    refused(project.cluster("none", make=False), NoSuchPlace, "does not exist", "container_name", "configs/none.yaml")
    refused(project.cluster("off", endpoint="http://127.0.0.1:9/x"), StoreUnreachable, "no answer", "127.0.0.1:9")

    config = project.cluster("sas")
    container = config.folders["data"].account.container
    keys: dict[str, str | None] = {"container_name": container, "account_key": None}
    good = project.cluster("sas", make=False, **keys, sas_token=sas(config, 1))
    assert data.upload(good, "data/x").tally.files == 1
    assert names(good, "data") == ["data/x"]
    assert data.remove(good, "data/x") == 1
    late = project.cluster("sas", make=False, **keys, sas_token=sas(config, -1))
    refused(late, Refused, "expired", "configs/sas.yaml")


def test_a_file_is_not_put_where_a_folder_is(project: Project) -> None:
    config = project.cluster("aml")
    fill(project.root / "data", {"x/a": 1, "y": 1})
    data.upload(config, "data")
    (project.root / "data/x/a").unlink()
    (project.root / "data/x").rmdir()
    (project.root / "data/y").unlink()
    fill(project.root / "data", {"x": 1, "y/a": 1})
    for path in ("data/x", "data/y"):
        for move in (data.upload, data.download):
            with pytest.raises(UsageError, match=f"{path} is a file at .* and a folder at"):
                move(config, path)
    assert names(config, "data") == ["data/x/a", "data/y"]


def test_folders_as_blobfuse_leaves_them(project: Project) -> None:
    config = project.cluster("aml")
    blobs = project.blobs(config)
    for folder in ("to/output", "to/output/run1", "to/output/run1/sub"):
        blobs.upload_blob(folder, b"", metadata={"hdi_isfolder": "true"})
    blobs.upload_blob("to/output/run1/sub/model.pt", b"12345")
    blobs.upload_blob("to/output/run10", b"1")
    assert names(config, "output/run1") == ["output/run1/sub/model.pt", "output/run10"]
    assert data.download(config, "output/run1").tally.files == 1
    assert (project.root / "output/run1/sub/model.pt").read_bytes() == b"12345"
    fill(project.root, {"output/run1/new": 3})
    assert data.upload(config, "output/run1").tally.found == 2
    assert data.count(config, "output/run1") == data.remove(config, "output/run1") == 2
    assert [blob.name for blob in blobs.list_blobs()] == ["to/output", "to/output/run10"]


def test_what_was_killed_is_taken_up_by_the_same_command(project: Project) -> None:
    fill(project.root / "data/big", {"large": 40 * MIB, "small": 10})
    with Proxy(project.server.port) as proxy:
        config = project.cluster("aml", endpoint=f"{proxy.url}/{ACCOUNT}")
        program = (
            "from petctl.compat.act import data; from petctl.compat.act.config.config import find_config; "
            "data.upload(find_config('aml'), 'data/big')"
        )
        process = subprocess.Popen([sys.executable, "-c", program])

        def count(passed: Passed) -> None:
            if len(sent()) > 1:
                os.kill(process.pid, signal.SIGKILL)

        def sent() -> set[str]:
            return {one.part for one in proxy.passed if one.part}

        proxy.after = count
        assert process.wait(60) == -signal.SIGKILL
        until(lambda: not proxy.busy, "the last requests are through")
        first = sent()
        proxy.after = lambda passed: None
        proxy.take()
        moved = data.upload(config, "data/big")
        assert first
        assert not first & sent(), "sent twice"
        assert moved.tally.bytes < 40 * MIB
        assert [(item.name, item.size) for item in data.listed(config, "data/big")] == [
            ("data/big/large", 40 * MIB),
            ("data/big/small", 10),
        ]
