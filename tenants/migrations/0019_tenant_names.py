"""Tenants may have the same name: that one is taken says who else is a customer."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("tenants", "0018_websockets")]

    operations = [
        migrations.RemoveConstraint(model_name="tenant", name="tenant_name_in_any_case"),
    ]
