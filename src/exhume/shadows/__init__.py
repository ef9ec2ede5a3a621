"""Shadow models, and the cache that keeps them between runs."""

from exhume.shadows.cache import Cache, user_cache
from exhume.shadows.order import Order, order_for
from exhume.shadows.shadow_set import ShadowSet, filled, shadows_of

__all__ = ["Cache", "Order", "ShadowSet", "filled", "order_for", "shadows_of", "user_cache"]
