/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that another process may copy by itself until its owner takes it back: the function [pull]
 * of transport.h. */
#ifndef WF_TRANSPORT_LEND_H
#define WF_TRANSPORT_LEND_H

#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

/* A word in the memory of a process. It has [value] as long as certain bytes of the process may be
 * copied. The process changes the word before it uses the bytes otherwise. */
struct wf_pull_word {
    uint64_t addr; /* a multiple of 8; 0: there is no word */
    uint64_t value;
};

/* Bytes in the memory of a process, and their word. */
struct wf_pull_from {
    uint64_t addr;
    struct wf_pull_word word;
};

/* Called before other functions of this file, when a context opens. Any thread that holds no lock;
 * repeated calls change nothing. */
void wf_pull_begin(void);
/* Make a word of this process, whose value is 0. Its address is one of a word for as long as the
 * process lives, also after wf_pull_word_free. Returns NULL without memory. Any thread. */
uint64_t *wf_pull_word_new(void);
void wf_pull_word_free(uint64_t *word);
/* Give [word] a value that is not 0, unique, and unlike other numbers of the process. So a late
 * reader, which expects an earlier value, does not find it. */
void wf_pull_lend(uint64_t *word);
/* The opposite, when nobody copies the bytes any more. */
void wf_pull_end(uint64_t *word);
/* Change [word]. When the call returns, no endpoint of this process copies its bytes, and another
 * process that copies them finds the change. */
void wf_pull_take_back(uint64_t *word);
/* Copy as [pull] does, between two endpoints of this process. Returns OK | ECANCELED */
enum weft_status wf_pull_here(void *dst, const struct wf_pull_from *from, size_t len);

#endif
