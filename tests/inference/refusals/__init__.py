"""What becomes of refusals that gateways told of."""
