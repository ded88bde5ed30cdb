"""Pinned code: what is in it and what never is, what has changed since, and that it stays."""

from __future__ import annotations

import errno
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from petctl.agent.data.code import unpack
from petctl.bundle import take
from petctl.bundle.bundle_cache import Cabinet
from petctl.bundle.sources import tree_of
from petctl.compat.act import pins, published
from petctl.compat.act.config.accounts import Account, Hidden
from petctl.compat.act.config.config import BlobFolder, Config
from petctl.compat.act.pins import changed, last_pin, pin, withheld
from petctl.compat.act.published import write_zip
from petctl.errors import NoRoom, UsageError


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A project with everything that must stay out of a snapshot."""
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AML_LOG_FOLDER", raising=False)
    root = tmp_path / "project"
    account = Account("vig", "box", Hidden("a2V5"), file=root / "secret/vig.yaml")
    write(
        root,
        {
            "train.py": "print()",
            "requirements.txt": "",
            "src/a.o": "",
            "src/a.py": "",
            "data/big": "",
            "assets/run/log": "",
            "aux_data/configs/x.yaml": "account_key: a2V5",
            "aux_data/aml/aml.yaml": "",
            "secret/vig.yaml": "account_key: a2V5",
        },
    )
    return Config(
        root=root,
        file=root / "aux_data/aml/aml.yaml",
        folders={"data": BlobFolder("az://vig/box/data", account)},
        exclude=["*.o"],
    )


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def content(pinned: pins.Pin, folder: Path) -> list[str]:
    """What a node would have of it."""
    folder.mkdir()
    with open(pinned.code["archive"], "rb") as archive:
        unpack(archive, pinned.id, str(folder))
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_keys_logs_and_mapped_folders_stay_out_and_are_named(config: Config, tmp_path: Path) -> None:
    made = pin(config)
    names = content(made, tmp_path / "node")
    assert names == ["aux_data/aml/aml.yaml", "requirements.txt", "src/a.py", "train.py"]
    assert made.left_out == ["assets", "aux_data/configs", "data", "secret/vig.yaml", "src/a.o"]
    assert made.special == ["requirements.txt"]
    assert "pinned 4 files" in made.sentence() and "aux_data/configs" in made.sentence()
    assert last_pin(config) == made


def test_what_git_ignores_is_linked_but_never_keys_or_logs(config: Config, tmp_path: Path) -> None:
    (config.root / ".git").mkdir()
    (config.root / ".gitignore").write_text("aux_data\nassets\nsecret\ndata\nbuild\n*.o\n")
    (config.root / "build").mkdir()
    made = pin(config)
    assert content(made, tmp_path / "node") == [".gitignore", "requirements.txt", "src/a.py", "train.py"]
    assert sorted(made.code["links"]) == ["aux_data/aml", "build"]
    assert made.left_out == ["assets", "aux_data/configs", "data", "src/a.o"]


def test_links_to_keys_and_a_password_in_a_configuration_stay_out(config: Config, tmp_path: Path) -> None:
    (config.root / "aux_data/configs").rename(config.root / "kept")
    (config.root / "aux_data/configs").symlink_to("../kept")
    with_password = replace(config, image="registry/x", image_user="me", image_password=Hidden("secret"))
    assert content(pin(with_password), tmp_path / "node") == ["requirements.txt", "src/a.py", "train.py"]
    assert {"kept", "aux_data/configs", "aux_data/aml"} <= set(withheld(with_password))


def test_the_password_of_another_configuration_stays_out(config: Config, tmp_path: Path) -> None:
    write(
        config.root,
        {
            "aux_data/aml/eu.yaml": "docker: {image: x, username: me, password: topsecret}",
            "aux_data/aml/us.yaml": "docker:\n    password: topsecret\n",
            "aux_data/aml/none.yaml": "docker:\n  password: null # no password: it is public\n  'password': ''\n",
        },
    )
    names = content(pin(config), tmp_path / "node")
    assert [name for name in names if "aml" in name] == ["aux_data/aml/aml.yaml", "aux_data/aml/none.yaml"]


def test_the_log_folder_and_petctls_own_stay_out(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AML_LOG_FOLDER", "my/logs")
    monkeypatch.setenv("PETCTL_HOME", str(config.root / "state"))
    write(config.root, {"my/logs/run/log": "", "my/code.py": "", "state/secrets.json": ""})
    names = content(pin(config), tmp_path / "node")
    assert "my/code.py" in names and not any(name.startswith(("my/logs", "state")) for name in names)


def test_a_tree_with_secrets_is_refused_unless_they_are_none(config: Config) -> None:
    write(config.root, {"id_rsa": "key"})
    with pytest.raises(UsageError, match=r"id_rsa(.|\n)*allow_secrets: \[PATTERN\] in the configuration"):
        pin(config)
    assert last_pin(config) is None
    assert pin(replace(config, allow_secrets=["id_rsa"])).files == 5


def test_a_copy_of_a_key_is_found(config: Config) -> None:
    write(config.root, {"tests/copy.yaml": "account_key: a2V5"})
    with pytest.raises(UsageError, match=r"tests/copy.yaml contains a key .* move it to aux_data/configs"):
        pin(config)
    (config.root / ".petctlignore").write_text("tests\n")
    assert "tests/copy.yaml" not in [*pin(config).code["links"], *pin(config).left_out]


def test_changes_are_named_and_nothing_is_read_again(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petctl.bundle.index._SETTLED", 0)
    made = pin(config)
    pins.snapshot_of(config)
    monkeypatch.setattr("petctl.bundle.snapshot.read_all", lambda root, names: iter([None] * len(list(names))))
    assert changed(config, made) == []


def test_every_kind_of_change_is_one(config: Config) -> None:
    made = pin(config)
    assert changed(config, made) == []
    write(config.root, {"train.py": "print(1)", "new file.py": "", "data/more": "", "assets/x": "", "src/b.o": ""})
    (config.root / "src/a.py").chmod(0o755)
    (config.root / "requirements.txt").unlink()
    assert changed(config, made) == ["new file.py", "requirements.txt", "src/a.py", "train.py"]
    assert changed(config, pin(config)) == []
    os.mkfifo(config.root / "pipe")
    assert "cannot take a snapshot of" in changed(config, made)[0]


def test_each_configuration_has_its_own_and_the_archive_outlives_its_jobs(config: Config) -> None:
    other = replace(config, name="c2", file=config.root / "aux_data/aml/c2.yaml")
    first = pin(config)
    assert last_pin(other) is None
    write(config.root, {"train.py": "changed"})
    assert pin(other).id != first.id and last_pin(config) == first

    cabinet = Path(first.code["archive"]).parent
    os.utime(first.code["archive"], (0, 0))
    linked = {path.name.partition(".")[0] for path in cabinet.iterdir() if path.stat().st_nlink > 1}
    assert Cabinet(cabinet).remove_unused(linked) == []
    assert last_pin(config) == first and Path(first.code["archive"]).stat().st_mtime > 0  # fresh: a run is to have it
    Path(first.code["archive"]).unlink()  # somebody made room
    again = last_pin(config)
    assert again is not None and Path(again.code["archive"]).exists()

    second = pin(config)
    left = sorted(path.name for path in (cabinet.parent / "act/pins").iterdir() if first.id in path.name)
    assert left == [] and second.id in "".join(path.name for path in (cabinet.parent / "act/pins").iterdir())


@pytest.mark.parametrize("damage", ["", "{", '{"id": 1}', "[]"])
def test_a_damaged_pin_counts_as_none(config: Config, damage: str, tmp_path: Path) -> None:
    pin(config)
    (file,) = (tmp_path / "home/act/pins").glob("*.json")
    file.write_text(damage)
    assert last_pin(config) is None


def test_the_published_zip_is_the_same_code(config: Config, tmp_path: Path) -> None:
    (config.root / "train.py").chmod(0o755)
    (config.root / "link.py").symlink_to("src/a.py")
    made = pin(config)
    for name in ("one.zip", "two.zip"):
        write_zip(Path(made.code["archive"]), tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as packed:
        assert packed.testzip() is None
    with tree_of(str(tmp_path / "one.zip")) as tree:
        unpacked = take(tree.path, gitignore=False)
        assert unpacked.id == made.id


def test_a_disk_without_room_for_the_zip_is_told(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(archive: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(published, "write_zip", full)
    made = pin(config)
    with pytest.raises(NoRoom, match=r"code\.zip"):
        published.publish(replace(config, code_path=config.folders["data"]), made)
