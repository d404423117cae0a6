# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lookup free_text."""

from __future__ import annotations

DOCUMENTATION = r"""
name: free_text
short_description: An extra variable of free text, whole as its user typed it
version_added: 0.1.0
description:
  - Of C(-e reason='new fans') the shell takes the quotes away, and Ansible ends the value of C(key=value) at the first space. This returns C(new fans).
  - A value that has quotes of its own, that came as YAML or JSON, or by a file, is returned as it is.
author:
  - The corral authors (@corral-hpc)
options:
  _terms:
    description: Other extra variables that may follow in the same C(-e). The text ends before them.
    type: list
    elements: str
notes:
  - Give the variable and its value as one keyword argument.
"""

EXAMPLES = r"""
- name: Say why, all of it
  ansible.builtin.debug:
    msg: "{{ lookup('corral.slurm.free_text', 'node', reason=reason) }}"
"""

RETURN = r"""
_raw:
  description: The text.
  type: list
  elements: str
"""

import re
from collections.abc import Iterable
from typing import Any

from ansible import context
from ansible.parsing.splitter import parse_kv
from ansible.plugins.lookup import LookupBase


def whole(name: str, value: str, others: Iterable[str], arguments: Iterable[str]) -> str:
    """Return what was typed for ``name`` where Ansible made ``value`` of its beginning, else ``value``."""
    end = "(?:" + "".join(rf"|\s+{re.escape(other)}=.*" for other in others) + ")"
    begin = rf"(?:^|\s){re.escape(name)}="
    for argument in reversed(tuple(arguments)):
        found = None if argument[:1] in ("@", "[", "{") else re.search(rf"{begin}(.*?)\s*{end}$", argument, re.DOTALL)
        if found and str(parse_kv(argument).get(name)) == value:
            # Of a value that is quoted as a whole, Ansible has taken the quotes away.
            quoted = re.search(rf"{begin}(['\"])(?:\\.|(?!\1).)*\1\s*{end}$", argument, re.DOTALL)
            return value if quoted else " ".join(found[1].split())
    return value


class LookupModule(LookupBase):
    """Returns an extra variable as its user typed it."""

    def run(self, terms: list[str], variables: Any = None, **kwargs: Any) -> list[str]:
        """Return the texts of the keyword arguments, in their order."""
        arguments = [str(one) for one in context.CLIARGS.get("extra_vars") or ()]
        return [whole(name, str(value), terms, arguments) for name, value in kwargs.items()]
