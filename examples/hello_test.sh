#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# hello prints one line per rank: under weft run, alone, and
# under Open MPI's mpirun.
#
# usage: hello_test.sh WEFT HELLO
set -euo pipefail
weft=$1
hello=$2

expect() { # RANKS OUTPUT
    local rank want
    want=$(for ((rank = 0; rank < $1; rank++)); do
        echo "rank $(((rank + 1) % $1)): hello from rank $rank"
    done | sort)
    [ "$(sort <<<"$2")" = "$want" ] && return
    printf 'on %d ranks it said:\n%s\n' "$1" "$2"
    exit 1
}

for ranks in 1 2 4 7; do
    expect "$ranks" "$("$weft" run -n "$ranks" -- "$hello")"
done
expect 1 "$("$hello")"

if [[ $(mpirun --version 2>&1) != *"Open MPI"* ]]; then
    echo "not installed: Open MPI's mpirun"
    exit 77
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for ranks in 1 4; do
    expect "$ranks" "$(mpirun --oversubscribe -n "$ranks" "$hello")"
done
