import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q
from django.utils import timezone

from tenants.audit.triggers import Audit
from tenants.isolation.row_security import BuildTenantWall, LetWebOnly
from tenants.migrations._schema import UUID_KEY, columns, pairs
from tenants.models.sign_on import new_token

ROLES = pairs("owner", "admin", "developer", "billing", "viewer")
USER = models.ForeignKey(
    settings.AUTH_USER_MODEL, django.db.models.deletion.CASCADE, related_name="+"
)

SIGN_ON_CONFIGURATION = migrations.CreateModel(
    "SignOnConfiguration",
    columns(
        tenant=models.OneToOneField(
            "tenants.tenant", models.CASCADE, primary_key=True, related_name="+", serialize=False
        ),
        issuer=models.CharField(max_length=500),
        client_id=models.CharField(max_length=255),
        encrypted_client_secret=models.BinaryField(),
        role_claim=models.CharField(blank=True, default="", max_length=100),
        roles=models.JSONField(blank=True, default=dict),
        default_role=models.CharField(blank=True, default="", max_length=20, choices=ROLES),
        created_at=models.DateTimeField(default=timezone.now, editable=False),
    ),
    options={"verbose_name": "single sign-on", "verbose_name_plural": "single sign-on"},
)

MAIL_DOMAIN = migrations.CreateModel(
    "MailDomain",
    columns(
        id=UUID_KEY,
        domain=models.CharField(max_length=253),
        token=models.CharField(default=new_token, editable=False, max_length=32),
        proven_at=models.DateTimeField(blank=True, editable=False, null=True),
        proven_by=models.CharField(
            blank=True,
            default="",
            editable=False,
            max_length=20,
            choices=[("dns", "TXT record"), ("operator", "operator")],
        ),
        created_at=models.DateTimeField(default=timezone.now, editable=False),
        tenant=models.ForeignKey("tenants.tenant", models.CASCADE, related_name="+"),
    ),
    options={
        "ordering": ["domain"],
        "constraints": [
            models.UniqueConstraint(
                fields=["tenant", "domain"],
                name="mail_domain_once_in_tenant",
                violation_error_code="unique_together",
                violation_error_message="This organisation has this domain already.",
            ),
            models.UniqueConstraint(
                fields=["domain"],
                condition=Q(proven_at__isnull=False),
                name="mail_domain_proven_once",
                violation_error_message="This domain is proven by another organisation.",
            ),
            models.CheckConstraint(
                condition=Q(proven_at=None, proven_by="")
                | Q(proven_at__isnull=False) & ~Q(proven_by=""),
                name="mail_domain_proven_by_somebody",
            ),
        ],
    },
)

SIGN_ON_IDENTITY = migrations.CreateModel(
    "SignOnIdentity",
    columns(
        id=UUID_KEY,
        issuer=models.CharField(max_length=500),
        subject=models.CharField(max_length=255),
        created_at=models.DateTimeField(default=timezone.now, editable=False),
        last_used_at=models.DateTimeField(default=timezone.now, editable=False),
        tenant=models.ForeignKey(
            "tenants.tenant", models.CASCADE, db_index=False, related_name="+"
        ),
        user=USER,
    ),
    options={
        "verbose_name_plural": "sign-on identities",
        "constraints": [
            models.UniqueConstraint(
                fields=["tenant", "issuer", "subject"], name="sign_on_subject_once_in_tenant"
            ),
            models.UniqueConstraint(
                fields=["tenant", "issuer", "user"], name="sign_on_user_once_at_issuer"
            ),
        ],
    },
)


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_invitation")]

    operations = [
        SIGN_ON_CONFIGURATION,
        MAIL_DOMAIN,
        SIGN_ON_IDENTITY,
        migrations.AddField(
            "Tenant",
            "demands_sign_on",
            models.BooleanField("single sign-on required", default=False),
        ),
        migrations.AddField(
            "Tenant",
            "demands_second_factor",
            models.BooleanField("two-step sign-in required", default=False),
        ),
        LetWebOnly("Tenant", "SELECT", "UPDATE (name, demands_sign_on, demands_second_factor)"),
        *map(BuildTenantWall, ("SignOnConfiguration", "MailDomain", "SignOnIdentity")),
        # Names of hosts and groups are those of the organisation.
        Audit(
            "SignOnConfiguration",
            label=["issuer"],
            personal=["issuer", "client_id", "role_claim", "roles"],
        ),
        Audit("MailDomain", label=["domain"], secret=["token"], personal=["domain"]),
        Audit(
            "SignOnIdentity",
            label=["user_id"],
            noise=["last_used_at"],
            personal=["issuer", "subject"],
        ),
    ]
