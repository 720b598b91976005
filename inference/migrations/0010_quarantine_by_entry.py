"""Two entries that were given the same id of a stream are both kept."""

from django.db import migrations, models
from django.db.models.functions import MD5


class Migration(migrations.Migration):
    dependencies = [("inference", "0009_usage_keys")]

    operations = [
        migrations.RemoveConstraint("usagequarantine", "usage_quarantine_once"),
        migrations.AddConstraint(
            "usagequarantine",
            models.UniqueConstraint(
                models.F("pool"),
                models.F("stream_id"),
                MD5("entry"),
                name="usage_quarantine_once",
            ),
        ),
    ]
