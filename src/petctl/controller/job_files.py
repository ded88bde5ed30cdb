"""What a pod's coordinator is given, as files that somebody else mounted: `--job`.

    job.json                  the job's record, as the submitting side made it
    token, tls.crt, tls.key   who may connect, and how it is encrypted
    code/part-00000 ...       pieces of the code's archive, where the job has code of its own
    secrets/NAME              values of the job's secrets
    join.json                 where this job's coordinator is found, by nodes and by itself
    wanted                    how many nodes were asked for last, where the job was scaled
    grants.json               what nodes may do in stores, with the keys for it, where the job uses any

It only reads. What is missing is a UsageError that names the file: nobody in the pod can repair it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Optional

from petctl.errors import NotFound, UsageError
from petctl.files import replacing
from petctl.job.record import JobRecord
from petctl.rendezvous.net.join_file import JoinFile, read_join_file

if TYPE_CHECKING:
    from petctl.storage.core.grants import Grant

JOIN, GRANTS = "join.json", "grants.json"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")  # of a key in a Secret; whoever may edit a ConfigMap can write any other


class Material:
    """One job's files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.certificate, self.key = directory / "tls.crt", directory / "tls.key"
        self.token = self._text("token").strip()
        self.record = self._record()

    def join(self) -> Optional[JoinFile]:
        """Where the job's coordinator is found; None where nobody has said so."""
        path = self._directory / JOIN
        return read_join_file(path).for_control(self.token) if path.exists() else None

    @property
    def wanted(self) -> Optional[int]:
        """The size that the user asked for last, as far as the cluster has kept it."""
        try:
            text = (self._directory / "wanted").read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            return None
        return int(text) if text.isdigit() else None

    def secret_values(self) -> Dict[str, str]:
        """Environment name -> value; NotFound names the first that is not there."""
        return {variable: self._secret(variable, name) for variable, name in self.record.secrets.items()}

    def grants(self) -> Dict[str, Grant]:
        """What the coordinator may sign for."""
        if not (self._directory / GRANTS).exists():
            return {}
        from petctl.storage.core.grants import Grant  # names of these files are read by commands, too

        try:
            return {name: Grant(**fields) for name, fields in json.loads(self._text(GRANTS)).items()}
        except (ValueError, TypeError, AttributeError):
            raise UsageError(f"{self._directory / GRANTS} has no grants; submit the job again") from None

    def join_code(self, target: Path) -> bool:
        """Makes one archive of the pieces, once; False where the job has no code of its own. Nodes check what is in
        it."""
        pieces = sorted(self._directory.glob("code/part-*"))
        if pieces and not target.exists():
            with replacing(target, durable=True, draft=target.with_name(f".{target.name}.draft")) as file:
                for piece in pieces:
                    file.write(piece.read_bytes())
        return bool(pieces)

    def _record(self) -> JobRecord:
        try:
            return JobRecord.from_dict(json.loads(self._text("job.json")))
        except ValueError as error:
            path = self._directory / "job.json"
            raise UsageError(f"{path} is not the record of a job ({error}); submit the job again") from None

    def _secret(self, variable: str, name: str) -> str:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name.startswith("."):
            raise UsageError(f"{name!r} (for {variable}) is not the name of a secret; submit the job again")
        try:
            return (self._directory / "secrets" / name).read_bytes().decode("utf-8")
        except FileNotFoundError:
            raise NotFound(
                f"there is no secret {name!r} (for {variable}); create it with: petctl secret set {name}"
            ) from None
        except UnicodeDecodeError:
            raise UsageError(f"the secret {name!r} (for {variable}) is not UTF-8 text; set it again") from None

    def _text(self, name: str) -> str:
        path = self._directory / name
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {path}, which the coordinator needs: {error}") from None
