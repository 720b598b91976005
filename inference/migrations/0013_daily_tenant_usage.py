from django.db import migrations, models

from inference.histograms import HistogramField
from inference.migrations._usage import COUNTERS, HISTOGRAMS, MEASURES, OWNERS
from tenants.billing.invoicing.usage_source import USAGE_LOCK
from tenants.isolation.roles import OPERATOR_ROLE
from tenants.isolation.row_security import BuildTenantWall, LetWebOnly
from tenants.migrations._schema import columns

SUMS = (
    *COUNTERS,
    "cost_nanos",
    *HISTOGRAMS,
    "queue_histogram",
    "ttft_in_time",
    "itl_in_time",
)
HOUR = "('1e' || 12 * extract(hour FROM hour AT TIME ZONE 'UTC')::integer)::numeric"
# Nothing is recorded until this is committed: whoever does waits for the lock.
FILL = f"""
    SELECT pg_advisory_xact_lock({USAGE_LOCK});
    SET LOCAL ROLE {OPERATOR_ROLE};
    INSERT INTO inference_dailytenantusage (tenant_id, day, tier, {", ".join(SUMS)},
        requests_by_hour, down_by_hour)
    SELECT tenant_id, (hour AT TIME ZONE 'UTC')::date AS day, tier,
        {", ".join(f"sum({name})" for name in SUMS)},
        sum(requests * {HOUR}), sum((failed + expired) * {HOUR})
    FROM inference_usagerollup GROUP BY tenant_id, day, tier;
    RESET ROLE;
"""  # noqa: S608 - names of ours alone


class Migration(migrations.Migration):
    dependencies = [("inference", "0012_dealt_costs")]

    operations = [
        migrations.CreateModel(
            "DailyTenantUsage",
            columns(
                pk=models.CompositePrimaryKey(
                    "tenant_id",
                    "day",
                    "tier",
                    blank=True,
                    editable=False,
                    primary_key=True,
                    serialize=False,
                ),
                tenant=OWNERS["tenant"],
                day=models.DateField(),
                tier=MEASURES["tier"],
                **{name: MEASURES[name] for name in (*COUNTERS, "cost_nanos", *HISTOGRAMS)},
                queue_histogram=HistogramField(null=True, default=None, editable=False),
                ttft_in_time=models.PositiveBigIntegerField(null=True),
                itl_in_time=models.PositiveBigIntegerField(null=True),
                requests_by_hour=HistogramField(editable=False),
                down_by_hour=HistogramField(editable=False),
            ),
            options={"indexes": [models.Index(fields=["day"], name="daily_tenant_usage_day")]},
        ),
        BuildTenantWall("DailyTenantUsage"),
        LetWebOnly("DailyTenantUsage", "SELECT"),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
    ]
