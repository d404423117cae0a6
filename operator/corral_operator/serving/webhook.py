# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admission webhook: refuses invalid documents that the CustomResourceDefinition's schema accepts, by the same check as a run.

It gives feedback early and is no protection: the API server admits documents while the webhook is down, and every run checks again.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from corral_operator.runs.checker import Checked

Check = Callable[[dict[str, Any]], Awaitable[Checked]]

log = logging.getLogger(__name__)

# How often the certificate's files are checked: cert-manager renews them weeks before they expire, and kubelets update them within two minutes.
RELOAD = 30.0


async def review(received: dict[str, Any], check: Check) -> dict[str, Any]:
    """Return the response to an AdmissionReview (admission.k8s.io/v1). Raises CorralError if there is no result."""
    request = received["request"]
    errors = "" if _same_spec(request) else (await check(request["object"])).errors
    response: dict[str, Any] = {"uid": request["uid"], "allowed": not errors}
    if errors:
        response["status"] = {"code": 422, "reason": "Invalid", "message": errors}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _same_spec(request: dict[str, Any]) -> bool:
    """True if the spec is unchanged or the document is being deleted: metadata of an invalid document can still be changed."""
    new, old = request.get("object") or {}, request.get("oldObject") or {}
    return bool(new.get("metadata", {}).get("deletionTimestamp")) or (bool(old) and new.get("spec") == old.get("spec"))


class Webhook:
    """Serves ``review`` over TLS as soon as the directory has tls.crt and tls.key, and reloads them without a restart."""

    def __init__(self, certificates: Path, port: int, check: Check) -> None:
        self._check = check
        self._certificates = certificates
        self._port = port
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._loaded: tuple[float, ...] = ()

    async def run(self) -> None:
        """Serve until cancelled."""
        application = web.Application(client_max_size=4 * 1024 * 1024)
        application.router.add_post("/validate", self._handle)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            while not self._load():
                await asyncio.sleep(1.0)
            await web.TCPSite(runner, port=self._port, ssl_context=self._context).start()
            log.info("the webhook is serving", extra={"port": self._port})
            while True:
                await asyncio.sleep(RELOAD)
                self._load()
        finally:
            await runner.cleanup()

    def _load(self) -> bool:
        """Load the certificate if it has changed; False if no valid one has been loaded yet."""
        files = self._certificates / "tls.crt", self._certificates / "tls.key"
        try:
            times = tuple(file.stat().st_mtime for file in files)
            if times != self._loaded:
                # Validate first: a failure may leave the context with a certificate that does not match its key.
                ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*files)
                self._context.load_cert_chain(*files)
                self._loaded = times
        except FileNotFoundError:
            pass
        except (OSError, ssl.SSLError) as error:
            log.warning("the certificate in %s cannot be loaded (%s); the previous one stays in use", self._certificates, error)
        return bool(self._loaded)

    async def _handle(self, request: web.Request) -> web.Response:
        return web.json_response(await review(await request.json(), self._check))
