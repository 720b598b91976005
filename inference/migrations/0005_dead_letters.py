from django.db import migrations, models

from tenants.isolation.row_security import LetWebOnly


class Migration(migrations.Migration):
    dependencies = [("inference", "0004_audit")]

    operations = [
        migrations.CreateModel(
            name="DeadLetter",
            fields=[
                ("request_id", models.UUIDField(primary_key=True, serialize=False)),
                ("pool", models.CharField(max_length=100)),
                ("model", models.CharField(max_length=200)),
                ("api", models.CharField(max_length=40)),
                ("attempts", models.PositiveIntegerField()),
                (
                    "last_worker_id",
                    models.CharField(blank=True, max_length=200, verbose_name="last worker"),
                ),
                ("died_at", models.DateTimeField()),
                (
                    "is_kept",
                    models.BooleanField(
                        help_text="Kept for a day, or until a retry ends well or it is discarded.",
                        verbose_name="payload kept",
                    ),
                ),
                ("retried_at", models.DateTimeField(null=True)),
                (
                    "retry_outcome",
                    models.CharField(
                        blank=True,
                        help_text="An outcome, and what went wrong.",
                        max_length=100,
                        verbose_name="end of the retry",
                    ),
                ),
            ],
            options={"ordering": ["-died_at"]},
        ),
        LetWebOnly("DeadLetter"),
    ]
