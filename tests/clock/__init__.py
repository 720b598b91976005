"""The suite under a clock that shows another day: `make test-clock`, docs/testing.md."""
