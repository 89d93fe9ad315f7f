#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# README.md's way to install and its first program, word for word: build,
# install into a prefix, throw the build away, compile the program with what
# pkg-config says, and run it from the prefix with no environment variable. Then
# the same with CMake, from a prefix that was moved.
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

# README.md's two commands; between them one processor does the work, as another test has the other.
if ! { meson setup "$work/build" "$source" --buildtype=release --prefix="$prefix" &&
    ninja -C "$work/build" -j 1 && meson install -C "$work/build"; } >"$work/log" 2>&1; then
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
# What the library itself was built with is not a program's concern.
flags=$(pkg-config --cflags weft)
[ "${flags% }" = "-I$prefix/include" ] || die "pkg-config --cflags weft says '$flags'"
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

# The example of the GASNet binding, by pkg-config alone, in each of its modes; and as C++.
for mode in seq par parsync; do
    # shellcheck disable=SC2046  # flags are words
    cc -Wall -Wextra -Werror $(pkg-config --cflags "weft-gasnet-$mode") "$source/examples/gasnet_table.c" \
        -o "$work/table-$mode" $(pkg-config --libs "weft-gasnet-$mode")
    bare "$prefix/bin/weft" run -n 3 -- "$work/table-$mode" 2000 >out || die "gasnet_table ($mode) failed"
    grep -q '^3 nodes counted 2000 keys 9 times each: .*: all right$' out ||
        { cat out; die "gasnet_table ($mode) said something else"; }
done
bare GASNET_PSHM_NODES=2 "$work/table-seq" 1000 >out || die "gasnet_table did not start two nodes"
grep -q '^2 nodes counted 1000 keys 6 times' out || { cat out; die "GASNET_PSHM_NODES=2 is not 2 nodes"; }
printf '%s\n' '#include <gasnet.h>' '#include <gasnet_tools.h>' \
    'int main(int argc, char **argv) { gasnet_init(&argc, &argv); gasnet_attach(0, 0, 0, 0);' \
    'gasnet_exit((int)gasnet_nodes() - 1); }' >"$work/one.cc"
# shellcheck disable=SC2046  # flags are words
c++ -Wall -Wextra -Werror $(pkg-config --cflags weft-gasnet-par) "$work/one.cc" -o "$work/one" \
    $(pkg-config --libs weft-gasnet-par)
bare "$work/one" || die "a GASNet program in C++ failed"

code=0
bash "$source/tests/install/gasnet_make.sh" "$source" "$prefix" || code=$?
[ "$code" -eq 0 ] || [ "$code" -eq 77 ] || die "GASNet programs' makefiles failed"

if ! command -v cmake >/dev/null; then
    echo "not installed: cmake (find_package was not tried)"
    exit 0
fi
mv "$prefix" "$work/moved"
prefix=$work/moved
mkdir "$work/program"
mv "$work/hello.c" "$work/program/"

# README.md's lists file.
awk '/^```cmake$/ { on = 1; next } /^```$/ && on { exit } on' "$source/README.md" \
    >"$work/program/CMakeLists.txt"
[ -s "$work/program/CMakeLists.txt" ] || die "README.md has no \`\`\`cmake block"
version=$(sed -n 's/^set(PACKAGE_VERSION "\(.*\)")$/\1/p' \
    "$(find "$prefix" -name weftConfigVersion.cmake)")

configure() { # BUILD-DIRECTORY: with what is installed
    cmake -S "$work/program" -B "$work/$1" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1
}
if ! { configure cmake && cmake --build "$work/cmake"; } >"$work/log.build" 2>&1; then
    cat "$work/log" "$work/log.build"
    die "cmake failed"
fi
bare "$prefix/bin/weft" run -n 2 -- "$work/cmake/hello" | sort >out
printf 'rank %s\n' '0: hello from rank 1' '1: hello from rank 0' | cmp - out ||
    die "hello, built with cmake, said something else"

# Which versions are found: before 1.0 those of the same minor version.
minor=${version%.*}
for wanted in "$version" "$version EXACT" "$minor" "${version%%.*}" "$minor...<$minor.99"; do
    sed -i "s/find_package(weft[^)]*)/find_package(weft $wanted REQUIRED)/" "$work/program/CMakeLists.txt"
    configure "find-$minor" || { cat "$work/log"; die "find_package(weft $wanted) fails"; }
done
for wanted in "${version%.*}.99" "${version%%.*}.99" 99 "99...<100"; do
    sed -i "s/find_package(weft[^)]*)/find_package(weft $wanted REQUIRED)/" "$work/program/CMakeLists.txt"
    ! configure "find-$minor" || die "find_package(weft $wanted) finds $version"
done
