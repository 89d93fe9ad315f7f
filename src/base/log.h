/* SPDX-License-Identifier: BSD-3-Clause */
/* One line on stderr per event, written by the code that detects it. A failure's line has the cause
 * and what to change. Level: WEFT_LOG (error, warn, info, debug); default warn.
 *
 * Nothing is written if descriptor 2 is closed, or is another file than when a context was last
 * opened: it may hold the program's data.
 *
 * Writing never waits: if stderr is a full pipe, socket or terminal, lines are lost, and the
 * next line that is written has their number. */
#ifndef WF_BASE_LOG_H
#define WF_BASE_LOG_H

enum wf_log_level { WF_LOG_ERROR, WF_LOG_WARN, WF_LOG_INFO, WF_LOG_DEBUG };

void wf_log_set_level(enum wf_log_level level);
/* Note the file that is descriptor 2 now as standard error. weft_ctx_open calls this. */
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
