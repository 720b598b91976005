import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q

from tenants.audit.triggers import Audit
from tenants.isolation.row_security import BindToTenant, BuildTenantWall
from tenants.migrations._schema import UUID_KEY, columns, pairs, titled


class Migration(migrations.Migration):
    dependencies = [("tenants", "0001_initial")]

    operations = [
        migrations.CreateModel(
            "Invitation",
            columns(
                id=UUID_KEY,
                email=models.EmailField(max_length=254),
                role=models.CharField(
                    max_length=20,
                    choices=pairs("owner", "admin", "developer", "billing", "viewer"),
                ),
                digest=models.BinaryField(max_length=32, unique=True),
                created_at=models.DateTimeField(default=django.utils.timezone.now, editable=False),
                sent_at=models.DateTimeField(default=django.utils.timezone.now, editable=False),
                expires_at=models.DateTimeField(editable=False),
                outcome=models.CharField(
                    blank=True,
                    default="",
                    max_length=20,
                    choices=titled("accepted", "declined", "withdrawn", "expired"),
                ),
                ended_at=models.DateTimeField(null=True, blank=True, editable=False),
                api_key=models.ForeignKey(
                    "tenants.apikey",
                    django.db.models.deletion.CASCADE,
                    null=True,
                    editable=False,
                    related_name="+",
                ),
                invited_by=models.ForeignKey(
                    settings.AUTH_USER_MODEL,
                    django.db.models.deletion.CASCADE,
                    null=True,
                    editable=False,
                    related_name="+",
                ),
                tenant=models.ForeignKey(
                    "tenants.tenant",
                    django.db.models.deletion.CASCADE,
                    related_name="invitations",
                ),
            ),
            options={
                "ordering": ["-created_at"],
                "indexes": [
                    models.Index(
                        fields=["tenant", "-created_at", "-id"],
                        name="invitation_newest_of_tenant",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=["tenant", "email"],
                        condition=Q(outcome=""),
                        name="invitation_open_once_in_tenant",
                        violation_error_message="This address has an open invitation already.",
                    ),
                    models.CheckConstraint(
                        condition=Q(outcome="", ended_at=None)
                        | ~Q(outcome="") & Q(ended_at__isnull=False),
                        name="invitation_ended_with_outcome",
                    ),
                ],
            },
        ),
        BuildTenantWall("Invitation"),
        BindToTenant("Invitation", column="api_key_id", target="tenants_apikey"),
        Audit("Invitation", label=["email"], personal=["email"]),
    ]
