/* SPDX-License-Identifier: BSD-3-Clause */
/* Annotations that say which lock protects which field. clang checks the annotations
 * (-Wthread-safety); gcc ignores them.
 *
 * In C, the annotation of a structure's member cannot name another member (clang 14). So a field's
 * annotation names a lock class, a token that all locks of one kind share. clang reports an access
 * without any lock of the class. clang does not notice if the lock that is held belongs to another
 * object.
 *
 *     WF_LOCK_CLASS(wf_pool_lock);                        declared, never defined
 *     struct pool {
 *         pthread_mutex_t lock;
 *         unsigned count WF_UNDER(wf_pool_lock);
 *     };
 *     static inline void pool_lock(struct pool *p) WF_ACQUIRES(wf_pool_lock); pthread_mutex_lock
 *     static inline void pool_unlock(struct pool *p) WF_RELEASES(wf_pool_lock);
 *     static void pool_grow(struct pool *p) WF_REQUIRES(wf_pool_lock);
 *
 * WF_UNCHECKED turns the checks off in functions that open or close an object, or take several
 * locks of one class. WF_ACQUIRES, WF_RELEASES and WF_TRY_ACQUIRES turn off the checks in the body
 * of their function. */
#ifndef WF_BASE_LOCK_H
#define WF_BASE_LOCK_H

#ifdef __clang__
#define WF_LOCK_ATTRIBUTE(...) __attribute__((__VA_ARGS__))
#else
#define WF_LOCK_ATTRIBUTE(...)
#endif

struct WF_LOCK_ATTRIBUTE(capability("lock")) wf_lock_class {
    char unused;
};
#define WF_LOCK_CLASS(name) extern struct wf_lock_class name

/* Marks a field, or a variable of a file, that may be accessed only under a lock of [class]. */
#define WF_UNDER(class) WF_LOCK_ATTRIBUTE(guarded_by(class))
/* For the declaration of a function. REQUIRES: the caller holds these locks. EXCLUDES: the
 * caller does not hold these locks. */
#define WF_REQUIRES(...) WF_LOCK_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define WF_EXCLUDES(...) WF_LOCK_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define WF_ACQUIRES(...)                                                                           \
    WF_LOCK_ATTRIBUTE(acquire_capability(__VA_ARGS__), no_thread_safety_analysis)
#define WF_RELEASES(...)                                                                           \
    WF_LOCK_ATTRIBUTE(release_capability(__VA_ARGS__), no_thread_safety_analysis)
#define WF_TRY_ACQUIRES(...)                                                                       \
    WF_LOCK_ATTRIBUTE(try_acquire_capability(__VA_ARGS__), no_thread_safety_analysis)
#define WF_UNCHECKED WF_LOCK_ATTRIBUTE(no_thread_safety_analysis)

#endif
