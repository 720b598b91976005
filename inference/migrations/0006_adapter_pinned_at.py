from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("tenants", "0006_pinned_adapters"), ("inference", "0005_adapter_effect")]

    operations = [
        migrations.AddField(
            "Adapter",
            "pinned_at",
            models.DateTimeField(null=True, blank=True, editable=False),
        ),
        migrations.AddIndex(
            "Adapter",
            models.Index(
                fields=["tenant", "pinned_at"],
                condition=Q(pinned_at__isnull=False),
                name="adapter_pinned",
            ),
        ),
        migrations.AddConstraint(
            "Adapter",
            models.CheckConstraint(
                condition=Q(archived_at=None) | Q(pinned_at=None),
                name="adapter_archived_is_not_pinned",
            ),
        ),
    ]
