"""The budgets of keys that make keys: what a key with hard quotas makes counts into its quotas, and
so does what those make. A family of keys shares one account, that of the first."""

from tenants.models import ApiKey


def account_of(key: ApiKey) -> object:
    """Return the id of the key at whose quotas the requests of this one count."""
    return key.budget_key_id or key.pk


def is_bounded(key: ApiKey) -> bool:
    """Return whether quotas bound what the key and all that it makes can use together."""
    return key.budget_key_id is not None or bool(_hard_quotas(key))


def counts_with(key: ApiKey, other: ApiKey) -> bool:
    return account_of(key) == account_of(other)


def own_bounds(key: ApiKey) -> dict[str, int]:
    """Return what the key's own hard quotas allow, by limit; those of its account hold beside."""
    if key.budget_key_id is None:
        return {}
    return _hard_quotas(key)


def _hard_quotas(key: ApiKey) -> dict[str, int]:
    return {quota.limit: quota.value for quota in key.quotas.all() if quota.is_hard}
