"""Where a path of the project is, on this machine and in a container; what is refused before any store is asked."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from petctl.compat.act import data, paths
from petctl.compat.act.config.config import Config, find_config
from petctl.errors import NoSuchPlace, UsageError

KEY = "c2VjcmV0LWtleS1vZi10ZXN0cw=="
AML = """
config_param:
  data_folder: {azure_blob_config_file: aux_data/configs/blob.yaml, path: path/to/data}
  output_folder: {azure_blob_config_file: aux_data/configs/blob.yaml, path: path/to/output}
"""


def account(root: Path, **more: str) -> None:
    said = {"account_name": "vig", "container_name": "box", **more}
    (root / "aux_data/configs/blob.yaml").write_text("".join(f"{name}: {value!r}\n" for name, value in said.items()))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a configuration, which is the current one."""
    root = tmp_path / "project"
    (root / "aux_data/configs").mkdir(parents=True)
    (root / "aux_data/aml").mkdir()
    (root / "aux_data/aml/aml.yaml").write_text(AML)
    account(root, account_key=KEY)
    monkeypatch.chdir(root)
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("AML_CONFIG_PATH", raising=False)
    return root


@pytest.fixture
def config(project: Path) -> Config:
    return find_config()


@pytest.mark.parametrize(
    ("path", "inside", "there"),
    [
        ("data/voc20", "data/voc20", "az://vig/box/path/to/data/voc20"),
        ("./data/voc20", "data/voc20", "az://vig/box/path/to/data/voc20"),
        ("data/x/../voc20", "data/voc20", "az://vig/box/path/to/data/voc20"),
        ("data//voc20/", "data/voc20", "az://vig/box/path/to/data/voc20/"),
        ("data", "data", "az://vig/box/path/to/data"),
        ("output/a b/ü.txt", "output/a b/ü.txt", "az://vig/box/path/to/output/a b/ü.txt"),
    ],
)
def test_a_path_has_a_place(config: Config, project: Path, path: str, inside: str, there: str) -> None:
    for word in (path, f"{project}/{path}"):
        spot = paths.find_spot(config, word)
        assert (spot.path, str(spot.there)) == (inside, there)
        assert str(spot.here) == f"{project}/{inside}" + ("/" if path.endswith("/") else "")


def test_a_project_may_be_reached_by_a_link(config: Config, project: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project)
    assert paths.find_spot(config, str(tmp_path / "link" / "data" / "x")).path == "data/x"


def test_a_mapped_folder_that_is_a_link_is_still_that_folder(config: Config, project: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (project / "data").symlink_to(tmp_path / "disk")
    assert paths.find_spot(config, "data/x").path == "data/x"


@pytest.mark.parametrize("path", ["../data/x", "data/../../x", "/etc/passwd", "", "..", "../project2/data"])
def test_no_path_leads_out_of_the_project(config: Config, path: str) -> None:
    with pytest.raises(UsageError, match="not in the project"):
        paths.find_spot(config, path)


@pytest.mark.parametrize("path", ["models/x", "data2/x", ".", "datax", "Data/x"])
def test_a_folder_that_is_not_mapped_is_told_with_those_that_are(config: Config, path: str) -> None:
    with pytest.raises(UsageError) as caught:
        paths.find_spot(config, path)
    told = str(caught.value)
    assert "data (az://vig/box/path/to/data), output (az://vig/box/path/to/output)" in told
    assert f"{path.partition('/')[0] if path != '.' else 'NAME'}_folder:" in told
    assert "aml.yaml" in told


def test_what_is_not_here_is_not_sent(config: Config) -> None:
    with pytest.raises(NoSuchPlace, match=r"data/voc20 is not here .*a ls data/voc20"):
        data.upload(config, "data/voc20")


def test_between_one_place_and_itself_nothing_is_copied(config: Config, project: Path) -> None:
    (project / "aux_data/aml/eu.yaml").write_text("_base_: aml.yaml\n")
    moved = data.upload(config, "data/voc20/", source=find_config("eu"))
    assert moved.same
    assert moved.source == moved.target == "az://vig/box/path/to/data/voc20/"
    assert moved.tally.found == 0


def test_no_link_is_made_of_a_sas(project: Path) -> None:
    account(project, sas_token="?sv=2021-12-02&sp=rwdl&sig=secret%3D")
    with pytest.raises(UsageError) as caught:
        data.url(find_config(), "data/x")
    assert "aux_data/configs/blob.yaml" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_accounts_own_key_counts_and_no_other(
    config: Config, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from petctl.storage.stores.credentials import find_access

    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "b3RoZXI=")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:1/vig")

    def access(config: Config) -> tuple[str, str, str]:
        spot = paths.find_spot(config, "data/x")
        found = find_access(spot.there, paths.opens(spot.place))
        return found.key, found.sas, found.endpoint

    assert access(config) == (KEY, "", "https://vig.blob.core.windows.net")
    account(project, sas_token="?sv=1&sig=x", account_key=KEY, endpoint="http://127.0.0.1:2/vig")
    assert access(find_config()) == (KEY, "", "http://127.0.0.1:2/vig")
    account(project, sas_token="?sv=1&sig=x")
    assert access(find_config()) == ("", "sv=1&sig=x", "https://vig.blob.core.windows.net")
    account(project)
    assert access(find_config()) == ("b3RoZXI=", "", "http://127.0.0.1:1/vig")
    assert not (Path(os.environ["PETCTL_HOME"]) / "secrets").exists()


def test_numbers_in_names_count_as_numbers() -> None:
    names = ["a", "a1", "a2", "a10", "a10/b", "b1x2", "b1x10", "img_0002.jpg", "img_10.jpg"]
    mixed = random.Random(1).sample(names, len(names))
    assert sorted(mixed, key=data.natural_order) == names


def test_a_file_share_is_the_directory_that_it_is_mounted_at(project: Path, tmp_path: Path) -> None:
    share = "https://vig.file.core.windows.net/box"
    entry = "{azure_blob_config_file: aux_data/configs/blob.yaml, path: to/data, storage_type: file, file_share: box}"
    (project / "aux_data/aml/aml.yaml").write_text(f"config_param:\n  data_folder: {entry}\n")
    (project / "petctl.yaml").write_text(f"stores:\n  {share}: {{directory: {tmp_path / 'share'}}}\n")
    config = find_config()
    for name in ("voc20/x2", "voc20/x10", "voc2012"):
        (project / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (project / "data" / name).write_text(name)
    assert data.listed(config, "data") == []
    assert data.upload(config, "data").tally.files == 3
    assert (tmp_path / "share/to/data/voc20/x2").read_text() == "voc20/x2"
    assert [item.name for item in data.listed(config, "data/voc20")] == [
        "data/voc20/x2",
        "data/voc20/x10",
        "data/voc2012",
    ]
    assert [item.name for item in data.listed(config, "data/voc20/")] == ["data/voc20/x2", "data/voc20/x10"]
    with pytest.raises(UsageError, match="a link needs a blob"):
        data.url(config, "data/voc2012")
    assert data.remove(config, "data/voc20") == 2
    assert [path.name for path in (tmp_path / "share/to/data").iterdir()] == ["voc2012"]
