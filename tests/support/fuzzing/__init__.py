"""schemathesis, as the tests use it."""
