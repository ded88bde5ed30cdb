"""What shares and containers have in common: how an account is named, and the verbs of the thing as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from petctl.compat.batchai.cli import options
from petctl.compat.batchai.cli.base_command import IdleOption, confirm, leaf

if TYPE_CHECKING:
    from petctl.compat.batchai.service.contents import Account

account_options = options.together(
    click.option(
        "--account-name",
        metavar="NAME",
        default="",
        envvar="AZURE_STORAGE_ACCOUNT",
        help="The storage account.",
        shell_complete=options.complete("storage"),
    ),
    click.option(
        "--account-key",
        metavar="KEY",
        default="",
        envvar="AZURE_STORAGE_KEY",
        help="Its key: for accounts of Azure and Azurite.",
    ),
    click.option(
        "--connection-string",
        metavar="TEXT",
        default="",
        envvar="AZURE_STORAGE_CONNECTION_STRING",
        help="Account, key and endpoint, of Azure or Azurite.",
    ),
    click.option(
        "--sas-token", metavar="TEXT", default="", envvar="AZURE_STORAGE_SAS_TOKEN", help="A SAS instead of the key."
    ),
    click.option("--blob-endpoint", metavar="URL", default="", help="Where the account's blobs are, if not at Azure."),
    click.option("--auth-mode", metavar="MODE", help="Accepted."),
)


no_progress_option = click.option("--no-progress", is_flag=True, help="Accepted; none is shown.")


def account_said(said: dict[str, Any]) -> Account:
    """The account that the options name."""
    from petctl.compat.batchai.service.contents import Account

    return Account(
        said["account_name"],
        said["account_key"],
        said["sas_token"],
        said["connection_string"],
        said["blob_endpoint"],
    )


def batch_options(destination: str, source: str) -> options.Decorator:
    """-d, -s and a path, for verbs that copy everything."""
    return options.together(
        click.option("-d", "--destination", required=True, metavar="NAME", help=destination),
        click.option("-s", "--source", required=True, metavar="NAME", help=source),
        click.option("--destination-path", "--path", "path", default="", metavar="PATH", help="A folder inside."),
    )


def row(found: Any) -> dict[str, Any]:
    """A file's line in a table."""
    properties = found["properties"]
    return {
        "Name": found["name"],
        "Type": found["type"],
        "Content Length": properties["contentLength"],
        "Last Modified": properties["lastModified"],
    }


def add_drawer_verbs(parent: click.Group, kind: str, noun: str) -> None:
    """create, list, exists, show, url, delete."""
    name_option = click.option("-n", "--name", "name", required=True, metavar="NAME", help=f"The {noun}.")

    @leaf(parent, "create", f"az storage {noun} create -n logs --account-name mystorage")
    @name_option
    @click.option(
        "--quota", cls=IdleOption, type=int, metavar="GB", help="Accepted; there is as much room as on the disk."
    )
    @account_options
    def create(name: str, quota: int | None, **said: Any) -> object:
        from petctl.compat.batchai.service import contents

        drawer = contents.open_drawer(options.home(), kind, account_said(said), name, must=False)
        return {"created": contents.create(options.home(), drawer)}

    @leaf(parent, "list", f"az storage {noun} list --account-name mystorage -o table")
    @account_options
    def list_(**said: Any) -> object:
        from petctl.compat.batchai.service import contents

        names = contents.drawers(options.home(), kind, account_said(said))
        return [{"metadata": None, "name": name} for name in names]

    @leaf(parent, "exists", f"az storage {noun} exists -n logs --account-name mystorage")
    @name_option
    @account_options
    def exists(name: str, **said: Any) -> object:
        from petctl.compat.batchai.service import contents

        drawer = contents.open_drawer(options.home(), kind, account_said(said), name, must=False)
        return {"exists": contents.exists(drawer)}

    @leaf(parent, "show", f"az storage {noun} show -n logs --account-name mystorage")
    @name_option
    @account_options
    def show(name: str, **said: Any) -> object:
        from petctl.compat.batchai.service import contents
        from petctl.compat.batchai.service.resource_store import Missing

        drawer = contents.open_drawer(options.home(), kind, account_said(said), name)
        if not contents.exists(drawer):
            raise Missing(f"account {drawer.account!r} has no {noun} {name!r}")
        return {"metadata": None, "name": name, "petctl": {"location": str(drawer.location)}}

    @leaf(parent, "url", f"az storage {noun} url -n logs --account-name mystorage")
    @name_option
    @account_options
    def url(name: str, **said: Any) -> object:
        from petctl.compat.batchai.service import contents

        return contents.open_drawer(options.home(), kind, account_said(said), name).link("").rstrip("/")

    @leaf(parent, "delete", f"az storage {noun} delete -n logs --account-name mystorage -y")
    @name_option
    @options.yes_option
    @account_options
    def delete(name: str, yes: bool, **said: Any) -> object:
        from petctl.compat.batchai.service import contents

        drawer = contents.open_drawer(options.home(), kind, account_said(said), name, must=False)
        confirm(f"Delete {noun} {name!r} with everything in it?", yes)
        return {"deleted": contents.delete(options.home(), drawer)}

    for verb, sentence in (
        (create, f"Create a {noun}; an existing one stays as it is."),
        (list_, f"List the {noun}s of an account."),
        (exists, f"Say whether there is such a {noun}."),
        (show, f"Show a {noun}, and where it is."),
        (url, f"Print where a {noun} is."),
        (delete, f"Delete a {noun} with everything in it."),
    ):
        verb.help = sentence
