"""Shadow models, and the cache that stores them between runs."""

from exhume.runtime.cache import Cache, user_cache
from exhume.shadows.order import Order, OrdersShadows, first_models, order_for
from exhume.shadows.shadow_set import ShadowSet
from exhume.shadows.train_shadows import (
    Chunk,
    chunks_left,
    filled,
    keep_chunk,
    shadows_of,
    train_chunk,
)

__all__ = [
    "Cache",
    "Chunk",
    "Order",
    "OrdersShadows",
    "ShadowSet",
    "chunks_left",
    "filled",
    "first_models",
    "keep_chunk",
    "order_for",
    "shadows_of",
    "train_chunk",
    "user_cache",
]
