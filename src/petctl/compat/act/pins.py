"""Pinned code: the snapshot that `init` takes for a configuration, and that its runs use until the next one.

    $PETCTL_HOME/act/pins/KEY.json          what is pinned, replaced whole; KEY: the project and whose code it is
                          KEY-ID.tar.gz     its archive, a second name of the one among the bundles, which stays for it
                          KEY-ID.manifest   the project's files as they were, to say what has changed since

A run's own link to the archive is made when it is accepted, so pinning again never changes what a run in line will do.
Never in a snapshot: accounts with their keys, logs that were fetched, mapped folders. What others see of it, at
`code_path`, is in `published.py`.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from petctl.bundle.bundle_cache import Cabinet
from petctl.bundle.manifest import LINK
from petctl.bundle.snapshot import Snapshot, take
from petctl.compat.act.config.config import FOLDER_OF_FILES, Config
from petctl.config.settings import project_root
from petctl.errors import UsageError
from petctl.files import locked, make_private_directory, read_json_or_none
from petctl.home import petctl_home, write_json, write_text
from petctl.submission.code import code_record, links_of, own_state
from petctl.submission.folders import folder_map
from petctl.text import amount, counted

ACCOUNTS = "aux_data/configs"
LOGS = "assets"
REQUIREMENTS, COMPILE = "requirements.txt", "compile.aml.sh"
MOST_NAMED = 5
_SMALL = 64 << 10  # bytes of a file that might be a configuration
_PASSWORD = re.compile(rb"^[^#\n]*\bpassword[\"']?\s*:[ \t]*(?!null\b|~|''|\"\")[^\s#]", re.MULTILINE)
_ADVICE = {  # what petctl's own command line can do, in the words of a configuration
    "with --allow-secret PATTERN": "with allow_secrets: [PATTERN] in the configuration",
    ", map its folder, or run the code where it lies, with --no-upload": " or zip_options, or map its folder",
}
Progress = Callable[[int, int], None]


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """One pinned snapshot. `tree` is that of the project which it was made from: the same, unless it was built, and
    none when it came from elsewhere."""

    id: str
    time: float
    files: int
    bytes: int
    code: dict[str, Any]  # what a cluster's plan takes as `code`
    special: list[str]
    left_out: list[str]
    withheld: list[str]  # what would never have been in it
    tree: str = ""

    @property
    def built(self) -> bool:
        """Whether it holds what compile.aml.sh has made."""
        return self.tree not in ("", self.id)

    @property
    def when(self) -> str:
        """For sentences."""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.time))

    def sentence(self) -> str:
        """What was pinned, and what was not."""
        out = f"; left out: {some(self.left_out)}" if self.left_out else ""
        return f"pinned {counted(self.files, 'file')} ({amount(self.bytes)}) as {self.id[:12]}{out}"


def pin(config: Config, progress: Progress | None = None) -> Pin:
    """Takes a snapshot of the project as it is now; runs use it from here on."""
    return pin_tree(config, snapshot_of(config), progress)


def pin_tree(config: Config, snapshot: Snapshot, progress: Progress | None = None) -> Pin:
    """Pins a snapshot of the project."""
    _check_keys(config, snapshot)
    archive = Cabinet(petctl_home() / "bundles").put(snapshot, progress)
    links = links_of(snapshot, withheld(config))
    return keep(config, snapshot, code_record(snapshot, archive, str(snapshot.root), str(project_root()), links))


def snapshot_of(config: Config, allow_secrets: Sequence[str] | None = None) -> Snapshot:
    """The project as it is now; of what has not changed since the last time nothing is read."""
    home = petctl_home()
    try:
        return take(
            config.root,
            cache=home / "cache" / "code",
            exclude=[*withheld(config), *own_state(config.root, home)],
            patterns=config.exclude,
            allow_secrets=config.allow_secrets if allow_secrets is None else allow_secrets,
        )
    except UsageError as error:
        sentence = str(error)
        for theirs, ours in _ADVICE.items():
            sentence = sentence.replace(theirs, ours)
        raise UsageError(sentence) from None


def withheld(config: Config) -> list[str]:
    """What is never in a snapshot, nor shown to a job on this machine: paths from the project's root."""
    root = config.root.resolve()
    logs = os.environ.get("AML_LOG_FOLDER") or LOGS
    places = [config.root / name for name in (ACCOUNTS, LOGS, logs, *config.folders)]
    places += [project_root() / name for name in folder_map(config.cluster)]
    used = [*config.folders.values(), *([config.code_path] if config.code_path else [])]
    places += [config.root / place.account.file for place in used if place.account.file]
    if config.image_password and config.file is not None:
        places += [config.file, config.file.parent]  # it, or a base beside it, holds the password
    places += [file for file in (config.root / FOLDER_OF_FILES).glob("*.yaml") if _holds_password(file)]
    # as they are called and as they are: both names may lie in the tree
    names = {path for place in places for path in (Path(os.path.normpath(place)), place.resolve())}
    inside = {str(path.relative_to(root)) for path in names if path != root and path.is_relative_to(root)}
    return sorted(inside)


def _holds_password(file: Path) -> bool:
    """Whether a configuration, maybe another one, says the password of its registry."""
    try:
        with file.open("rb") as opened:
            return _PASSWORD.search(opened.read(_SMALL)) is not None
    except OSError:
        return False  # packing will say so


def _check_keys(config: Config, snapshot: Snapshot) -> None:
    """A copy of an account's file, or of a configuration with a password, is told nowhere as what it is."""
    values = [value for account in config.accounts for value in (account.key, account.sas)]
    known = [value.encode() for value in (*values, config.image_password) if value]
    if not known:
        return
    for entry in snapshot.entries:
        if entry.mode != LINK and entry.size <= _SMALL and entry.path.endswith((".yaml", ".yml", ".json")):
            try:
                text = (snapshot.root / entry.path).read_bytes()
            except OSError:
                continue  # packing will say so
            if any(value in text for value in known):
                raise UsageError(
                    f"{entry.path} contains a key or password of this configuration, which would be in the "
                    f"snapshot; move "
                    f"it to {ACCOUNTS}, or name it in .petctlignore (or .gitignore)"
                )


def keep(config: Config, snapshot: Snapshot, code: Mapping[str, Any], tree: Snapshot | None = None) -> Pin:
    """Writes a pin down; `tree` is the project that something was built from, by default the snapshot itself."""
    names = {entry.path for entry in snapshot.entries} - ({COMPILE} if tree else set())  # which runs do once more
    tree = tree or snapshot
    there = [name for name in (ACCOUNTS, LOGS) if (config.root / name).exists()]
    made = Pin(
        id=snapshot.id,
        time=time.time(),
        files=len(snapshot.entries),
        bytes=snapshot.size,
        code=dict(code),
        special=[name for name in (REQUIREMENTS, COMPILE) if name in names],
        left_out=sorted({*tree.left_out, *there}),
        withheld=withheld(config),
        tree=tree.id if code["project"] else "",
    )
    folder, key = _folder(), _key(config)
    make_private_directory(folder)
    with locked(folder / "lock"):
        archive, manifest = _beside(folder, key, made.id)
        if not archive.exists():
            os.link(made.code["archive"], archive)
        write_text(manifest, tree.manifest, mode=0o600)
        write_json(folder / f"{key}.json", msgspec.to_builtins(made), mode=0o600, durable=True)
        for other in folder.glob(f"{key}-*"):
            if other not in (archive, manifest) and re.fullmatch(f"{re.escape(key)}-[0-9a-f]{{64}}[.].*", other.name):
                other.unlink(missing_ok=True)
    return made


def last_pin(config: Config) -> Pin | None:
    """What this configuration's runs use; None where nothing is pinned, or nothing of it is left."""
    folder, key = _folder(), _key(config)
    said = read_json_or_none(folder / f"{key}.json")
    if said is None:
        return None
    try:
        found = msgspec.convert(said, Pin)
    except msgspec.ValidationError:
        return None
    archive = Cabinet(petctl_home() / "bundles").path(found.id)
    try:
        os.utime(archive)  # fresh again: it stays until the run has a link of its own, also if others pin meanwhile
    except FileNotFoundError:
        own, _ = _beside(folder, key, found.id)
        archive.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            os.link(own, archive)
        except FileExistsError:
            pass  # somebody else had the same idea
        except FileNotFoundError:
            return None
    return msgspec.structs.replace(found, code={**found.code, "archive": str(archive)})


def changed(config: Config, pinned: Pin) -> list[str]:
    """The files that are not what they were when the pin was made; or why the project cannot be pinned now."""
    if not pinned.tree:
        return []  # it came from elsewhere
    try:
        now = snapshot_of(config, allow_secrets=["*"])
    except UsageError as error:
        return [str(error).splitlines()[0].rstrip(":")]
    if now.id == pinned.tree:
        return []
    _, manifest = _beside(_folder(), _key(config), pinned.id)
    try:
        before = _by_path(manifest.read_text(errors="surrogateescape"))
    except FileNotFoundError:
        return [str(config.root)]
    after = _by_path(now.manifest)
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def some(names: Sequence[str]) -> str:
    """The first few of them."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _by_path(manifest: str) -> dict[str, str]:
    lines = (line.split(" ", 3) for line in manifest.split("\n") if line)
    return {path: f"{mode} {digest}" for mode, _, digest, path in lines}


def _folder() -> Path:
    return petctl_home() / "act" / "pins"


def _key(config: Config) -> str:
    place = f"{config.root.resolve()}\0{config.code_key}".encode(errors="surrogateescape")
    return hashlib.sha256(place).hexdigest()[:24]


def _beside(folder: Path, key: str, identity: str) -> tuple[Path, Path]:
    return folder / f"{key}-{identity}.tar.gz", folder / f"{key}-{identity}.manifest"
