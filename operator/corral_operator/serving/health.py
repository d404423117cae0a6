# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serves the metrics and two probes: healthz fails if a restart would help, readyz if this process cannot work yet."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web
from prometheus_client import generate_latest

from corral_operator.runs import zygote
from corral_operator.serving.authorization import Authorizer
from corral_operator.serving.metrics import Metrics


async def serve_health(*, address: str, port: int, unhealthy: Callable[[], str], unready: Callable[[], str]) -> web.AppRunner:
    """Listen on the port of the probes. ``unhealthy`` and ``unready`` return a sentence, "" if nothing is wrong."""

    def probe(problem: Callable[[], str]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(_request: web.Request) -> web.StreamResponse:
            message = problem()
            return web.Response(status=503 if message else 200, text=(message or "ok") + "\n")

        return handle

    return await _open([web.get("/healthz", probe(unhealthy)), web.get("/readyz", probe(unready))], address, port, None)


async def serve_metrics(
    *, address: str, port: int, metrics: Metrics, refresh: Callable[[], None], authorizer: Authorizer | None, scratch: Path
) -> web.AppRunner:
    """Listen on the port of the metrics: by TLS for readers that ``authorizer`` allows, or, without one, by plain HTTP for everybody."""

    async def show(request: web.Request) -> web.Response:
        if authorizer is not None:
            refusal = await authorizer.refusal(request.headers.get("Authorization", ""), request.remote or "")
            if refusal is not None:
                headers = {"WWW-Authenticate": "Bearer"} if refusal.code == 401 else None
                return web.Response(status=refusal.code, text=refusal.message + "\n", headers=headers)
        refresh()
        return web.Response(body=generate_latest(metrics.registry), content_type="text/plain", charset="utf-8")

    context = None if authorizer is None else await _own_certificate(scratch)
    return await _open([web.get("/metrics", show)], address, port, context)


async def _open(routes: list[web.RouteDef], address: str, port: int, context: ssl.SSLContext | None) -> web.AppRunner:
    application = web.Application()
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, address or None, port, ssl_context=context).start()
    return runner


async def _own_certificate(scratch: Path) -> ssl.SSLContext:
    """Return a context with a new self-signed certificate. A child process creates it, so that this one need not import the library."""
    maker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "corral_operator.serving.certificate", stdout=asyncio.subprocess.PIPE, env=zygote.environment()
    )
    pem, _stderr = await maker.communicate()
    if maker.returncode:
        raise RuntimeError(f"The certificate for /metrics was not created: status {maker.returncode}, see above.")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = scratch / "metrics.pem"
    try:
        path.touch(0o600)
        path.write_bytes(pem)
        context.load_cert_chain(path)
    finally:
        path.unlink(missing_ok=True)
    return context
