# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory of Slurm clusters."""

from __future__ import annotations

DOCUMENTATION = r"""
name: slurm
short_description: Slurm nodes, login nodes and controllers of clusters on Kubernetes
version_added: 0.1.0
description:
  - Lists the pods of clusters that this collection made, and asks each slurmctld for its nodes. That is one request and one command for each cluster.
  - Hosts have the names of their pods, C(<cluster>-<node>) and C(<cluster>-login-0) for example. A node of Slurm's is a host whether it has a pod now or not.
  - Tasks run in the pods by the connection P(corral.slurm.pod#connection), which needs neither C(ssh) nor C(kubectl).
  - The groups are C(slurm_workers), C(slurm_logins), C(slurm_controllers), C(slurm_accounting) and C(slurm_rest), and for workers
    C(slurm_node_set_<set>), C(slurm_partition_<partition>), C(slurm_state_<state>) and C(slurm_feature_<feature>). All hosts of a cluster are in
    C(slurm_cluster_<cluster>), with O(suffix) behind it. In their names, C(_) replaces what no group's name may have.
  - Variables of all hosts are C(slurm_name) (of the cluster), C(slurm_namespace) and C(slurm_component).
  - Variables of workers are C(slurm_node), C(slurm_node_set), C(slurm_state), C(slurm_in_service), C(slurm_reason), C(slurm_partitions),
    C(slurm_features), C(slurm_cpus), C(slurm_real_memory) (MiB) and C(slurm_gres). The others have C(slurm_kubernetes_node).
  - The file's name must end with C(slurm.yml) or C(slurm.yaml).
author:
  - The corral authors (@corral-hpc)
extends_documentation_fragment:
  - corral.slurm.kubernetes.plugin
  - constructed
  - inventory_cache
requirements:
  - websocket-client
options:
  plugin:
    description:
      - This plugin's name.
    type: str
    required: true
    choices:
      - corral.slurm.slurm
  namespaces:
    description:
      - Namespaces of clusters.
      - When it is not set, that of the kubeconfig's context is searched first, then all namespaces that may be read.
    type: list
    elements: str
  clusters:
    description:
      - Names of the clusters. When it is not set, all that are found.
    type: list
    elements: str
  jail:
    description:
      - Whether tasks on workers run in the jail, as root without the capabilities that lead out of it, or in the container of slurmd.
    type: bool
    default: false
  suffix:
    description:
      - Text at the end of the hosts' names. With several sources, it keeps clusters of the same name apart.
    type: str
    default: ""
  sources:
    description:
      - Several Kubernetes clusters, or several choices in one. Each entry may have the connection options, O(namespaces), O(clusters), O(jail) and O(suffix);
        what it does not have is taken from the file.
    type: list
    elements: dict
  strict:
    description:
      - If V(true), a slurmctld that cannot be asked is an error, too. Otherwise it is a warning, and the cluster's workers are missing.
notes:
  - What cannot be read ends the inventory with an error. By default Ansible continues without an inventory then;
    E(ANSIBLE_INVENTORY_UNPARSED_FAILED) and E(ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED) change that.
  - The options of the connection become variables of the cluster's group, but for O(api_key), which nobody should print. Hosts need E(K8S_AUTH_API_KEY) then,
    or C(ansible_pod_api_key).
"""

EXAMPLES = r"""
---
# lab.slurm.yml: all clusters of the kubeconfig's namespace
plugin: corral.slurm.slurm
---
# Two Kubernetes clusters; nodes with GPUs that Slurm has taken out of service are a group
plugin: corral.slurm.slurm
sources:
  - {context: east, namespaces: [slurm], suffix: .east}
  - {context: west, namespaces: [slurm, test], suffix: .west}
groups:
  broken_gpus: slurm_component == 'worker' and slurm_gres and not slurm_in_service
compose:
  ansible_pod_jail: slurm_component == 'worker'
keyed_groups:
  - {key: slurm_kubernetes_node, prefix: kubernetes_node}
---
# Asked for again after ten minutes
plugin: corral.slurm.slurm
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: ~/.cache/slurm-inventory
cache_timeout: 600
"""

import hashlib
import typing as t

from ansible import constants as C
from ansible.errors import AnsibleParserError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.text import as_json
from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.inventory import read
from ansible_collections.corral.slurm.plugins.plugin_utils._action import plain

# What is in the cache changes with this.
_FORM = 1


def source_options() -> dict[str, t.Any]:
    """Return the options of one source, which the file may have, too."""
    return {
        **connection_options(),
        "namespaces": {"type": "list", "elements": "str"},
        "clusters": {"type": "list", "elements": "str"},
        "jail": {"type": "bool", "default": False},
        "suffix": {"type": "str", "default": ""},
    }


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """Reads the clusters, or the cache, and fills the inventory."""

    NAME = "corral.slurm.slurm"

    def verify_file(self, path: str) -> bool:
        """Take files by their names."""
        return path.endswith(("slurm.yml", "slurm.yaml")) and bool(super().verify_file(path))

    def parse(self, inventory: t.Any, loader: t.Any, path: str, cache: bool = True) -> None:
        """Ansible's entry."""
        super().parse(inventory, loader, path, cache)
        config = self._read_config_data(path)
        try:
            found = self._found(self._sources(config), path, cache)
        except CorralError as error:
            raise AnsibleParserError(f"{path}: {error}") from None  # Ansible would print the cause behind it
        for warning in found["warnings"]:
            self.display.warning(warning)
        self._fill(found)

    def _sources(self, config: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
        """Return the sources with all of their options. Raises CorralError for what is none."""
        known = C.config.get_configuration_definitions(plugin_type="inventory", name=self._load_name)
        unknown = sorted(str(name) for name in config if name not in known)
        if unknown:
            raise CorralError(f"The inventory source has no option {unknown[0]!r}; it has {', '.join(sorted(known))}.")
        names = source_options()
        whole = {name: self.get_option(name) for name in names if self.get_option(name) is not None}
        given = self.get_option("sources") or [{}]
        sources = []
        for number, one in enumerate(given):
            if not isinstance(one, t.Mapping):
                raise CorralError(f"sources[{number}] of the inventory source is no mapping; write it as {{context: …, namespaces: […]}}.")
            merged = {name: plain(self.templar.template(value)) for name, value in {**whole, **one}.items()}
            checked = ArgumentSpecValidator(names).validate(merged)
            if checked.error_messages:
                where = f"sources[{number}]" if one else "The inventory source"
                raise CorralError(f"{where} is not valid: {checked.error_messages[0].rstrip('.')}; correct it.")
            sources.append(checked.validated_parameters)
        return sources

    def _found(self, sources: list[dict[str, t.Any]], path: str, cache: bool) -> dict[str, t.Any]:
        """Return what the cache has of these sources, else what the clusters have. What is not whole is not kept."""
        strict = bool(self.get_option("strict"))
        if not self.get_option("cache"):
            return read(sources, strict=strict)
        options = as_json([_FORM, [{**source, "api_key": None} for source in sources]])
        key = f"{self.get_cache_key(path)}_{hashlib.sha256(options.encode()).hexdigest()[:16]}"
        if cache:
            try:
                return dict(self._cache[key])
            except KeyError:
                pass  # it is too old, or has never been there
        found = read(sources, strict=strict)
        if not found["warnings"]:
            self._cache[key] = found
        return found

    def _fill(self, found: dict[str, t.Any]) -> None:
        """Put hosts and groups into the inventory, then what the user makes of them."""
        strict, inventory = bool(self.get_option("strict")), self.inventory
        compose, groups, keyed = (self.get_option(name) for name in ("compose", "groups", "keyed_groups"))
        for name in sorted({group for host in found["hosts"] for group in host["groups"]} | set(found["parents"].values())):
            inventory.add_group(name)
        for child, parent in found["parents"].items():
            inventory.add_child(parent, child)
        for group, variables in found["variables"].items():
            for variable, value in variables.items():
                inventory.set_variable(group, variable, value)
        for host in found["hosts"]:
            name = host["name"]
            inventory.add_host(name)
            for variable, value in host["variables"].items():
                inventory.set_variable(name, variable, value)
            variables = {**found["variables"][host["groups"][0]], **host["variables"]}
            for group in host["groups"]:
                inventory.add_child(group, name)
            if compose:
                self._set_composite_vars(compose, variables, name, strict=strict)
            if groups:
                self._add_host_to_composed_groups(groups, variables, name, strict=strict)
            if keyed:
                self._add_host_to_keyed_groups(keyed, variables, name, strict=strict)
