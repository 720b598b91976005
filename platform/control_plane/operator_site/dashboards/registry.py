"""Every dashboard, in the order of the sidebar. A new one gets its line here."""

from typing import Final

from control_plane.operator_site.dashboards.attainment import ATTAINMENT
from control_plane.operator_site.dashboards.attention.page import ATTENTION
from control_plane.operator_site.dashboards.dashboard import Dashboard
from control_plane.operator_site.dashboards.fleet import FLEET
from control_plane.operator_site.dashboards.latency import LATENCY
from control_plane.operator_site.dashboards.money import MONEY
from control_plane.operator_site.dashboards.queue import QUEUE
from control_plane.operator_site.dashboards.refusals import REFUSALS

DASHBOARDS: Final[tuple[Dashboard, ...]] = (
    ATTENTION,
    FLEET,
    LATENCY,
    ATTAINMENT,
    QUEUE,
    REFUSALS,
    MONEY,
)
