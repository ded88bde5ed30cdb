"""petctl completion: the script with which a shell completes verbs, options and job ids."""

from __future__ import annotations

import click

from petctl.console.commands import examples
from petctl.errors import InternalError


@click.command(
    "completion",
    epilog=examples(
        "source <(petctl completion bash)                     now; or add it to ~/.bashrc",
        "petctl completion zsh > ~/.zfunc/_petctl",
        "petctl completion fish > ~/.config/fish/completions/petctl.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the shell's completion script: verbs, options and job ids."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise InternalError(f"this version of click has no completion for {shell}")
    click.echo(kind(ctx.find_root().command, {}, "petctl", "_PETCTL_COMPLETE").source())
