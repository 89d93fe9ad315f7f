#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Check the models: each must hold, and each planted bug must be found.
#
#   run.sh          what CI runs: under a minute of processor time
#   run.sh full     the large configurations instead: minutes, up to 6 GiB
#   run.sh trail MODEL DEFINES...   the schedule that breaks it, step by step
#
# Exit 0: all as expected. 1: not. 77: spin or a compiler is missing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mode=${1:-quick}

for tool in spin gcc; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "SKIP: $tool is missing (Debian: apt-get install $tool)"
        exit 77
    fi
done

# One row: holds|found, model, defines. A planted bug, or a small model, is compiled without
# optimisation: it is found within a second, most of which is the compiler's.
rows_quick() {
    cat <<'ROWS'
holds ring WEAK=1 MSGS=4
holds ring WEAK=1 DIE=1 LEN=1 MSGS=4
holds ring WEAK=1 DIE=1 LEN=0 MSGS=10
holds ring WEAK=1 CHANGE=1 LEN=1 MSGS=4
found ring WITNESS=1 WEAK=1 DIE=1
found ring BUG=SEQ_FIRST
found ring BUG=HEAD_EARLY
found ring BUG=REUSE_EARLY
found ring BUG=SEQ_FLAG
found ring BUG=REPLY_FREES
found ring BUG=SEQ_RELAXED WEAK=1 LEN=1
found ring BUG=RSEQ_RELAXED WEAK=1 LEN=1
found ring BUG=SEQ_NO_ACQUIRE
found ring BUG=RSEQ_NO_ACQUIRE
found ring BUG=RSEQ_FIRST
found ring BUG=STALE_REPLY LEN=0 MSGS=10
found ring BUG=CLEAR_LATE LEN=0 MSGS=10
found ring BUG=HEAD_LAZY
found ring BUG=NO_HIDDEN
found ring BUG=OVERRUN
found ring BUG=AREA_SMALL
found ring BUG=TAIL_UNREAD DIE=1 LEN=0
found ring BUG=HEAD_RELAXED WEAK=1 CHANGE=1 LEN=1
holds arm NM1=1
holds arm MB=0 NM1=1
holds arm LATE=1 NM1=0
holds arm LATE=1 MB=0 NM1=0
holds arm DIE=1 NM0=1 NM1=1
holds arm ATTACH=1 NM1=0
found arm WITNESS=1 NM1=0
found arm BUG=NO_BARRIER NM1=0
found arm BUG=NO_BARRIER MB=0 NM1=0
found arm BUG=NO_SENDER_FENCE MB=0 NM1=0
found arm BUG=RECHECK_FIRST NM1=0
found arm BUG=DRAIN_ODD NM1=0
found arm BUG=DRAIN_BARRIER NM1=0
found arm BUG=DRAIN_LAST NM1=0
found arm BUG=SEEN_BOOL NM1=0
found arm BUG=NO_FIRST_WRITE LATE=1 NM1=0
found arm BUG=WRITE_FIRST LATE=1 NM1=0
found arm BUG=CLOSED_NO_WRITE LATE=1 NM1=0
found arm BUG=FENCE_UNASKED LATE=1 MB=0 NM1=0
found arm BUG=SAME_EPOCH_WAKE NM1=0
found arm BUG=SAME_EPOCH_ARM NM1=0
found arm BUG=NO_DEATH_WRITE DIE=1 NM0=1 NM1=1
found arm BUG=NO_ATTACH_WRITE ATTACH=1 NM1=0
found arm BUG=BARRIER_FIRST NM1=0
found arm BUG=UNREGISTERED NM1=0
found arm BUG=FD_FIRST LATE=1 NM1=0
found arm BUG=ARM_TWICE NM1=0
found arm SYSNF=1 LATE=1 NM1=0
holds arm COLD=1 NM1=0
holds arm COLD=1 SHARED=1 NM0=1 NM1=1
holds arm COLD=1 MB=0 NM1=0
found arm BUG=COOL_NO_BARRIER COLD=1 NM1=0
found arm BUG=COOL_NO_LOOK COLD=1 NM1=0
found arm BUG=BELL_STAYS COLD=1 NM1=0
found arm BUG=BELL_LAST COLD=1 NM1=0
found arm BUG=BELL_ALONE COLD=1 NM1=0
found arm BUG=ARM_DEAF COLD=1 NM1=0
found arm BUG=NO_FIRST_BELL COLD=1 LATE=1 NM1=0
found arm BUG=CHILL_EARLY COLD=1 NM1=1
found arm BUG=SEEN_BOOL COLD=1 NM1=0
holds lend ORDER=0
holds lend ORDER=1
holds lend ORDER=2
holds lend RINGS=2 E=4 SENDERS=1
holds lend STREAM=1
holds lend STREAM=1 PARTS=1
found lend WITNESS=1
found lend WITNESS=1 STREAM=1
found lend BUG=OFFER_KEEPS
found lend BUG=OFFER_KEEPS RINGS=2 E=4 SENDERS=2 ORDER=1
found lend BUG=UNANSWERED
found lend BUG=DONE_WAITS
found lend BUG=NO_RECLAIM STREAM=1
found lend WITNESS=1 STREAM=1 PARTS=1
found lend BUG=LENT_PART STREAM=1 PARTS=1
found lend BUG=HELD_PART STREAM=1 PARTS=1
holds left BUG=0
found left WITNESS=1
found left BUG=WORD_LAST
found left BUG=NO_LOOK
found left BUG=NO_RETRY
found left BUG=HEED_SENDS
found left BUG=HELLO_LATE
found left BUG=CLEAR_LATE
holds epochs BUG=0
holds epochs ACCESSES=2 FLUSHES=2
found epochs WITNESS=1
found epochs BUG=NO_LOOK
found epochs BUG=NO_EMPTY
holds node STOP=1
holds node LATE=1 SAME=1
holds node LATE=1 N1=0 DIES=2
holds node LIVE=1 AFULL=1 EVICT=1 SAME=1 DIES=0
found node WITNESS=1 DIES=2
found node BUG=NO_FENCE LATE=1 N1=0
found node BUG=NO_DROP N1=0
found node BUG=ACK_EARLY N1=0
found node BUG=NOT_STICKY SAME=1
found node BUG=LANE_STICKY SAME=1
found node BUG=ONE_WORD AFULL=1 SAME=1 DIES=0
found node BUG=UNKNOWN_DROPS N1=0
found node BUG=OLD_SESSION LATE=1 N1=0
found node BUG=EVICT_UNACKED EVICT=1 SAME=1 DIES=0
found node BUG=ROOM_EARLY LIVE=1 AFULL=1 SAME=1 DIES=0
holds move CUTS=1
holds move CUTS=1 GET=1
holds move CANCEL=1
holds move CANCEL=1 GET=1
found move WITNESS=1 DIES=2
found move BUG=NO_FENCE
found move BUG=NO_FENCE GET=1
found move BUG=NO_DROP
found move BUG=NO_DROP GET=1
found move BUG=NO_DROP_REGION
found move BUG=OLD_OPEN
found move BUG=REPORT_EARLY CUTS=1 DIES=0
found move BUG=REPORT_ALL CUTS=1 DIES=0
found move BUG=AT_POST DIES=0
found move BUG=ENTRY_STAYS
found move BUG=CUT_OPEN GET=1
found move BUG=CLOSE_KEEPS DIES=0
found move BUG=NO_STOP CANCEL=1 DIES=0
found move BUG=NO_STOP CANCEL=1 GET=1 DIES=0
found move BUG=NO_REPEAT
holds move TCP=1
found move TCP=1 BUG=OLD_OPEN
found move TCP=1 BUG=CUT_OPEN
found move TCP=1 BUG=ENDED_FIRST DIES=0
ROWS
}
rows_full() {
    cat <<'ROWS'
holds ring WEAK=1
holds ring WEAK=1 DIE=1 LEN=1
holds ring WEAK=1 DIE=1 MSGS=4
holds ring WEAK=1 DIE=1 LEN=0 MSGS=18
holds arm NM1=2
holds arm MB=0
holds arm LATE=1 NM1=1
holds arm LATE=1 MB=0 NM1=1
holds arm LATE=1 NM0=3 NM1=0
holds arm DIE=1 NM1=1
holds arm DIE=1 MB=0 NM1=1
holds arm ATTACH=1 NM1=1
holds arm LATE=1 DIE=1 NM1=0
holds arm COLD=1 SHARED=1 NM1=1
holds arm COLD=1 LATE=1 NM1=0
holds arm COLD=1 DIE=1 NM1=0
holds arm COLD=1 NM0=3 NM1=0
holds ring BUG=SEQ_RELAXED LEN=1 MSGS=4
holds ring BUG=RSEQ_RELAXED LEN=1 MSGS=4
holds lend E=4 SENDERS=2
holds lend E=4 SENDERS=3 ORDER=1
holds lend RINGS=2 E=4 SENDERS=2
holds epochs ACCESSES=2
holds node SAME=1 DIES=2
holds node STOP=1 DIES=2
holds node SAME=1 Q=2 L=2 R=2
holds node SAME=1 BACK=1
holds node SAME=1 AFULL=1
holds node ENDS=1
holds node ENDS=1 BACK=1 N1=0 DIES=2
holds node SAME=1 EVICT=1
holds node LIVE=1 SAME=1
holds node BUG=NO_FENCE SAME=1
holds node BUG=STALE_RING LATE=1 N1=0
found node BUG=NO_ROOM SAME=1
found node BUG=FREE_AT_READ N1=0
found node WITNESS=1 ENDS=1 N1=0 DIES=2
found node BUG=NO_LEFT ENDS=1 N1=0
found node BUG=NO_HEED ENDS=1 N1=0
found node BUG=REFUSED_ONLY ENDS=1 N1=0
found node BUG=PAST_ATTEMPT ENDS=1 N1=0
found node BUG=BEHIND SAME=1
found node BUG=NO_SESSION N1=0
found node BUG=FORWARD_ALL LIVE=1 AFULL=1 SAME=1 DIES=0
holds move CUTS=1 DIES=2
holds move CUTS=1 GET=1 DIES=2
holds move CANCEL=1 GET=1 DIES=2
holds move PARTS=3
holds move HOLD=0 DIES=2
holds move BUG=NO_DROP HOLD=0
holds move BUG=NO_DROP GET=1 HOLD=0
holds move BUG=NO_DROP_REGION HOLD=0
holds move BUG=KEY_UNCHECKED
holds move BUG=WORD_UNREAD
holds move TCP=1 DIES=2
holds move TCP=1 PARTS=3
holds move TCP=1 BUG=NO_FENCE
holds move TCP=1 BUG=NO_SLAB_REFUSED
holds arm OTHER=WAKE_DRAIN_LATE NM1=0
holds arm OTHER=WAKE_NO_DRAIN NM1=0
holds arm OTHER=EVEN_LATE NM1=0
holds arm OTHER=FENCE_FIRST LATE=1 NM1=0
holds arm OTHER=NEVER_FENCE LATE=1 NM1=0
holds arm OTHER=SEEN_IF_KNOWN LATE=1 NM1=0
ROWS
}

# Make pan in the current directory.
build() {
    model=$1 opt=$2 look=SAFETY
    shift 2
    case " $* " in *" LIVE=1 "*) look=NP ;; esac
    spin -a $(printf -- ' -D%s' "$@") "$here/$model.pml" >spin.out 2>&1 &&
        gcc "$opt" -w "-D$look" -DVECTORSZ=2048 -DMEMLIM="$memory" -o pan pan.c >cc.out 2>&1
}

# A model with LIVE=1 is searched for endless work without progress, others for failed assertions.
broken='assertion violated (\|assertion violated  !(\|non-progress cycle (at'
args() { [ "${look:-}" != NP ] || echo -l; }

# Check one row; writes its line to the file "line", beginning with ok or BAD.
one() {
    want=$1 model=$2 verdict=broken opt=-O1
    shift 2
    case "$want $* " in found* | *" DIES=0 "* | *" N1=0 "*) opt=-O0 ;; esac # few states
    start=$(date +%s%N)
    if build "$model" "$opt" "$@" && timeout "$limit" ./pan $(args) -m400000 >out 2>&1; then
        if grep -q 'errors: 1' out && grep -q "$broken" out; then
            verdict=found
        elif grep -q 'errors: 0' out && ! grep -qi 'MEMLIM\|out of memory\|too small' out; then
            verdict=holds
        fi
    fi
    ms=$((($(date +%s%N) - start) / 1000000))
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' out 2>/dev/null | head -n 1)
    mark=ok
    [ "$verdict" = "$want" ] || mark=BAD
    printf '%-3s %-6s %-4s %-42s %9s states %6d ms\n' "$mark" "$verdict" "$model" "$*" \
        "${states:-?}" "$ms" >line
    if [ "$mark" = BAD ]; then
        printf '    expected: %s\n' "$want" >>line
        cat spin.out cc.out out 2>/dev/null | grep -i 'error\|violated\|invalid\|memlim\|small' | head -n 5 >>line || true
    fi
}

memory=1000 limit=150
case $mode in
quick) rows=rows_quick ;;
full) rows=rows_full memory=6000 limit=900 ;;
trail) ;;
--one)
    memory=$2 limit=$3 dir=$4
    cd "$dir"
    read -r row <row
    # shellcheck disable=SC2086 # a row is words
    one $row
    exit 0
    ;;
*)
    echo "usage: $0 [full | trail MODEL DEFINES...]" >&2
    exit 1
    ;;
esac

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

if [ "$mode" = trail ]; then
    shift
    model=$1
    shift
    cd "$tmp"
    build "$model" -O1 "$@" || { cat spin.out cc.out; exit 1; }
    # shellcheck disable=SC2046 # -l or nothing
    ./pan $(args) -m400000 | head -n 3
    if [ -e "$model.pml.trail" ]; then
        spin -t -p -k "$model.pml.trail" $(printf -- ' -D%s' "$@") "$here/$model.pml"
    else
        echo "no schedule breaks it"
    fi
    exit 0
fi

jobs=$(getconf _NPROCESSORS_ONLN)
[ "$jobs" -le 2 ] || jobs=2
[ "$mode" = quick ] || jobs=1
$rows | awk -v d="$tmp" '{ n = sprintf("%s/%03d", d, NR); system("mkdir " n); print > (n "/row"); close(n "/row"); print n }' |
    xargs -n 1 -P "$jobs" "$0" --one "$memory" "$limit"
cat "$tmp"/*/line
total=$($rows | wc -l)
good=$(cat "$tmp"/*/line | grep -c '^ok ' || true)
echo "$good of $total as expected"
[ "$good" -eq "$total" ]
