"""manage.py load_functions"""

import asyncio
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from gpu_workers.protocol.redis_url import connect_async
from inference.redis_functions import LIBRARIES, FunctionLibrary
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    is_one_transaction = False
    help = "Load the Lua functions of admission and dispatch into the dispatch Redis."

    def handle(self, *_: Any, **options: Any) -> None:
        asyncio.run(_load())
        self.report(options, loaded=", ".join(library.name for library in LIBRARIES))


async def _load() -> None:
    async with connect_async(settings.PENSTOCK_DISPATCH_REDIS_URL, socket_timeout=10) as redis:
        for library in LIBRARIES:
            if not await FunctionLibrary(redis, library).load():
                raise CommandError(
                    "The user of PENSTOCK_DISPATCH_REDIS_URL may not load functions: give the "
                    "control plane's there, see `manage.py redis_acl`."
                )
