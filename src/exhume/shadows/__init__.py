"""Shadow models, and the cache that keeps them between runs."""

from exhume.shadows.cache import Cache, user_cache
from exhume.shadows.order import Order, OrdersShadows, order_for
from exhume.shadows.shadow_set import ShadowSet, filled, shadows_of, train_ahead

__all__ = [
    "Cache",
    "Order",
    "OrdersShadows",
    "ShadowSet",
    "filled",
    "order_for",
    "shadows_of",
    "train_ahead",
    "user_cache",
]
