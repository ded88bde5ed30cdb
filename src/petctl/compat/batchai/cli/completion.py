"""The completion of batchai, az and act: the script with which a shell completes verbs, options and names."""

from __future__ import annotations

import click

from petctl.console.commands import examples


def _example(program: str) -> str:
    return examples(f"source <({program} completion bash)")


class _Completion(click.Command):
    """Its example is for the program that was typed."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.epilog = _example(ctx.find_root().info_name or "batchai")
        super().format_epilog(ctx, formatter)


@click.command("completion", cls=_Completion, epilog=_example("batchai"))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the shell's completion script: verbs, options and names."""
    from click.shell_completion import get_completion_class

    root = ctx.find_root()
    program = root.info_name or "batchai"
    kind = get_completion_class(shell)
    assert kind is not None  # click has all three
    click.echo(kind(root.command, {}, program, f"_{program.upper()}_COMPLETE").source())
