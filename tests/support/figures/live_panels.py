"""What panels of live pages have read."""

from control_plane.live import panels


def forget_panels() -> None:
    """Have every panel read anew."""
    panels._last._own.clear()
