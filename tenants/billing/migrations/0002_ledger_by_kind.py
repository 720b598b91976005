from django.db import migrations, models


class Migration(migrations.Migration):
    """The few payments among a million charges are found without reading those."""

    dependencies = [("billing", "0001_initial")]

    operations = [
        migrations.AddIndex(
            "LedgerTransaction",
            models.Index(fields=["tenant", "kind", "-sequence"], name="ledger_by_kind"),
        )
    ]
