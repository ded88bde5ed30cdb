"""Files are replaced whole, drafts of killed writers are known, locks die with their holder."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from petctl import files

WRITERS: dict[str, Callable[[Path], object]] = {
    "replace": lambda path: files.replace(path, b"new"),
    "replace durably": lambda path: files.replace(path, "new", durable=True),
    "replace by a named draft": lambda path: files.replace(path, "new", draft=f"{path}.new"),
    "replace_json": lambda path: files.replace_json(path, {"n": 1}),
    "create": lambda path: files.create(path, b"new", durable=True),
}


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def python(code: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    """A process that runs `code` after a line of output that was waited for."""
    argv = [sys.executable, "-c", code, *map(str, words)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# -- replacing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", WRITERS)
def test_a_file_has_its_content_and_no_draft_stays(tmp_path: Path, how: str) -> None:
    path = tmp_path / "file"
    WRITERS[how](path)
    assert path.read_text() == ('{"n":1}\n' if how == "replace_json" else "new")
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("mask", "shared", "own", "all_may"), [(0o000, 0o666, 0o600, 0o666), (0o077, 0o600, 0o600, 0o600)]
)
def test_permissions_are_those_asked_for_less_the_umask(
    tmp_path: Path, mask: int, shared: int, own: int, all_may: int
) -> None:
    with umask(mask):
        files.replace(tmp_path / "usual", b"")
        files.replace(tmp_path / "own", b"", mode=0o600)
        files.create(tmp_path / "created", b"", mode=0o600)
        files.replace(tmp_path / "named", b"", mode=0o666, draft=tmp_path / "draft")
        os.close(files.open_lock(tmp_path / "lock"))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"usual": shared, "own": own, "created": own, "named": all_may, "lock": 0o600}


def test_the_mode_of_the_old_file_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)
    files.replace(path, "new", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("how", ["replace", "replace durably", "replace by a named draft", "replace_json"])
def test_a_link_is_replaced_and_not_written_through(tmp_path: Path, how: str) -> None:
    elsewhere, path = tmp_path / "elsewhere", tmp_path / "file"
    elsewhere.write_text("of another")
    path.symlink_to(elsewhere)
    WRITERS[how](path)
    assert not path.is_symlink() and elsewhere.read_text() == "of another"


def test_a_link_in_the_place_of_a_draft_is_not_written_through(tmp_path: Path) -> None:
    elsewhere, path = tmp_path / "elsewhere", tmp_path / "file"
    elsewhere.write_text("of another")
    (tmp_path / "draft").symlink_to(elsewhere)
    with pytest.raises(OSError) as caught:
        files.replace(path, "new", draft=tmp_path / "draft")
    assert caught.value.errno == errno.ELOOP
    assert elsewhere.read_text() == "of another" and not path.exists()


@pytest.mark.parametrize("draft", [None, "draft"])
def test_a_killed_writer_leaves_the_old_file_whole(tmp_path: Path, draft: str | None) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    code = """
import sys
from petctl.files import replacing
with replacing(sys.argv[1], draft=sys.argv[2] or None) as file:
    file.write(b"half")
    file.flush()
    print("ready", flush=True)
    input()
"""
    with python(code, path, tmp_path / draft if draft else "") as writer:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert path.read_text() == "old"
    (left,) = {*names(tmp_path)} - {"file"}
    assert left == draft or (left.startswith(".file.") and left.endswith(f".{writer.pid}"))
    if draft:  # the next writer writes over it
        files.replace(path, "new", draft=tmp_path / draft)
    else:
        files.remove_drafts(tmp_path)
    assert names(tmp_path) == ["file"]


def test_the_draft_of_a_killed_writer_goes_before_its_parent_has_heard_of_it(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as writer:
        draft = tmp_path / f".file.12345678.{writer.pid}"
        draft.touch()
        writer.kill()
        os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped: /proc has it still
        files.remove_drafts(tmp_path)
    assert names(tmp_path) == []


def test_a_draft_goes_also_where_another_process_has_its_writers_number_now(tmp_path: Path) -> None:
    draft = tmp_path / f".file.12345678.{os.getpid()}"
    draft.touch()
    files.remove_drafts(tmp_path)
    assert draft.exists()
    os.utime(draft, (1.0, 1.0))  # of before the machine was started last
    files.remove_drafts(tmp_path)
    assert not draft.exists()


def test_drafts_of_the_living_and_files_of_others_stay(tmp_path: Path) -> None:
    for name in ("job.12345678", ".hidden", ".job.new", "job"):
        (tmp_path / name).touch()
    with files.replacing(tmp_path / "job") as file:
        (draft,) = {*names(tmp_path)} - {"job.12345678", ".hidden", ".job.new", "job"}
        files.remove_drafts(tmp_path)
        assert draft in names(tmp_path)
        file.write(b"whole")
    assert names(tmp_path) == [".hidden", ".job.new", "job", "job.12345678"]


@pytest.mark.parametrize("fails_in", ["write", "fsync", "replace"])
@pytest.mark.parametrize("how", ["replace durably", "create"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, how: str, fails_in: str
) -> None:
    path = tmp_path / "file"
    if how != "create":
        path.write_text("old")

    def no_room(*words: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if fails_in == "write":
        request.getfixturevalue("full_disk")
    else:
        for name in ["fsync"] if fails_in == "fsync" else ["replace", "link"]:
            monkeypatch.setattr(os, name, no_room)
    with pytest.raises(OSError) as caught:
        WRITERS[how](path)
    assert caught.value.errno == errno.ENOSPC
    assert {entry.name: entry.read_text() for entry in tmp_path.iterdir()} == (
        {} if how == "create" else {"file": "old"}
    )


def test_any_failure_of_the_writer_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), files.replacing(tmp_path / "file") as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_a_file_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files.replace("file", "text", durable=True)
    assert files.create("other", b"", durable=True) and names(tmp_path) == ["file", "other"]


def test_what_is_durable_is_synced_before_and_after_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    sync, rename = os.fsync, os.replace
    path = tmp_path / "file"

    def noted_sync(descriptor: int) -> None:
        what = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else f"{os.fstat(descriptor).st_size} bytes"
        seen.append(what)
        sync(descriptor)

    def noted_rename(draft: str, target: Path) -> None:
        seen.append("rename")
        rename(draft, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_rename)
    files.replace(path, b"12345", durable=True)
    assert seen == ["5 bytes", "rename", "directory"]
    seen.clear()
    files.replace(path, b"12345")
    assert seen == ["rename"]


def test_a_file_system_that_cannot_sync_directories_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sync(descriptor: int) -> None:
        raise OSError(reason, "")

    monkeypatch.setattr(os, "fsync", sync)
    reason = errno.EINVAL
    files.sync_directory(tmp_path)
    reason = errno.EIO
    with pytest.raises(OSError):
        files.sync_directory(tmp_path)


def test_many_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def write(number: int) -> None:
        for _ in range(50):
            files.replace_json(path, [number] * 100)
            assert len(set(json.loads(path.read_text()))) == 1

    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            write(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failed == [] and names(tmp_path) == ["file"]


# -- creating ----------------------------------------------------------------------------------------------------------


def test_only_the_first_creates(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert files.create(path, b"first")
    assert not files.create(path, b"second")
    assert path.read_bytes() == b"first" and names(tmp_path) == ["file"]


def test_a_link_that_leads_nowhere_has_the_name_already(tmp_path: Path) -> None:
    (tmp_path / "file").symlink_to(tmp_path / "nowhere")
    assert not files.create(tmp_path / "file", b"new")
    assert not (tmp_path / "nowhere").exists()


def test_a_file_system_without_links_creates_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*paths: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "file"
    assert files.create(path, b"first")
    assert not files.create(path, b"second")
    assert path.read_bytes() == b"first" and names(tmp_path) == ["file"]


# -- for the owner alone -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_directories_and_files_are_for_their_owner_alone(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        files.make_private_directory(tmp_path / "a" / "b")
        files.make_private_file(tmp_path / "a" / "b" / "database")
    modes = [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("a", "a/b", "a/b/database")]
    assert modes == [0o700, 0o700, 0o600]


def test_a_directory_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    files.make_private_directory(tmp_path / "there")
    assert stat.S_IMODE((tmp_path / "there").stat().st_mode) == 0o755
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        files.make_private_directory(tmp_path / "file")


def test_a_file_that_is_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "database"
    path.write_text("rows")
    path.chmod(0o644)
    files.make_private_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.read_text() == "rows"


# -- locks -------------------------------------------------------------------------------------------------------------

HOLD = """
import sys
from petctl.files import wait_for_lock
lock = wait_for_lock(sys.argv[1], shared=sys.argv[2] == "shared")
print("ready", flush=True)
input()
"""


def test_a_lock_is_free_seen_from_outside_and_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not files.is_locked(path) and not path.exists()
    with python(HOLD, path, "alone") as holder:
        assert files.is_locked(path) and files.is_locked(path, shared=True)
        assert files.take_lock(path) is None and files.take_lock(path, within=0.0) is None
        holder.kill()
        holder.wait()
        assert not files.is_locked(path)
    lock = files.take_lock(path, within=0.0)
    assert lock is not None and files.is_locked(path)
    os.close(lock)
    assert not files.is_locked(path)


def test_a_shared_lock_keeps_only_those_away_who_want_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with python(HOLD, path, "shared"):
        assert not files.is_locked(path) and files.is_locked(path, shared=True)
        second = files.wait_for_lock(path, shared=True)
        assert files.take_lock(path, within=0.0) is None
        assert not files.hold(second, wait=False)  # the other one still shares it
        os.close(second)


def test_who_waits_gets_the_lock_when_its_holder_ends(tmp_path: Path) -> None:
    path, inside = tmp_path / "lock", threading.Event()

    def wait() -> None:
        with files.locked(path):
            inside.set()

    with python(HOLD, path, "alone") as holder:
        waiter = threading.Thread(target=wait)
        waiter.start()
        assert not inside.is_set()
        holder.kill()
        assert inside.wait(10)
        waiter.join(10)
    assert not files.is_locked(path)


def test_one_who_asks_does_not_turn_the_owner_away(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    asking = files.wait_for_lock(path, shared=True)
    timer = threading.Timer(0.03, os.close, (asking,))
    timer.start()
    lock = files.take_lock(path)
    timer.join()
    assert lock is not None
    os.close(lock)


def test_a_lock_is_let_go_of_after_a_failure_too(tmp_path: Path) -> None:
    with pytest.raises(ValueError), files.locked(tmp_path / "lock"):
        raise ValueError
    assert not files.is_locked(tmp_path / "lock")


def shared(path: Path) -> list[int]:
    """The open files of this name a second time, as a child has them between its fork and its exec."""
    links = list(Path("/proc/self/fd").iterdir())
    return [os.dup(int(link.name)) for link in links if link.is_symlink() and link.readlink() == path]


def test_a_child_that_has_not_executed_its_program_yet_does_not_keep_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, hold = tmp_path / "lock", files.hold
    with files.locked(path):
        children = shared(path)
    lock = files.take_lock(path, within=0.0)
    assert lock is not None
    children += shared(path)
    files.release(lock)

    def fork(*words: Any, **options: Any) -> bool:
        held = hold(*words, **options)
        children.extend(shared(path))
        return held

    monkeypatch.setattr(files, "hold", fork)  # the one who asks holds it for a moment, too
    assert not files.is_locked(path)
    monkeypatch.undo()
    assert children
    assert not files.is_locked(path, shared=True)
    for child in children:
        os.close(child)


def test_a_forked_process_shares_the_lock(tmp_path: Path) -> None:
    """As the guardian's agent does: the node lives as long as one of the two."""
    path = tmp_path / "lock"
    code = """
import os, sys
from petctl.files import take_lock
lock = take_lock(sys.argv[1])
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.read(0, 1)
    os._exit(0)
print("ready", flush=True)
os._exit(0)
"""
    with python(code, path) as parent:
        assert parent.wait(10) == 0
        assert files.is_locked(path)
        assert parent.stdin is not None
        parent.stdin.close()
        assert parent.stdout is not None
        parent.stdout.read()  # its end comes when the child has ended, too
        assert files.take_lock(path, within=10.0) is not None


@pytest.mark.parametrize("passed_on", [True, False])
def test_what_is_executed_holds_the_lock_only_if_it_is_passed_on(tmp_path: Path, passed_on: bool) -> None:
    path = tmp_path / "lock"
    lock = files.take_lock(path)
    assert lock is not None
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(lock,) if passed_on else ()) as child:
        os.close(lock)
        assert files.is_locked(path) is passed_on
        assert child.stdin is not None
        child.stdin.close()
        child.wait(10)
        assert not files.is_locked(path)


def test_the_file_of_a_lock_in_a_directory_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.take_lock(tmp_path / "gone" / "lock")
    assert not files.is_locked(tmp_path / "gone" / "lock")


def test_what_is_read_is_what_was_written_and_an_error_names_the_file_and_its_fault(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    with pytest.raises(FileNotFoundError):
        files.read_json(path)
    files.replace_json(path, {"n": 1})
    assert files.read_json(path) == {"n": 1}
    for text, fault in (
        (b'{"n": ', "is not JSON: "),
        (b"[1]", "is not a JSON object"),
        (b"[" * 100_000, "is not JSON"),
    ):
        path.write_bytes(text)
        with pytest.raises(ValueError, match=f"^{path} {fault}"):
            files.read_json(path)
