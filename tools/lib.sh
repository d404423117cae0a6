# shellcheck shell=bash
# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Sourced by the programs beside it: where things are, the Python environment, and how a step of a check is shown.
# All that is made here lives under $CORRAL_CACHE, outside the checkout.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
export CORRAL_CACHE=${CORRAL_CACHE:-$HOME/.cache/corral}
# Two checkouts on one machine share virtual environments and never each other's trees.
CHECKOUT=$(printf %s "$ROOT" | sha256sum | cut -c1-12)
TREE=$CORRAL_CACHE/tree-$CHECKOUT
COLLECTION=$TREE/ansible_collections/corral/slurm

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# Whether a program is a Python that works, has what a virtual environment needs, and is of one of the versions given as "3.11 3.12".
# A pyenv shim is a program, too, that may stand for no Python at all.
python_is() {
  "$1" -c '
import ensurepip, ssl, sys, venv
sys.exit("%d.%d" % sys.version_info[:2] not in sys.argv[1].split())' "$2" </dev/null >/dev/null 2>&1
}

# The real path of the first usable Python of the wanted versions: $CORRAL_PYTHON, then PATH, then pyenv's own folder.
find_python() {
  local wanted=$1 version candidate
  local -a candidates=(${CORRAL_PYTHON:+"$CORRAL_PYTHON"} python3)
  for version in $wanted; do
    candidates+=("python$version" "/usr/local/bin/python$version" "/usr/bin/python$version")
    for candidate in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python3; do
      candidates+=("$candidate")
    done
  done
  for candidate in "${candidates[@]}"; do
    if command -v "$candidate" >/dev/null 2>&1 && python_is "$candidate" "$wanted"; then
      "$candidate" -c 'import os, sys; print(os.path.realpath(sys.executable))'
      return
    fi
  done
  return 1
}

# The checkout under the name by which Ansible and Python know it.
make_tree() {
  if [ "$(readlink "$COLLECTION" 2>/dev/null)" != "$ROOT" ]; then
    mkdir -p "$(dirname "$COLLECTION")"
    ln -sfn "$ROOT" "$COLLECTION"
  fi
}

# environment KIND FILE PYTHON: a virtual environment with what FILE pins, as $VENV. Its name holds the hash of that file and of the Python, so that it is
# made anew by itself; the marker is written last, so that one that was interrupted is not taken for whole; the lock lets a second make wait for the first.
environment() {
  local kind=$1 file=$2 python=$3 version
  version=$("$python" -c 'import sys; print(sys.version)')
  VENV=$CORRAL_CACHE/$kind-$({ cat "$file"; printf '%s %s' "$python" "$version"; } | sha256sum | cut -c1-12)
  [ -e "$VENV/.complete" ] && return
  mkdir -p "$CORRAL_CACHE"
  (
    flock 9
    [ -e "$VENV/.complete" ] && exit
    printf 'Making the Python environment %s (%s), once.\n' "$VENV" "${version%% *}" >&2
    rm -rf "$VENV"
    "$python" -m venv "$VENV"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -r "$file" >&2
    touch "$VENV/.complete"
  ) 9>"$VENV.lock" || die "the Python packages of $file could not be installed into $VENV (pip's reason is above); run the same command again when the package index answers."
}

# The one of the tests.
make_venv() {
  local python
  python=$(find_python "3.11 3.12 3.13") ||
    die "no Python 3.11, 3.12 or 3.13 with venv and ssl was found in PATH; install one (Debian: apt install python3-venv) or set CORRAL_PYTHON to its path."
  environment venv "$ROOT/requirements.txt" "$python"
}

# The environment in which every other program of this repository runs.
enter() {
  make_tree
  make_venv
  export PATH=$VENV/bin:$PATH VIRTUAL_ENV=$VENV
  export PYTHONPATH=$TREE:$ROOT/operator ANSIBLE_COLLECTIONS_PATH=$TREE
  # Caches of the checkers stay out of the checkout.
  export RUFF_CACHE_DIR=$CORRAL_CACHE/ruff HYPOTHESIS_STORAGE_DIRECTORY=$CORRAL_CACHE/hypothesis MYPY_CACHE_DIR=$CORRAL_CACHE/mypy-$CHECKOUT
}

# The lab's cluster and nobody else's, whatever the caller's environment names.
enter_lab() {
  local name
  for name in ${!K8S_AUTH_@}; do unset "$name"; done
  export CORRAL_LAB_DIR=${CORRAL_LAB_DIR:-/var/lib/corral-lab}
  export KUBECONFIG=$CORRAL_LAB_DIR/kubeconfig KUBECTL=$ROOT/lab/kubectl
}

# What git would take into the repository: tracked files that exist and new ones that are not ignored, NUL-separated.
# With arguments (git's pathspecs), only what they match.
# shellcheck disable=SC2120
repository_files() {
  git -C "$ROOT" ls-files -z --cached --others --exclude-standard -- "$@" |
    (cd "$ROOT" && while IFS= read -r -d '' file; do if [ -e "$file" ] || [ -L "$file" ]; then printf '%s\0' "$file"; fi; done)
}

# step NAME COMMAND…: run a check, print one line about it, and its output only when it failed. The failed ones are collected in $FAILED.
FAILED=()
step() {
  local name=$1 output started=$EPOCHREALTIME seconds status=0
  shift
  output=$("$@" 2>&1 </dev/null) || status=$?
  seconds=$(awk -v a="$started" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.1f", b - a}')
  if [ "$status" = 0 ]; then
    printf 'ok      %-28s %6s s\n' "$name" "$seconds"
  else
    FAILED+=("$name")
    printf 'FAILED  %-28s %6s s\n%s\n\n' "$name" "$seconds" "$output"
  fi
}

finish_steps() {
  [ ${#FAILED[@]} = 0 ] && return
  printf '%d failed: %s\n' "${#FAILED[@]}" "${FAILED[*]}" >&2
  exit 1
}
