from tenants.models.api_key import ApiKey
from tenants.models.policy_version import AffectsPolicy, PolicyQuerySet, PolicyVersion
from tenants.models.price import Price
from tenants.models.quota import Quota, QuotaAlert
from tenants.models.tenant import Membership, Project, Tenant
from tenants.models.tier import ServiceClass, Tier
from tenants.models.user import User

__all__ = [
    "AffectsPolicy",
    "ApiKey",
    "Membership",
    "PolicyQuerySet",
    "PolicyVersion",
    "Price",
    "Project",
    "Quota",
    "QuotaAlert",
    "ServiceClass",
    "Tenant",
    "Tier",
    "User",
]
