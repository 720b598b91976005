"""Gateways under test: their service, cast, callers and scripted workers."""
