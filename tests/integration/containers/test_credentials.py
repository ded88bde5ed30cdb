"""Images behind a password: the password reaches the registry, and nobody else."""

from __future__ import annotations

import base64
import json

import pytest

from petctl.errors import NotFound
from petctl.secret_file import set_secret
from tests.integration.containers.conftest import ContainerStage
from tests.integration.containers.registry import empty_layer, registry
from tests.integration.local.conftest import job_path


@pytest.mark.parametrize("form", ["words", "config"])
def test_a_private_image_is_pulled_with_a_secret(stage: ContainerStage, form: str) -> None:
    layer = empty_layer(stage.path / "layer.tar")
    with registry({"private/empty:1": layer, "private/other:1": layer}, "reader:pass-words") as private:
        image = f"{private.address}/private/empty:1"
        value = "reader:pass-words"
        if form == "config":
            auth = base64.b64encode(value.encode()).decode()
            value = json.dumps({"auths": {private.address: {"auth": auth}}})
        set_secret(stage.path / "home", "registry", value)
        handle = stage.start(image=image, image_credentials="registry")
        status = handle.wait(60)
        assert "there is no python3" in status.sentence, "it was pulled, and has nothing in it"
        refused = stage.start(image=image.replace("empty", "other")).wait(60)
        assert "cannot be pulled" in refused.sentence
        stage.engine.run("rmi", "-f", image)
    assert any(private.visitors)
    secret = base64.b64encode(b"reader:pass-words").decode()
    assert "pass-words" not in stage.engine.words() and secret not in stage.engine.words()
    kept = [path.read_bytes() for path in job_path(handle).rglob("*") if path.is_file()]
    assert not any(b"pass-words" in data or secret.encode() in data for data in kept)


def test_a_missing_secret_is_told_at_once(stage: ContainerStage) -> None:
    with pytest.raises(NotFound, match="there is no secret 'registry'"):
        stage.start(image_credentials="registry")
