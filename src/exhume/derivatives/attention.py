"""Attention that can be differentiated twice: PyTorch's fused kernels can be only once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel


def make_attention_differentiable(module: nn.Module) -> None:
    """Let ``module`` compute attention by plain matrix products in every forward pass.

    Networks without attention, and without code of the user's own that may call it, are left alone.
    """
    if not any(_may_attend(type(layer)) for layer in module.modules()):
        return
    entered: list[AbstractContextManager[None]] = []

    def enter(_module: nn.Module, _inputs: tuple[Tensor, ...]) -> None:
        entered.append(_plain_products())
        entered[-1].__enter__()

    def leave(_module: nn.Module, _inputs: tuple[Tensor, ...], _scores: Tensor) -> None:
        entered.pop().__exit__(None, None, None)

    module.register_forward_pre_hook(enter)
    module.register_forward_hook(leave, always_call=True)


@contextmanager
def _plain_products() -> Iterator[None]:
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _may_attend(kind: type[nn.Module]) -> bool:
    own = not kind.__module__.startswith(("torch.", "exhume."))
    return own or issubclass(kind, nn.MultiheadAttention)
