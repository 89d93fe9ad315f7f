/* SPDX-License-Identifier: BSD-3-Clause */
/* One line on stderr per event, where it is found. Failures say the cause and
 * what to change. Level: WEFT_LOG (error, warn, info, debug); default warn.
 * Nothing is written where descriptor 2 is closed, or is another file than when a context was
 * opened last: it may be the program's data.
 * No line is waited for: if stderr is a pipe, socket or terminal that nobody reads, lines are lost,
 * and the next one that gets through says how many. */
#ifndef WF_BASE_LOG_H
#define WF_BASE_LOG_H

enum wf_log_level { WF_LOG_ERROR, WF_LOG_WARN, WF_LOG_INFO, WF_LOG_DEBUG };

void wf_log_set_level(enum wf_log_level level);
/* Take descriptor 2 as it is now for standard error. Each weft_ctx_open does. */
void wf_log_note(void);
int wf_log_on(enum wf_log_level level);
void wf_log(enum wf_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define wf_error(...) wf_log(WF_LOG_ERROR, __VA_ARGS__)
#define wf_warn(...) wf_log(WF_LOG_WARN, __VA_ARGS__)
#define wf_info(...) wf_log(WF_LOG_INFO, __VA_ARGS__)
#define wf_debug(...)                                                                              \
    do {                                                                                           \
        if (wf_log_on(WF_LOG_DEBUG))                                                               \
            wf_log(WF_LOG_DEBUG, __VA_ARGS__);                                                     \
    } while (0)

#endif
