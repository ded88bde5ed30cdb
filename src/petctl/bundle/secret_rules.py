"""What secrets look like, as data: names of files, and shapes of keys and tokens as their issuers document them.

A shape is tried only where its anchor, a text that is always there, is found: most files hold none. The first group of
a shape, where it has one, is the secret itself. A rule that changes what is found needs a higher `VERSION`.
"""

from __future__ import annotations

from typing import NamedTuple

VERSION = 4  # remembered verdicts of other versions are void

EXAMPLE_ENDINGS = (".example", ".sample", ".template", ".dist", ".defaults")

NAMES = {
    ".env": "environment files usually hold keys",
    ".env.*": "environment files usually hold keys",
    "id_rsa": "an SSH key",
    "id_dsa": "an SSH key",
    "id_ecdsa": "an SSH key",
    "id_ecdsa_sk": "an SSH key",
    "id_ed25519": "an SSH key",
    "id_ed25519_sk": "an SSH key",
    "*.ppk": "an SSH key",
    "*.pfx": "a certificate with its private key",
    "*.p12": "a certificate with its private key",
    "*.jks": "a store of private keys",
    "*.kdbx": "a store of passwords",
    ".netrc": "passwords",
    "_netrc": "passwords",
    ".pypirc": "passwords",
    ".pgpass": "passwords of databases",
    "pgpass.conf": "passwords of databases",
    ".my.cnf": "passwords of databases",
    ".mylogin.cnf": "passwords of databases",
    ".git-credentials": "passwords",
    ".htpasswd": "passwords",
    ".dockercfg": "passwords of image registries",
    ".s3cfg": "keys of an object store",
    ".boto": "keys of an object store",
    "rclone.conf": "keys of object stores",
    ".vault-token": "a token of Vault",
    "kaggle.json": "a key of Kaggle",
    "application_default_credentials.json": "access to Google Cloud",
    "credentials.tfrc.json": "a token of Terraform",
    "msal_token_cache.*": "access to Azure",
    "kubeconfig": "access to a Kubernetes cluster",
    "*.kubeconfig": "access to a Kubernetes cluster",
}

PATHS = {  # the end of a path, where the last name alone says nothing
    ".aws/credentials": "AWS keys",
    ".kube/config": "access to a Kubernetes cluster",
    ".docker/config.json": "passwords of image registries",
    ".config/gcloud/credentials.db": "access to Google Cloud",
    ".config/gcloud/access_tokens.db": "access to Google Cloud",
    ".azure/accessTokens.json": "access to Azure",
    ".cache/huggingface/token": "a token of Hugging Face",
    ".huggingface/token": "a token of Hugging Face",
    ".cargo/credentials.toml": "a token of crates.io",
    ".streamlit/secrets.toml": "keys of an application",
}


class Rule(NamedTuple):
    """One shape: the anchors of which one must be there, the shape, what it is."""

    anchors: tuple[bytes, ...]
    shape: bytes
    what: str
    beside: bytes = b""  # a shape that must be in the file, too
    anywhere: bool = False  # the anchor may be far from the secret, or the secret short
    files: str = ""  # a pattern for the names of the only files that it holds for


_START = rb"(?<![A-Za-z0-9_-])"
_END = rb"(?![A-Za-z0-9_-])"
_SAID = rb"[\"']?\]?\s*[:=,]\s*[\"']?"  # between a name and its value, in code, JSON, YAML, INI and shells
_SECRET_AWS = rb"(?i:secret).{0,40}[^A-Za-z0-9/+]([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
_LIST = rb"[\"']?\s*:(?:\s|#[^\n]*)*[-\[]"  # after a key of YAML or JSON: a list comes
# A header, then lines of at least 40 characters of key; in JSON and in string literals line breaks are spelt \n.
_BREAK = rb"(?:\\[rn]|[\s\"'+\\])+"
_KEY_BLOCK = rb"(?:[A-Za-z-]+: [^\n\\]*" + _BREAK + rb")*[A-Za-z0-9+/]{40}"

RULES = (
    Rule(
        (b"PRIVATE KEY",),
        rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----" + _BREAK + _KEY_BLOCK,
        "a private key",
        anywhere=True,
    ),
    Rule((b"PuTTY-User-Key-File",), rb"Private-Lines: \d+\s+[A-Za-z0-9+/]{40}", "a private key", anywhere=True),
    Rule((b"AGE-SECRET-KEY-",), _START + rb"(AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58})", "a private key of age"),
    # clouds
    Rule(
        (b"AKIA", b"ASIA"),
        rb"(?<![A-Z0-9])((?:AKIA|ASIA)(?![0-9A-Z]{9}EXAMPLE)[0-9A-Z]{16})(?![A-Z0-9])",
        "an AWS key with its secret",
        _SECRET_AWS,
    ),
    Rule(
        (b"aws_secret_access_key", b"AWS_SECRET_ACCESS_KEY"),
        rb"(?i:aws_secret_access_key)" + _SAID + rb"([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        "the secret of an AWS key",
    ),
    Rule(
        (b"AccountKey=", b"account_key", b"AZURE_STORAGE_"),
        rb"(?:AccountKey=|(?:account_key|AZURE_STORAGE_ACCOUNT_KEY|AZURE_STORAGE_KEY)"
        + _SAID
        + rb")([A-Za-z0-9+/]{86}==)",
        "the key of an Azure storage account",
    ),
    Rule(
        (b"sig=",),
        rb"(?m)^(?=.*[?&;\"'\s]se=\d{4}-\d\d-\d\d).*[?&;\"'\s]sig=((?:[A-Za-z0-9+/]|%2[bBfF]){43}(?:=|%3[dD]))",
        "a signed URL (SAS) of Azure",
    ),
    Rule((b"SharedAccessKey=",), rb"SharedAccessKey=([A-Za-z0-9+/]{43}=)", "a key of Azure"),
    Rule(
        (b"Q~",),
        rb"(?<![A-Za-z0-9_~.-])([A-Za-z0-9_~.]{3}[78]Q~[A-Za-z0-9_~.-]{31,34})(?![A-Za-z0-9_~.-])",
        "a secret of Azure",
    ),
    Rule((b"GOCSPX-",), _START + rb"(GOCSPX-[A-Za-z0-9_-]{28})" + _END, "a client's secret of Google", anywhere=True),
    Rule(
        (b"refresh_token",),
        rb"refresh_token" + _SAID + rb"(1//[A-Za-z0-9_-]{40,})",
        "access to Google Cloud",
    ),
    Rule((b"ya29.",), _START + rb"(ya29\.[A-Za-z0-9_-]{60,})", "a token of Google Cloud"),
    Rule(
        (b"dop_v1_", b"doo_v1_", b"dor_v1_"), _START + rb"(do[opr]_v1_[a-f0-9]{64})" + _END, "a token of DigitalOcean"
    ),
    # Kubernetes and images
    Rule(
        (b"client-key-data",),
        rb"client-key-data[\"']?\s*:\s*[\"']?([A-Za-z0-9+/]{40})",
        "the key of a Kubernetes user",
    ),
    Rule(
        (b"users",),  # one line or many, YAML or JSON; `kind` is often left out
        rb"(?m)(?:^[ \t-]*|[{,]\s*)[\"']?(?:token|password|(?:id|refresh|access)-token)[\"']?\s*:\s*[\"']?"
        rb"(?=[\w.:+/=-]*\d)([\w.:+/=-]{16,})",  # a digit: names of types and words in tests have none
        "a token of a Kubernetes user",
        rb"(?s)\A(?=.*(?:\bclusters" + _LIST + rb"|\bkind[\"']?\s*:\s*[\"']?Config\b)).*\busers" + _LIST,
        anywhere=True,
    ),
    Rule(
        (b'"auths"',),
        rb"\"auth\"\s*:\s*\"([A-Za-z0-9+/]{16,}={0,2})\"",
        "a password of an image registry",
        rb"\"auths\"",
        anywhere=True,
    ),
    Rule((b"dckr_pat_", b"dckr_oat_"), _START + rb"(dckr_[po]at_[A-Za-z0-9_-]{27,})", "a token of Docker Hub"),
    # models, experiments and their services
    Rule((b"hf_", b"api_org_"), _START + rb"((?:hf|api_org)_[A-Za-z]{34})" + _END, "a token of Hugging Face"),
    Rule((b"hf_",), _START + rb"(hf_[A-Za-z0-9]{34,40})" + _END, "a token of Hugging Face"),
    Rule(
        (b"WANDB_API_KEY", b"wandb"),
        rb"(?i:wandb)(?:[\w.\"'(\s:=,-]|[\"']\]\s*=){0,40}[\"'\s:=(]([0-9a-f]{40})(?![0-9a-f])",
        "a key of Weights & Biases",
    ),
    Rule(
        (b"wandb", b"WANDB"),
        rb"(?i:api_?key)" + _SAID + rb"([0-9a-f]{40})(?![0-9a-f])",
        "a key of Weights & Biases",
        anywhere=True,
    ),
    Rule((b"wandb_v1_",), _START + rb"(wandb_v1_[A-Za-z0-9_]{40,})", "a key of Weights & Biases"),
    Rule(
        (b"T3BlbkFJ",), _START + rb"(sk-[A-Za-z0-9_-]{16,}T3BlbkFJ[A-Za-z0-9_-]{16,})", "a key of OpenAI", anywhere=True
    ),
    Rule(
        (b"sk-proj-", b"sk-svcacct-", b"sk-admin-"),
        _START + rb"(sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{40,})",
        "a key of OpenAI",
        anywhere=True,
    ),
    Rule((b"sk-ant-",), _START + rb"(sk-ant-[a-z]+\d\d-[A-Za-z0-9_-]{80,})", "a key of Anthropic", anywhere=True),
    Rule((b"OPENAI_API_KEY",), rb"OPENAI_API_KEY" + _SAID + rb"(sk-[A-Za-z0-9_-]{40,})", "a key of OpenAI"),
    Rule((b"gsk_",), _START + rb"(gsk_[A-Za-z0-9]{52})" + _END, "a key of Groq"),
    Rule((b"r8_",), _START + rb"(r8_[A-Za-z0-9]{37})" + _END, "a token of Replicate"),
    Rule((b"nvapi-",), _START + rb"(nvapi-[A-Za-z0-9_-]{60,})", "a key of NVIDIA"),
    Rule((b"dapi",), _START + rb"(dapi[0-9a-f]{32}(?:-\d)?)" + _END, "a token of Databricks"),
    # code, packages and chats
    Rule(
        (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"),
        _START + rb"(gh[pousr]_[A-Za-z0-9]{36,})" + _END,
        "a token of GitHub",
    ),
    Rule((b"github_pat_",), _START + rb"(github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59})" + _END, "a token of GitHub"),
    Rule(
        (b"glpat-",),
        _START + rb"(glpat-[A-Za-z0-9_.-]{20,})",
        "a token of GitLab",
        anywhere=True,
    ),
    Rule((b"npm_",), _START + rb"(npm_[A-Za-z0-9]{36})" + _END, "a token of npm"),
    Rule(
        (b":_auth", b":_password"),
        rb"(?m)^\s*//[^\s=]+:_(?:authToken|auth|password)\s*=\s*\"?([A-Za-z0-9+/=_.-]{8,})",
        "a token of npm",
        anywhere=True,
    ),
    Rule(
        (b"_auth", b"_password"),
        rb"(?m)^[ \t]*_(?:authToken|auth|password)\s*=\s*[\"']?([A-Za-z0-9+/=_.-]{8,})",
        "a token of npm",
        anywhere=True,
        files="*npmrc",
    ),
    Rule((b"pypi-AgE",), _START + rb"(pypi-AgE[A-Za-z0-9_-]{50,})", "a token of PyPI"),
    Rule((b"xox",), _START + rb"(xox[abeoprs](?:\.xox[bp])?-(?:\d-)?[A-Za-z0-9-]{20,})", "a token of Slack"),
    Rule((b"xapp-",), _START + rb"(xapp-\d-[A-Z0-9]+-\d+-[a-f0-9]{32,})", "a token of Slack"),
    Rule(
        (b"hooks.slack.com/",),
        rb"hooks\.slack\.com/(?:services|workflows)/(T[A-Z0-9]{8,}/[A-Z0-9]{8,}/[A-Za-z0-9/]{20,})",
        "an address of Slack that takes messages",
    ),
    Rule(
        (b"/api/webhooks/",),
        rb"discord(?:app)?\.com/api/webhooks/(\d{17,20}/[A-Za-z0-9_-]{60,})",
        "an address of Discord that takes messages",
    ),
    Rule((b":AA",), rb"(?<![A-Za-z0-9_-])(\d{8,10}:AA[A-Za-z0-9_-]{33})" + _END, "a token of Telegram"),
    # everything else
    Rule((b"sk_live_", b"rk_live_"), _START + rb"([rs]k_live_[A-Za-z0-9]{24,})", "a key of Stripe"),
    Rule((b"SG.",), _START + rb"(SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43})" + _END, "a key of SendGrid"),
    Rule((b"hvs.", b"hvb."), _START + rb"(hv[sb]\.[A-Za-z0-9_-]{24,})", "a token of Vault"),
    Rule((b".atlasv1.",), rb"([A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,})", "a token of Terraform"),
    Rule(
        (b"password ",),
        rb"(?m)^\s*machine\s+\S+\s+login\s+\S+\s+password\s+(\S{8,})\s*$",
        "a password (netrc)",
        anywhere=True,
    ),
    Rule(
        (b"postgres", b"mysql:", b"mongodb"),
        rb"(?:postgres(?:ql)?|mysql|mongodb)(?:\+\w+)?://[\w.-]*:([\w.~!%*+-]{12,})@(?!localhost|127\.|example\.|host\b)[\w.-]+\.[\w.-]+",
        "the password of a database",
        anywhere=True,
    ),
    Rule((b'"locator"',), rb"\"token\": \"([0-9a-f]{64})\"", "the token of a job (petctl token)", anywhere=True),
)

# The key that Azurite and the old emulator publish.
PUBLISHED = (b"Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",)
EXAMPLE_WORDS = (
    b"example",
    b"xxxx",
    b"your",
    b"dummy",
    b"redacted",
    b"placeholder",
    b"changeme",
    b"abcdefgh",
    b"12345678",
)
