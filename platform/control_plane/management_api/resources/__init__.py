"""The calls of the management API, a file for each resource. What all share is one floor below."""
