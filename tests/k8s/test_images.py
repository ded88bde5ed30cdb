"""Jobs in an image that has no Python: the agent has it from another image."""

from __future__ import annotations

import pytest

from tests.k8s.cluster.waiting import until
from tests.k8s.user import User

pytestmark = [pytest.mark.root]

BOX = "/bin/busybox"
LINE = f"echo step $RANK of $WORLD_SIZE in $PETCTL_ROUND; while [ ! -e /petctl/state/finish ]; do {BOX} sleep 0.1; done"


def test_a_job_runs_in_an_image_without_python(user: User) -> None:
    """It grows, is looked into and ends well, as with any other image."""
    bare = user.cluster.bare_image
    user.configure(image=bare, agent_image=user.cluster.image("3.9"))
    job = user.submit("-n", "1:1:2", BOX, "sh", "-c", LINE)
    first = user.running(job, 1)
    assert user.petctl("scale", job, "2").returncode == 0
    grown = user.running(job, 2, after=first["round"])
    until(lambda: f"step 1 of 2 in {grown['round']}\n" in user.petctl("logs", job).stdout, "its output is read")
    inside = user.petctl("exec", job, "--", BOX, "sh", "-c", f"echo $WORLD_SIZE; {BOX} ls /bin")
    assert inside.stdout.split() == ["2", "busybox"], inside.stderr
    for node in grown["nodes"]:
        words = (BOX, "touch", "/petctl/state/finish")
        assert user.petctl("exec", "--node", node["name"], job, "--", *words).returncode == 0
    assert user.petctl("wait", job).returncode == 0
    assert {pod["spec"]["containers"][0]["image"] for pod in user.pods(job, "node")} == {bare}


def test_whoever_does_not_know_it_is_told(user: User) -> None:
    user.configure(image=user.cluster.bare_image)
    job = user.submit(BOX, "true")
    user.told(job, "executable file not found", "kubernetes.agent_image")
    assert user.petctl("cancel", job).returncode == 0
