"""How commands appear in their help, and what is said of an argument that is not understood."""

from __future__ import annotations

import re
from typing import Any

from typer import BadParameter
from typer.core import TyperCommand, TyperGroup


class PlainCommand(TyperCommand):
    """A command whose flags are shown without a type, and whose paragraphs are one line each."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help = None if self.help is None else _paragraphs(self.help)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags without a type."""
        return _without_types(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; a choice that does not exist is answered with the one meant."""
        try:
            return super().parse_args(ctx, args)
        except BadParameter as error:
            error.message = _corrected(error.message)
            raise


class PlainGroup(TyperGroup):
    """A group of commands whose flags are shown without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags without a type."""
        return _without_types(super().get_params(ctx))


def _paragraphs(text: str) -> str:
    r"""Join the lines of each paragraph: where they break depends on the terminal, not the source.

    >>> _paragraphs("One\n    line.\n\nAnother.")
    'One line.\n\nAnother.'
    """
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _corrected(message: str) -> str:
    """Say which choice was probably meant.

    >>> _corrected("Value error, 'htm' is not one of 'html', 'pdf'.")
    "'htm' is not one of 'html', 'pdf'. Did you mean 'html'?"
    """
    message = message.removeprefix("Value error, ")
    if " is not one of " not in message:
        return message
    from exhume.protocol.names import meant

    given, *choices = re.findall(r"'([^']*)'", message)
    close = meant(given, choices)
    return message if close is None else f"{message} Did you mean {close!r}?"


def _without_types(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params
