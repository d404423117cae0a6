# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at documents as they are written, and refuses those that the CustomResourceDefinition's schema can not: by the very check that a run begins with.

It is a courtesy to whoever writes, not a wall: the API server lets documents through while nobody answers here, and every run checks again.
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

# How often the certificate's files are looked at: cert-manager renews them weeks before their end, and kubelets bring them within two minutes.
RELOAD = 30.0


async def review(asked: dict[str, Any], check: Check) -> dict[str, Any]:
    """Answer an AdmissionReview (admission.k8s.io/v1). Raises CorralError when nothing can be said."""
    request = asked["request"]
    mistakes = "" if _same_spec(request) else (await check(request["object"])).mistakes
    response: dict[str, Any] = {"uid": request["uid"], "allowed": not mistakes}
    if mistakes:
        response["status"] = {"code": 422, "reason": "Invalid", "message": mistakes}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _same_spec(request: dict[str, Any]) -> bool:
    """A label, an annotation or a finalizer of a document that was wrong before can still be changed, and one that goes can go."""
    new, old = request.get("object") or {}, request.get("oldObject") or {}
    return bool(new.get("metadata", {}).get("deletionTimestamp")) or (bool(old) and new.get("spec") == old.get("spec"))


class Webhook:
    """Serves ``review`` over TLS as soon as the folder holds tls.crt and tls.key, and takes up new ones without a pause."""

    def __init__(self, certificates: Path, port: int, check: Check) -> None:
        self._check = check
        self._certificates = certificates
        self._port = port
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._seen: tuple[float, ...] = ()

    async def run(self) -> None:
        """Serve until cancelled."""
        application = web.Application(client_max_size=4 * 1024 * 1024)
        application.router.add_post("/validate", self._answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            while not self._load():
                await asyncio.sleep(1.0)
            await web.TCPSite(runner, port=self._port, ssl_context=self._context).start()
            log.info("documents are checked as they are written", extra={"port": self._port})
            while True:
                await asyncio.sleep(RELOAD)
                self._load()
        finally:
            await runner.cleanup()

    def _load(self) -> bool:
        """Take up the certificate where it is new; False where there is none that works yet."""
        files = self._certificates / "tls.crt", self._certificates / "tls.key"
        try:
            times = tuple(file.stat().st_mtime for file in files)
            if times != self._seen:
                # Tried first: a failure may leave a context with a certificate that does not fit its key.
                ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*files)
                self._context.load_cert_chain(*files)
                self._seen = times
        except FileNotFoundError:
            pass
        except (OSError, ssl.SSLError) as error:
            log.warning("the certificate in %s can not be read (%s); the one before stays in use", self._certificates, error)
        return bool(self._seen)

    async def _answer(self, request: web.Request) -> web.Response:
        return web.json_response(await review(await request.json(), self._check))
