#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# README.md's way to install and its first program, word for word: build,
# install into a prefix, throw the build away, compile the program with what
# pkg-config says, and run it from the prefix with no environment variable.
set -euo pipefail

source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

for tool in pkg-config meson; do
    command -v "$tool" >/dev/null || { echo "not installed: $tool"; exit 77; }
done

die() {
    echo "install: $*"
    exit 1
}

# Settings of the run around this one must not decide what is found.
unset DESTDIR PKG_CONFIG_PATH LD_LIBRARY_PATH "${!WEFT_@}" "${!MESON_@}"

if ! { meson setup "$work/build" "$source" --buildtype=release --prefix="$prefix" &&
    meson install -C "$work/build"; } >"$work/log" 2>&1; then
    cat "$work/log"
    die "meson failed"
fi
rm -rf "$work/build"

for file in bin/weft include/weft/weft.h include/weft/job.h include/weft/status.def \
    share/man/man1/weft.1; do
    [ -s "$prefix/$file" ] || die "$file is not in the prefix"
done
pc=$(find "$prefix" -name weft.pc)
[ -n "$pc" ] || die "weft.pc is not in the prefix"

# The first C program of README.md.
awk '/^```c$/ { on = 1; next } /^```$/ && on { exit } on' "$source/README.md" >"$work/hello.c"
cmp "$work/hello.c" "$source/examples/hello.c" ||
    die "README.md's program and examples/hello.c are not the same"
[ "$(wc -l <"$work/hello.c")" -le 40 ] || die "README.md's program is longer than 40 lines"

export PKG_CONFIG_PATH=${pc%/*}
# shellcheck disable=SC2046  # flags are words
cc -Wall -Wextra -Werror "$work/hello.c" -o "$work/hello" $(pkg-config --cflags --libs weft)

bare() { env -i "$@"; }
version=$(bare "$prefix/bin/weft" --version)
[[ $version == *"$(pkg-config --modversion weft)"* ]] ||
    die "weft --version says '$version', pkg-config $(pkg-config --modversion weft)"

cd "$work"
bare "$prefix/bin/weft" run -n 4 -- "$work/hello" >out || die "hello failed"
for rank in 0 1 2 3; do
    line="rank $(((rank + 1) % 4)): hello from rank $rank"
    [ "$(grep -cxF "$line" out)" -eq 1 ] || { cat out; die "'$line' is not there once"; }
done
[ "$(wc -l <out)" -eq 4 ] || { cat out; die "hello said more than 4 lines"; }
[ "$(bare "$work/hello")" = "rank 0: hello from rank 0" ] || die "hello alone failed"
