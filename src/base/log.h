/* SPDX-License-Identifier: BSD-3-Clause */
/* The log: one line on standard error per event, written by the code that detects the event. The
 * line of a failure contains the cause and what the user can change. WEFT_LOG sets the level
 * (error, warn, info or debug); the default is warn.
 *
 * Nothing is written if descriptor 2 is closed, or if it is not the same file as when a context
 * was last opened: the file may contain the program's data.
 *
 * A log call never waits. If standard error is a full pipe, socket or terminal, the line is
 * lost, and the next line that is written contains the number of lost lines. */
#ifndef WF_BASE_LOG_H
#define WF_BASE_LOG_H

enum wf_log_level { WF_LOG_ERROR, WF_LOG_WARN, WF_LOG_INFO, WF_LOG_DEBUG };

void wf_log_set_level(enum wf_log_level level);
/* Note the file that descriptor 2 refers to: log lines are written only while descriptor 2 is
 * that file. weft_ctx_open calls this function. */
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
