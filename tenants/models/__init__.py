from tenants.models.api_key import ApiKey
from tenants.models.audit import (
    AuditChain,
    AuditEvent,
    ChainCheckpoint,
    CheckProgress,
    PersonalDetail,
)
from tenants.models.caps import Cap, CapReached, check_cap, check_cap_in_form
from tenants.models.data_key import DataKey
from tenants.models.invitation import Invitation, InvitationState
from tenants.models.policy_change import (
    AffectsPolicy,
    PolicyChange,
    PolicyImpact,
    PolicyManager,
    PolicyPart,
    PolicyQuerySet,
    ScopedPolicyManager,
)
from tenants.models.policy_version import PolicyVersion
from tenants.models.quota import Quota, QuotaAlert
from tenants.models.saved_view import SavedView
from tenants.models.sign_on import (
    MailDomain,
    ProofOfDomain,
    SignOnConfiguration,
    SignOnIdentity,
)
from tenants.models.tenant import BillingMode, Membership, Project, Tenant
from tenants.models.tier import ServiceClass, Tier
from tenants.models.user import User

__all__ = [
    "AffectsPolicy",
    "ApiKey",
    "AuditChain",
    "AuditEvent",
    "BillingMode",
    "Cap",
    "CapReached",
    "ChainCheckpoint",
    "CheckProgress",
    "DataKey",
    "Invitation",
    "InvitationState",
    "MailDomain",
    "Membership",
    "PersonalDetail",
    "PolicyChange",
    "PolicyImpact",
    "PolicyManager",
    "PolicyPart",
    "PolicyQuerySet",
    "PolicyVersion",
    "Project",
    "ProofOfDomain",
    "Quota",
    "QuotaAlert",
    "SavedView",
    "ScopedPolicyManager",
    "ServiceClass",
    "SignOnConfiguration",
    "SignOnIdentity",
    "Tenant",
    "Tier",
    "User",
    "check_cap",
    "check_cap_in_form",
]
