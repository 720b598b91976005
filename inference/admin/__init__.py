"""Operators' pages for the model catalogue, adapters, the fleet and usage records."""

from inference.admin import adapter_versions, adapters, records, workers

__all__ = ["adapter_versions", "adapters", "records", "workers"]
