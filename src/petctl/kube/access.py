"""How one cluster is reached: plain data, as found by `kubeconfig.py` and used by `connection.py`. Reads nothing."""

from __future__ import annotations

import dataclasses

from petctl.kube.credentials import Credentials


@dataclasses.dataclass(frozen=True)
class Access:
    """A server, a namespace in it, whom to trust, and who one is."""

    server: str
    """URL, maybe with a path: some clusters are behind a gateway."""

    namespace: str
    credentials: Credentials = dataclasses.field(repr=False)
    context: str = ""
    source: str = ""
    """Where all this was found, for error messages."""

    authority: str = dataclasses.field(default="", repr=False)
    """PEM of the certificate authorities; empty: those of this machine."""

    verify: bool = True
    server_name: str = ""
    """The name in the server's certificate, where it is not that of the URL."""

    proxy: str = ""
    answer_within: float = 60.0
    """Seconds without a byte of an answer."""

    @property
    def where(self) -> str:
        """The cluster, as error messages call it."""
        return f"the Kubernetes API server {self.server}" + (f" (context {self.context})" if self.context else "")
