"""Refused requests: as gateways tell of them, as they stand on record."""
