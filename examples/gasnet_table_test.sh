#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The hash table over shared memory and TCP, or the transports
# named, counts right, and reports it; a wrong argument is refused.
#
# usage: gasnet_table_test.sh WEFT GASNET_TABLE [TRANSPORTS]
set -euo pipefail
weft=$1
table=$2

for transports in ${3:-loop,shm,tcp tcp}; do
    for n in 1 2 5; do
        WEFT_TRANSPORTS=$transports "$weft" run -n "$n" -- "$table" 3000 | grep -q \
            "^$n nodes counted 3000 keys $((3 * n)) times each: .*: all right\$" ||
            { echo "wrong over $transports with $n nodes"; exit 1; }
    done
done
if output=$("$weft" run -n 2 -- "$table" many 2>&1); then
    echo "a wrong argument was taken"
    exit 1
fi
grep -q '^usage: gasnet_table' <<<"$output" || { echo "no usage: $output"; exit 1; }
