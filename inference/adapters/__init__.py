"""LoRA adapters of tenants: their verbs, and how an upload becomes one that workers may load."""
