# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The webhook's review of a document, and the loading and renewal of its certificate."""

from __future__ import annotations

import asyncio
import copy
import datetime
import socket
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from corral_operator.runs import checker
from corral_operator.serving import webhook
from corral_operator.serving.webhook import Webhook

from ...repo.repository import ROOT

DOCUMENT: dict[str, Any] = yaml.safe_load((ROOT / "examples/minimal.yml").read_text(encoding="utf-8"))


def request(document: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"request": {"uid": "7", "operation": "UPDATE" if old else "CREATE", "object": document, "oldObject": old}}


def review(asked: dict[str, Any]) -> dict[str, Any]:
    return asyncio.run(webhook.review(asked, check))


async def check(document: dict[str, Any]) -> checker.Checked:
    return checker.check(document)


def wrong() -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    document["spec"]["partitions"] = [{"name": "main", "nodeSets": ["cpus"]}]
    return document


def test_a_valid_document_is_admitted() -> None:
    answer = review(request(DOCUMENT))
    assert answer["response"] == {"uid": "7", "allowed": True}


def test_a_wrong_one_is_refused_with_the_path_and_the_runs_own_sentence() -> None:
    response = review(request(wrong()))["response"]
    assert (response["uid"], response["allowed"], response["status"]["code"]) == ("7", False, 422)
    assert "spec.partitions[0].nodeSets[0]" in response["status"]["message"]


def test_metadata_of_a_wrong_one_can_still_be_changed() -> None:
    later = wrong()
    later["metadata"]["finalizers"] = []
    assert review(request(later, wrong()))["response"]["allowed"]


def test_an_invalid_one_can_be_deleted() -> None:
    later = wrong()
    later["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert review(request(later, DOCUMENT))["response"]["allowed"]


def certificate(folder: Path, serial: int) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "webhook")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


async def serial(port: int) -> int:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    _reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(shown).serial_number


async def until(port: int, wanted: int) -> None:
    for _try in range(100):
        try:
            if await serial(port) == wanted:
                return
        except OSError:
            pass
        await asyncio.sleep(0.1)
    raise AssertionError(f"the certificate {wanted} was not served within 10 s")


def test_it_serves_when_the_certificate_comes_and_takes_up_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_port: int
) -> None:
    monkeypatch.setattr(webhook, "RELOAD", 0.05)

    async def scenario() -> None:
        task = asyncio.create_task(Webhook(tmp_path, unused_port, check).run())
        await asyncio.sleep(0.1)
        certificate(tmp_path, 1)
        await until(unused_port, 1)
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{unused_port}/validate"
            async with session.post(url, json=request(wrong()), ssl=False) as answer:
                assert (await answer.json())["response"]["allowed"] is False
        (tmp_path / "tls.crt").write_text("half of a file")
        await asyncio.sleep(0.2)
        assert await serial(unused_port) == 1
        certificate(tmp_path, 2)
        await until(unused_port, 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
