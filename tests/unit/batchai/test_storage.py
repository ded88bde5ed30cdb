"""Storage accounts of this machine, by the words that Azure's command line has for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.compat.batchai.service.storage import inside, place_of, server_place
from petctl.errors import PetctlError, UsageError
from tests.unit.batchai.conftest import FrontEnd

ACCOUNT = "--account-name mystorage"


@pytest.fixture
def account(az: FrontEnd) -> FrontEnd:
    az("group create -n g -l eastus")
    az("storage account create -n mystorage --sku Standard_LRS -g g -l eastus")
    return az


def test_an_account_needs_its_group_and_its_name_is_unique(az: FrontEnd) -> None:
    az("storage account create -n mystorage -g nobody", code=3)
    assert "no resource group 'nobody'" in az.said
    az("group create -n g")
    az("group create -n h")
    first = az.json("storage account create -n mystorage -g g")
    assert first["location"] == "local"
    assert az.json("storage account create -n mystorage -g g") == first  # the same words twice
    az("storage account create -n mystorage -g h", code=1)
    assert "is taken" in az.said


def test_shares_directories_and_files(account: FrontEnd, home: Path, tmp_path: Path) -> None:
    assert account.json(f"storage share create -n scripts {ACCOUNT}") == {"created": True}
    assert account.json(f"storage share create -n scripts {ACCOUNT}") == {"created": False}
    assert account.json(f"storage directory create -n chainer -s scripts {ACCOUNT}") == {"created": True}
    (tmp_path / "train.py").write_text("print(1)\n")
    account(f"storage file upload -s scripts --source train.py --path chainer {ACCOUNT}")
    place = place_of(home, "file", "mystorage", "scripts")
    assert place is not None
    assert (place / "chainer" / "train.py").read_text() == "print(1)\n"
    (row,) = account.json(f"storage file list -s scripts -p chainer {ACCOUNT}")
    assert (row["name"], row["type"], row["properties"]["contentLength"]) == ("train.py", "file", 9)
    assert account.json(f"storage file exists -s scripts -p chainer/no.py {ACCOUNT}") == {"exists": False}
    account(f"storage file download -s scripts -p chainer/train.py --dest copy.py {ACCOUNT}")
    assert (tmp_path / "copy.py").read_text() == "print(1)\n"
    url = account.json(f"storage file url -s scripts -p chainer/train.py {ACCOUNT}")
    assert url == (place / "chainer" / "train.py").as_uri()
    account(f"storage directory delete -n chainer -s scripts {ACCOUNT}", code=2)  # not empty
    account(f"storage file delete -s scripts -p chainer/train.py {ACCOUNT}")
    assert account.json(f"storage directory delete -n chainer -s scripts {ACCOUNT}") == {"deleted": True}
    account(f"storage file show -s scripts -p chainer/train.py {ACCOUNT}", code=3)


def test_a_file_in_the_way_of_a_directory_is_told(account: FrontEnd, tmp_path: Path) -> None:
    account(f"storage share create -n scripts {ACCOUNT}")
    (tmp_path / "train.py").write_text("print(1)\n")
    account(f"storage file upload -s scripts --source train.py {ACCOUNT}")
    for name in ("train.py", "train.py/deeper"):
        account(f"storage directory create -s scripts -n {name} {ACCOUNT}", code=2)
        assert "there is a file in its way" in account.said
    account(f"storage share exists -n .. {ACCOUNT}", code=2)


def test_folders_go_in_and_out_whole(account: FrontEnd, tmp_path: Path) -> None:
    account(f"storage share create -n data {ACCOUNT}")
    (tmp_path / "set" / "deep").mkdir(parents=True)
    (tmp_path / "set" / "a").write_text("a")
    (tmp_path / "set" / "deep" / "b").write_text("b")
    account(f"storage file upload-batch -d data -s set --destination-path in {ACCOUNT}")
    assert account.json(f"storage file download-batch -s data -d back {ACCOUNT}") == ["in/a", "in/deep/b"]
    assert (tmp_path / "back" / "in" / "deep" / "b").read_text() == "b"


def test_blobs(account: FrontEnd, tmp_path: Path) -> None:
    account(f"storage container create -n data {ACCOUNT}")
    (tmp_path / "x.bin").write_bytes(b"123")
    properties = account.json(f"storage blob upload -c data -n train/x.bin -f x.bin {ACCOUNT}")
    assert properties["contentLength"] == 3
    assert [row["name"] for row in account.json(f"storage blob list -c data --prefix train/ {ACCOUNT}")] == [
        "train/x.bin"
    ]
    account(f"storage blob download -c data -n train/x.bin -f y.bin {ACCOUNT}")
    assert (tmp_path / "y.bin").read_bytes() == b"123"
    account(f"storage blob download -c data -n nothing -f y.bin {ACCOUNT}", code=3)
    account(f"storage blob delete -c data -n train/x.bin {ACCOUNT}")
    assert account.json(f"storage blob list -c data {ACCOUNT}") == []
    assert account.json(f"storage container delete -n data {ACCOUNT}") == {"deleted": True}
    assert account.json(f"storage container list {ACCOUNT}") == []


def test_a_share_that_is_missing_is_told_with_those_there_are(account: FrontEnd) -> None:
    account(f"storage share create -n logs {ACCOUNT}")
    account(f"storage file list -s lo {ACCOUNT}", code=2)  # too short for a name
    account(f"storage file list -s logz {ACCOUNT}", code=3)
    assert "there are: logs" in account.said
    account("storage share list", code=2)
    assert "no storage account given" in account.said


def test_keys_are_made_up_once(account: FrontEnd) -> None:
    first = account("storage account keys list -n mystorage --query [0].value -o tsv")
    assert len(first) == 89
    assert account("storage account keys list -n mystorage --query [0].value -o tsv") == first
    account(f"storage share create -n logs {ACCOUNT} --account-key {first.strip()}")  # a key changes nothing here


def test_no_path_leads_out_of_a_share(tmp_path: Path) -> None:
    root = tmp_path / "share"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    assert inside(root, "/a/./b") == root / "a" / "b"
    with pytest.raises(UsageError):
        inside(root, "a/../../x")
    with pytest.raises(PetctlError):
        inside(root, "out/x")


def test_a_file_server_is_found_by_its_name_where_there_is_one(batchai: FrontEnd, home: Path) -> None:
    batchai("group create -n g")
    batchai("workspace create -g g -n w")
    batchai("group create -n g")
    batchai("workspace create -g g -n v")
    made = batchai.json("file-server create -g g -w w -n data --disk-count 2")
    assert "--disk-count" in batchai.said
    place = server_place(home, "g/w", "data")
    assert str(place) == made["petctl"]["directory"]
    assert server_place(home, "", "data") == place
    batchai("file-server create -g g -w v -n data")
    assert server_place(home, "", "data") is None
    assert server_place(home, "g/w", "nothing") is None
