"""The operator put into a real cluster, by petctl, kubectl and Helm, and taken out again."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
from pathlib import Path
from typing import Any, Iterator

import pytest
import yaml

from petctl.clusters.agent_archive import operator_bytes
from petctl.clusters.kubernetes.operator.install.objects import NAME, UNPACKED, InstallOptions, definition, objects
from tests.k8s.administrator import SELECTOR, Administrator
from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.waiting import until
from tests.k8s.elasticjobs import defined
from tests.k8s.user import User

pytestmark = [pytest.mark.root]

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "kubernetes" / "elasticjob.yaml"
RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
UNTIL_TOLD = "import os, time\nwhile not os.path.exists('/petctl/state/finish'): time.sleep(0.1)"


@pytest.fixture(scope="module", autouse=True)
def definitions(cluster: Cluster) -> Iterator[None]:
    """What belongs to the cluster is as before afterwards."""
    roles = [thing["metadata"]["name"] for thing in definition() if thing["kind"] == "ClusterRole"]
    new = [name for name in roles if cluster.kubectl.attempt("get", "clusterrole", name).returncode != 0]
    with defined(cluster):
        try:
            yield
        finally:
            if new:
                cluster.kubectl("delete", "clusterroles", *new, "--ignore-not-found")


@pytest.fixture
def administrator(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Administrator]:
    found = Administrator(cluster, namespace, tmp_path)
    try:
        yield found
    finally:
        cluster.kubectl("delete", "elasticjobs,deployments", "--all", found.there, "--ignore-not-found")


@pytest.fixture
def alone(cluster: Cluster) -> Cluster:
    """A cluster in which nobody else has ElasticJobs or an operator: what is tested reaches all namespaces."""
    found = [
        *cluster.kubectl.get("elasticjobs", "--all-namespaces")["items"],
        *cluster.kubectl.get("deployments", "--all-namespaces", SELECTOR)["items"],
    ]
    if found:
        pytest.skip("somebody else's ElasticJobs or operators are here")
    return cluster


def example(administrator: Administrator) -> dict[str, Any]:
    """The documented one, in an image that is here; it ends when it is told to, and passes the strictest policy."""
    found: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    (container,) = found["spec"]["template"]["spec"]["containers"]
    container |= {"image": administrator.image[1], "args": [UNTIL_TOLD], "securityContext": RESTRICTED}
    return found


def finish(administrator: Administrator, job: str) -> None:
    """Lets the job's workers end well."""
    selector = f"--selector=petctl.dev/job={job},petctl.dev/role=node"
    for pod in administrator.kubectl.get("pods", selector, administrator.there)["items"]:
        name = pod["metadata"]["name"]
        administrator.kubectl("exec", name, administrator.there, "--", "touch", "/petctl/state/finish")
    administrator.until_phase(job, "Succeeded")


def test_it_is_installed_runs_a_job_is_upgraded_and_goes_without_the_job(administrator: Administrator) -> None:
    kubectl, there = administrator.kubectl, administrator.there
    kubectl("label", "namespace", administrator.namespace, "pod-security.kubernetes.io/enforce=restricted")
    administrator.install()
    pods = administrator.pods()
    assert len(pods) == 2
    administrator.apply(example(administrator))
    administrator.until_phase("hello", "Running", ready=2)
    kubectl("scale", "elasticjob", "hello", "--replicas=3", there)
    administrator.until_phase("hello", "Running", ready=3)

    administrator.install()
    assert administrator.pods() == pods, "nothing changed, so nothing was made anew"
    administrator.install("--replicas", "1")
    until(lambda: len(administrator.pods()) == 1, "one is left")

    done = administrator.operator("uninstall", *administrator.only, "-o", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["jobs_left"] == 1 and told["removed"][0] == f"Deployment {NAME}"
    administrator.gone()
    assert administrator.job("hello")["status"]["phase"] == "Running"
    done = administrator.operator("uninstall", *administrator.only)
    assert done.returncode == 0 and "no operator" in done.stderr

    administrator.install()
    finish(administrator, "hello")
    done = administrator.operator("uninstall", *administrator.only, "--with-jobs")
    assert done.returncode == 0, done.stderr
    assert kubectl.get("elasticjobs", there)["items"] == []
    assert kubectl.attempt("get", "crd", "elasticjobs.petctl.dev").returncode == 0, "that is the cluster's"


def test_it_has_the_rights_it_needs_and_no_others(administrator: Administrator) -> None:
    administrator.install("--replicas", "1")
    granted = [("create", "pods"), ("get", "secrets"), ("patch", "elasticjobs.petctl.dev:status")]
    for verb, what in (*granted, ("watch", "poddisruptionbudgets.policy")):
        assert administrator.may(verb, what)
        assert not administrator.may(verb, what, namespace="default")
    for verb, what in (
        ("list", "secrets"),
        ("delete", "secrets"),
        ("patch", "pods"),
        ("create", "pods:exec"),
        ("patch", "elasticjobs.petctl.dev"),
        ("create", "deployments.apps"),
        ("patch", "leases.coordination.k8s.io/another"),
    ):
        assert not administrator.may(verb, what), (verb, what)
    assert administrator.may("patch", f"leases.coordination.k8s.io/{NAME}")


def test_whoever_may_edit_a_namespace_may_use_elastic_jobs_in_it(administrator: Administrator) -> None:
    administrator.install("--replicas", "1")
    for role, who in (("edit", "editor"), ("view", "viewer")):
        words = (f"--clusterrole={role}", f"--user={who}", administrator.there)
        administrator.kubectl("create", "rolebinding", role, *words)
    jobs = "elasticjobs.petctl.dev"
    until(lambda: administrator.may("create", jobs, who="editor"), "an editor may create them")
    until(lambda: administrator.may("list", jobs, who="viewer"), "a viewer may list them")
    assert administrator.may("patch", f"{jobs}:scale", who="editor")
    assert not administrator.may("patch", f"{jobs}:status", who="editor")
    assert not administrator.may("create", jobs, who="viewer")


@pytest.mark.long
def test_what_keeps_it_from_leading_is_said_and_can_be_corrected(administrator: Administrator) -> None:
    def refused(*words: str, seconds: int = 15) -> str:
        done = administrator.operator("install", *administrator.only, "--timeout", str(seconds), *words)
        assert done.returncode == 1, done.stderr
        last = done.stderr.splitlines()[-1]
        assert last.startswith("petctl: no operator became leader within ")
        assert last.endswith(f"petctl operator uninstall --namespace {there} --only-namespace {there}")
        return last

    there = administrator.namespace
    administrator.kubectl("create", "quota", "none", "--hard=pods=0", administrator.there)
    assert "its pods are refused: " in (told := refused(*administrator.image)) and "exceeded quota" in told
    administrator.kubectl("delete", "quota", "none", administrator.there)
    assert "the image no such image" in refused("--image", "no such image")
    old = ("--image", administrator.cluster.image("3.9"))
    assert "has ended: this needs Python 3.11 or newer, and here is 3.9" in refused(*old, seconds=40)
    administrator.install()


@pytest.mark.long
def test_an_operator_is_not_made_another_one_by_accident(administrator: Administrator) -> None:
    administrator.install("--replicas", "1")
    there = ("--namespace", administrator.namespace)
    done = administrator.operator("install", *administrator.image, *there)
    assert done.returncode == 2
    assert f"manages the jobs of the namespace {administrator.namespace}; remove it with:" in done.stderr


def test_somebody_without_the_rights_is_told_who_has_them(administrator: Administrator, user: User) -> None:
    done = administrator.operator("install", "--only-namespace", user.namespace, kubeconfig=user.kubeconfig)
    assert done.returncode == 5 and "ask an administrator to install the operator" in done.stderr, done.stderr


@pytest.mark.long
def test_kubectl_applies_what_a_dry_run_prints(administrator: Administrator) -> None:
    for output in ("yaml", "json"):
        words = ("install", "--dry-run", *administrator.only, *administrator.image, "-o", output)
        done = administrator.operator(*words)
        assert done.returncode == 0 and not done.stderr, done.stderr
        server_side = ("apply", "--server-side", "--force-conflicts", "--filename=-")
        applied = administrator.kubectl(*server_side, text=done.stdout)
        assert "deployment.apps/petctl-operator serverside-applied" in applied
    administrator.kubectl("rollout", "status", f"deployment/{NAME}", administrator.there, "--timeout=120s")
    administrator.install()
    assert len(administrator.pods()) == 2


@pytest.mark.long
def test_it_runs_outside_of_the_cluster(administrator: Administrator) -> None:
    there = administrator.namespace
    words = administrator.words("run", "--namespace", there, "--lease-namespace", there)
    environment = administrator.environment
    process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        administrator.apply(example(administrator))
        administrator.until_phase("hello", "Running", ready=2)
        finish(administrator, "hello")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0 and "Traceback" not in told, told


# -- Helm --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make chart` builds it."""
    found = importlib.util.spec_from_file_location("build_chart", ROOT / "charts" / "build.py")
    assert found is not None and found.loader is not None
    build = importlib.util.module_from_spec(found)
    found.loader.exec_module(build)
    made: Path = build.build(tmp_path_factory.mktemp("charts"))
    return made


@pytest.mark.parametrize(
    ("wishes", "values"),
    [
        (InstallOptions(), []),
        (
            InstallOptions(image="here/python:3.12", namespace="tools", replicas=3, pull_secrets=["one", "two"]),
            ["image=here/python:3.12", "replicas=3", "imagePullSecrets={one,two}"],
        ),
        (InstallOptions(namespace="team", only_namespace="team"), ["watchNamespace=team"]),
        (InstallOptions(namespace="tools", only_namespace="team"), ["watchNamespace=team"]),
        (InstallOptions(only_namespace="team"), ["watchNamespace=team"]),
    ],
)
def test_the_chart_yields_the_objects_that_petctl_installs(
    cluster: Cluster, chart: Path, wishes: InstallOptions, values: list[str]
) -> None:
    chosen = [f"--set={value}" for value in values]
    text = cluster.helm("template", "any", chart, f"--namespace={wishes.namespace}", *chosen)
    ours = [thing for thing in objects(wishes, operator_bytes(UNPACKED)) if thing["kind"] not in NOT_IN_TEMPLATES]
    assert _by_name(yaml.safe_load_all(text)) == _by_name(ours)
    assert yaml.safe_load(cluster.helm("show", "crds", chart)) == definition()[0]


NOT_IN_TEMPLATES = ("Namespace", "CustomResourceDefinition")


def _by_name(found: Any) -> dict[tuple[str, ...], Any]:
    return {(one["kind"], one["metadata"]["name"], one["metadata"].get("namespace", "")): one for one in found if one}


def test_the_chart_takes_what_a_pod_can_have_and_no_value_that_it_does_not_know(
    cluster: Cluster, namespace: str, chart: Path, tmp_path: Path
) -> None:
    values = {
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "resources": {"requests": {"memory": "64Mi"}},
        "priorityClassName": "system-cluster-critical",
        "imagePullPolicy": "IfNotPresent",
        "serviceAccount": {"annotations": {"who": "somebody"}},
        "podLabels": {"team": "vision"},
        "podAnnotations": {"why": "a test"},
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    cluster.helm("lint", chart, "--strict", f"--values={tmp_path / 'values.yaml'}")
    text = cluster.helm("template", "any", chart, f"--namespace={namespace}", f"--values={tmp_path / 'values.yaml'}")
    cluster.kubectl("apply", "--server-side", "--dry-run=server", "--filename=-", text=text)
    made = {thing["kind"]: thing for thing in yaml.safe_load_all(text) if thing}
    pod = made["Deployment"]["spec"]["template"]
    for name in ("nodeSelector", "tolerations", "affinity", "priorityClassName"):
        assert pod["spec"][name] == values[name]
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
    assert pod["spec"]["containers"][0]["resources"] == resources
    assert pod["metadata"]["labels"]["team"] == "vision" and pod["metadata"]["annotations"]["why"] == "a test"
    assert made["ServiceAccount"]["metadata"]["annotations"] == {"who": "somebody"}
    with pytest.raises(Exception, match="replica"):
        cluster.helm("template", "any", chart, "--set=replica=3")


@pytest.mark.long
def test_helm_installs_upgrades_and_uninstalls_it(administrator: Administrator, chart: Path) -> None:
    helm, there = administrator.cluster.helm, administrator.there
    values = [f"--set=watchNamespace={administrator.namespace}", f"--set=image={administrator.image[1]}"]
    values += ["--set=aggregatedRoles=false", "--wait", "--timeout=120s", there]
    helm("install", "petctl", chart, *values)
    assert len(administrator.pods()) == 2
    administrator.apply(example(administrator))
    administrator.until_phase("hello", "Running", ready=2)
    definitions = helm("show", "crds", chart)
    administrator.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", text=definitions)
    helm("upgrade", "petctl", chart, *values, "--set=replicas=1")
    until(lambda: len(administrator.pods()) == 1, "one is left")
    for verb in ("install", "uninstall"):
        done = administrator.operator(verb, *administrator.only)
        assert done.returncode == 2 and "Helm has installed this operator" in done.stderr, done.stderr
    finish(administrator, "hello")
    helm("uninstall", "petctl", there, "--wait")
    administrator.gone()
    assert administrator.job("hello")["status"]["phase"] == "Succeeded"


# -- for the whole cluster ---------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.usefixtures("alone")
def test_it_looks_after_the_whole_cluster_and_all_of_it_goes(administrator: Administrator) -> None:
    home = f"petctl-test-system-{administrator.namespace[-8:]}"
    there = ("--namespace", home)
    kubectl = administrator.kubectl
    try:
        done = administrator.operator("install", *administrator.image, *there)
        assert done.returncode == 0, done.stderr
        administrator.apply(example(administrator))
        administrator.until_phase("hello", "Running", ready=2)
        done = administrator.operator("install", *administrator.image, "--namespace", administrator.namespace)
        assert done.returncode == 2 and f"an operator in {home} already manages" in done.stderr
        everywhere = kubectl.get("elasticjobs", "--all-namespaces")["items"]
        if [job["metadata"]["namespace"] for job in everywhere] != [administrator.namespace]:
            pytest.skip("somebody else has ElasticJobs now, which would be deleted")
        done = administrator.operator("uninstall", "--with-jobs", "-o", "json", *there)
        assert done.returncode == 0, done.stderr
        removed = json.loads(done.stdout)["removed"]
        assert "ElasticJob hello" in removed and removed[-1] == f"Namespace {home}"
        for gone in (("crd", "elasticjobs.petctl.dev"), ("namespace", home)):
            assert kubectl.attempt("get", *gone).returncode != 0
        assert kubectl.get("clusterroles,clusterrolebindings", SELECTOR)["items"] == []
    finally:
        administrator.operator("uninstall", *there)
        kubectl.apply(definition()[:1])  # for the tests behind this one
