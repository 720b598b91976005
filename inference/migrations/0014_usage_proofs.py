from django.db import migrations, models

from tenants.isolation.row_security import LetWebOnly
from tenants.migrations._schema import AUTO_KEY, columns

OWED = (
    "requests_owed",
    "failed_owed",
    "ttft_owed",
    "ttft_owed_in_time",
    "itl_owed",
    "itl_owed_in_time",
)
SUMS = ("UsageRollup", "DailyUsage", "DailyTenantUsage", "PoolUsage", "DailyPoolUsage")
CAUSES = [
    ("invalid", "can be no record"),
    ("unproven", "no gateway has admitted it"),
    ("beyond_reservation", "more than was reserved"),
    ("prices", "other prices than held"),
    ("repeated", "more than is on record"),
]
# Where workers are, gateways admit without proofs until they are all of this version.
START = """
INSERT INTO inference_usageproofstart (at)
SELECT now() + interval '1 hour' WHERE EXISTS (SELECT FROM inference_worker)
"""


class Migration(migrations.Migration):
    dependencies = [("inference", "0013_daily_tenant_usage")]

    operations = [
        migrations.CreateModel("UsageProofStart", columns(id=AUTO_KEY, at=models.DateTimeField())),
        LetWebOnly("UsageProofStart"),
        migrations.RunSQL(START, migrations.RunSQL.noop),
        *(
            migrations.AddField(model, name, models.BigIntegerField(null=True))
            for model in SUMS
            for name in OWED
        ),
        migrations.AddField(
            "UsageQuarantine",
            "cause",
            models.CharField(
                choices=CAUSES, db_default="invalid", default="invalid", max_length=20
            ),
        ),
        migrations.AddField(
            "UsageRecord",
            "owed",
            models.BooleanField(
                blank=True,
                null=True,
                help_text="Whether its tier's promises were owed: when it was queued its tenant was "
                "within its share, and was told of no longer wait. Unknown of requests of before.",
            ),
        ),
    ]
