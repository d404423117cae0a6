# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics, and the two probes that mean something: healthz says whether a restart would help, readyz whether this process can do its work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import generate_latest

from corral_operator.metrics import Metrics


async def serve(
    *,
    address: str,
    metrics_port: int,
    health_port: int,
    metrics: Metrics,
    refresh: Callable[[], None],
    unhealthy: Callable[[], str],
    unready: Callable[[], str],
) -> list[web.AppRunner]:
    """Open both ports. ``unhealthy`` and ``unready`` return a sentence, "" when all is well."""

    async def show(_request: web.Request) -> web.Response:
        refresh()
        return web.Response(body=generate_latest(metrics.registry), content_type="text/plain", charset="utf-8")

    def probe(judge: Callable[[], str]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(_request: web.Request) -> web.StreamResponse:
            words = judge()
            return web.Response(status=503 if words else 200, text=(words or "ok") + "\n")

        return answer

    runners = []
    for port, routes in (
        (metrics_port, [web.get("/metrics", show)]),
        (health_port, [web.get("/healthz", probe(unhealthy)), web.get("/readyz", probe(unready))]),
    ):
        application = web.Application()
        application.add_routes(routes)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, address or None, port).start()
        runners.append(runner)
    return runners
