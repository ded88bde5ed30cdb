"""Getting a job's image, and the agents' Python, before its first node: once for all of them, in the engine's own words
where it fails.

A registry's credentials are a secret of petctl's: they are in a file that only the engine reads, for as long as it
pulls, never among its words. Standard library only: the supervisor uses it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Optional

from petctl.agent.workers.python_copy import CannotCopy, fill
from petctl.clusters.local.job_directory import JobDirectory, write_json
from petctl.errors import PetctlError, UsageError
from petctl.files import locked, make_private_directory
from petctl.machine.engines import DOCKER, last_words
from petctl.rendezvous.core.messages import ENDED_FAILED, Outcome
from petctl.secret_file import secret_values

ENGINE_FAILED = 125  # what engines themselves exit with
DOCKER_HUB = ("docker.io", "https://index.docker.io/v1/")


async def fetch_image(
    container: Mapping[str, Any], directory: JobDirectory, say: Callable[[str], None]
) -> Optional[Outcome]:
    """Makes sure that this machine has the image; how the job ends if it cannot be had. It may be cancelled."""
    engine, image = container["engine"], container["image"]
    try:
        await asyncio.get_running_loop().run_in_executor(None, bring_python, Path(container["python"]))
    except (CannotCopy, OSError) as error:
        words = f"petctl's own Python cannot be copied for the nodes to {container['python']}: {error}"
        return Outcome(ENDED_FAILED, ENGINE_FAILED, words)
    try:
        for path in container["made"]:
            make_private_directory(path)
        code, _ = await _run([engine, "image", "inspect", image])
        if code == 0:
            return None
        say(f"pulling the image {image}")
        code, said = await _run(_with_credentials(container, directory))
    except PetctlError as error:
        return Outcome(ENDED_FAILED, error.code, f"the image {image} cannot be pulled: {error}")
    except OSError as error:
        return Outcome(ENDED_FAILED, ENGINE_FAILED, f"cannot make {error.filename}: {error.strerror}")
    finally:
        shutil.rmtree(_place(directory), ignore_errors=True)
    if code != 0:
        words = last_words(said) or f"{engine} pull: exit code {code}"
        return Outcome(ENDED_FAILED, ENGINE_FAILED, f"the image {image} cannot be pulled: {words}")
    return None


def bring_python(directory: Path) -> None:
    """Makes the copy of petctl's own Python that agents run under, unless it is there; no process sees a part of it."""
    if directory.is_dir():
        return
    make_private_directory(directory.parent)
    with locked(f"{directory}.lock"):
        if directory.is_dir():
            return
        draft = directory.with_name(directory.name + ".draft")
        shutil.rmtree(draft, ignore_errors=True)
        try:
            fill(draft)
            draft.rename(directory)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _with_credentials(container: Mapping[str, Any], directory: JobDirectory) -> list[str]:
    """The words that pull the image, after a file with what opens its registry was written for them."""
    engine, image = container["engine"], container["image"]
    image = full_name(image) if container["kind"] != DOCKER else image
    if not container["credentials"]:
        return [engine, "pull", image]
    value = secret_values(directory.home, {"image_credentials": container["credentials"]})["image_credentials"]
    config = registry_config(image, value)
    place = _place(directory)
    shutil.rmtree(place, ignore_errors=True)  # of a supervisor that was killed while it pulled
    place.mkdir(mode=0o700)
    if container["kind"] != DOCKER:
        write_json(place / "config.json", config, mode=0o600)
        return [engine, "pull", "--authfile", str(place / "config.json"), image]
    theirs = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    write_json(place / "config.json", {**_context(theirs), **config}, mode=0o600)
    if (theirs / "contexts").is_dir():
        (place / "contexts").symlink_to(theirs / "contexts")
    return [engine, "--config", str(place), "pull", image]


def registry_config(image: str, secret: str) -> dict[str, Any]:
    """The engine's configuration for a registry, from "user:password" or from such a configuration itself."""
    if secret.lstrip().startswith("{"):
        try:
            config = json.loads(secret)
        except ValueError:
            config = None
        if not isinstance(config, dict) or not isinstance(config.get("auths"), dict):
            raise UsageError("the secret of image_credentials is JSON, but has no 'auths' as docker's config.json has")
        return {"auths": config["auths"]}
    user, colon, password = secret.strip().partition(":")
    if not user or not colon or not password:
        raise UsageError("the secret of image_credentials must be user:password, or the text of docker's config.json")
    entry = {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}
    return {"auths": dict.fromkeys(_registries(image), entry)}


def full_name(image: str) -> str:
    """The name with its registry: Docker Hub where it names none, as docker understands it. Podman only knows short
    names that its configuration explains, and as it is installed that explains few; images it has it finds by both."""
    first, slash, _ = image.partition("/")
    if _is_registry(first, slash):
        return image
    return f"{DOCKER_HUB[0]}/{image if slash else f'library/{image}'}"


def _is_registry(first: str, slash: str) -> bool:
    return bool(slash) and ("." in first or ":" in first or first == "localhost")


def _registries(image: str) -> tuple[str, ...]:
    first, slash, _ = image.partition("/")
    return (first,) if _is_registry(first, slash) and first not in DOCKER_HUB else DOCKER_HUB


def _context(theirs: Path) -> dict[str, Any]:
    """Which daemon the user's docker talks to: part of the configuration that ours takes the place of."""
    try:
        chosen = json.loads((theirs / "config.json").read_bytes()).get("currentContext")
    except (OSError, ValueError, AttributeError):
        return {}
    return {"currentContext": chosen} if chosen else {}


def _place(directory: JobDirectory) -> Path:
    return directory.path / ".registry"


async def _run(argv: list[str]) -> tuple[int, bytes]:
    """Runs the engine to its end; its exit code and last words."""
    null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*argv, stdin=null, stdout=null, stderr=pipe, cwd="/")
    except OSError as error:
        return ENGINE_FAILED, f"{argv[0]}: {error.strerror}".encode()
    try:
        _, said = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    return process.returncode or 0, said
