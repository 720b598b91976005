"""The two planes, which may be processes of their own: which paths are whose."""
