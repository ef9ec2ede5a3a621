"""How commands appear in their help: flags without a value, paragraphs wrapped to the terminal."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class PlainCommand(TyperCommand):
    """A command whose flags are shown without a type, and whose paragraphs are one line each."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help = None if self.help is None else _paragraphs(self.help)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags without a type."""
        return _without_types(super().get_params(ctx))


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


def _without_types(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params
