import django.utils.timezone
from django.db import migrations, models

from tenants.isolation.row_security import LetWebOnly


class Migration(migrations.Migration):
    dependencies = [
        ("inference", "0010_quarantine_by_entry"),
    ]

    operations = [
        migrations.AddField(
            model_name="usagerecord",
            name="generated_tokens",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="By the engine of this very attempt; 0 if no worker told the end, empty if the worker is too old to say.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="wastedattempt",
            name="generated_tokens",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name="EngineTokenCounter",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("pool", models.CharField(max_length=100)),
                ("worker_id", models.CharField(max_length=200)),
                ("generated_tokens", models.PositiveBigIntegerField()),
                (
                    "unbilled_tokens",
                    models.PositiveBigIntegerField(
                        help_text="Of them, for requests that leave no record."
                    ),
                ),
                ("started_at", models.DateTimeField()),
                ("counted_at", models.DateTimeField()),
                ("is_final", models.BooleanField(help_text="Reported at the end of a drain.")),
                (
                    "recorded_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
            ],
            options={
                "ordering": ["-counted_at"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("pool", "worker_id"), name="engine_token_counter_once"
                    )
                ],
            },
        ),
        LetWebOnly("EngineTokenCounter"),
    ]
