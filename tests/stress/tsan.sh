#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tsan.sh clean|race PROGRAM ARGS: run a program built with -fsanitize=thread; it
# must be clean, or must be reported to have a data race.
set -u
want=$1
shift
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
export TSAN_OPTIONS="halt_on_error=1 exitcode=66 ${TSAN_OPTIONS:-}"
"$@" >"$out" 2>&1
code=$?
# More random bits of mmap than the runtime knows (vm.mmap_rnd_bits): without them.
if grep -q 'unexpected memory mapping' "$out"; then
    setarch -R "$@" >"$out" 2>&1
    code=$?
fi
cat "$out"
if [ "$want" = clean ]; then
    exit "$code"
fi
if [ "$code" -eq 66 ] && grep -q 'WARNING: ThreadSanitizer: data race' "$out"; then
    echo "# found, as it must be"
    exit 0
fi
echo "the planted relaxed store was not found (exit code $code)"
exit 1
