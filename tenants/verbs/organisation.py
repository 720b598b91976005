"""What is done to tenants and what is theirs: people, projects, keys, quotas, webhooks."""

from typing import Final

from tenants.permissions import Permission
from tenants.verbs.noun import TENANT, Noun, Verb

_tenants = Noun("tenants")
_members = Noun("members")
_invitations = Noun("invitations")
_sign_on = Noun("sign-on")
_domains = Noun("mail-domains")
_projects = Noun("projects")
_keys = Noun("keys")
_quotas = Noun("quotas")
_webhooks = Noun("webhooks")

_OF_TENANT: Final = {"tenant": TENANT}
_KEY: Final = {"id": "the key's id, its public id, or the key itself"}
_PLACE: Final = _OF_TENANT | {
    "limit": "what is counted",
    "project": "only of this project",
    "api_key": "only of this key, by id or public id",
}
_ENDPOINT: Final = {"of": "the id of an endpoint"}
_KEY_ENDS: Final = (
    "New requests are refused within a second, and open streams end. This cannot be undone."
)

ORGANISATION: Final[tuple[Verb, ...]] = (
    _tenants.read(
        "list",
        "List tenants; those that were closed only with --state closed.",
        command="list_tenants",
    ),
    _tenants.read(
        "show",
        "Show a tenant: tier, state, money and how many of each it has.",
        takes={"tenant": TENANT},
        command="show_tenant",
    ),
    _tenants(
        "create",
        "Create a tenant with one project.",
        takes={"name": "what it is called", "tier": "the name of an SLA tier"},
        command="create_tenant",
    ),
    _tenants(
        "rename",
        "Rename a tenant.",
        takes={"name": "what it is called"},
        permission=Permission.WRITE_PROJECTS,
        routes="PATCH",
    ),
    _tenants(
        "suspend",
        "Suspend a tenant.",
        takes=_OF_TENANT,
        ends="New requests are refused and open streams end. Nothing is deleted.",
        command="suspend_tenant",
    ),
    _tenants(
        "resume",
        "Resume a suspended tenant.",
        takes=_OF_TENANT,
        ends="Its keys work again immediately.",
        command="resume_tenant",
    ),
    _tenants(
        "tier",
        "Move a tenant to another SLA tier.",
        takes=_OF_TENANT | {"tier": "the name of an SLA tier"},
        ends="The limits, SLA targets and prices of the new tier apply to new requests only.",
        command="set_tier",
    ),
    _tenants(
        "act",
        "Act as a member of a tenant.",
        takes={"role": "viewer, billing, developer or admin", "reason": "told to its owners"},
        ends="Owners get an e-mail with the reason, and what you do stands in their audit log "
        "under your name.",
    ),
    _tenants(
        "export",
        "Export all data of a tenant.",
        takes=_OF_TENANT,
        permission=Permission.EXPORT,
        routes="POST export",
        command="export_tenant",
    ),
    _tenants(
        "transfer",
        "Hand ownership to another member.",
        takes={"member_id": "the member who becomes an owner"},
        permission=Permission.TRANSFER,
        routes="POST transfer",
    ),
    _tenants(
        "close",
        "Close a tenant for good.",
        takes=_OF_TENANT,
        ends="Permanent. Keys are revoked, members with no other tenant lose their accounts, and "
        "names are pseudonymised. Usage, the ledger and the audit log's hash chain are kept.",
        permission=Permission.CLOSE,
        routes="POST close",
        command="close_tenant",
    ),
    _members.read("list", "List a tenant's members.", takes=_OF_TENANT, command="list_members"),
    _members(
        "set",
        "Add a member, or change a member's role.",
        takes=_OF_TENANT | {"email": "an e-mail address", "role": "owner, admin, ..."},
        permission=Permission.WRITE_PEOPLE,
        routes="PATCH members/<member_id>",
        command="set_member",
    ),
    _members(
        "invite",
        "Invite somebody by e-mail.",
        takes={"email": "an e-mail address", "role": "owner, admin, ..."},
        permission=Permission.WRITE_PEOPLE,
        routes="POST members, POST invitations",
    ),
    _members(
        "remove",
        "Remove a member; the account stays.",
        takes=_OF_TENANT | {"email": "an e-mail address"},
        ends="They are out at once. The keys that they made work on unless you revoke them.",
        permission=Permission.WRITE_PEOPLE,
        routes="DELETE members/<member_id>",
        command="remove_member",
    ),
    _members(
        "leave",
        "Leave a tenant.",
        permission=Permission.VIEW,
        routes="DELETE membership",
        is_for_keys=False,
    ),
    _invitations(
        "withdraw",
        "Withdraw an invitation.",
        ends="The link in its e-mail no longer works.",
        permission=Permission.WRITE_PEOPLE,
        routes="DELETE invitations/<invitation_id>",
    ),
    _invitations(
        "resend",
        "Send an invitation again.",
        permission=Permission.WRITE_PEOPLE,
        routes="POST invitations/<invitation_id>/resend",
    ),
    _sign_on(
        "set",
        "Set up single sign-on.",
        permission=Permission.WRITE_SIGN_ON,
        routes="PATCH sign-on",
    ),
    _sign_on(
        "remove",
        "Remove single sign-on.",
        ends="Members sign in by password and second factor again.",
        permission=Permission.WRITE_SIGN_ON,
        routes="DELETE sign-on",
    ),
    _domains(
        "add",
        "Add a mail domain.",
        takes={"name": "the domain"},
        permission=Permission.WRITE_SIGN_ON,
        routes="POST mail-domains",
    ),
    _domains(
        "verify",
        "Have the DNS asked whether a mail domain is yours.",
        permission=Permission.WRITE_SIGN_ON,
        routes="POST mail-domains/<mail_domain_id>/verify",
    ),
    _domains(
        "remove",
        "Remove a mail domain.",
        permission=Permission.WRITE_SIGN_ON,
        routes="DELETE mail-domains/<mail_domain_id>",
    ),
    _projects.read("list", "List a tenant's projects.", takes=_OF_TENANT, command="list_projects"),
    _projects(
        "create",
        "Create a project.",
        takes=_OF_TENANT | {"name": "what it is called"},
        permission=Permission.WRITE_PROJECTS,
        routes="POST projects",
        command="create_project",
    ),
    _projects(
        "change",
        "Choose what happens when a model is saturated, or rename a project.",
        takes=_OF_TENANT | {"on_saturation": "wait, refuse or smaller_model"},
        permission=Permission.WRITE_PROJECTS,
        routes="PATCH projects/<project_id>",
        command="set_saturation",
    ),
    _keys.read("list", "List a tenant's API keys.", takes=_OF_TENANT, command="list_api_keys"),
    _keys(
        "create",
        "Create an API key and print it once.",
        takes=_OF_TENANT,
        permission=Permission.WRITE_KEYS,
        routes="POST keys",
        command="create_api_key",
    ),
    _keys(
        "change",
        "Narrow or rename an API key.",
        permission=Permission.WRITE_KEYS,
        routes="PATCH keys/<key_id>",
    ),
    _keys(
        "rotate",
        "Rotate an API key.",
        takes=_KEY | {"overlap": "how long the old one works beside it, such as 24h"},
        ends="The key keeps its id and gets a new secret, which is shown once.",
        permission=Permission.WRITE_KEYS,
        routes="POST keys/<key_id>/rotate",
        command="rotate_api_key",
    ),
    _keys(
        "revoke",
        "Revoke an API key.",
        takes=_KEY,
        ends=_KEY_ENDS,
        permission=Permission.WRITE_KEYS,
        routes="POST keys/<key_id>/revoke",
        command="revoke_api_key",
    ),
    _quotas.read("list", "List a tenant's quotas.", takes=_OF_TENANT, command="list_quotas"),
    _quotas(
        "set",
        "Set a quota of a tenant, a project or a key.",
        takes=_PLACE | {"value": "a whole number; for spend, dollars"},
        permission=Permission.WRITE_QUOTAS,
        routes="POST quotas, PATCH quotas/<quota_id>",
        command="set_quota",
    ),
    _quotas(
        "clear",
        "Remove a quota of a tenant, a project or a key.",
        takes=_PLACE,
        ends="The next wider limit is what holds.",
        permission=Permission.WRITE_QUOTAS,
        routes="DELETE quotas/<quota_id>",
        command="clear_quota",
    ),
    Noun("balance-alert")(
        "set",
        "Set the balance that raises an alert.",
        takes={"threshold_nanos": "in nano-dollars"},
        permission=Permission.WRITE_WEBHOOKS,
        routes="PATCH balance-alert",
    ),
    Noun("audit").read(
        "export",
        "Export the audit log of one tenant or all, in a form that others can verify.",
        command="export_audit",
    ),
    _webhooks.read(
        "list",
        "List a tenant's webhooks.",
        takes={"of": TENANT},
        command="webhooks list",
    ),
    _webhooks.read(
        "log",
        "Show the newest deliveries to one.",
        takes=_ENDPOINT,
        command="webhooks log",
    ),
    _webhooks(
        "create",
        "Add a webhook endpoint.",
        takes={"url": "an https address"},
        permission=Permission.WRITE_WEBHOOKS,
        routes="POST webhooks",
    ),
    _webhooks(
        "change",
        "Change a webhook endpoint.",
        permission=Permission.WRITE_WEBHOOKS,
        routes="PATCH webhooks/<endpoint_id>",
    ),
    _webhooks(
        "rotate",
        "Rotate a webhook endpoint's secret.",
        permission=Permission.WRITE_WEBHOOKS,
        routes="POST webhooks/<endpoint_id>/rotate",
    ),
    _webhooks(
        "test",
        "Send a test event.",
        takes=_ENDPOINT,
        ends="Sends an event of type webhook.test to this endpoint.",
        permission=Permission.WRITE_WEBHOOKS,
        routes="POST webhooks/<endpoint_id>/test",
        command="webhooks test",
    ),
    _webhooks(
        "redeliver",
        "Send again what one missed.",
        takes={"of": "the id of a delivery"},
        permission=Permission.WRITE_WEBHOOKS,
        routes="POST webhooks/<endpoint_id>/deliveries/<delivery_id>/redeliver",
        command="webhooks redeliver",
    ),
    _webhooks("enable", "Enable a webhook endpoint.", ends="New events will be sent to it."),
    _webhooks(
        "disable",
        "Disable a webhook endpoint.",
        ends="Nothing more is sent to it. Pending deliveries fail, and can be redelivered once the "
        "endpoint is enabled again.",
    ),
    _webhooks(
        "remove",
        "Remove a webhook endpoint.",
        permission=Permission.WRITE_WEBHOOKS,
        routes="DELETE webhooks/<endpoint_id>",
    ),
)
