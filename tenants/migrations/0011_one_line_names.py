"""Names are one line. Nothing changes in PostgreSQL."""

from django.db import migrations, models

from tenants.names import one_line


class Migration(migrations.Migration):
    dependencies = [("tenants", "0010_key_budgets")]

    operations = [
        migrations.AlterField(
            "Tenant", "name", models.CharField(max_length=200, validators=[one_line])
        ),
        migrations.AlterField(
            "Project",
            "name",
            models.CharField(default="default", max_length=200, validators=[one_line]),
        ),
        migrations.AlterField(
            "User", "name", models.CharField(blank=True, max_length=200, validators=[one_line])
        ),
        migrations.AlterField(
            "SavedView", "name", models.CharField(max_length=80, validators=[one_line])
        ),
        migrations.AlterField(
            "ApiKey",
            "name",
            models.CharField(
                blank=True, help_text="What the key is for.", max_length=200, validators=[one_line]
            ),
        ),
    ]
