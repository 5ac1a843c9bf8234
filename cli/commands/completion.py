"""``fencepost completion``: a script that teaches a shell the commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ..app import FencepostCommand, UsageProblem, current_session

_SHELLS = ("bash", "zsh", "fish")


@click.command(
    cls=FencepostCommand,
    examples=("fencepost completion zsh", "fencepost completion fish"),
    help="Print a completion script for SHELL (bash, zsh, fish). For bash, add to ~/.bashrc: "
    'eval "$(fencepost completion bash)".',
)
@click.argument("shell", metavar="SHELL")
def completion(shell: str) -> None:
    kind = get_completion_class(shell) if shell in _SHELLS else None
    if kind is None:
        raise UsageProblem(f"no completion for {shell!r}; the shells are {', '.join(_SHELLS)}; nothing was sent")
    root = click.get_current_context().find_root().command
    current_session().render.raw(kind(root, {}, "fencepost", "_FENCEPOST_COMPLETE").source())
