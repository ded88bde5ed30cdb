"""batchai completion, az completion: the script with which a shell completes verbs, options and names."""

from __future__ import annotations

import click

from petctl.cli.options import examples


@click.command("completion", epilog=examples("source <(batchai completion bash)"))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the shell's completion script: verbs, options and names of resources."""
    from click.shell_completion import get_completion_class

    root = ctx.find_root()
    program = root.info_name or "batchai"
    kind = get_completion_class(shell)
    assert kind is not None  # click has all three
    click.echo(kind(root.command, {}, program, f"_{program.upper()}_COMPLETE").source())
