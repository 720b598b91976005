"""Quotas of a whole tenant that its members set, beside those of the operator."""

from django.db import migrations, models
from django.db.models import Q

_WHOLE = Q(project=None, api_key=None)


class Migration(migrations.Migration):
    dependencies = [("tenants", "0014_check_progress")]

    operations = [
        migrations.RemoveConstraint(model_name="quota", name="quota_once_in_tenant"),
        migrations.AddField(
            "quota",
            "is_own",
            models.BooleanField("set by members", default=False, editable=False),
        ),
        migrations.AddConstraint(
            "quota",
            models.CheckConstraint(
                condition=Q(is_own=False) | _WHOLE, name="quota_own_of_whole_tenant"
            ),
        ),
        migrations.AddConstraint(
            "quota",
            models.UniqueConstraint(
                fields=["tenant", "limit", "is_own"],
                condition=_WHOLE,
                name="quota_once_in_tenant",
                violation_error_message="This tenant already has a quota for this limit.",
            ),
        ),
    ]
