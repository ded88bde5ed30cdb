"""Snapshots: the id is a matter of names, contents and exec bits alone, and nothing is read twice."""

from __future__ import annotations

import hashlib
import os
import socket
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petctl.agent.data.code import unpack as unpack_on_node
from petctl.bundle import Snapshot, hashing, index, take
from petctl.errors import NotFound, UsageError
from tests.unit.bundle.conftest import Grow

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0\n"), min_size=1, max_size=60).filter(
    lambda name: name not in (".", "..") and not name.startswith(".") and len(name.encode()) < 200
)
TREES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=4).map("/".join),
    st.tuples(st.binary(max_size=2000), st.booleans()),
    max_size=8,
)


def plant(root: Path, files: dict[str, tuple[bytes, bool]]) -> None:
    for path, (content, executable) in files.items():
        file = root / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue  # the same name was drawn as a folder
        file.chmod(0o755 if executable else 0o644)


@settings(max_examples=60, deadline=None)
@given(files=TREES)
def test_what_is_unpacked_has_the_id_of_what_was_packed(files: dict[str, tuple[bytes, bool]]) -> None:
    """And elsewhere, later, with other owners and another order of writing, the archive has the same bytes."""
    with tempfile.TemporaryDirectory() as folder:
        one, other, third = (Path(folder) / name for name in ("one", "other", "third"))
        for root in (one, other, third):
            root.mkdir()
        plant(one, files)
        first = take(one, allow_secrets=["*"], gitignore=False)
        first.pack(Path(folder) / "one.tar.gz")
        with tarfile.open(Path(folder) / "one.tar.gz") as packed:
            assert [(member.mtime, member.uid, member.gid, member.uname) for member in packed] == [
                (0, 0, 0, "") for _ in first.entries
            ]
            packed.extractall(other, filter="data")
        assert take(other, allow_secrets=["*"], gitignore=False).id == first.id
        for entry in reversed(first.entries):  # the same once more, written in another order
            (third / entry.path).parent.mkdir(parents=True, exist_ok=True)
            (third / entry.path).write_bytes((one / entry.path).read_bytes())
            (third / entry.path).chmod(int(entry.mode, 8))
            os.utime(third / entry.path, (1, 1))
            if os.geteuid() == 0:
                os.chown(third / entry.path, 12345, 12345)
        again = take(third, allow_secrets=["*"], gitignore=False)
        again.pack(Path(folder) / "third.tar.gz")
        assert (Path(folder) / "third.tar.gz").read_bytes() == (Path(folder) / "one.tar.gz").read_bytes()


def test_manifest(grow: Grow) -> None:
    """The form is a promise: other programs make and check ids."""
    root = grow({"b.py": "x", "a/z.sh": "#!", "é": "", "a.py": "y"})
    (root / "a/z.sh").chmod(0o744)
    (root / "b.py").chmod(0o666)
    (root / "link").symlink_to("./a//z.sh")
    (root / "empty").mkdir()
    lines = [
        f"644 1 {hashlib.sha256(b'y').hexdigest()} a.py",
        f"755 2 {hashlib.sha256(b'#!').hexdigest()} a/z.sh",
        f"644 1 {hashlib.sha256(b'x').hexdigest()} b.py",
        f"link 0 {hashlib.sha256(b'./a//z.sh').hexdigest()} link",
        f"644 0 {hashlib.sha256(b'').hexdigest()} é",
    ]
    snapshot = take(root)
    assert snapshot.manifest == "".join(f"{line}\n" for line in lines)
    assert snapshot.id == hashlib.sha256(snapshot.manifest.encode()).hexdigest()
    assert (snapshot.size, snapshot.hashed) == (4, 4)


@pytest.mark.parametrize("target", ["b.py", "./b.py", "missing", "sub", "sub/", "."])
def test_links_inside_are_kept_and_unpacked(grow: Grow, tmp_path: Path, target: str) -> None:
    """As links, with the text that they have; also through pack and unpack."""
    root = grow({"b.py": "x", "sub/c.py": ""})
    (root / "link").symlink_to(target)
    snapshot = take(root)
    snapshot.pack(tmp_path / "packed")
    with tarfile.open(tmp_path / "packed") as packed:
        packed.extractall(tmp_path / "out", filter="data")
    assert (tmp_path / "out/link").readlink() == Path(target)
    assert take(tmp_path / "out").id == snapshot.id
    (tmp_path / "node").mkdir()
    with open(tmp_path / "packed", "rb") as packed_again:
        unpack_on_node(packed_again, snapshot.id, str(tmp_path / "node"))


def test_a_link_that_no_node_would_unpack_is_refused(grow: Grow) -> None:
    root = grow({"b.py": "x", "sub/c.py": ""})
    (root / "link").symlink_to("sub/../b.py")
    with pytest.raises(UsageError, match=r"link: is a link to sub/\.\./b\.py, which goes up \('..'\) after a name"):
        take(root)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside", "deep/../../../x", "up/../outside", "{root}/b.py"])
def test_links_that_lead_out_are_refused(grow: Grow, target: str) -> None:
    """By name, also those that leave only when they are followed."""
    root = grow({"b.py": "x", "sub/deep/c": ""})
    (root / "sub/up").symlink_to("..")
    (root / "sub/bad").symlink_to(target.format(root=root))
    with pytest.raises(UsageError, match=r"(?s)sub/bad: is a link to .*Ignore them.*map their folder"):
        take(root)


def test_what_cannot_be_shipped_is_named_at_once(grow: Grow) -> None:
    """Devices, odd names; unless they are ignored."""
    root = grow({"b.py": "x", "line\nbreak": ""})
    os.mkfifo(root / "pipe")
    (Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9"))).touch()
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(root)  # the address of a Unix socket is short
        try:
            listener.bind("sock")
        finally:
            os.chdir(here)
    with pytest.raises(UsageError) as caught:
        take(root)
    text = str(caught.value)
    assert "pipe: is a device, socket or pipe" in text and "sock: is a device" in text
    assert "caf\\udce9: has a name that is not UTF-8" in text and "line\\nbreak: has a line break" in text
    (root / ".petctlignore").write_text("pipe\nsock\ncaf*\nline*\n")
    assert [entry.path for entry in take(root).entries] == [".petctlignore", "b.py"]


def test_what_the_caller_leaves_out_is_named_apart_from_what_is_ignored(grow: Grow) -> None:
    root = grow({"a.py": "", "b.o": "", "src/b.o": "", "src/CMC/x.py": "", "data/x": "", "big/x": "", "CMC.py": ""})
    (root / ".gitignore").write_text("big/\n!b.o\n")
    (root / "data" / "away").symlink_to("/somewhere")  # nobody asks where it leads
    taken = take(root, exclude=["data"], patterns=["*.o", "**/CMC/"])
    assert [entry.path for entry in taken.entries] == [".gitignore", "CMC.py", "a.py"]
    assert (taken.left_out, taken.ignored) == (("b.o", "data", "src/CMC", "src/b.o"), ("big",))


def test_too_big_names_the_largest(grow: Grow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is read; a folder that holds nearly all is looked into."""
    root = grow(
        {"src/data/x": bytes(5000), "src/data/y": bytes(3000), "src/weights": bytes(4000), "main.py": bytes(10)}
    )
    assert take(root, limit=12_010).size == 12_010
    monkeypatch.setattr(hashing, "read", None)
    with pytest.raises(UsageError) as caught:
        take(root, limit=12_009)
    text = str(caught.value)
    assert "7.812 KiB  src/data/" in text and "3.906 KiB  src/weights" in text and ".petctlignore" in text


def test_single_file(grow: Grow, tmp_path: Path) -> None:
    """A script alone; ignore rules do not apply to what was named."""
    root = grow({".gitignore": "*\n", "train.py": "x", "other.py": "y"})
    snapshot = take(root / "train.py")
    assert [entry.path for entry in snapshot.entries] == ["train.py"]
    snapshot.pack(tmp_path / "packed")
    with pytest.raises(NotFound, match="does not exist"):
        take(root / "nothing.py")
    (root / "link.py").symlink_to("train.py")
    with pytest.raises(UsageError, match=r"link\.py is a link to .*train\.py; name that file"):
        take(root / "link.py")


def test_a_link_to_the_folder_is_followed(grow: Grow, tmp_path: Path) -> None:
    """It is where the user stands."""
    root = grow({"train.py": "x"})
    (tmp_path / "here").symlink_to(root)
    assert take(tmp_path / "here").id == take(root).id


def test_unchanged_files_are_not_read_again(grow: Grow, tmp_path: Path, settle: None) -> None:
    """And nothing is written."""
    root, cache = grow({f"m{number}.py": str(number) for number in range(20)}), tmp_path / "cache"
    first = take(root, cache=cache)
    [file] = cache.iterdir()
    before = file.stat()
    assert file.stat().st_mode & 0o777 == 0o600
    again = take(root, cache=cache)
    assert (first.hashed, again.hashed, again.id) == (20, 0, first.id)
    assert file.stat().st_mtime_ns == before.st_mtime_ns and file.stat().st_ino == before.st_ino
    (root / "m3.py").write_text("changed")
    (root / "m4.py").unlink()
    changed = take(root, cache=cache)
    assert changed.hashed == 1 and len(changed.entries) == 19 and changed.id == take(root).id


def test_an_exec_bit_changes_the_id_without_reading(grow: Grow, tmp_path: Path, settle: None) -> None:
    """The content is the same; ctime is not, so the file is read once."""
    root, cache = grow({"run.sh": "#!"}), tmp_path / "cache"
    first = take(root, cache=cache)
    (root / "run.sh").chmod(0o755)
    assert take(root, cache=cache).id != first.id


def test_a_file_that_was_just_written_is_read_again(grow: Grow, tmp_path: Path) -> None:
    """It could change once more within the same tick of the clock, with the same size and times."""
    root, cache = grow({"m.py": "one"}), tmp_path / "cache"
    assert [take(root, cache=cache).hashed for _ in range(2)] == [1, 1]


@pytest.mark.parametrize("damage", [b"", b"{}", b"\0" * 100, None])
def test_a_damaged_index_counts_as_absent(grow: Grow, tmp_path: Path, settle: None, damage: bytes | None) -> None:
    """Whatever is in it, or whatever is missing from it."""
    root, cache = grow({"m.py": "one"}), tmp_path / "cache"
    first = take(root, cache=cache)
    [file] = cache.iterdir()
    digest = first.entries[0].digest.encode()
    file.write_bytes(file.read_bytes().replace(digest, bytes(reversed(digest))) if damage is None else damage)
    again = take(root, cache=cache)
    assert (again.id, again.hashed) == (first.id, 1)
    assert take(root, cache=cache).hashed == 0


def test_a_cache_that_cannot_be_written_costs_only_time(grow: Grow, tmp_path: Path, settle: None) -> None:
    """The snapshot is what matters."""
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert take(grow({"m.py": ""}), cache=tmp_path / "cache").hashed == 1


def test_files_that_vanish_during_the_walk_were_not_there(grow: Grow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Editors do that all the time."""
    root = grow({"a.py": "", "b.py": ""})
    read = hashing.read

    def vanishing(root: Path, path: str) -> hashing.Content | None:
        (root / "b.py").unlink(missing_ok=True)
        return read(root, path)

    monkeypatch.setattr(hashing, "read", vanishing)
    assert [entry.path for entry in take(root).entries] == ["a.py"]


def test_a_file_that_changes_while_it_is_read_is_not_remembered(
    grow: Grow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read counts for this snapshot; the next one reads again, even if the file server's clock is wrong."""
    monkeypatch.setattr(index, "_SETTLED", -(1 << 62))
    root, cache = grow({"a.py": "first"}), tmp_path / "cache"

    def growing(path: str, data: bytes | None) -> str:
        with open(root / "a.py", "ab") as file:
            file.write(b" more")
        return ""

    monkeypatch.setattr(hashing, "why_private", growing)
    assert take(root, cache=cache).entries[0].size == 5
    monkeypatch.setattr(hashing, "why_private", lambda path, data: "")
    assert take(root, cache=cache).entries == take(root).entries


def test_big_trees_are_read_by_threads_with_the_same_result(grow: Grow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Order and digests do not depend on who read."""
    root = grow({f"m{number}": bytes([number]) * (2 << 20) for number in range(6)})
    threaded = take(root)
    monkeypatch.setattr(hashing, "_WORTH_THREADS", 1 << 40)
    assert take(root).id == threaded.id
    assert threaded.entries[3].digest == hashlib.sha256(bytes([3]) * (2 << 20)).hexdigest()


@pytest.mark.parametrize("change", ["content", "shorter", "removed", "link", "pipe"])
def test_a_change_before_packing_is_an_error(grow: Grow, tmp_path: Path, change: str) -> None:
    """The archive never holds anything but what its id says, and a failure leaves no file."""
    root, target = grow({"a.py": "first", "b.py": "second"}), tmp_path / "packed" / "x.tar.gz"
    target.parent.mkdir()
    snapshot = take(root)
    file = root / "b.py"
    if change == "content":
        file.write_text("other!")
    elif change == "shorter":
        file.write_text("sec")
    else:
        file.unlink()
    if change == "link":
        (root / "same").write_text("second")
        file.symlink_to("same")
    elif change == "pipe":
        os.mkfifo(file)
    with pytest.raises(UsageError, match=r"b\.py changed while it was packed"):
        snapshot.pack(target)
    assert list(target.parent.iterdir()) == []


def test_a_log_that_grew_is_packed_as_it_was(grow: Grow, tmp_path: Path) -> None:
    """Its first bytes still are what the manifest says."""
    root = grow({"run.log": "line 1\n"})
    snapshot = take(root)
    with open(root / "run.log", "a") as file:
        file.write("line 2\n")
    snapshot.pack(tmp_path / "packed")
    with tarfile.open(tmp_path / "packed") as packed:
        content = packed.extractfile("run.log")
        assert content is not None and content.read() == b"line 1\n"


def test_progress_is_told(grow: Grow, tmp_path: Path) -> None:
    """Bytes done, of bytes in all, up to the end."""
    heard: list[tuple[int, int]] = []
    snapshot: Snapshot = take(grow({"a": bytes(100), "b": bytes(50)}))
    snapshot.pack(tmp_path / "packed", lambda done, total: heard.append((done, total)))
    assert heard[-1] == (150, 150) and heard == sorted(heard)
