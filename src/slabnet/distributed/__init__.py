"""One fit in several processes."""

from slabnet.distributed.group import Group, current_group, join, leave

__all__ = ["Group", "current_group", "join", "leave"]
