"""The Python API of ACT: `create_aml_client(...)` gives a client whose methods are the verbs. Thin: they are elsewhere.

    from act.aml_client import create_aml_client          or: from petctl.compat.act.client import ...

    client = create_aml_client(cluster="eu", num_gpu=8)
    runs = [client.submit(["python", "train.py", "--lr", str(rate)]) for rate in (0.1, 0.01)]
    for facts in client.iter_query(runs):
        print(facts["appID"], facts["status"])

Any key of the YAML can be overridden by its name. Nothing is printed but remarks, on stderr.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from petctl.compat.act import data, overview, published, runs
from petctl.compat.act.build import build
from petctl.compat.act.compile import RunRequest
from petctl.compat.act.config.config import Config, find_config
from petctl.compat.act.pins import pin
from petctl.compat.act.run_facts import facts
from petctl.compat.act.run_logs import fetch, log_folder
from petctl.errors import UsageError

List = list  # the method below has that name


def create_aml_client(**overrides: Any) -> AMLClient:
    """A client of the configuration `cluster=NAME` (else the default one), with keys of its YAML overridden."""

    cluster = overrides.pop("cluster", None)
    return AMLClient(find_config(cluster, overrides, named_by="cluster"))


class AMLClient:
    """One configuration: where runs go, and where its folders are."""

    def __init__(self, config: Config, say: Callable[[str], None] | None = None) -> None:
        self.config = config
        self._say = say or runs.to_stderr
        self._remarks = List(config.remarks)

    def __repr__(self) -> str:
        return f"<AMLClient {self.config.name} on {self.config.cluster}>"

    def submit(self, cmd: str | Sequence[str], num_gpu: int | None = None, new_code: bool = False) -> str:
        """Starts a run and gives its id. A text with blanks is a line for the shell; a list is taken word by word."""
        while self._remarks:
            self._say(self._remarks.pop(0))
        return runs.submit(self.config, RunRequest(_argv(cmd), num_gpu), new_code=new_code, say=self._say).id

    def local_run(self, cmd: str | Sequence[str]) -> str:
        """Runs it on this machine, in one process, and gives the run's id when it has ended."""
        handle = runs.local(self.config, RunRequest(_argv(cmd)), say=self._say)
        handle.wait()
        return handle.id

    def sync_code(self, compile_in_docker: bool = False) -> str:
        """Pins the code as it is now, built if that is wished; the pin's id."""
        if compile_in_docker:
            return build(self.config, say=self._say).id

        made = pin(self.config)
        published.publish(self.config, made)
        return made.id

    def abort(self, run_id: str) -> str:
        """Ends a run; a sentence says what became of it."""
        return runs.abort(run_id)

    def resubmit(self, run_id: str, resubmit_to: str | None = None, new_code: bool = False) -> str:
        """Ends a run and starts the same again, here or with another configuration; the new id."""
        to = find_config(resubmit_to, named_by="resubmit_to") if resubmit_to else None
        return runs.resubmit(run_id, self.config, to=to, new_code=new_code, say=self._say).id

    def ssh(self, run_id: str, cmd: str | Sequence[str] = "/bin/sh") -> int:
        """Runs a command where rank 0 runs, with this process' terminal; its exit code."""
        argv = _argv(cmd)
        return runs.find_run(run_id).exec(["/bin/sh", "-c", argv[0]] if len(argv) == 1 else argv)

    def query_one(
        self, run_id: str, with_log: bool | None = None, log_full: bool = True, with_details: bool = True
    ) -> dict[str, Any]:
        """What is known of a run; its logs are fetched first, unless that is not wanted."""
        handle = runs.find_run(run_id)
        wanted = self.config.with_log if with_log is None else with_log
        found = facts(handle, fetch(handle, log_folder(), full=log_full) if wanted else ())
        return found if with_details else {name: found[name] for name in ("appID", "status")}

    def iter_query(
        self,
        run_id: str | Iterable[str] | None = None,
        by_status: str | None = None,
        max_runs: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """One run, several, or the experiment's newest; of these only the ones that are Failed, Running ..."""
        if run_id is None:
            yield from overview.runs(self.config, (by_status,) if by_status else None, max_runs)
            return
        for one in [run_id] if isinstance(run_id, str) else run_id:
            found = self.query_one(one)
            if by_status in (None, found["status"]):
                yield found

    def query(
        self,
        run_id: str | Iterable[str] | None = None,
        by_status: str | None = None,
        max_runs: int | None = None,
    ) -> List[dict[str, Any]]:
        """The same, as a list."""
        return List(self.iter_query(run_id, by_status, max_runs))

    def list_nodes(self, run_id: str) -> List[dict[str, Any]]:
        """The nodes of a run: name, address, state, ranks."""
        nodes = runs.find_run(run_id).status().nodes
        return [{"name": n.name, "address": n.address, "state": n.state, "ranks": List(n.ranks)} for n in nodes]

    def get_cluster_status(self) -> dict[str, Any]:
        """What the cluster has, what of it is free, which runs run and wait."""
        return overview.summary(self.config)

    def blame(self, most: int = 5) -> List[dict[str, Any]]:
        """The runs that have run longest."""
        return overview.blame(self.config, most)

    def upload(self, path: str, from_cluster: str | None = None, from_cluster_folder: str | None = None) -> None:
        """Copies a file or folder to the blob: from this machine, or from another configuration's blob, where its
        mapped folder may have another name."""
        source = find_config(from_cluster, named_by="from_cluster") if from_cluster else None
        if from_cluster_folder:
            if source is None or from_cluster_folder not in source.folders:
                raise UsageError(
                    f"from_cluster_folder: {from_cluster_folder!r} is not a mapped folder of "
                    f"{from_cluster or 'any from_cluster: name one'}"
                )
            here = path.removeprefix("./").partition("/")[0]
            source = replace(source, folders={**source.folders, here: source.folders[from_cluster_folder]})
        data.upload(self.config, path, source)

    def download(self, path: str) -> None:
        """Copies a file or folder from the blob to this machine."""
        data.download(self.config, path)

    def list(self, prefix: str) -> List[str]:
        """Names in the blob that begin so."""
        return [item.name for item in self.iter_list(prefix)]

    def iter_list(self, prefix: str) -> Iterator[data.Item]:
        """The same, with size and time of each."""
        yield from data.listed(self.config, prefix)

    def rm(self, path: str) -> int:
        """Removes exactly this file or folder from the blob; how many files that were."""
        return data.remove(self.config, path)

    def get_url(self, path: str, days: float = 30) -> str:
        """A link with which anybody can read one file."""
        return data.url(self.config, path, days)

    def exists(self, path: str) -> bool:
        """Whether a file or folder is in the blob."""
        return data.exists(self.config, path)

    def file_exists(self, path: str) -> bool:
        """Whether a file is there."""
        return data.file_exists(self.config, path)

    def dir_exists(self, path: str) -> bool:
        """Whether a folder is there."""
        return data.dir_exists(self.config, path)

    def query_file_info(self, path: str) -> dict[str, Any]:
        """Name, size and time of a file in the blob."""
        return data.info(self.config, path)._asdict()


def _argv(cmd: str | Sequence[str]) -> list[str]:
    return [cmd] if isinstance(cmd, str) else List(map(str, cmd))  # numbers too, in a search over parameters
