"""From the words of a configuration to a `Config`: clusters, places and images are looked up and put together.

Every word was checked before (`keys.py`). What has no effect here becomes a remark, what cannot be a UsageError that
names the file and the key.
"""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petctl.clusters.base import how_to_get_cluster
from petctl.compat.act.config.accounts import Account, Hidden, read_account
from petctl.compat.act.config.config import BlobFolder, Config, is_cluster, kind_of
from petctl.compat.act.config.documents import read_configuration, user_path
from petctl.compat.act.config.keys import CODE, ENTRY, FOLDER, KEYS, Idle
from petctl.compat.act.config.zip_rules import read_zip_options
from petctl.errors import UsageError
from petctl.home import petctl_home
from petctl.kinds import DEFAULT

WORKSPACE = ("subscription_id", "resource_group", "workspace_name")


class Making:
    """One configuration on its way from the file's words to what they come to."""

    def __init__(self, said: Mapping[str, Any], file: Path | None, name: str) -> None:
        self.said, self.file, self.name = said, file, name
        self.where = str(file) if file else "configuration"
        self.root = Path.cwd()
        self.remarks: list[str] = []
        self._accounts: dict[Path, Account] = {}

    def config(self, cluster: str | None) -> Config:
        """All of it; `cluster`: the one that was named instead of a file."""
        said = self.said
        entries = {key: entry for key, entry in said.get("config_param", {}).items() if entry is not None}
        zipping = self._zip_options()
        elastic = said.get("elastic_num_gpu", [])
        computed: dict[str, Any] = dict(
            name=self.name,
            file=self.file,
            root=self.root,
            cluster=cluster or self._cluster(),
            experiment=said.get("experiment_name") or _user(),
            code_path=self._place(CODE, entries[CODE]) if CODE in entries else None,
            folders={
                key.removesuffix(FOLDER): self._place(key, entry) for key, entry in entries.items() if key != CODE
            },
            num_gpu=said.get("num_gpu", elastic[0] if elastic else None),
            env={name: value for name, value in said.get("env", {}).items() if value is not None},
            exclude=zipping,
            workspace=self._workspace(),
            **self._image(),
        )
        found = Config(**{name: said[name] for name in Config.__struct_fields__ if name in said} | computed)
        if found.image_password and kind_of(found.cluster) != DEFAULT:
            self.remarks.append(
                "docker.username and docker.password have no effect on Kubernetes: there the registry's password is a "
                f"Secret, which clusters.{found.cluster}.pull_secrets in petctl.yaml names"
            )
        self._idle(entries)
        found.remarks.extend(self.remarks)
        return found

    def _wrong(self, key: str, sentence: str) -> UsageError:
        return UsageError(f"{self.where}: {key}: {sentence}")

    def _cluster(self) -> str:
        named, target = self.said.get("cluster"), self.said.get("compute_target")
        if named:
            if not is_cluster(named):
                advice = f"name another; {how_to_get_cluster(named)}"
                raise self._wrong("cluster", f"petctl knows no cluster {named!r}: {advice}")
            return str(named)
        for name in (target, self.name):
            if name and is_cluster(name):
                return str(name)
        if target:
            self.remarks.append(
                f"compute_target {target} is not a cluster that petctl knows: runs go to {DEFAULT}; to choose "
                f"another, write cluster: NAME"
            )
        return DEFAULT

    def _place(self, key: str, entry: Mapping[str, Any]) -> BlobFolder:
        key = f"config_param.{key}"
        file = entry.get("azure_blob_config_file") or self.said.get("azure_blob_config_file")
        if not file:
            raise self._wrong(key, "azure_blob_config_file is missing: the file that describes the storage account")
        path = self.root / user_path(file)
        account = self._accounts.get(path)
        if account is None:
            account = self._accounts[path] = read_account(path, f"{self.where}: {key}.azure_blob_config_file")
        if entry.get("path") is None:
            raise self._wrong(key, "path is missing: where it is in the container")
        if entry.get("storage_type") == "file" or entry.get("file_share"):
            return self._share(key, entry, account)
        if not account.container:
            raise self._wrong(key, f"container_name is missing in {account.file}")
        location = f"az://{account.name}/{account.container}/{entry['path']}".rstrip("/")
        return BlobFolder(location, account, entry.get("mode") or "rw")

    def _share(self, key: str, entry: Mapping[str, Any], account: Account) -> BlobFolder:
        """A file share: only where a directory of this machine stands for it."""
        from petctl.storage.stores.credentials import resolve
        from petctl.storage.stores.location import SHARE_HOST, parse_location
        from petctl.submission.stores import surroundings

        share = entry.get("file_share")
        if entry.get("storage_type") == "blob" or not share:
            raise self._wrong(key, "a file share needs storage_type: file and file_share: NAME; give both, or neither")
        location = f"https://{account.name}{SHARE_HOST}/{share}/{entry['path']}".rstrip("/")
        try:
            resolve(parse_location(location), surroundings(petctl_home()))
        except UsageError as error:
            raise self._wrong(key, str(error)) from None
        return BlobFolder(location, account, entry.get("mode") or "rw")

    def _image(self) -> dict[str, Any]:
        docker = {name: value for name, value in self.said.get("docker", {}).items() if value is not None}
        image, address = str(docker.get("image", "")), str(docker.get("address", "")).rstrip("/")
        if self.said.get("use_custom_docker") is False:
            if image:
                self.remarks.append(f"docker.image {image} is not used, since use_custom_docker is false")
            return {}
        if not image:
            if docker or self.said.get("use_custom_docker"):
                raise self._wrong("docker", "image is missing; give one, or write use_custom_docker: false")
            return {}
        user, password = docker.get("username", ""), docker.get("password", Hidden())
        if bool(user) != bool(password):
            raise self._wrong("docker", "a registry needs username and password; one of them is missing")
        whole = f"{address}/{image}" if address and not image.startswith(f"{address}/") else image
        return {"image": whole, "image_user": user, "image_password": password}

    def _zip_options(self) -> list[str]:
        found = read_zip_options(self.said.get("zip_options", []))
        if found.idle:
            self.remarks.append(f"zip_options {' '.join(found.idle)}: zip is not used; only -x has an effect here")
        return found.exclude

    def _workspace(self) -> dict[str, str]:
        said = self.said.get("aml_config", {})
        if isinstance(said, str):
            path = self.root / user_path(said)
            if not path.is_file():
                self.remarks.append(f"aml_config: there is no file {said}; nothing here needs it")
                return {}
            said = read_configuration(path).root or {}
        missing = [name for name in WORKSPACE if said and not isinstance(said.get(name), str)]
        if missing:
            self.remarks.append(f"aml_config has no {', '.join(missing)}; nothing here needs it")
        return {name: str(said[name]) for name in WORKSPACE if isinstance(said.get(name), str)}

    def _idle(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """What is said and has no effect, one sentence for each reason."""
        said = [(name, key) for name, key in KEYS.items() if self.said.get(name)]
        for place, entry in entries.items():
            said += [(f"config_param.{place}.{name}", key) for name, key in ENTRY.items() if entry.get(name)]
        reasons: dict[str, list[str]] = {}
        for name, key in said:
            if isinstance(key, Idle):
                reasons.setdefault(key.why, []).append(name)
        verbs = {why: "has" if len(names) == 1 else "have" for why, names in reasons.items()}
        self.remarks += [f"{', '.join(names)} {verbs[why]} no effect: {why}" for why, names in reasons.items()]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "act"
