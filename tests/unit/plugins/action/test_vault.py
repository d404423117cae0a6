# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A document may be vaulted, whole or in part, as other files of Ansible may; and what is no document yet says so."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[4]


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_a_vaulted_document(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    play = tmp_path / "play.yml"
    tasks = [
        {"corral.slurm.slurm_cluster_model": {"path": "{{ item }}"}, "register": "corral", "loop": "{{ files }}", "ignore_errors": True},
        {"ansible.builtin.debug": {"msg": "{{ corral.results | map(attribute='name', default='none') | join('+') }}"}},
    ]
    play.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    minimal = (ROOT / "examples" / "minimal.yml").read_text()
    whole, part, bad = (tmp_path / f"{name}.yml" for name in ("whole", "part", "bad"))
    whole.write_text(minimal)
    bad.write_text("a: [\n")
    document = yaml.safe_load(minimal)
    name, user = document["metadata"]["name"], document["spec"]["users"][0]
    secrets = {"NAME": name, "KEY": user["sshKeys"][0]}
    document["metadata"]["name"], user["sshKeys"] = "NAME", ["KEY"]
    lines = yaml.safe_dump(document, sort_keys=False)
    for place, value in secrets.items():
        vaulted = run("ansible-vault", "encrypt_string", "--vault-password-file", password, value).split("!vault |\n", 1)[1]
        secret = textwrap.dedent(vaulted.partition("\nEnc")[0])
        lines = lines.replace(place, "!vault |\n" + textwrap.indent(secret, " " * 8))
    part.write_text(lines)
    for file in (whole, bad):
        run("ansible-vault", "encrypt", "--vault-password-file", password, file)
    variables = yaml.safe_dump({"files": [str(whole), str(part), str(bad)]}, default_flow_style=True, width=10000).strip()
    out = run("ansible-playbook", play, "-e", variables, "--vault-password-file", password)
    assert f"{name}+{name}+none" in out, out
    assert f"The document {bad} is not YAML" in out
    without = run("ansible-playbook", play, "-e", variables)
    assert "vault" in without
    assert "none+none+none" in without, without


TAGGED = "# key: !vault |\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("  maintenance: 10:00:00", "10:00:00"),
        ("  nodeSets: []", "has the key 'nodeSets' a second time"),
        ("  x: " + "[" * 100_000, "has more than 50 levels"),
        ("  x: !vault |\n    no secret", "has a value with the tag !vault that ansible-vault did not make"),
    ],
)
def test_the_tag_of_vaulted_values_takes_no_bound_away(tmp_path: Path, line: str, words: str) -> None:
    """Ansible's own reader takes 10:00:00 for 36000, the last of two equal keys, and as many levels as end the process."""
    document = tmp_path / "document.yml"
    document.write_text(TAGGED + (ROOT / "examples" / "minimal.yml").read_text().rstrip() + "\n" + line + "\n")
    out = run("ansible-playbook", "corral.slurm.site", "--check", "-e", f"slurm_cluster_file={document}")
    assert words in " ".join(out.split()), out


@pytest.mark.parametrize("vaulted", [False, True])
def test_a_document_from_a_pipe(tmp_path: Path, vaulted: bool) -> None:
    """-e slurm_cluster_file=<(sops -d my.yml): what can be read once only."""
    password, play, document = (tmp_path / name for name in ("password", "play.yml", "document.yml"))
    password.write_text("secret\n")
    document.write_text((ROOT / "examples" / "minimal.yml").read_text())
    if vaulted:
        run("ansible-vault", "encrypt", "--vault-password-file", password, document)
    tasks = [
        {"corral.slurm.slurm_cluster_model": {"path": "{{ slurm_cluster_file }}"}, "register": "corral"},
        {"ansible.builtin.debug": {"msg": "the name is {{ corral.name }}."}},
    ]
    play.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    name = yaml.safe_load((ROOT / "examples" / "minimal.yml").read_text())["metadata"]["name"]
    script = 'exec ansible-playbook "$1" --vault-password-file "$2" -e slurm_cluster_file=<(cat "$3")'
    out = run("bash", "-c", script, "bash", play, password, document)
    assert f"the name is {name}." in out, out


def test_a_run_that_begins_in_its_middle_says_what_it_lacks() -> None:
    """--start-at-task leaves out every task before, also the one that reads the document, and nothing can be computed without it."""
    document = f"slurm_cluster_file={ROOT}/examples/minimal.yml"
    out = run("ansible-playbook", "corral.slurm.site", "--check", "-e", document, "--start-at-task", "Apply the login*")
    assert "has not read the document, since --start-at-task leaves that out" in out, out
    assert "--tags slurm_login" in out
    out = run("ansible-playbook", "corral.slurm.destroy", "--check", "-e", document, "--start-at-task", "Delete the claims*")
    assert "has not read the document, since --start-at-task leaves that out" in out, out
