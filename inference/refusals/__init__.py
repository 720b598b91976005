"""Requests that gateways refused: added up from what they tell, kept, reported."""
