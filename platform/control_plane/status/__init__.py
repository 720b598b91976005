"""Whether the parts are well: /healthz, /readyz, /metrics and the front page, from one look."""
