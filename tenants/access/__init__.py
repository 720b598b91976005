"""Who may do what: API keys, people, roles, quotas, signing in. Verbs that every door calls."""
