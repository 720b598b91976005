"""What the request log finds requests by, in place of the index by tenant and arrival."""

from django.db import migrations, models

from inference.migrations._indexes import AddPartitionedIndex


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("inference", "0008_usage_labels")]

    operations = [
        AddPartitionedIndex(
            "UsageRecord",
            models.Index(
                fields=["tenant", "request_id"],
                include=[
                    "arrived_at",
                    "finished_at",
                    "project",
                    "api_key",
                    "model",
                    "adapter",
                    "tier",
                    "outcome",
                    "error_code",
                    "ttft_ms",
                    "cost_nanos",
                    "labels",
                ],
                name="usage_request_log",
            ),
        ),
        migrations.RemoveIndex("UsageRecord", "usage_tenant_arrived"),
    ]
