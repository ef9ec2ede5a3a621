"""How long tests wait for what is sure to come: the limit is for what never will."""

from __future__ import annotations

PATIENCE_SECONDS = 1800
"""A machine may be busy with much else: the longest of these waits is 30 seconds on an idle one."""
