# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts the election, the controller, the webhook and the endpoints, and shuts them down in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import signal
from pathlib import Path

from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from corral_operator import content, limits, settings
from corral_operator.api import fence
from corral_operator.api.client import Client
from corral_operator.api.election import Election, Elector
from corral_operator.api.rate_limit import RateLimiter
from corral_operator.reconcile.controller import Controller
from corral_operator.runs import engine
from corral_operator.runs.checker import Checker
from corral_operator.runs.zygote import Started
from corral_operator.serving.authorization import Authorizer
from corral_operator.serving.health import serve_health, serve_metrics
from corral_operator.serving.metrics import Metrics
from corral_operator.serving.webhook import Webhook

logger = logging.getLogger("corral_operator")


async def run(wanted: settings.Settings, limit: fence.Fence, common: RateLimiter, zygote: Started | None) -> int:
    """Run until SIGTERM.

    ``common`` is the rate limit of the controller and its runs; ``zygote`` forks warm runs, None: runs are cold.
    Raises CorralError.
    """
    access = auth.resolve({})
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics = Metrics()
    runs = engine.Cold(limit.path) if zygote is None else engine.Warm(limit.path, zygote)
    await runs.open()
    revision = content.revision(wanted.variables)
    room = limits.runs(wanted.max_runs, limits.cpus(), limits.memory())
    logger.info(
        "starting", extra={"engine": wanted.engine, "content": revision, "working": room[0], "open": room[1], "identity": wanted.identity}
    )
    checker = Checker()
    # The election has a client of its own: its writes must not wait for the fence, which they open.
    async with (
        Client(access) as election_client,
        Client(access, rate_limit=RateLimiter(rate=5.0, burst=20.0).reserve) as metrics_client,
        Client(access, before_write=limit.check, rate_limit=common.reserve) as client,
    ):
        controller = Controller(client, runs, wanted, metrics, content=revision, limits=room, may_write=lambda: limit.open, check=checker)
        election = Election(wanted.identity, fence.now, lease=wanted.lease, renew_deadline=wanted.renew_deadline, fence=limit.move)
        elector = Elector(
            election_client,
            election,
            namespace=wanted.lease_namespace,
            name=wanted.lease_name,
            identity=wanted.identity,
            lease=wanted.lease,
            retry=wanted.lease_retry,
            started=controller.lead,
            # Runs are killed long before another candidate can take the lease.
            stopped=lambda: controller.halt("lost the lease", (wanted.lease - wanted.renew_deadline) * 0.4),
            clock=fence.now,
        )

        def unhealthy() -> str:
            if election_task is not None and election_task.done():
                return "The task that renews the lease has ended."
            if webhook is not None and webhook.done():
                return "The task that serves the webhook has ended."
            if metrics_task.done() and not metrics_task.cancelled() and metrics_task.exception() is not None:
                return f"The metrics are not served: {metrics_task.exception()}"
            return controller.unhealthy

        controller.start()
        health = await serve_health(
            address=wanted.address, port=wanted.health_port, unhealthy=unhealthy, unready=lambda: controller.unready
        )
        metrics_task = asyncio.create_task(
            serve_metrics(
                address=wanted.address,
                port=wanted.metrics_port,
                metrics=metrics,
                refresh=controller.refresh_metrics,
                authorizer=Authorizer(metrics_client, loop.time) if wanted.metrics_secure else None,
                scratch=wanted.scratch,
            )
        )
        webhook = (
            asyncio.create_task(
                Webhook(
                    Path(wanted.webhook_certificates),
                    wanted.webhook_port,
                    lambda document: checker(controller.without_unknown_fields(document)),
                ).run()
            )
            if wanted.webhook_certificates
            else None
        )
        election_task = asyncio.create_task(elector.run()) if wanted.elect else None
        if election_task is None:
            limit.move(math.inf)
            controller.lead()
        gc.collect()
        gc.freeze()
        await stop.wait()
        logger.info("stopping")
        # The lease is renewed until no run is left, and then released.
        await controller.halt("stopping", wanted.grace)
        if election_task is not None:
            election_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await election_task
            await elector.release()
        await controller.stop()
        if webhook is not None:
            webhook.cancel()
            await asyncio.gather(webhook, return_exceptions=True)
        await health.cleanup()
        metrics_task.cancel()
        for server in await asyncio.gather(metrics_task, return_exceptions=True):
            if not isinstance(server, BaseException):
                await server.cleanup()
    await checker.close()
    await runs.close()
    return 0
