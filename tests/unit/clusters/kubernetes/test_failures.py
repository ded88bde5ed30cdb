"""The API server's words, real ones, as sentences that say what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from petctl.errors import PetctlError
from petctl.kube import failures
from tests.unit.clusters.kubernetes.servers import status

WHERE = "the Kubernetes API server https://big (context work)"


def told(code: int, reason: str, message: str, **fields: Any) -> failures.KubernetesError:
    body = json.dumps(status(code, reason, message, **fields)).encode()
    return failures.refusal(code, body, WHERE, "GET /there")


@pytest.mark.parametrize(
    ("code", "reason", "message", "kind"),
    [
        (404, "NotFound", 'pods "x" not found', failures.NoSuchObject),
        (409, "AlreadyExists", 'jobs.batch "x" already exists', failures.ObjectExists),
        (409, "Conflict", 'Operation cannot be fulfilled on jobs.batch "x": changed', failures.Conflict),
        (410, "Expired", "too old resource version: 1 (2)", failures.Gone),
        (400, "BadRequest", 'container "main" in pod "x" is waiting to start: ContainerCreating', failures.NotStarted),
        (400, "BadRequest", "invalid label selector", failures.Invalid),
        (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728", failures.Invalid),
        (401, "Unauthorized", "Unauthorized", failures.Unauthorised),
        (503, "ServiceUnavailable", "apiserver not ready", failures.ServerUnreachable),
        (504, "Timeout", "request did not complete", failures.ServerUnreachable),
        (500, "InternalError", 'failed calling webhook "w"', failures.KubernetesError),
    ],
)
def test_each_refusal_has_its_class(code: int, reason: str, message: str, kind: type[Exception]) -> None:
    error = told(code, reason, message)
    assert type(error) is kind and isinstance(error, PetctlError)
    assert WHERE in str(error)
    assert error.status["reason"] == reason
    if kind is not failures.Unauthorised:
        assert message in str(error)


def test_forbidden_names_who_what_where_and_what_to_do() -> None:
    user = "system:serviceaccount:team:reader"
    message = f'jobs.batch is forbidden: User "{user}" cannot create resource "jobs" in API group "batch"'
    message += ' in the namespace "team"'
    error = told(403, "Forbidden", message)
    assert type(error) is failures.Forbidden and error.code == 5
    assert str(error) == (
        f"the user '{user}' may not create jobs.batch in the namespace 'team' of {WHERE}; "
        "ask the cluster's administrator for the role in petctl's documentation"
    )
    message = (
        'namespaces is forbidden: User "ann" cannot list resource "namespaces" in API group "" at the cluster scope'
    )
    assert "'ann' may not list namespaces of the Kube" in str(told(403, "Forbidden", message))


def test_a_quota_and_a_policy_are_told_apart() -> None:
    message = 'pods "x" is forbidden: exceeded quota: compute, requested: cpu=2, used: cpu=3, limited: cpu=4'
    error = told(403, "Forbidden", message)
    assert type(error) is failures.QuotaExceeded
    assert message in str(error) and "request less" in str(error)
    message = 'pods "x" is forbidden: failed quota: compute: must specify cpu for: main'
    assert type(told(403, "Forbidden", message)) is failures.QuotaExceeded
    message = 'pods "x" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'
    error = told(403, "Forbidden", message)
    assert type(error) is failures.Forbidden and message in str(error)


def test_every_field_that_is_wrong_is_told() -> None:
    causes = [
        {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.template.spec.containers"},
        {"reason": "FieldValueInvalid", "message": 'Invalid value: "x": must be y', "field": "metadata.name"},
    ]
    error = told(422, "Invalid", 'Job.batch "x" is invalid: many things', details={"causes": causes})
    assert type(error) is failures.Invalid
    assert "spec.template.spec.containers: Required value; metadata.name: Invalid value" in str(error)
    assert "many things" in str(told(422, "Invalid", "many things"))


def test_answers_that_are_not_kubernetes() -> None:
    error = failures.refusal(502, b"<html>Bad gateway</html>", WHERE, "GET /there")
    assert type(error) is failures.ServerUnreachable and "it answers 502" in str(error)
    error = failures.refusal(404, b"<html>nothing</html>", WHERE, "GET /there")
    assert str(error) == f"{WHERE} answered GET /there with 404; is that a Kubernetes API server?"
    assert "404: 404 page not found;" in str(failures.refusal(404, b"404 page not found\n", WHERE, "GET /there"))
    error = failures.refusal(500, b'container not found ("main")\n', WHERE, "GET /there")
    assert type(error) is failures.NotRunning and 'container not found ("main"): it has not begun' in str(error)
    assert (
        str(failures.refusal(500, b"no room", WHERE, "GET /there")) == f"{WHERE} answered GET /there with 500: no room"
    )
    assert type(failures.refusal(401, b"", WHERE, "GET /there")) is failures.Unauthorised
