#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Each installed header compiles alone, twice included, as C11, C17, C++11 and C++17,
# with gcc and with clang, without a warning, also with the strict warnings
# that programs turn on for themselves; so do the initialisers.
set -u
include=$1
warnings=(-Wall -Wextra -Wpedantic -Wshadow -Wundef -Wcast-align -Wconversion -Werror)
failed=0
missing=()

initialisers='
struct weft_ctx_params ctx_params = WEFT_CTX_PARAMS_INIT;
struct weft_ep_params ep_params = WEFT_EP_PARAMS_INIT;'
job_initialiser='
struct weft_job_params job_params = WEFT_JOB_PARAMS_INIT;'

program() { # HEADER: what a user's first file could be
    printf '#include <weft/%s>\n#include <weft/%s>\n' "$1" "$1"
    case $1 in
        weft.h) echo "$initialisers" ;;
        job.h) echo "$initialisers$job_initialiser" ;;
    esac
    echo 'int main(void) { return WEFT_OK; }'
}

try() { # COMPILER STANDARD LANGUAGE HEADER WARNINGS...
    local more=("${@:5}")
    [ "$1" = g++ ] && more+=(-Wuseless-cast) # clang has no such warning
    if ! program "$4" | "$1" "-std=$2" -x "$3" "${warnings[@]}" "${more[@]}" -I"$include" \
        -fsyntax-only -; then
        echo "weft/$4 does not compile alone as $2 with $1"
        failed=1
    fi
}

# What a GASNet program may use that includes nothing else, and internal names that some use.
leaning='
static const void *unused1 __attribute__((unused)) = (void *)_gasneti_threadkey_init;
#ifdef _INCLUDED_GASNET_TOOLS_H
static const void *unused2 __attribute__((unused)) = (void *)_gasnett_trace_printf_noop;
#endif
struct one { char a, b; };
static const uint64_t unsigned64 = UINT64_MAX;
static void lean(size_t size, ssize_t ssize, int32_t word, ...)
{
    va_list list;
    char text[PATH_MAX], *copy = (char *)malloc(sizeof text);
    pid_t pid = getpid();
    errno = 0;
    memcpy(text, "a", MIN(sizeof text, 2));
    va_start(list, word);
    vsnprintf(text, sizeof text, "%s", list);
    va_end(list);
    printf("%s", gasneti_gethostname());
    printf("%s %zu %zd %" PRIu64 " %d %d\n", text, size, ssize, unsigned64, (int)pid, errno);
    fprintf(stderr, "%d %d %zu\n", MAX(INT_MAX, word), isdigit(text[0]), offsetof(struct one, b));
    free(copy);
    sched_yield();
    exit(copy ? EXIT_SUCCESS : EXIT_FAILURE);
}
int main(void)
{
    (void)&_gasneti_threadkey_init;
    lean(sizeof(int), -1, 1, "");
    return 0;
}'

# The GASNet binding's, as its programs' flags have them: none of these was written with -Wundef in mind.
try_gasnet() { # COMPILER STANDARD LANGUAGE HEADER...
    local mode header
    for mode in SEQ PAR PARSYNC; do
        for header in "${@:4}"; do
            if ! { printf '#include <%s>\n#include <%s>\n' "$header" "$header" && echo "$leaning"; } |
                "$1" "-std=$2" -x "$3" -Wall -Wextra -Wshadow -Werror "-DGASNET_$mode" -I"$include" \
                    -I"$include/weft-gasnet" -fsyntax-only -; then
                echo "weft-gasnet/$header does not compile alone as $2 with $1"
                failed=1
            fi
        done
    done
}

for compiler in gcc g++ clang clang++; do
    if ! command -v "$compiler" >/dev/null; then
        missing+=("$compiler")
        continue
    fi
    case $compiler in
        *++) try_gasnet "$compiler" c++11 c++ gasnet.h gasnet_tools.h ;;
        *) try_gasnet "$compiler" c99 c gasnet.h # the tools need POSIX's locks
            try_gasnet "$compiler" gnu99 c gasnet.h gasnet_tools.h
            try_gasnet "$compiler" gnu17 c gasnet.h gasnet_tools.h ;;
    esac
    for header in "$include"/weft/*.h; do
        case $compiler in
            *++) try "$compiler" c++11 c++ "${header##*/}" -Wold-style-cast
                 try "$compiler" c++17 c++ "${header##*/}" -Wold-style-cast ;;
            *) try "$compiler" c11 c "${header##*/}"
               try "$compiler" c17 c "${header##*/}"
               try "$compiler" gnu17 c "${header##*/}" ;;
        esac
    done
done

[ "$failed" -eq 0 ] || exit 1
if [ ${#missing[@]} -gt 0 ]; then
    echo "not installed: ${missing[*]}"
    exit 77
fi
