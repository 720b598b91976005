"""Views of usage that people save by name."""

import django.utils.timezone
from django.db import migrations, models
from django.db.models import Q

from tenants.audit.triggers import Audit
from tenants.isolation.row_security import BindToTenant, BuildTenantWall
from tenants.migrations._schema import UUID_KEY, columns


class Migration(migrations.Migration):
    dependencies = [("tenants", "0008_playground_keys")]

    operations = [
        migrations.AddConstraint(
            "Membership",
            models.UniqueConstraint(fields=["id", "tenant"], name="membership_of_tenant"),
        ),
        migrations.CreateModel(
            "SavedView",
            columns(
                id=UUID_KEY,
                name=models.CharField(max_length=80),
                query=models.CharField(blank=True, max_length=4000),
                created_at=models.DateTimeField(default=django.utils.timezone.now, editable=False),
                owner=models.ForeignKey(
                    "tenants.membership",
                    models.CASCADE,
                    blank=True,
                    null=True,
                    related_name="saved_views",
                ),
                tenant=models.ForeignKey(
                    "tenants.tenant", models.CASCADE, related_name="saved_views"
                ),
            ),
            options={
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=["tenant", "name"],
                        condition=Q(owner=None),
                        name="saved_view_once_for_all",
                        violation_error_message="There is a view of this name for everybody "
                        "already.",
                    ),
                    models.UniqueConstraint(
                        fields=["owner", "name"],
                        condition=Q(owner__isnull=False),
                        name="saved_view_once_of_member",
                        violation_error_message="You have a view of this name already.",
                    ),
                ],
            },
        ),
        BuildTenantWall("SavedView"),
        BindToTenant("SavedView", column="owner_id", target="tenants_membership"),
        Audit("SavedView", label=["name"], personal=["name"]),
    ]
