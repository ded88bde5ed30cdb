"""Archives from elsewhere: what is good comes out as it went in, what is hostile writes nothing outside."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from petctl.bundle.unpack import unpack
from petctl.errors import UsageError

LIMIT = 1 << 20


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0, mode: int = 0o644
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mode = kind, link, size, mode
    return info


def tar_of(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def zip_of(path: Path, *members: tuple[str, int, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, mode, data in members:
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr, info.compress_type = 3, mode << 16, zipfile.ZIP_DEFLATED
            packed.writestr(info, data)
    return path


class Scene:
    """A target inside a folder that must stay as it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target = folder / "target"
        self.target.mkdir()
        (folder / "outside").write_text("untouched")

    def unpack(self, archive: Path, kind: str, limit: int = LIMIT) -> None:
        unpack(archive, self.target, kind=kind, name="code" + kind, limit=limit)

    def assert_untouched(self) -> None:
        assert (self.folder / "outside").read_text() == "untouched"
        assert {path.name for path in self.folder.iterdir()} <= {"target", "outside", "archive"}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_tar(scene: Scene) -> None:
    """Files, folders, links of both kinds, exec bits; a second entry of a name wins."""
    archive = tar_of(
        scene.folder / "archive",
        (member("./", tarfile.DIRTYPE), b""),
        (member("./src/a.py"), b"old"),
        (member("src/a.py"), b"new"),
        (member("run.sh", mode=0o755), b"#!"),
        (member("empty", tarfile.DIRTYPE), b""),
        (member("link", tarfile.SYMTYPE, "src/a.py"), b""),
        (member("copy", tarfile.LNKTYPE, "src/a.py"), b""),
    )
    scene.unpack(archive, ".tar.gz")
    assert (scene.target / "src/a.py").read_text() == (scene.target / "copy").read_text() == "new"
    assert os.access(scene.target / "run.sh", os.X_OK) and not os.access(scene.target / "src/a.py", os.X_OK)
    assert (scene.target / "empty").is_dir() and (scene.target / "link").readlink() == Path("src/a.py")


def test_zip(scene: Scene) -> None:
    """The same; a zip that knows no modes has plain files."""
    archive = zip_of(
        scene.folder / "archive",
        ("src/", stat.S_IFDIR | 0o755, b""),
        ("src/a.py", 0, b"x"),
        ("run.sh", stat.S_IFREG | 0o755, b"#!"),
        ("link", stat.S_IFLNK | 0o777, b"src/a.py"),
    )
    scene.unpack(archive, ".zip")
    assert (scene.target / "link").read_text() == "x" and (scene.target / "link").is_symlink()
    assert os.access(scene.target / "run.sh", os.X_OK)


HOSTILE = {
    "absolute": [(member("/tmp/petctl-hostile"), b"x")],
    "parent": [(member("../outside"), b"x")],
    "parent inside": [(member("a/../../outside"), b"x")],
    "absolute link": [(member("link", tarfile.SYMTYPE, "/etc/passwd"), b"")],
    "link up behind a name": [(member("link", tarfile.SYMTYPE, "src/../a.py"), b"")],
    "link out": [(member("a/link", tarfile.SYMTYPE, "../../outside"), b"")],
    "through a link": [(member("d", tarfile.SYMTYPE, "."), b""), (member("d/x"), b"x")],
    "through a link, later": [(member("d/x"), b"x"), (member("d", tarfile.SYMTYPE, "."), b"")],
    "link in a link": [(member("d", tarfile.SYMTYPE, "e"), b""), (member("d/x", tarfile.SYMTYPE, "y"), b"")],
    "hard link out": [(member("link", tarfile.LNKTYPE, "../outside"), b"")],
    "hard link to nothing": [(member("link", tarfile.LNKTYPE, "nothing"), b"")],
    "hard link to itself": [(member("x"), b"x"), (member("x", tarfile.LNKTYPE, "x"), b"")],
    "device": [(member("null", tarfile.CHRTYPE), b"")],
    "pipe": [(member("pipe", tarfile.FIFOTYPE), b"")],
    "file as folder": [(member("x"), b"x"), (member("x/y"), b"x")],
    "folder as file": [(member("x/y"), b"x"), (member("x"), b"x")],
    "no name": [(member("."), b"x")],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_tars_are_refused_by_entry(scene: Scene, name: str) -> None:
    """Nothing appears outside of the target."""
    archive = tar_of(scene.folder / "archive", *HOSTILE[name])
    with pytest.raises(UsageError, match=r"code\.tar\.gz was not unpacked: its entry "):
        scene.unpack(archive, ".tar.gz")
    scene.assert_untouched()
    assert not Path("/tmp/petctl-hostile").exists()


@pytest.mark.parametrize(
    ("name", "mode", "data"),
    [
        ("../outside", 0, b"x"),
        ("/tmp/petctl-hostile", 0, b"x"),
        ("link", stat.S_IFLNK, b"../outside"),
        ("link", stat.S_IFLNK, b"a\0b"),
        ("link", stat.S_IFLNK, b"x" * 5000),
        ("pipe", stat.S_IFIFO, b""),
    ],
)
def test_hostile_zips_are_refused_by_entry(scene: Scene, name: str, mode: int, data: bytes) -> None:
    """Nothing appears outside of the target."""
    archive = zip_of(scene.folder / "archive", (name, mode, data))
    with pytest.raises(UsageError, match=r"code\.zip was not unpacked"):
        scene.unpack(archive, ".zip")
    scene.assert_untouched()


def bomb(path: Path, kind: str) -> Path:
    if kind == "zip":
        return zip_of(path, ("zeros", 0, bytes(8 * LIMIT)))
    if kind == "many":
        return tar_of(path, *((member(f"f{number}"), b"") for number in range(2100)))
    if kind == "sparse":  # a file that claims four gigabytes and has none of it
        block = bytearray(member("zeros", tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
        block[386:410] = b"%011o\0%011o\0" % (1 << 32, 0)
        block[483:495] = b"%011o\0" % (1 << 32)
        block[148:156] = b"%06o\0 " % sum(block[:148] + b" " * 8 + block[156:])
        path.write_bytes(gzip.compress(bytes(block) + bytes(1024)))
        return path
    if kind == "header":  # a header of 64 MiB, which would be read into memory
        info = member("x", tarfile.XHDTYPE, size=64 << 20)
        path.write_bytes(gzip.compress(info.tobuf() + bytes(64 << 20), 1))
        return path
    return tar_of(path, (member("zeros"), bytes(8 * LIMIT)))


@pytest.mark.parametrize("kind", ["tar", "zip", "many", "header", "sparse"])
def test_bombs_are_bounded(scene: Scene, kind: str) -> None:
    """By what comes out, not by what they announce."""
    archive = bomb(scene.folder / "archive", kind)
    with pytest.raises(UsageError, match="unpacks to more than 1 MiB"):
        scene.unpack(archive, ".zip" if kind == "zip" else ".tar.gz")
    assert sum(path.stat().st_blocks * 512 for path in scene.target.rglob("*")) < 20 * LIMIT


@pytest.mark.parametrize("kind", [".tar", ".tar.gz", ".tgz", ".zip"])
@pytest.mark.parametrize(
    "content", [b"", b"print('a script')\n" * 100, b"\x1f\x8b\x08\0\0\0\0\0garbage" * 50, b"PK\x03\x04" * 99]
)
def test_what_is_no_archive_is_said_to_be_none(scene: Scene, kind: str, content: bytes) -> None:
    """Whatever its name promises."""
    (scene.folder / "archive").write_bytes(content)
    with pytest.raises(UsageError, match=r"is not a \S+ archive, or it is damaged"):
        scene.unpack(scene.folder / "archive", kind)


def test_a_cut_archive_is_an_error(scene: Scene) -> None:
    """Not a tree with half of the files."""
    archive = tar_of(scene.folder / "archive", *((member(f"f{number}"), os.urandom(3000)) for number in range(30)))
    archive.write_bytes(archive.read_bytes()[:40_000])
    with pytest.raises(UsageError, match="damaged"):
        scene.unpack(archive, ".tar.gz")


def test_an_encrypted_zip_is_refused(scene: Scene) -> None:
    """There is nobody to ask for its password."""
    archive = zip_of(scene.folder / "archive", ("a", 0, b"x"))
    data = bytearray(archive.read_bytes())
    central = data.index(b"PK\x01\x02")
    data[6] |= 1
    data[central + 8] |= 1
    archive.write_bytes(data)
    with pytest.raises(UsageError, match="is encrypted"):
        scene.unpack(archive, ".zip")


def test_zstd_without_its_package_has_its_own_sentence(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """petctl does not need the package for anything else."""
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(UsageError, match=r"needs the Python package zstandard.*\.tar\.gz"):
        scene.unpack(scene.folder / "archive", ".tar.zst")


def test_zstd(scene: Scene) -> None:
    """Where the package is there, as any other."""
    zstandard = pytest.importorskip("zstandard")
    archive = scene.folder / "archive"
    archive.write_bytes(b"no archive" * 100)
    with pytest.raises(UsageError, match=r"is not a \.tar\.zst archive"):
        scene.unpack(archive, ".tar.zst")
    packed = gzip.decompress(tar_of(archive, (member("a.py"), b"x")).read_bytes())
    archive.write_bytes(zstandard.compress(packed))
    scene.unpack(archive, ".tar.zst")
    assert (scene.target / "a.py").read_text() == "x"


@pytest.mark.parametrize("kind", [".tar.gz", ".zip"])
def test_folders_count(scene: Scene, kind: str) -> None:
    """One name of 400 letters stands for 190 folders."""
    names = ["/".join([str(number), *["d"] * 190, "x"]) for number in range(20)]
    if kind == ".zip":
        archive = zip_of(scene.folder / "archive", *((name, 0o644, b"") for name in names))
    else:
        archive = tar_of(scene.folder / "archive", *((member(name), b"") for name in names))
    with pytest.raises(UsageError, match="unpacks to more than 1 MiB"):
        scene.unpack(archive, kind)


def test_what_lies_too_deep_is_refused(scene: Scene) -> None:
    """It could not be removed again."""
    archive = tar_of(scene.folder / "archive", (member("/".join(["d"] * 300)), b""))
    with pytest.raises(UsageError, match="is nested more than 200 folders deep"):
        scene.unpack(archive, ".tar.gz")
