"""LoRA adapters as tenants keep them: verbs over the records, the rows of the policy snapshot, and
where workers find what is ready. Call the verbs inside the tenant's scope, or an operator's."""
