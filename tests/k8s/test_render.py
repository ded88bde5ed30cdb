"""Jobs that kubectl starts from what `petctl render` prints: from then on they are like any other."""

from __future__ import annotations

import json
import random
import subprocess

import pytest

from tests.k8s.cluster.kubectl import Kubectl
from tests.k8s.cluster.waiting import until
from tests.k8s.user import User

pytestmark = [pytest.mark.root]


def render(user: User, *words: str) -> str:
    done = user.petctl("render", "-c", "k8s", *words)
    assert done.returncode == 0, done.stderr
    assert ("keep it private" in done.stderr) == ("--with-secrets" in words)
    return done.stdout


def create(user: User, text: str, *how: str) -> subprocess.CompletedProcess[str]:
    """kubectl with no more rights than petctl has."""
    kubectl = Kubectl(user.cluster.kubectl.program, user.kubeconfig)
    return kubectl.attempt(*(how or ("create",)), "--filename=-", user.there, text=text)


def jobs(user: User) -> list[str]:
    return [job["id"] for job in json.loads(user.petctl("list", "-c", "k8s", "-o", "json").stdout)]


def test_a_rendered_job_is_followed_scaled_cancelled_and_removed(user: User) -> None:
    done = create(user, render(user, "--with-secrets", "-n", "1:1:2", "steps.py"), "apply")
    assert done.returncode == 0, done.stderr
    (job,) = jobs(user)
    first = user.running(job, 1)
    until(lambda: user.steps(job), "it steps")
    assert user.petctl("scale", job, "2").returncode == 0
    user.running(job, 2, after=first["round"])
    assert user.petctl("rm", job).returncode == 2
    assert user.petctl("cancel", job).returncode == 0
    assert user.ended(job)["state"] == "cancelled"
    assert user.petctl("rm", job).returncode == 0
    until(lambda: not user.left(), "nothing is left")


def test_two_renders_run_side_by_side_and_one_is_removed_alone(user: User) -> None:
    assert user.petctl("secret", "set", "-c", "k8s", "key", text="s3cret-value").returncode == 0
    (user.project / "shows.py").write_text("import os; print('got', os.environ['KEY'][:2])")
    words = ("--with-secrets", "--secret", "KEY=key", "shows.py")
    for text in (render(user, *words), render(user, "-o", "json", *words)):
        assert "s3cret-value" not in text
        done = create(user, text)
        assert done.returncode == 0, done.stderr
    one, other = jobs(user)
    for job in (one, other):
        assert user.petctl("wait", job).returncode == 0
        assert user.petctl("logs", job).stdout.endswith("got s3\n")
    assert user.petctl("rm", one).returncode == 0
    until(lambda: not [name for name in user.left() if one in name], "nothing of the one is left")
    assert user.petctl("logs", other).stdout.endswith("got s3\n")
    assert user.petctl("secret", "ls", "-c", "k8s").stdout.split() == ["key"]


def test_without_secrets_it_is_refused_and_what_it_left_can_be_removed(user: User) -> None:
    done = create(user, render(user, "steps.py"))
    assert done.returncode != 0 and "illegal base64" in done.stderr
    (job,) = jobs(user)
    assert user.status(job)["state"] == "starting"
    assert user.petctl("cancel", job).returncode == 0
    assert user.petctl("rm", job).returncode == 0
    until(lambda: not user.left(), "nothing is left")


def test_code_of_many_pieces_is_applied_and_applying_it_again_changes_nothing(user: User) -> None:
    """kubectl keeps a copy of each object in an annotation, which is not as large as an object may be."""
    (user.project / "weights").write_bytes(random.Random(1).randbytes(2_000_000))
    text = render(user, "--with-secrets", "--shell", "wc -c < weights; sleep 600")
    done = create(user, text, "apply")
    assert done.returncode == 0, done.stderr
    (job,) = jobs(user)
    until(lambda: "2000000\n" in user.petctl("logs", job).stdout, "the job has its code")
    again = create(user, text, "apply")
    assert again.returncode == 0, again.stderr
    assert all(line.endswith(" unchanged") for line in again.stdout.splitlines()), again.stdout
    assert sum("-code-" in line for line in again.stdout.splitlines()) == 11
    assert user.petctl("cancel", job).returncode == 0
    assert user.ended(job)["state"] == "cancelled"
    assert user.petctl("rm", job).returncode == 0
    until(lambda: not user.left(), "nothing is left")


def test_server_side_apply_takes_it(user: User) -> None:
    """By the administrator: it needs the right to patch, which petctl's users have no other use for."""
    (user.project / "hello.py").write_text("print('hello')")
    text = render(user, "--with-secrets", "hello.py")
    user.cluster.kubectl("apply", "--server-side", "--filename=-", text=text)
    (job,) = jobs(user)
    assert user.petctl("wait", job).returncode == 0
    assert user.petctl("rm", job).returncode == 0
    until(lambda: not user.left(), "nothing is left")
