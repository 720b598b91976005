"""What the first migration builds, in parts."""
