"""The folder map: files to values, words to locations, jobs to what their records keep."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from petctl.clusters.local.build_record import build_record
from petctl.clusters.local.job_directory import JobDirectory
from petctl.config.settings import project_root
from petctl.errors import StoreUnreachable, UsageError
from petctl.job.file.read import job_from_dict
from petctl.job.record import JobRecord
from petctl.job.spec import Job
from petctl.submission import folder_mounts
from petctl.submission.folders import find, folder_map, inside_project, look_up

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret-key", "AWS_REGION": "eu-1"}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a project; the user's own configuration is beside it."""
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return place


def configure(project: Path, text: str) -> None:
    (project / "petctl.yaml").write_text(text)


def places(cluster: str = "") -> dict[str, tuple[str, str]]:
    return {name: (str(folder.location), folder.mode) for name, folder in folder_map(cluster).items()}


def test_every_form_and_who_wins(project: Path, tmp_path: Path) -> None:
    user = tmp_path / "config" / "petctl" / "config.yaml"
    user.parent.mkdir(parents=True)
    user.write_text("folders: {data: s3://user/data, own: here, home: ~/x}\n")
    configure(
        project,
        "folders:\n  data: s3://bucket/data/\n  ./output/: {location: az://account/box/output, mode: rw}\n"
        "  models: {location: models/all}\n"
        "clusters: {lab: {kind: local, folders: {data: /srv/data, data/voc: {location: s3://lab/voc, mode: sync}}}}\n",
    )
    general = {
        "data": ("s3://bucket/data", "ro"),
        "own": (str(user.parent / "here"), "ro"),
        "home": (str(Path.home() / "x"), "ro"),
        "output": ("az://account/box/output", "rw"),
        "models": (str(project / "models/all"), "ro"),
    }
    assert places() == general
    assert places("lab") == {**general, "data": ("/srv/data", "ro"), "data/voc": ("s3://lab/voc", "sync")}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("folders: [data]", r"petctl.yaml: folders must be a mapping"),
        ("folders: {data: }", r"petctl.yaml: folders.data has no location; write data: s3://BUCKET"),
        ("folders: {../data: s3://b/x}", r"petctl.yaml: folders.../data: the name of a folder is a path"),
        ("folders: {/data: s3://b/x}", r"the name of a folder is a path"),
        ('folders: {"a:b": s3://b/x}', r"the name of a folder is a path"),
        ("folders: {data: {mode: rw}}", r"folders.data has no location"),
        ("folders: {data: {location: s3://b/x, mode: wr}}", r"folders.data.mode: expected ro or rw or sync, got 'wr'"),
        ("folders: {data: {where: s3://b/x}}", r"folders.data.where: unknown field"),
        ("folders: {data: ftp://b/x}", r"petctl.yaml: folders.data: .*does not support ftp://"),
        ("folders: {data: 's3://'}", r"names no bucket"),
        ("folders: {data: 'https://a.blob.core.windows.net/c/x?sig=abc'}", r"holds a SAS.*secret set azure-a-sas"),
        ("clusters: {local: {folders: 3}}", r"clusters.local.folders must be a mapping"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(project: Path, text: str, sentence: str) -> None:
    configure(project, text)
    with pytest.raises(UsageError, match=sentence) as caught:
        folder_map()
    assert "sig=abc" not in str(caught.value)


def test_the_longest_name_counts(project: Path) -> None:
    configure(project, "folders: {data: s3://b/data, data/voc: s3://other/voc}")
    known = folder_map()

    def location(path: str) -> str:
        found = find(path, known)
        return str(found.location) if found else ""

    assert location("data/coco/a") == "s3://b/data/coco/a"
    assert location("data/voc/a") == "s3://other/voc/a"
    assert location("data/vocals") == "s3://b/data/vocals"
    assert location("database") == ""


def test_words_are_looked_up_from_the_project_everywhere(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(project, "folders: {data: s3://b/data}\nclusters: {lab: {kind: local, folders: {data: s3://lab/d}}}")
    (project / "data" / "deep").mkdir(parents=True)
    monkeypatch.chdir(project / "data")
    assert project_root() == project
    assert [inside_project(word) for word in ("deep/x", "../other", "../..")] == ["data/deep/x", "other", ""]
    assert str(look_up("@data/voc/").location) == "s3://b/data/voc/"
    assert str(look_up("@lab:data/voc").location) == "s3://lab/d/voc"
    with pytest.raises(UsageError, match=r"@models: models is in no mapped folder.*data \(s3://b/data\)"):
        look_up("@models")
    with pytest.raises(UsageError, match="there is no cluster 'moon'"):
        look_up("@moon:data")
    with pytest.raises(UsageError, match=r"no '\.\.'"):
        look_up("@data/../x")


# -- jobs --------------------------------------------------------------------------------------------------------------


def record(project: Path, **fields: Any) -> JobRecord:
    (project / "train.py").write_text("")
    directory = JobDirectory(project.parent / "home" / "jobs" / "x-2222")
    return build_record(Job(script="train.py", **fields), directory, {"slots": 2})


def test_a_record_keeps_places_and_no_key(project: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    configure(
        project,
        f"folders: {{data: s3://b/data, out: {{location: s3://b/out, mode: sync}}, models: {models}}}\n"
        "stores: {s3://b: {endpoint: 'http://127.0.0.1:1'}}\ncache: 3MiB\n",
    )
    (project / "data").mkdir()
    (project / "data" / "big").write_text("not code")
    found = record(project)
    assert [(folder["path"], folder["mode"], folder["directory"]) for folder in found.folders] == [
        ("data", "ro", ""),
        ("out", "sync", ""),
        ("models", "ro", str(models)),
    ]
    task = found.task
    assert [(folder.grant, folder.endpoint) for folder in task.folders] == [
        ("folder:data", "http://127.0.0.1:1"),
        ("folder:out", "http://127.0.0.1:1"),
        ("", ""),
    ]
    assert (task.folder_limit, task.folder_cache) == (3 << 20, str(tmp_path / "home" / "cache" / "folders"))
    grants = found.grants
    assert {name: grant["write"] for name, grant in grants.items()} == {"folder:data": False, "folder:out": True}
    assert "secret-key" not in repr(found)
    assert found.code["files"] == 2  # petctl.yaml and the script


def test_which_folders_a_job_has(project: Path) -> None:
    configure(project, "folders: {data: s3://b/data, out: {location: s3://b/out, mode: rw}}")

    def folders(**fields: Any) -> dict[str, tuple[str, str]]:
        found = record(project, **fields).folders
        return {folder["name"]: (folder["location"], folder["mode"]) for folder in found}

    assert folders() == folders(folders="all") == {"data": ("s3://b/data", "ro"), "out": ("s3://b/out", "rw")}
    assert folders(folders="none") == {}
    assert folders(folders=["data/voc20", "data/voc20/train"]) == {"data/voc20": ("s3://b/data/voc20", "ro")}
    assert folders(folders={"data": {"mode": "rw"}, "more": "s3://b/more"}) == {
        "data": ("s3://b/data", "rw"),
        "more": ("s3://b/more", "ro"),
    }
    with pytest.raises(UsageError, match=r"(?s)folders\.modles: modles is in no mapped folder.*--folder modles="):
        folders(folders=["modles"])


def test_mapped_folders_are_never_code_and_never_behind_another_link(project: Path) -> None:
    configure(project, "folders: {data/voc: s3://b/voc, kept: s3://b/kept}")
    (project / ".petctlignore").write_text("data/\n!kept\n")
    for name in ("data/voc/a", "data/other/b", "kept/c"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x")
    found = record(project)
    assert found.code["files"] == 3
    assert found.code["links"] == {"data/other": str(project / "data/other")}


def test_the_place_in_the_code(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(project, "folders: {data: s3://b/data, sub/out: {location: s3://b/out, mode: rw}}")
    (project / "sub").mkdir()
    (project / "sub" / "train.py").write_text("")
    monkeypatch.chdir(project / "sub")
    (project.parent / ".git").mkdir()

    def paths(**fields: Any) -> list[str]:
        return [folder["path"] for folder in record(project / "sub", **fields).folders]

    assert paths(code=str(project)) == ["data", "sub/out"]
    assert paths(code=str(project.parent), allow_secrets=["*"]) == ["project/data", "project/sub/out"]
    assert paths(code=".") == ["data", "out"]  # the first one has no place in there, and is at the top
    assert paths(code="train.py") == ["data", "sub/out"]


def test_a_job_in_place_sees_what_is_there(project: Path) -> None:
    configure(project, "folders: {data: s3://b/data, out: {location: s3://b/out, mode: rw}, models: /srv/models}")
    with pytest.raises(
        UsageError,
        match=r"runs in place; .* data is missing there: download it with: petctl "
        "data down data",
    ):
        record(project, code="none")
    (project / ".env").write_text("KEY=1")
    with pytest.raises(UsageError, match=r"(?s)running in place \(no snapshot\).*\.env.*data is missing"):
        record(project)
    for name in ("data", "out", "models"):
        (project / name).mkdir()
    found = record(project, code="none")
    assert found.task.folders == []
    assert found.notes == [
        "running in place: what the job writes to out stays there; upload it with: petctl data up out"
    ]
    (project / "models").rmdir()
    with pytest.raises(UsageError, match=r"ln -s /srv/models models.*--no-folders"):
        record(project, code="none")


@pytest.mark.parametrize(
    ("folders", "sentence"),
    [
        ({"data": "/nowhere/at/all"}, "which does not exist"),
        ({"data": "gs://b/x"}, r"the folder data .*gs://"),
        ({"data": ".", "data/voc": "s3://b/x"}, "data/voc lies in data, which is the directory"),
    ],
)
def test_what_no_job_can_have_is_refused(project: Path, folders: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        record(project, folders=folders)


@pytest.mark.parametrize("text", ["lots", "0", "[1]"])
def test_a_wrong_limit_of_the_cache_is_told(project: Path, text: str) -> None:
    configure(project, f"folders: {{data: s3://b/data}}\ncache: {text}")
    with pytest.raises(UsageError, match=r"petctl\.yaml: cache: "):
        record(project)


def test_a_resubmitted_job_has_the_same_folders(project: Path) -> None:
    configure(project, "folders: {data: s3://b/data, out: {location: s3://b/out, mode: rw}}")
    found = record(project)
    configure(project, "folders: {data: s3://elsewhere/data}")
    job = replace(job_from_dict(found.job), folders=folder_mounts.as_wish(found.folders))
    again = build_record(job, JobDirectory(project.parent / "home" / "jobs" / "y-2222"), {"slots": 2}, found.code)
    assert again.folders == found.folders
    assert folder_mounts.as_wish([]) == "none"


def test_an_unreachable_store_is_told_at_submit(project: Path) -> None:
    configure(project, "folders: {data: s3://b/data}\nstores: {s3://b: {endpoint: 'http://127.0.0.1:1'}}")
    with pytest.raises(StoreUnreachable, match=r"s3://b: no answer at http://127\.0\.0\.1:1"):
        folder_mounts.check_folders(record(project).folders, project.parent / "home")


def test_the_example_of_the_documentation_is_true(project: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "folders.md").read_text()
    first = page.partition("    folders:\n")[2].partition("\n\n")[0]
    configure(project, f"folders:\n{textwrap.dedent(first)}".replace("\n", "\n  "))
    assert places() == {
        "data": ("s3://bucket/data", "ro"),
        "output": ("az://account/box/output", "rw"),
        "models": ("/srv/models", "ro"),
    }
