"""What decides whether a run of the suite is green: `docs/testing.md` says how."""
