"""From the checked properties of a Batch AI job file to the Job that does what they say.

What has to fit together is checked here; every problem is kept, none ends the reading. No file is read, no secret kept:
values of secrets leave in `Prepared.secrets` and are nowhere else.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from msgspec.structs import replace

from petctl.compat.batchai.jobfile.fields import PRIORITIES, TOOLS, WEEK
from petctl.compat.batchai.jobfile.tools import Run, run_of, script_of, tool_type
from petctl.compat.batchai.jobfile.volumes import Resolver, mounts_of, unmounted
from petctl.job.record import OWN_SECRET
from petctl.job.spec.folders import NONE
from petctl.job.spec.job import IN_PLACE, Job, Prepared
from petctl.job.spec.problems import FieldError, Path, Problem, wrong

_HIDDEN = ("accountKey", "password", "instrumentationKey")
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class Names(NamedTuple):
    """Where a job belongs; empty: as the file says, or a default."""

    group: str = ""
    workspace: str = ""
    experiment: str = ""
    job: str = ""
    cluster: str = ""


class JobFile(NamedTuple):
    """What belongs to a reading beside the file."""

    resolve: Resolver
    names: Names = Names()
    account: str = ""  # for <AZURE_BATCHAI_STORAGE_ACCOUNT>
    key: str = ""  # for <AZURE_BATCHAI_STORAGE_KEY>
    mounts: Mapping[str, list[Mapping[str, Any]]] = {}  # further entries of mountVolumes
    secret_of: Callable[[str], str] = lambda url: ""  # a key vault's address -> the name of a secret of petctl's


class Compiled:
    """One reading: the checked properties on their way to a Job."""

    def __init__(self, properties: dict[str, Any], problems: list[Problem], surroundings: JobFile) -> None:
        self.properties, self.problems, self.surroundings = properties, problems, surroundings
        self._wrong = {problem.path[0] for problem in problems if problem.path}  # fields that are not as they should be
        self.remarks: list[str] = []
        self.secrets: dict[str, str] = {}
        self.volumes: Mapping[str, Any] = properties.get("mountVolumes", {})

    def reading(self) -> Prepared | None:
        """The job; None where there are problems."""
        tool, run = self._tool()
        mounts = self._collect(("mountVolumes",), lambda: mounts_of(self.volumes, self.surroundings.resolve)) or []
        self._keep_account_keys(mounts)
        self._check_directories()
        env, references = self._environment()
        credentials = self._credentials()
        if self.problems or run is None:
            return None
        if run.remark:
            self.remarks.append(f"{tool}: {run.remark}")
        job = self._job(tool, run, mounts, env, references)
        return Prepared(replace(job, image_credentials=credentials), self.secrets, self.remarks)

    def _collect(self, path: Path, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except FieldError as error:
            self.problems += [problem.under(*path) for problem in error.problems]
            return None

    def _tool(self) -> tuple[str, Run | None]:
        given = [name for name in TOOLS if name in self.properties or name in self._wrong]
        if not given:
            self.problems.append(Problem((), f"no tool: give exactly one of {', '.join(TOOLS)}"))
            return "", None
        self.problems += [Problem((name,), f"a second tool besides {given[0]}; keep one", True) for name in given[1:]]
        tool, nodes = given[0], self.properties.get("nodeCount", 1)
        if tool in self._wrong:
            return tool, None
        return tool, self._collect((tool,), lambda: run_of(tool, self.properties[tool], nodes))

    def _check_directories(self) -> None:
        for name, field in (("inputDirectories", "path"), ("outputDirectories", "pathPrefix")):
            entries = self.properties.get(name, ())
            self._check_twice(name, "id", [entry["id"] for entry in entries])
            for position, entry in enumerate(entries):
                self._check_mounted((name, position, field), entry[field])
        self._check_mounted(("stdOutErrPathPrefix",), self.properties.get("stdOutErrPathPrefix", ""))

    def _check_mounted(self, path: Path, text: str) -> None:
        why = unmounted(text, self.volumes)
        if why and "mountVolumes" not in self._wrong:
            self.problems.append(Problem(path, why))

    def _check_twice(self, name: str, field: str, words: list[str]) -> None:
        twice = (position for position, word in enumerate(words) if word in words[:position])
        self.problems += [Problem((name, place, field), f"{words[place]!r} is already there") for place in twice]

    def _environment(self) -> tuple[dict[str, str], dict[str, str]]:
        """Variables by value, and those whose values are secrets by the secret's name."""
        variables, hidden = self.properties.get("environmentVariables", []), self.properties.get("secrets", [])
        self._check_twice("environmentVariables", "name", [entry["name"] for entry in variables])
        env = {entry["name"]: entry["value"] for entry in variables}
        self._check_twice("secrets", "name", [entry["name"] for entry in hidden])
        references = {}
        for position, entry in enumerate(hidden):
            if entry["name"] in env:
                self.problems.append(
                    Problem(("secrets", position, "name"), f"{entry['name']} is also in environmentVariables")
                )
            references[entry["name"]] = self._collect(("secrets", position), partial(self._secret, entry)) or ""
        return env, references

    def _secret(self, entry: Mapping[str, Any]) -> str:
        vault = entry.get("valueSecretReference")
        if ("value" in entry) == (vault is not None):
            raise wrong("exactly one of value and valueSecretReference is needed")
        if vault is None:
            if not entry["value"]:
                raise wrong("the value is empty; use environmentVariables for that", "value")
            return self._keep(entry["name"], entry["value"])
        found = self.surroundings.secret_of(vault["secretUrl"])
        if not found:
            raise wrong(_no_vault(vault["secretUrl"], "VALUE"), "valueSecretReference")
        return found

    def _credentials(self) -> str:
        """The secret that opens the image's registry."""
        registry = self.properties.get("containerSettings", {}).get("imageSourceRegistry", {})
        path: Path = ("containerSettings", "imageSourceRegistry", "credentials")
        given = registry.get("credentials")
        return (self._collect(path, partial(self._registry_secret, given)) or "") if given else ""

    def _registry_secret(self, given: Mapping[str, Any]) -> str:
        vault = given.get("passwordSecretReference")
        if bool(given.get("password")) == (vault is not None):
            raise wrong("exactly one of password and passwordSecretReference is needed")
        if vault is None:
            return self._keep("registry", f"{given['username']}:{given['password']}")
        found = self.surroundings.secret_of(vault["secretUrl"])
        if not found:
            raise wrong(_no_vault(vault["secretUrl"], "USER:PASSWORD"), "passwordSecretReference")
        return found

    def _keep_account_keys(self, mounts: list[dict[str, Any]]) -> None:
        """The keys of real containers, under the names by which petctl looks for them."""
        remote = {mount["path"] for mount in mounts if "location" in mount}
        for entry in self.volumes.get("azureBlobFileSystems", ()):
            key = entry.get("credentials", {}).get("accountKey")
            if key and entry["relativeMountPath"] in remote:
                self.secrets[f"azure-{entry['accountName']}-key"] = key

    def _keep(self, what: str, value: str) -> str:
        name = f"{OWN_SECRET}{what}.{secrets.token_hex(8)}"
        self.secrets[name] = value
        return name

    def _job(
        self, tool: str, run: Run, mounts: list[dict[str, Any]], env: Mapping[str, str], references: Mapping[str, str]
    ) -> Job:
        properties, names = self.properties, self.surroundings.names
        container = properties.get("containerSettings", {})
        shm_size, priority = container.get("shmSize", ""), properties.get("schedulingPriority", "normal")
        cluster = names.cluster or properties.get("cluster", {}).get("id", "").rstrip("/").rpartition("/")[2]
        return Job(
            shell=run.line,
            name=own_name(names.job) if names.job else _job_name(script_of(properties[tool]), tool),
            nodes=properties["nodeCount"],
            procs=run.procs,
            launcher=run.launcher,
            processes=run.processes,
            roles=run.roles,
            env=env,
            secrets=references,
            prepare=properties.get("jobPreparation", {}).get("commandLine", ""),
            restarts=0,
            max_time=properties.get("constraints", {}).get("maxWallClockTime", WEEK),
            priority=PRIORITIES[priority] if isinstance(priority, str) else priority,
            experiment=names.experiment,
            workspace=names.workspace,
            cluster=cluster,
            code=IN_PLACE,
            folders=NONE,
            image=_image(container.get("imageSourceRegistry", {})),
            resources={"shm": _bytes(shm_size)} if shm_size else {},
            options={
                "batchai": {
                    "tool": tool_type(tool),
                    "properties": without_secrets(properties),
                    "names": names._asdict(),
                    "mounts": mounts,
                    "files": run.files,
                    "backend": run.backend,
                },
            },
        )


def _no_vault(url: str, value: str) -> str:
    return (
        f"petctl does not ask key vaults; create it with: petctl secret set NAME (its value: {value}), and write into "
        f"petctl.yaml: secrets: {{{url}: NAME}}"
    )


def own_name(name: str) -> str:
    """petctl's name for a job of this one: the service's may begin with what looks like an option."""
    return name.lstrip("-_") or "job"


def _job_name(script: str, tool: str) -> str:
    """What a user would call it: the script without its ending, else the tool."""
    stem = _NOT_A_NAME.sub("-", PurePosixPath(script).stem).strip("-_.")[:24]
    return stem.rstrip("-_.") or tool_type(tool)


def _image(registry: Mapping[str, Any]) -> str:
    """The image with its registry's host before it, unless that is the default one or there already."""
    image = str(registry.get("image", ""))
    server = str(registry.get("serverUrl", "")).partition("://")[2] or str(registry.get("serverUrl", ""))
    server = server.strip("/")
    if not server or server in ("docker.io", "index.docker.io") or image.startswith(f"{server}/"):
        return image
    return f"{server}/{image}"


def _bytes(docker: str) -> str:
    """2g -> 2giB: docker's units are those of 1024."""
    amount = docker.lower().replace(" ", "").removesuffix("b").removesuffix("i")
    return f"{amount}iB" if amount[-1].isalpha() else amount


def without_secrets(value: Any) -> Any:
    """The same tree without what must not rest anywhere."""
    if isinstance(value, list):
        return [without_secrets(item) for item in value]
    if not isinstance(value, dict):
        return value
    plain = {name: without_secrets(item) for name, item in value.items() if name not in _HIDDEN}
    if plain.get("secrets"):
        plain["secrets"] = [{k: v for k, v in entry.items() if k != "value"} for entry in plain["secrets"]]
    return plain
