/* SPDX-License-Identifier: BSD-3-Clause */
/* One line on stderr per event, where it is found. Failures say the cause and
 * what to change. Level: WEFT_LOG (error, warn, info, debug); default warn. */
#ifndef WF_BASE_LOG_H
#define WF_BASE_LOG_H

enum wf_log_level { WF_LOG_ERROR, WF_LOG_WARN, WF_LOG_INFO, WF_LOG_DEBUG };

void wf_log_set_level(enum wf_log_level level);
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
