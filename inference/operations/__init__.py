"""What keeps a deployment whole: dead letters, the resync of a lost Redis, budgets, fsck."""
