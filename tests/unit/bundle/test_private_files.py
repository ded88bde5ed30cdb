"""What looks like a secret is refused by name, and what does not is left alone.

The samples are made of pieces, so that this file does not look like one itself.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

import petctl
from petctl.bundle import hashing, take
from petctl.bundle.secret_scan import LARGEST, why_private
from petctl.errors import UsageError
from tests.unit.bundle.conftest import Grow

LETTERS = b"".join(base64.b64encode(hashlib.sha256(b"%d" % n).digest(), b"zy")[:-1] for n in range(6))
HEX = b"".join(hashlib.sha256(b"%d" % n).hexdigest().encode() for n in range(4))
DASHES = b"-" * 5
KEY_LINES = b"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n" * 3
PRIVATE_KEY = DASHES + b"BEGIN RSA PRIVATE KEY" + DASHES + b"\n" + KEY_LINES
ENCRYPTED = DASHES + b"BEGIN RSA PRIVATE KEY" + DASHES + b"\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES,00\n\n" + KEY_LINES
SSH_KEY = DASHES + b"BEGIN OPENSSH PRIVATE KEY" + DASHES + b"\n" + b"b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ\n"
SERVICE_ACCOUNT = b'{"private_key": "' + PRIVATE_KEY.replace(b"\n", b"\\n") + b'"}'
AWS = b"aws_access_key_id = AKIA" + b"J5Q7ZKX2M4N6P8R3\naws_secret_access_key = " + b"a1B2c3D4e5" * 4 + b"\n"
AWS_EXAMPLE = b"id = AKIA" + b"IOSFODNN7EXAMPLE\nsecret_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + b"EXAMPLEKEY\n"
ACCOUNT = b"AccountName=x;AccountKey=" + LETTERS[:86] + b"==;EndpointSuffix=core"
EMULATOR = b"AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;"
SAS = b"https://x.blob.core.windows.net/c?sv=2021&se=2030-01-01T00:00:00Z&sr=c&sig=" + LETTERS[:43] + b"%3D"

JOIN = (
    b'{\n "job": "mnist-3f9k",\n "token": "'
    + HEX[:64]
    + b'",\n "pin": "",\n "locator": {"address": "10.0.0.5:4000"}\n}\n'
)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (".env", b""),
        ("app/.env.production", b"x"),
        ("keys/id_ed25519", b""),
        ("cert.pfx", b""),
        ("a/b.p12", b""),
        (".netrc", b""),
        (".pypirc", b""),
        ("home/.aws/credentials", b""),
        (".kube/config", b""),
        ("dev.kubeconfig", b""),
        ("server.pem", PRIVATE_KEY),
        ("server.key", ENCRYPTED),
        ("deploy", SSH_KEY),
        ("account.json", SERVICE_ACCOUNT),
        ("config.py", b'KEY = """' + PRIVATE_KEY + b'"""'),
        ("settings.yaml", AWS),
        ("train.sh", ACCOUNT),
        ("notes.md", SAS),
        ("mnist-3f9k.join.json", JOIN),
        ("big.p12", None),
    ],
)
def test_secrets(path: str, data: bytes | None) -> None:
    """Each with a reason."""
    assert why_private(path, data)


TOKENS = {
    "Hugging Face": b"hf_" + LETTERS[:34],
    "Weights & Biases": b"wandb.login(key='" + HEX[:40] + b"')",
    "Weights & Biases, environment": b"export WANDB_API_KEY=" + HEX[:40],
    "Weights & Biases, in a program": b'os.environ["WANDB_API_KEY"] = "' + HEX[:40] + b'"',
    "Weights & Biases, a default": b"os.environ.setdefault('WANDB_API_KEY', '" + HEX[:40] + b"')",
    "Weights & Biases, settings": b"[default]\nbase_url = https://api.wandb.ai\nentity = team\n\n# ours\napi_key = "
    + HEX[:40],
    "Weights & Biases, new": b"wandb_v1_" + LETTERS[:80],
    "OpenAI": b"sk-proj-" + LETTERS[:40] + b"_" + LETTERS[40:70],
    "OpenAI, old": b"sk-" + LETTERS[:20] + b"T3Blbk" + b"FJ" + LETTERS[20:40],
    "Anthropic": b"sk-ant-" + b"api03-" + LETTERS[:93] + b"AA",
    "Groq": b"gsk_" + LETTERS[:52],
    "Replicate": b"r8_" + LETTERS[:37],
    "Databricks": b"dapi" + HEX[:32],
    "GitHub": b"ghp_" + LETTERS[:36],
    "GitHub, app": b"ghs_" + LETTERS[:36],
    "GitHub, fine-grained": b"github_pat_" + LETTERS[:22] + b"_" + LETTERS[22:81],
    "GitLab": b"glpat-" + LETTERS[:20],
    "Slack": b"xoxb-" + b"2847362514-3948573625-" + LETTERS[:24],
    "Slack, application": b"xapp-" + b"1-A05BCDEF123-6473829104-" + HEX[:64],
    "Slack, webhook": b"https://hooks.slack" + b".com/services/T03AB4CD5/B06EF7GH8/" + LETTERS[:24],
    "Discord, webhook": b"https://discord" + b".com/api/webhooks/982736451029384756/" + LETTERS[:68],
    "AWS, temporary": AWS.replace(b"AKIA", b"ASIA"),
    "AWS, the secret alone": b"AWS_SECRET_ACCESS_KEY=" + LETTERS[:40],
    "Google, client": b"GOCSPX-" + LETTERS[:28],
    "Google, refresh": b'{"refresh_token": "1//0g' + LETTERS[:60] + b'"}',
    "Google, access": b"ya29.a0" + LETTERS[:120],
    "Azure, application": b"AZURE_CLIENT_SECRET=" + b"kL98Q~" + LETTERS[:34],
    "Azure, account of ACT": b"account_name: vig\naccount_key: " + LETTERS[:86] + b"==\n",
    "Azure, SAS of ACT": b"sas_token: sv=2021&se=2030-01-01T00:00:00Z&sr=c&sig=" + LETTERS[:43] + b"%3D",
    "kubeconfig": b"kind: Config\nusers:\n- name: x\n  user:\n    token: eyJhbGciOi" + LETTERS[:60],
    "kubeconfig, JSON": b'{"kind": "Config", "users": [{"user": {\n"token": "' + LETTERS[:40] + b'"}}]}',
    "kubeconfig, JSON in one line": b'{"apiVersion":"v1","kind":"Config","users":[{"name":"x","user":{"token":"'
    + LETTERS[:40]
    + b'"}}],"clusters":[]}',
    "kubeconfig, flow": b"clusters: [{name: c}]\nusers: [{name: x, user: {token: " + LETTERS[:40] + b"}}]\n",
    "kubeconfig, without kind": b"clusters:\n- name: c\nusers:  # ours\n- name: x\n  user:\n    password: "
    + LETTERS[:32],
    "kubeconfig, key": b"users:\n- user:\n    client-key-data: " + LETTERS[:80],
    "kubeconfig, key in JSON": b'{"users":[{"user":{"client-key-data":"' + LETTERS[:80] + b'"}}]}',
    "AWS, in a program": b'os.environ["AWS_SECRET_ACCESS_KEY"] = "' + LETTERS[:40] + b'"',
    "image registry": b'{"auths": {"ghcr.io": {"auth": "' + LETTERS[:32] + b'"}}}',
    "Docker Hub": b"dckr_pat_" + LETTERS[:27],
    "npm": b"//registry.npmjs.org/:_authToken=npm_" + LETTERS[:36],
    "npm, own registry": b"//npm.pkg.corp/:_authToken=" + LETTERS[:12],
    "PyPI": b"pypi-AgE" + b"IcHlwaS5vcmc" + LETTERS[:120],
    "netrc": b"machine api.wandb.ai login user password " + HEX[:40] + b"\n",
    "database": b"postgresql://train:" + LETTERS[:16] + b"@db.corp.net/runs",
    "Stripe": b"sk_live_" + LETTERS[:24],
    "SendGrid": b"SG." + LETTERS[:22] + b"." + LETTERS[22:65],
    "Vault": b"hvs." + LETTERS[:90],
    "Telegram": b"6473829104:AA" + LETTERS[:33],
    "age": b"AGE-SECRET-" + b"KEY-1" + LETTERS.upper().translate(None, b"BIO1")[:58],
}


@pytest.mark.parametrize("kind", TOKENS)
@pytest.mark.parametrize("form", [b"%s\n", b"import x\n\ndef f():\n    return call('name', %s, 3)\n" + b"word " * 99])
def test_tokens_of_known_issuers(kind: str, form: bytes) -> None:
    data = form % (TOKENS[kind] if form.startswith(b"%s") else b"\n" + TOKENS[kind] + b"\n")
    assert why_private("settings.txt", data).startswith("holds ")


@pytest.mark.parametrize("kind", TOKENS)
def test_what_manuals_write_in_the_place_of_a_token(kind: str) -> None:
    import re

    masked = re.sub(rb"[A-Za-z0-9]{12,}", lambda found: b"x" * len(found[0]), TOKENS[kind])
    assert why_private("README.md", masked) == ""


@pytest.mark.parametrize("name", [b"_auth", b"_authToken", b"_password"])
@pytest.mark.parametrize("form", [b"%s=%s\n", b'registry=https://npm.corp\n%s = "%s"\n'])
def test_a_token_in_npmrc_needs_no_registry(name: bytes, form: bytes) -> None:
    assert why_private("web/.npmrc", form % (name, LETTERS[:20])) == "holds a token of npm"
    assert why_private("web/.npmrc", form % (name, b"${NPM_TOKEN}")) == ""
    assert why_private("client.py", form % (name, LETTERS[:20])) == ""  # an attribute, or anything


@pytest.mark.parametrize(
    "path",
    [
        ".pgpass",
        ".npmrc.txt/../kaggle.json",
        "home/.config/gcloud/credentials.db",
        "key.ppk",
        ".cache/huggingface/token",
    ],
)
def test_files_that_are_secrets_by_their_name(path: str) -> None:
    assert why_private(path, b"")


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (".env.example", b"KEY="),
        ("env", b""),
        (".envrc", b""),
        ("id_rsa.pub", b"ssh-rsa AAAA"),
        ("cert.pem", DASHES + b"BEGIN CERTIFICATE" + DASHES + b"\n" + KEY_LINES),
        ("parser.py", b'HEADER = "' + DASHES + b"BEGIN RSA PRIVATE KEY" + DASHES + b'"\nFOOTER = "x"\n'),
        ("docs.md", DASHES + b"BEGIN PRIVATE KEY" + DASHES + b"\n...\n"),
        ("docs.md", AWS_EXAMPLE),
        ("ids.txt", AWS.partition(b"\n")[0]),
        ("test.py", EMULATOR),
        ("client.py", b'params = {"sig": signature, "se": expiry}  # ?sig=...&se=...'),
        ("credentials", b"a module"),
        ("login.py", b"def login(users: list[str], clusters: list[str], token: AuthenticationTokenProvider): ...\n"),
        ("load.py", b"def load(users: list[User], token: Authentication" + b'Token1) -> "Config": ...\n'),
        ("team.yaml", b"users:\n- name: ann\n  token: " + LETTERS[:20] + b"\n"),  # of what, nobody knows
        ("kubeconfig.md", b"clusters:\n- name: c\nusers:\n- name: x\n  user:\n    token: ${KUBERNETES_TOKEN_OF_CI}\n"),
        ("values.yaml", b"client-key-data: {{ .Values.clientKeyData | b64enc | quote | indent 4 | required }}\n"),
        ("train.py", b'os.environ["WANDB_API_KEY"] = os.environ["KEY"]\ncommit = "' + HEX[:40] + b'"\n'),
        ("pins.toml", b'[pins.wandb]\nrev = "' + HEX[:40] + b'"\n'),
        ("run.py", b'api_key = "' + HEX[:40] + b'"  # of nobody that is known\n'),
        ("session.py", b"_auth = requests.auth.HTTPBasicAuth(user, password1)\n_password=settings.password2\n"),
        (".npmrc", b"registry=https://registry.npmjs.org/\nsave-exact=true\n; _auth is in ~/.npmrc\n"),
        ("config", b"[core]"),
        ("big.bin", None),
    ],
)
def test_no_secrets(path: str, data: bytes | None) -> None:
    """An alarm that is often wrong gets switched off."""
    assert why_private(path, data) == ""


def test_petctl_itself_raises_no_alarm() -> None:
    """It talks about keys a lot."""
    take(Path(petctl.__file__).parent)


def test_all_are_named_at_once_and_can_be_allowed(grow: Grow) -> None:
    """By a path, a name or a pattern."""
    root = grow({".env": "x", "keys/server.pem": PRIVATE_KEY, "sub/.env.local": "x", "main.py": ""})
    with pytest.raises(UsageError) as caught:
        take(root, allow_secrets=["sub/*"])
    text = str(caught.value)
    assert "2 files that look like secrets" in text and "sub/.env.local" not in text
    assert "\n  .env: environment files" in text and "\n  keys/server.pem: holds a private key" in text
    assert len(take(root, allow_secrets=["*.pem", ".env", "sub/.env.local"]).entries) == 4


def test_the_verdict_is_remembered(grow: Grow, tmp_path: Path, settle: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unchanged file is refused again, without being read again."""
    root, cache = grow({"server.pem": PRIVATE_KEY}), tmp_path / "cache"
    with pytest.raises(UsageError, match=r"1 file that looks like secrets.*\n  server\.pem"):
        take(root, cache=cache)
    monkeypatch.setattr(hashing, "read", None)
    with pytest.raises(UsageError, match=r"server\.pem"):
        take(root, cache=cache)


def test_the_content_of_big_files_is_not_looked_at(grow: Grow) -> None:
    """They are data; looking would cost."""
    assert take(grow({"dump": PRIVATE_KEY + bytes(LARGEST)})).hashed == 1
