from django.db import migrations, models
from django.db.models import Q

from tenants.migrations._schema import pairs

SUBSCRIBABLE = [
    "quota.threshold_reached",
    "balance.low",
    "invoice.issued",
    "invoice.paid",
    "adapter.live",
    "adapter.refused",
    "webhook.disabled",
    "operator.entered",
]


class Migration(migrations.Migration):
    dependencies = [("webhooks", "0002_operator_entered")]

    operations = [
        migrations.AlterField(
            model_name="event",
            name="type",
            field=models.CharField(max_length=60, choices=pairs(*SUBSCRIBABLE, "webhook.test")),
        ),
        migrations.RemoveConstraint("endpoint", "webhook_endpoint_types_are_known"),
        migrations.AddConstraint(
            "endpoint",
            models.CheckConstraint(
                condition=Q(event_types=None)
                | Q(event_types__contained_by=SUBSCRIBABLE, event_types__len__gt=0),
                name="webhook_endpoint_types_are_known",
            ),
        ),
    ]
