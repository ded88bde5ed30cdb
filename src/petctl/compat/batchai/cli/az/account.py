"""az account, az login, az logout: there is no account, and none is needed."""

from __future__ import annotations

import getpass
from typing import Any

from petctl.compat.batchai.cli.base_command import NOTHING, group, leaf, say

account = group("account", "There is no account, and none is needed.")


@leaf(account, "show", "az account show --query id -o tsv")
def show() -> object:
    """Show the subscription that ids have a place for."""
    return _subscription()


@leaf(account, "list", "az account list")
def list_() -> object:
    """List it."""
    return [_subscription()]


@leaf(account, "set", "az account set")
def set_() -> object:
    """Accept any subscription."""
    say("there are no subscriptions here; nothing was set")
    return NOTHING


@leaf(None, "login", "az login")
def login() -> object:
    """Say that no account is needed."""
    say("this is petctl's stand-in for az: it works on this machine, and needs no account")
    return [_subscription()]


@leaf(None, "logout", "az logout")
def logout() -> object:
    """Say that no account is needed."""
    say("this is petctl's stand-in for az: no login was needed")
    return NOTHING


def _subscription() -> dict[str, Any]:
    from petctl.compat.batchai.service.names import SUBSCRIPTION

    return {
        "environmentName": "petctl",
        "id": SUBSCRIPTION,
        "isDefault": True,
        "name": "this machine",
        "state": "Enabled",
        "tenantId": SUBSCRIPTION,
        "user": {"name": getpass.getuser(), "type": "user"},
    }
