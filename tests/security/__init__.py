"""What Penstock promises of its security: one table of the tests that hold it, `make security`."""
