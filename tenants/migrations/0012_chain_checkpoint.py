"""How far fsck has verified chained logs."""

from django.db import migrations, models

from tenants.isolation.row_security import LetWebOnly
from tenants.migrations._schema import SERIAL_KEY, columns


class Migration(migrations.Migration):
    dependencies = [("tenants", "0011_one_line_names")]

    operations = [
        migrations.CreateModel(
            "ChainCheckpoint",
            columns(
                id=SERIAL_KEY,
                log=models.CharField(max_length=40),
                chain=models.UUIDField(),
                sequence=models.PositiveBigIntegerField(),
                hash=models.BinaryField(max_length=32),
                sums=models.JSONField(default=dict),
                signature=models.CharField(max_length=100),
                verified_at=models.DateTimeField(auto_now=True),
            ),
            options={
                "constraints": [
                    models.UniqueConstraint(fields=["log", "chain"], name="chain_checkpoint_once")
                ]
            },
        ),
        LetWebOnly("ChainCheckpoint"),
    ]
