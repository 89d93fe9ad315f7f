#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A GASNet program's own makefile, with the files for make and the command that starts jobs of the
# Weft in PREFIX: one source in C and one in C++, in each mode, compiled apart and linked together.
#
#     gasnet_make.sh SOURCE PREFIX
set -euo pipefail

source=$1
prefix=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

die() {
    echo "gasnet_make: $*"
    exit 1
}

if ! command -v make >/dev/null; then
    echo "not installed: make"
    exit 77
fi

cat >"$work/Makefile" <<'TEXT'
include $(GASNET_PREFIX)/include/weft-conduit/weft-$(MODE).mak
MANUAL_DEFINES = -DGIVEN=7
MANUAL_CFLAGS = -Wall -Wextra -Werror
MANUAL_CXXFLAGS = $(MANUAL_CFLAGS)

all: table-$(MODE) both-$(MODE) fine-$(MODE).o
.c.o:
	$(GASNET_CC) $(GASNET_CPPFLAGS) $(GASNET_CFLAGS) -c -o $@ $<
.cc.o:
	$(GASNET_CXX) $(GASNET_CXXCPPFLAGS) $(GASNET_CXXFLAGS) -c -o $@ $<
table-$(MODE): table.o
	$(GASNET_LD) $(GASNET_LDFLAGS) -o $@ table.o $(GASNET_LIBS)
both-$(MODE): main.o other.o
	$(GASNET_LD) $(GASNET_LDFLAGS) -o $@ main.o other.o $(GASNET_LIBS)
# Of single variables.
fine-$(MODE).o: main.c
	$(GASNET_CC) $(GASNET_MISC_CPPFLAGS) $(GASNET_DEFINES) $(GASNET_INCLUDES) $(GASNET_OPT_CFLAGS) \
	    $(GASNET_MISC_CFLAGS) -c -o $@ main.c
	$(GASNET_CXX) $(GASNET_MISC_CXXCPPFLAGS) $(GASNET_DEFINES) $(GASNET_INCLUDES) $(GASNET_OPT_CXXFLAGS) \
	    $(GASNET_MISC_CXXFLAGS) -c -o $@ other.cc
TEXT
cp "$source/examples/gasnet_table.c" "$work/table.c"
cat >"$work/main.c" <<'TEXT'
#include <gasnet.h>
int other(int given);
int main(int argc, char **argv)
{
    gasnet_init(&argc, &argv);
    gasnet_attach(NULL, 0, 0, 0);
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    printf("node %u of %u: %d %s %s\n", gasnet_mynode(), gasnet_nodes(), other(GIVEN), argv[1], getenv("PASSED"));
    gasnet_exit(0);
}
TEXT
cat >"$work/other.cc" <<'TEXT'
#include <gasnet.h>
extern "C" int other(int given)
{
    return gasnet_AMMaxMedium() >= 512 ? given : -1;
}
TEXT

bare() { env -i PATH=/usr/bin:/bin "$@"; }
run=$prefix/bin/gasnetrun_weft
cd "$work"
for mode in seq par parsync; do
    rm -f ./*.o
    if ! bare make GASNET_PREFIX="$prefix" MODE=$mode >log 2>&1; then
        cat log
        die "make (weft-$mode.mak) failed"
    fi
    bare "$run" -n 2 "$work/table-$mode" 1000 >out || die "gasnet_table ($mode) failed"
    grep -q '^2 nodes counted 1000 keys 6 times each: .*: all right$' out ||
        { cat out; die "gasnet_table ($mode) said something else"; }
    bare PASSED=on "$run" -np 2 -N 1 -E PASSED -- "$work/both-$mode" 'a  b' >out || die "both ($mode) failed"
    printf 'node %d of 2: 7 a  b on\n' 0 1 | cmp - <(sort out) || { cat out; die "both ($mode) said something else"; }
done
grep -q -- '-pthread' <(bare make -n -W table.c GASNET_PREFIX="$prefix" MODE=par) || die "par has no -pthread"
! grep -q -- '-pthread' <(bare make -n -W table.c GASNET_PREFIX="$prefix" MODE=seq) || die "seq has -pthread"

# The folder that looks like an installation of GASNet: it is enough alone.
root=$(dirname "$(find "$prefix" -name libweft-gasnet.so)")/gasnet-weft
for file in include/gasnet_config.h include/weft-conduit/weft-par.mak include/weft-conduit/gasnet_core.h; do
    [ -f "$root/$file" ] || die "$root/$file is missing"
done
grep -q 'define GASNET_RELEASE_VERSION_MINOR 32' "$root/include/gasnet_config.h" || die "gasnet_config.h has no release"
for mode in seq par; do
    cc -Wall -Wextra -Werror "-DGASNET_${mode^^}" -I"$root/include" -I"$root/include/weft-conduit" "$work/table.c" \
        -o "$work/rooted" -pthread -L"$root/lib" "-lgasnet-weft-$mode" "-Wl,-rpath,$root/.."
    bare "$root/bin/gasnetrun_weft" -n 2 "$work/rooted" 1000 >out || die "gasnet_table of $root ($mode) failed"
done

# Another launcher, which prints what it was given.
cat >launcher <<'TEXT'
#!/bin/sh
printf '<%s>' "$@"
TEXT
chmod +x launcher
launched() { # COMMAND WANTED ARGUMENTS...: what COMMAND starts
    local command=$1 wanted=$2
    shift 2
    bare PMIRUN_CMD="$command" "$run" "$@" >out 2>err || { cat out err; die "PMIRUN_CMD=$command failed"; }
    printf '%s' "$wanted" | cmp - out || { cat out; die "PMIRUN_CMD=$command started something else"; }
}
launched "$work/launcher -K0 %V -n %N %C" '<-K0><-n><3><prog><a  b><*>' -n 3 prog 'a  b' '*'
launched "$work/launcher -K0 %V -n %N %C" '<-K0><-v><-n><3><prog>' -n 3 -v prog
launched "$work/launcher --n=%N:%M -N %M %P -- %A" '<--n=4:2><-N><2><prog><--><x><$>' -n 4 -N 2 prog x '$'
launched "$work/launcher 100%% %D * %P" "<100%><$work><*><prog>" -n 1 prog x
for wrong in "$work/launcher -n %N" "$work/launcher %Q %C" "$work/launcher -N %M %C" "$work/launcher --prog=%C"; do
    code=0
    bare PMIRUN_CMD="$wrong" "$run" -n 2 prog >out 2>&1 || code=$?
    [ "$code" -eq 2 ] || { cat out; die "PMIRUN_CMD=$wrong: code $code"; }
done

# The other options of the command, and what it refuses.
bare "$run" -n1 -v -spawner=pmi "$work/table-seq" 10 >out 2>&1 || die "gasnetrun_weft -v failed"
grep -q "^gasnetrun_weft: $prefix/bin/weft run -n 1 -- $work/table-seq 10\$" out ||
    { cat out; die "-v does not say it"; }
grep -q '^ENV parameter: ' out || { cat out; die "-v does not say the variables"; }
bare "$run" -n 2 -t /nowhere 2>out || die "gasnetrun_weft -t started something"
grep -q 'run -n 2 -- /nowhere$' out || { cat out; die "-t does not say it"; }
bare GASNET_TMPDIR="$work" "$run" -n 1 -- sh -c '[ "$TMPDIR" = "$GASNET_TMPDIR" ] && exit 6' 2>out && code=0 || code=$?
[ "$code" -eq 6 ] || die "GASNET_TMPDIR does not set TMPDIR: code $code"
code=0
bare "$run" -n 3 -- sh -c 'exit 5' 2>out || code=$?
[ "$code" -eq 5 ] || die "gasnetrun_weft ends with code $code, not the program's"
for wrong in '' '-n 2' '-n two prog' '-n 0 prog' '-n -- prog' '-n 2 -N 2 prog' '-n 2 -x prog'; do
    code=0
    # shellcheck disable=SC2086  # words
    bare "$run" $wrong >out 2>&1 || code=$?
    [ "$code" -eq 2 ] || { cat out; die "gasnetrun_weft $wrong: code $code"; }
done
