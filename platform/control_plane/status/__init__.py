"""Health of the service: /healthz, /readyz, /metrics and the front page, from one check."""
