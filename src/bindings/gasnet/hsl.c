/* SPDX-License-Identifier: BSD-3-Clause */
/* Handler-safe locks. Each lock is a futex, in every threading mode, since handlers may run on any
 * thread that polls. The locks are not recursive. Each thread counts the locks that it holds, so
 * that calls which are not allowed with such a lock can be refused. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "binding.h"

enum { FREE, HELD, AWAITED };

static void check(const gasnet_hsl_t *hsl, const char *what)
{
    if (!hsl || hsl->init_ != GASNETW_HSL)
        gasnetw_fatal("%s of a lock that is not initialised (GASNET_HSL_INITIALIZER, "
                      "gasnet_hsl_init)",
                      what);
}

void gasnet_hsl_init(gasnet_hsl_t *hsl)
{
    *hsl = (gasnet_hsl_t)GASNET_HSL_INITIALIZER;
}

void gasnet_hsl_destroy(gasnet_hsl_t *hsl)
{
    check(hsl, "gasnet_hsl_destroy");
    if (__atomic_load_n(&hsl->word_, __ATOMIC_ACQUIRE) != FREE)
        gasnetw_fatal("gasnet_hsl_destroy of a lock that is held");
    hsl->init_ = 0;
}

static bool try_take(gasnet_hsl_t *hsl)
{
    uint32_t was = FREE;
    return __atomic_compare_exchange_n(&hsl->word_, &was, HELD, 0, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

void gasnet_hsl_lock(gasnet_hsl_t *hsl)
{
    check(hsl, "gasnet_hsl_lock");
    for (int spins = 0; spins < 100; spins++) {
        if (try_take(hsl)) {
            gasnetw_thread_.busy += GASNETW_WITH_HSL;
            return;
        }
        __builtin_ia32_pause();
    }
    while (__atomic_exchange_n(&hsl->word_, AWAITED, __ATOMIC_ACQUIRE) != FREE)
        (void)syscall(SYS_futex, &hsl->word_, FUTEX_WAIT_PRIVATE, AWAITED, NULL, NULL, 0);
    gasnetw_thread_.busy += GASNETW_WITH_HSL;
}

int gasnet_hsl_trylock(gasnet_hsl_t *hsl)
{
    check(hsl, "gasnet_hsl_trylock");
    gasnetw_ask(); /* before the lock is taken, since a handler may take it */
    if (!try_take(hsl))
        return GASNET_ERR_NOT_READY;
    gasnetw_thread_.busy += GASNETW_WITH_HSL;
    return GASNET_OK;
}

void gasnet_hsl_unlock(gasnet_hsl_t *hsl)
{
    check(hsl, "gasnet_hsl_unlock");
    if (__atomic_load_n(&hsl->word_, __ATOMIC_RELAXED) == FREE)
        gasnetw_fatal("gasnet_hsl_unlock of a lock that is not held");
    gasnetw_thread_.busy -= GASNETW_WITH_HSL;
    if (__atomic_exchange_n(&hsl->word_, FREE, __ATOMIC_RELEASE) == AWAITED)
        (void)syscall(SYS_futex, &hsl->word_, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
