"""Resources are there whole or not at all, whoever else is at work."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from petctl.compat.batchai.service.names import Address
from petctl.compat.batchai.service.resource_store import AlreadyThere, Missing, Trail, Tree
from petctl.compat.batchai.service.resources import (
    create_experiment,
    create_group,
    create_workspace,
    group_trail,
    trail_of,
)
from petctl.compat.batchai.service.storage import create_account, delete_account, place_of, read_account
from petctl.errors import PetctlError, UsageError

SPACE = Address("g", "w")


def test_a_resource_needs_its_parents_and_is_found_again(home: Path) -> None:
    tree = Tree(home)
    with pytest.raises(Missing, match="no resource group 'g'"), tree.locked():
        tree.make(trail_of("workspaces", SPACE), {})
    create_group(home, "g", "", {})
    create_workspace(home, SPACE, "eastus")
    assert tree.read(trail_of("workspaces", SPACE))["location"] == "eastus"
    assert tree.names(group_trail("g"), "workspaces") == ["w"]
    with pytest.raises(AlreadyThere), tree.locked():
        tree.make(trail_of("workspaces", SPACE), {})


def test_a_missing_one_is_told_with_the_nearest(home: Path) -> None:
    create_group(home, "g", "", {})
    create_workspace(home, SPACE, "")
    create_experiment(home, SPACE._replace(experiment="chainer"))
    tree = Tree(home)
    with pytest.raises(Missing, match="did you mean 'chainer'") as caught:
        tree.read(trail_of("experiments", SPACE._replace(experiment="chaner")))
    assert caught.value.code == 3
    with pytest.raises(Missing, match="no workspace 'v'"):
        tree.read(trail_of("jobs", Address("g", "v", "e", "j")))


def test_where_there_is_none_yet_the_way_to_the_first_is_told(home: Path) -> None:
    tree = Tree(home)

    def told(trail: Trail) -> str:
        with pytest.raises(Missing) as caught:
            tree.read(trail)
        return str(caught.value)

    nobody = Address("default", "default", "default", "nope")
    assert told(trail_of("jobs", nobody)) == (
        "there is no resource group 'default', nor any other; "
        "the first job makes it: batchai job create -n NAME -f job.json"
    )
    create_group(home, "g", "", {})
    create_workspace(home, SPACE, "")
    create_experiment(home, SPACE._replace(experiment="chainer"))
    job = told(trail_of("jobs", SPACE._replace(experiment="chainer", name="j")))
    place = f"-g {SPACE.group} -w {SPACE.workspace}"
    assert job.endswith(f"nor any other; create one: batchai job create {place} -e chainer -n j -f job.json")
    cluster = told(trail_of("clusters", SPACE._replace(name="c")))
    assert f"create one: batchai cluster create {place} -n c ..." in cluster
    assert told((("storage", "mine"),)).endswith("create one: batchai storage account create -n mine")


@pytest.mark.parametrize("name", ["", ".", "..", "../groups/g", "/etc", "a\0b", "a" * 300])
def test_a_name_leads_nowhere_else(home: Path, name: str) -> None:
    create_group(home, "g", "", {})
    for call in (delete_account, read_account):
        with pytest.raises(UsageError, match="cannot be the name of a storage account"):
            call(home, name)
    with pytest.raises(UsageError):
        Tree(home).find(group_trail(name))
    assert place_of(home, "file", name, "logs") is None
    create_account(home, "mystorage", "g", "", "Standard_LRS", "Storage")
    assert place_of(home, "file", "mystorage", name) is None


def test_one_of_many_at_once_makes_it(home: Path) -> None:
    create_group(home, "g", "", {})
    made: list[int] = []
    begin = threading.Barrier(8)

    def attempt(number: int) -> None:
        tree = Tree(home)
        begin.wait(30)
        try:
            with tree.locked():
                tree.make((*group_trail("g"), ("workspaces", "w")), {"by": number})
        except AlreadyThere:
            return
        made.append(number)

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(made) == 1
    assert Tree(home).read(trail_of("workspaces", SPACE)) == {"by": made[0]}


def test_what_a_killed_maker_left_is_cleared_away_and_never_seen(home: Path) -> None:
    create_group(home, "g", "", {})
    create_workspace(home, SPACE, "")
    tree = Tree(home)
    draft = tree.root / ".new-0123"
    draft.mkdir()
    bare = tree.directory(trail_of("experiments", SPACE._replace(experiment="e")))
    bare.mkdir(parents=True)  # a directory without a record, as a torn removal leaves it
    assert tree.names(trail_of("workspaces", SPACE), "experiments") == []
    create_experiment(home, SPACE._replace(experiment="e"))
    assert not draft.exists()
    assert tree.names(trail_of("workspaces", SPACE), "experiments") == ["e"]


def test_what_lies_beside_a_damaged_record_is_left_alone(home: Path) -> None:
    create_group(home, "g", "", {})
    create_account(home, "mystorage", "g", "", "Standard_LRS", "Storage")
    account = home / "batchai" / "storage" / "mystorage"
    (account / "file" / "logs").mkdir()
    (account / "resource.json").write_text("{")
    with pytest.raises(PetctlError, match=r"resource\.json is damaged"):
        create_account(home, "mystorage", "g", "", "Standard_LRS", "Storage")
    assert (account / "file" / "logs").is_dir()


def test_what_is_being_deleted_takes_no_children(home: Path) -> None:
    create_group(home, "g", "", {})
    create_workspace(home, SPACE, "")
    tree = Tree(home)
    with tree.locked():
        tree.change(trail_of("workspaces", SPACE), deleting=True)
    with pytest.raises(UsageError, match="is being deleted"):
        create_experiment(home, SPACE._replace(experiment="e"))
    with tree.locked():
        tree.change(group_trail("g"), deleting=True)
    with pytest.raises(UsageError, match="is being deleted"):
        create_account(home, "mystorage", "g", "", "Standard_LRS", "Storage")


def test_the_same_words_twice_are_no_error(home: Path) -> None:
    create_group(home, "g", "", {})
    first = create_workspace(home, SPACE, "eastus")
    assert create_workspace(home, SPACE, "westus") == first
    assert create_group(home, "g", "", {"team": "vision"})["tags"] == {"team": "vision"}


def test_a_workspace_makes_no_group_but_the_default(home: Path) -> None:
    with pytest.raises(Missing, match=r"there is no group 'typo'; create it: batchai group create -n typo") as caught:
        create_workspace(home, Address("typo", "w"), "")
    assert caught.value.code == 3
    assert Tree(home).find(group_trail("typo")) is None
    create_workspace(home, Address("default", "w"), "")
    assert Tree(home).read(group_trail("default"))["location"]
