#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# scripts/commit-msg takes and refuses messages as CONTRIBUTING.md says; the argument is the tree.
set -euo pipefail

tree=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org \
    GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
git init -q .
git commit -q --allow-empty -m "none: begin"
seq 20 >long
seq 3 >short

expect() { # CODE FILE MESSAGE...
    local code=$1 got=0
    git reset -q
    git add "$2"
    shift 2
    printf '%s\n' "$@" >message
    "$tree/scripts/commit-msg" message 2>said || got=$?
    [ "$got" -eq "$code" ] || { echo "code $got, not $code: $*"; cat said; exit 1; }
}

expect 0 long "shm: lend drained rings" "" "Why it does so."
expect 0 long "core, net/tcp: mend both" "" "Why."
expect 0 short "shm: mend a comment"
expect 0 long "scripts: need less" "" "Why." "" "Signed-off-by: A <a@example.org>"
expect 1 long "shm: lend drained rings"
expect 1 long "shm: lend drained rings" "" "Signed-off-by: A <a@example.org>"
expect 1 short "lend drained rings"
expect 1 short "shm: Lend drained rings"
expect 1 short "shm: the rings are lent"
expect 1 short "shm: lending of rings"
expect 1 short "shm: changed rings"
expect 1 short "shm: lend drained rings."
expect 1 short "shm: lend drained rings" "without an empty line"
expect 1 short "shm: $(printf 'x%.0s' {1..80})"
expect 1 short "fixup! shm: lend drained rings"

git reset -q
git add long
git commit -qm "shm: the second commit"
code=0
"$tree/scripts/commit-msg" --since HEAD~1 2>said || code=$?
[ "$code" -eq 1 ] && grep -q '"the" is no imperative' said || { cat said; exit 1; }
"$tree/scripts/commit-msg" --since HEAD
