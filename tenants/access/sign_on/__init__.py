"""Single sign-on by OpenID Connect: the provider that a tenant has set up, its mail domains, and
what an answer of the provider is good for: this tenant, and nothing else."""
