"""``exhume completion``: the script that lets a shell complete commands and options."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer

_NAME, _VARIABLE = "exhume", "_EXHUME_COMPLETE"


class Shell(StrEnum):
    """The shells that commands can be completed in."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the script that completes commands and options in a shell.

    bash: exhume completion bash > ~/.local/share/bash-completion/completions/exhume

    zsh: exhume completion zsh > a file _exhume in a folder of $fpath

    fish: exhume completion fish > ~/.config/fish/completions/exhume.fish
    """
    # Typer defines them in every version, but does not export them.
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name=_NAME, complete_var=_VARIABLE, shell=shell.value))


def answer_shell() -> None:
    """Set up the completion if a shell requests completions of a line."""
    if _VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
