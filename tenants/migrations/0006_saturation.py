from django.db import migrations, models

# Keys' rows of the snapshot have grown. A database that never published has nothing to write anew.
WRITE_SNAPSHOT_ANEW = """
INSERT INTO tenants_policychange (id, part, row_ids)
SELECT gen_random_uuid(), 'everything', '{}' WHERE EXISTS (SELECT FROM tenants_policyversion);
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0005_newest_api_keys")]

    operations = [
        migrations.AddField(
            model_name="project",
            name="on_saturation",
            field=models.CharField(
                choices=[
                    ("wait", "wait: queue it all the same, and say so in the answer"),
                    ("refuse", "refuse: a 429 that says when to come back"),
                    ("smaller_model", "smaller model: let another model answer, at its price"),
                ],
                default="wait",
                help_text="What becomes of a request when a model's expected wait breaks the tier's TTFT target.",
                max_length=20,
            ),
        ),
        migrations.AddField(
            model_name="project",
            name="smaller_model",
            field=models.CharField(
                blank=True,
                default="",
                help_text="The model that answers instead, where that is the choice.",
                max_length=200,
            ),
        ),
        migrations.AddConstraint(
            model_name="project",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("on_saturation", "smaller_model"),
                        models.Q(("smaller_model", ""), _negated=True),
                    ),
                    models.Q(
                        models.Q(("on_saturation", "smaller_model"), _negated=True),
                        ("smaller_model", ""),
                    ),
                    _connector="OR",
                ),
                name="project_smaller_model_if_used",
            ),
        ),
        migrations.RunSQL(WRITE_SNAPSHOT_ANEW, migrations.RunSQL.noop),
    ]
