# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What users read when the document cannot even be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.modules import slurm_cluster_model

DEMO = Path(__file__).resolve().parents[4] / "examples" / "demo.yml"


def refused(**params: object) -> str:
    with pytest.raises(CorralError) as caught:
        slurm_cluster_model.backend({"path": None, "document": None, **params}, check=False, diff=False)
    return str(caught.value)


def test_no_document_is_told_with_the_variable_that_gives_it() -> None:
    assert "slurm_cluster_file" in refused()


def test_a_file_that_is_missing_or_no_text(tmp_path: Path) -> None:
    assert "No such file" in refused(path=str(tmp_path / "missing.yml"))
    binary = tmp_path / "binary.yml"
    binary.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refused(path=str(binary))


def test_a_file_without_an_end_and_one_that_is_cut_in_a_letter(tmp_path: Path) -> None:
    assert "bytes" in refused(path="/dev/zero")
    big = tmp_path / "big.yml"
    big.write_text("ä" * 800_000)
    assert "bytes" in refused(path=str(big))
    assert "no" in refused(path="a\0b")


def test_a_file_with_two_documents_or_none(tmp_path: Path) -> None:
    file = tmp_path / "some.yml"
    file.write_text(f"{DEMO.read_text()}\n---\n{DEMO.read_text()}")
    assert "holds 2 documents" in refused(path=str(file))
    file.write_text("# nothing\n")
    assert "holds 0 documents" in refused(path=str(file))


def test_a_file_and_the_document_itself_give_the_same_model() -> None:
    import yaml

    given = {"path": None, "document": yaml.safe_load(DEMO.read_text())}
    of_file = slurm_cluster_model.backend({"path": str(DEMO), "document": None}, check=False, diff=False)
    assert slurm_cluster_model.backend(given, check=True, diff=True) == of_file
