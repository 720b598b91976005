from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("inference", "0018_adapter_sums")]

    operations = [
        migrations.AlterField(
            model_name="worker",
            name="state",
            field=models.CharField(
                max_length=20,
                choices=[(each, each) for each in ("starting", "ready", "draining", "drained")],
            ),
        ),
        migrations.AddField(
            model_name="worker",
            name="stays",
            field=models.BooleanField(
                default=False, help_text="Takes nothing until it is resumed, or stopped."
            ),
        ),
    ]
