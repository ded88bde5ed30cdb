"""Exactly one commit of a git repository, as plain files: fetched by the `git` program, alone and shallow.

Nothing is run on its behalf: no hooks, no filters, no LFS, no submodules, no transport that executes a command. The
user's own git configuration holds while it is fetched (proxies, credentials), and not when files are written: a commit
has the same bytes for everybody. No working tree but the target is touched.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from petctl.errors import NotFound, PetctlError, Unreachable, UsageError

_CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.attributesFile": "/dev/null",
    "core.fsmonitor": "false",
    "protocol.ext.allow": "never",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "advice.detachedHead": "false",
    "http.lowSpeedLimit": "1",  # bytes a second, for half a minute: whoever is slower is gone
    "http.lowSpeedTime": "30",
}
_KEPT = ("GIT_SSL_", "GIT_CONFIG_GLOBAL", "GIT_ASKPASS", "GIT_PROXY_SSL_")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PART_OF_COMMIT = re.compile(r"[0-9a-f]{7,39}")
_SUBMODULE = "160000"

# What git says in English -> whose word was wrong. The first that fits counts.
_NO_REF = ("couldn't find remote ref", "not our ref", "could not find remote ref", "invalid refspec")
_NO_REPOSITORY = (
    "does not appear to be a git repository",
    "repository not found",
    "not found",
    "does not exist",
    "no such file",
    "not a git repository",
)
_NO_ACCESS = ("authentication failed", "could not read username", "could not read password", "error: 403", "error: 401")
_NO_ANSWER = ("could not resolve host", "failed to connect", "connection refused", "timed out", "unable to access")


class Checkout(NamedTuple):
    """Which commit it is, and the submodules that are not in it."""

    commit: str
    submodules: tuple[str, ...]


def check_out(url: str, ref: str, target: Path, scratch: Path) -> Checkout:
    """Puts the files of `ref` (a full commit hash, a tag or a branch) into the empty folder `target`."""
    if ref.startswith("-") or not ref:
        raise UsageError(f"{ref!r} is not a git ref; name a branch, a tag or a full commit hash after the @")
    _git(scratch, "init", "--quiet", "--bare", "--template=", str(scratch))
    words = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--", url, ref)
    done = _run(scratch, *words, as_user=True)
    if done.returncode != 0:
        raise _why(url, ref, done.stderr)
    commit = _git(scratch, "rev-parse", "--verify", "--quiet", "FETCH_HEAD^{commit}").strip()
    _git(scratch, f"--work-tree={target}", "checkout", "--quiet", "--force", commit, "--", ".")
    listed = _git(scratch, "ls-tree", "-r", "-z", commit)
    entries = (entry.partition("\t") for entry in listed.split("\0") if entry)
    return Checkout(commit, tuple(path for words, _, path in entries if words.startswith(_SUBMODULE)))


def _git(folder: Path, *words: str) -> str:
    done = _run(folder, *words)
    if done.returncode != 0:
        raise PetctlError(f"git {words[0]} failed: {_last_line(done.stderr)}")
    return done.stdout


def _run(folder: Path, *words: str, as_user: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs git in the bare repository `folder`, with the user's settings if it must; it never asks for anything."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name.startswith(_KEPT)
    }
    environment.update(LC_ALL="C", GIT_CONFIG_NOSYSTEM="1", GIT_TERMINAL_PROMPT="0")
    if not as_user:
        environment["GIT_CONFIG_GLOBAL"] = os.devnull
    settings = [word for name, value in _CONFIG.items() for word in ("-c", f"{name}={value}")]
    try:
        return subprocess.run(
            ["git", f"--git-dir={folder}", *settings, *words],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
        )
    except FileNotFoundError:
        raise UsageError("git is not installed here, but the code comes from a repository; install git") from None


def _why(url: str, ref: str, said: str) -> PetctlError:
    """git's complaint as a sentence."""
    text = said.lower()
    if any(words in text for words in _NO_REF):
        if _PART_OF_COMMIT.fullmatch(ref):
            return NotFound(f"{url} has no branch or tag {ref!r}; if it is a commit, give the full hash")
        what = "commit" if _COMMIT.fullmatch(ref) else "branch or tag"
        return NotFound(f"{url} has no {what} {ref!r}; `git ls-remote {url}` lists what it has")
    if any(words in text for words in _NO_ACCESS):
        return UsageError(f"{url} denied access; set up a credential helper for git (it said: {_last_line(said)})")
    if any(words in text for words in _NO_REPOSITORY):
        return NotFound(f"there is no git repository at {url} (git said: {_last_line(said)}); check the address")
    if any(words in text for words in _NO_ANSWER):
        return Unreachable(f"{url} does not answer (git said: {_last_line(said)}); check the address and the network")
    return PetctlError(f"cannot fetch {ref!r} from {url}; git said: {_last_line(said)}")


def _last_line(said: str) -> str:
    """The line that says most: git's own comes as `fatal:`."""
    lines = said.strip().splitlines() or ["nothing"]
    return next((line for line in lines if line.startswith("fatal:")), lines[-1]).removeprefix("fatal: ")
