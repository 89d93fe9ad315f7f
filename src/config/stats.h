/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WF_CONFIG_STATS_H
#define WF_CONFIG_STATS_H

enum wf_stat {
#define WF_STAT(name, doc) WF_STAT_##name,
#include "config/stats.def"
#undef WF_STAT
    WF_STATS
};

#endif
