from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    # Built beside what is sent meanwhile: the table keeps every delivery of a month.
    atomic = False

    dependencies = [("webhooks", "0003_adapter_events")]

    operations = [
        AddIndexConcurrently(
            model_name="delivery",
            index=models.Index(
                fields=["finished_at"],
                condition=models.Q(state="failed"),
                name="webhook_delivery_failed",
            ),
        )
    ]
