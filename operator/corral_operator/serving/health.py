# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics, and the two probes that mean something: healthz says whether a restart would help, readyz whether this process can do its work."""

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
    """Open the port of the probes. ``unhealthy`` and ``unready`` return a sentence, "" when all is well."""

    def probe(judge: Callable[[], str]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(_request: web.Request) -> web.StreamResponse:
            words = judge()
            return web.Response(status=503 if words else 200, text=(words or "ok") + "\n")

        return answer

    return await _open([web.get("/healthz", probe(unhealthy)), web.get("/readyz", probe(unready))], address, port, None)


async def serve_metrics(
    *, address: str, port: int, metrics: Metrics, refresh: Callable[[], None], authorizer: Authorizer | None, scratch: Path
) -> web.AppRunner:
    """Open the port of the metrics: by TLS to those whom ``authorizer`` lets in, or, without one, by plain HTTP to everybody."""

    async def show(request: web.Request) -> web.Response:
        if authorizer is not None:
            refusal = await authorizer.refusal(request.headers.get("Authorization", ""), request.remote or "")
            if refusal is not None:
                headers = {"WWW-Authenticate": "Bearer"} if refusal.code == 401 else None
                return web.Response(status=refusal.code, text=refusal.words + "\n", headers=headers)
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
    """Return a context with a new certificate that this process has signed itself. It is made beside it: what that takes to import stays out of here."""
    maker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "corral_operator.serving.certificate", stdout=asyncio.subprocess.PIPE, env=zygote.environment()
    )
    said, _nothing = await maker.communicate()
    if maker.returncode:
        raise RuntimeError(f"The certificate for /metrics was not made: status {maker.returncode}, see above.")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = scratch / "metrics.pem"
    try:
        path.touch(0o600)
        path.write_bytes(said)
        context.load_cert_chain(path)
    finally:
        path.unlink(missing_ok=True)
    return context
