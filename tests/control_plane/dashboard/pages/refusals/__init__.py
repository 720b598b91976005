"""The page of refused requests."""
