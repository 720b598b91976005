from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

from tenants.names import one_line


class Migration(migrations.Migration):
    # Built beside what is sent meanwhile.
    atomic = False

    dependencies = [("webhooks", "0004_failed_deliveries"), ("tenants", "0011_one_line_names")]

    operations = [
        migrations.AlterField(
            "Endpoint",
            "description",
            models.CharField(blank=True, default="", max_length=200, validators=[one_line]),
        ),
        AddIndexConcurrently(
            "EmailNotice",
            models.Index(
                fields=["sent_at"], condition=models.Q(state="sent"), name="email_notice_sent"
            ),
        ),
    ]
