/* SPDX-License-Identifier: BSD-3-Clause */
/* Images and teams. */
#include "coll.h"

#include <stdlib.h>

static struct gasnetw_team all_team;
gasnet_team_handle_t gasnetw_team_all;
static struct gasnetw_team *teams; /* from gasnet_coll_team_split; under the schedules' mutex */
static uint32_t team_count;        /* team ids made on this node; under that mutex */

static enum { NOT_OPEN, OPEN, INITIALISED } state;
static unsigned *first_image; /* [nodes + 1] */
static gasnet_coll_fn_entry_t *functions;
static size_t function_count;
static unsigned inits;                    /* images in gasnet_coll_init; under that mutex */
static _Thread_local unsigned self = ~0u; /* this thread's image */

/* ---- views ---- */

static void view_fini(struct gasnetw_view *v)
{
    free(v->node);
    free(v->first);
    free(v->place);
    free(v->slot);
    free(v->image);
    free(v->seq[0]);
    free(v->seq[1]);
    free(v->barrier);
}

static gasnet_node_t node_of_image(unsigned image)
{
    unsigned low = 0, high = gasnetw_job.nodes;
    while (high - low > 1) {
        unsigned mid = low + (high - low) / 2;
        if (first_image[mid] <= image)
            low = mid;
        else
            high = mid;
    }
    return low;
}

unsigned gasnetw_view_node_of(const struct gasnetw_view *v, unsigned slot)
{
    unsigned low = 0, high = v->nodes;
    while (high - low > 1) {
        unsigned mid = low + (high - low) / 2;
        if (v->first[mid] <= slot)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Number the nodes in the order of their first members. Sets rank[m] to the number of member m's
 * node. */
static void view_nodes(struct gasnetw_view *v, unsigned n, const gasnet_node_t *node_of,
                       unsigned *rank)
{
    unsigned *rank_of = gasnetw_zalloc(gasnetw_job.nodes, sizeof *rank_of); /* + 1; 0: none */
    v->node = gasnetw_zalloc(n, sizeof *v->node);
    v->first = gasnetw_zalloc(n + 1, sizeof *v->first);
    for (unsigned m = 0; m < n; m++) {
        gasnet_node_t node = node_of[m];
        if (!rank_of[node]) {
            if (node == gasnetw_job.mynode)
                v->me = v->nodes;
            v->node[v->nodes] = node;
            rank_of[node] = ++v->nodes;
        }
        rank[m] = rank_of[node] - 1;
        v->first[rank[m] + 1]++;
    }
    for (unsigned r = 0; r < v->nodes; r++) {
        if (v->most < v->first[r + 1])
            v->most = v->first[r + 1];
        v->first[r + 1] += v->first[r];
    }
    free(rank_of);
}

/* Set slot and place. If the members are in the order of their nodes, leave both NULL. */
static void view_places(struct gasnetw_view *v, const unsigned *rank)
{
    unsigned *next = gasnetw_alloc(v->nodes * sizeof *next);
    bool same = true;
    v->place = gasnetw_alloc(v->members * sizeof *v->place);
    v->slot = gasnetw_alloc(v->members * sizeof *v->slot);
    memcpy(next, v->first, v->nodes * sizeof *next);
    for (unsigned m = 0; m < v->members; m++) {
        unsigned slot = next[rank[m]]++;
        v->slot[m] = slot;
        v->place[slot] = m;
        same &= slot == m;
    }
    if (same) {
        free(v->place);
        free(v->slot);
        v->place = v->slot = NULL;
    }
    free(next);
}

/* Fill in [v] for [n] members, whose nodes are [node_of]; this node is one of these nodes. [image]
 * has the members' image numbers, or is NULL. */
static void view_init(struct gasnetw_view *v, unsigned n, const gasnet_node_t *node_of,
                      const unsigned *image, unsigned stream)
{
    unsigned *rank = gasnetw_alloc(n * sizeof *rank);
    *v = (struct gasnetw_view){.members = n, .stream = (uint8_t)stream};
    view_nodes(v, n, node_of, rank);
    view_places(v, rank);
    free(rank);
    if (image) {
        v->image = gasnetw_alloc(n * sizeof *image);
        memcpy(v->image, image, n * sizeof *image);
    }
    v->seq[0] = gasnetw_zalloc(gasnetw_view_own(v), sizeof *v->seq[0]);
    v->seq[1] = gasnetw_zalloc(gasnetw_view_own(v), sizeof *v->seq[1]);
    v->barrier = gasnetw_zalloc(gasnetw_view_own(v), sizeof *v->barrier);
}

unsigned gasnetw_view_self(const struct gasnetw_view *v, const char *what)
{
    unsigned own = gasnetw_view_own(v);
    if (own == 1 || !v->image)
        return 0;
    for (unsigned i = 0; i < own; i++) {
        unsigned slot = v->first[v->me] + i;
        if (v->image[v->place ? v->place[slot] : slot] == self)
            return i;
    }
    gasnetw_fatal("%s: this thread is no image of the team; each image's thread calls "
                  "gasnet_coll_init with its number, then the team's collectives (or one thread of "
                  "each node does with GASNET_COLL_NO_IMAGES)",
                  what);
}

static void team_init(struct gasnetw_team *t, uint64_t id, unsigned n, const unsigned *image)
{
    gasnet_node_t *node_of = gasnetw_alloc(n * sizeof *node_of);
    t->id = id;
    for (unsigned m = 0; m < n; m++)
        node_of[m] = node_of_image(image[m]);
    view_init(&t->view[VIEW_IMAGES], n, node_of, image, VIEW_IMAGES);
    view_init(&t->view[VIEW_NODES], t->view[VIEW_IMAGES].nodes, t->view[VIEW_IMAGES].node, NULL,
              VIEW_NODES);
    free(node_of);
}

static void team_fini(struct gasnetw_team *t)
{
    view_fini(&t->view[VIEW_IMAGES]);
    view_fini(&t->view[VIEW_NODES]);
}

/* ---- begin and end ---- */

/* Create the team of all images. images[i] is the number of images of node i. */
static void all_init(const gasnet_image_t *images)
{
    unsigned n = 0, *image;
    for (gasnet_node_t i = 0; i < gasnetw_job.nodes; i++) {
        first_image[i] = n;
        n += images ? images[i] : 1;
    }
    first_image[gasnetw_job.nodes] = n;
    image = gasnetw_alloc(n * sizeof *image);
    for (unsigned i = 0; i < n; i++)
        image[i] = i;
    team_init(&all_team, 0, n, image);
    free(image);
}

void gasnetw_coll_open(void)
{
    if (gasnetw_job.nodes > 1u << GASNETW_TEAM_BITS)
        gasnetw_fatal("collectives know %u nodes at most", 1u << GASNETW_TEAM_BITS);
    gasnetw_coll_limits_read();
    first_image = gasnetw_zalloc(gasnetw_job.nodes + 1, sizeof *first_image);
    all_init(NULL);
    gasnetw_team_all = &all_team;
    state = OPEN;
}

static void init_first(const gasnet_image_t images[], const gasnet_coll_fn_entry_t fn_tbl[],
                       size_t fn_count)
{
    for (gasnet_node_t i = 0; images && i < gasnetw_job.nodes; i++) {
        if (!images[i])
            gasnetw_fatal("gasnet_coll_init: no images on node %u; give every node one", i);
        if (images[i] > 1 && gasnetw_binding.mode == MODE_SEQ)
            gasnetw_fatal("gasnet_coll_init: %u images on node %u; for more than one define "
                          "GASNET_PAR instead of GASNET_SEQ",
                          images[i], i);
    }
    if (images) {
        team_fini(&all_team);
        all_init(images);
        gasnetw_sched_threads = gasnetw_view_own(all_team.view) > 1;
    }
    functions = gasnetw_alloc(fn_count * sizeof *functions);
    if (fn_count)
        memcpy(functions, fn_tbl, fn_count * sizeof *functions);
    function_count = fn_count;
}

void gasnet_coll_init(const gasnet_image_t images[], gasnet_image_t my_image,
                      gasnet_coll_fn_entry_t fn_tbl[], size_t fn_count, int init_flags)
{
    gasnetw_check(gasnetw_job.mynode, "gasnet_coll_init");
    if (init_flags)
        gasnetw_fatal("gasnet_coll_init: flags 0x%x; give 0", (unsigned)init_flags);
    gasnetw_sched_lock();
    if (inits > (state == INITIALISED ? gasnetw_view_own(all_team.view) - 1 : 0))
        gasnetw_fatal("gasnet_coll_init: called once more than this node has images");
    if (state == OPEN)
        init_first(images, fn_tbl, fn_count);
    state = INITIALISED;
    inits++;
    gasnetw_sched_unlock();
    const unsigned *first = &first_image[gasnetw_job.mynode];
    self = images ? my_image : first[0];
    if (self < first[0] || self >= first[1])
        gasnetw_fatal("gasnet_coll_init: my_image %u; this node has images %u to %u", self,
                      first[0], first[1] - 1);
}

void gasnetw_coll_check_team(gasnet_team_handle_t team, const char *what)
{
    if (!team)
        gasnetw_fatal("%s: no team; give GASNET_TEAM_ALL (after gasnet_attach) or one that "
                      "gasnet_coll_team_split gave",
                      what);
}

void gasnetw_coll_check(gasnet_team_handle_t team, const char *what)
{
    gasnetw_check(gasnetw_job.mynode, what);
    if (state != INITIALISED)
        gasnetw_fatal("%s: call gasnet_coll_init before", what);
    gasnetw_coll_check_team(team, what);
}

struct gasnetw_fold gasnetw_coll_function(gasnet_coll_fn_handle_t func, const char *what)
{
    if (func < 0 || (size_t)func >= function_count || !functions[func].fnptr)
        gasnetw_fatal("%s: function %d is none; gasnet_coll_init was given a table of %zu", what,
                      func, function_count);
    return (struct gasnetw_fold){.fn = functions[func].fnptr,
                                 .flags = (int)(functions[func].flags & GASNET_COLL_NONCOMM)};
}

/* ---- teams ---- */

/* What each image of the parent team contributes to a split. [id] is used as the id of the new team
 * whose first member this image is. */
struct claim {
    uint64_t id;
    uint32_t color, relrank, member, zero;
};

static int by_relrank(const void *a, const void *b)
{
    const struct claim *x = a, *y = b;
    if (x->color != y->color)
        return x->color < y->color ? -1 : 1;
    if (x->relrank != y->relrank)
        return x->relrank < y->relrank ? -1 : 1;
    return x->member < y->member ? -1 : x->member > y->member;
}

/* Returns the team [id]. Another image of this node may have created the team already. The caller
 * holds the schedules' mutex. */
static struct gasnetw_team *team_ref(uint64_t id, unsigned n, const unsigned *image)
{
    struct gasnetw_team *t = teams;
    while (t && t->id != id)
        t = t->next;
    if (t &&
        (t->refs >= gasnetw_view_own(&t->view[VIEW_IMAGES]) || t->view[VIEW_IMAGES].members != n ||
         memcmp(t->view[VIEW_IMAGES].image, image, n * sizeof *image) != 0))
        gasnetw_fatal("gasnet_coll_team_split: a team that was not freed %u splits ago has the new "
                      "one's number; free teams that are not used",
                      1u << GASNETW_TEAM_BITS);
    if (!t) {
        t = gasnetw_zalloc(1, sizeof *t);
        team_init(t, id, n, image);
        t->next = teams;
        teams = t;
    }
    t->refs++;
    return t;
}

/* Returns the team of the images with [color]. Sorts [all]. */
static struct gasnetw_team *team_choose(struct claim *all, unsigned n, uint32_t color,
                                        const struct gasnetw_view *parent)
{
    unsigned members = 0, *image = gasnetw_alloc(n * sizeof *image);
    uint64_t id = 0;
    qsort(all, n, sizeof *all, by_relrank);
    for (unsigned i = 0; i < n; i++) {
        if (all[i].color != color)
            continue;
        if (!members)
            id = all[i].id;
        image[members++] = parent->image[all[i].member];
    }
    gasnetw_sched_lock();
    struct gasnetw_team *t = team_ref(id, members, image);
    gasnetw_sched_unlock();
    free(image);
    return t;
}

gasnet_team_handle_t gasnet_coll_team_split(gasnet_team_handle_t parent, gasnet_node_t color,
                                            gasnet_node_t relrank, void *clientdata)
{
    (void)clientdata;
    gasnetw_coll_check(parent, "gasnet_coll_team_split");
    const struct gasnetw_view *v = &parent->view[VIEW_IMAGES];
    unsigned n = v->members;
    struct claim mine = {.color = color, .relrank = relrank}, *all = gasnetw_alloc(n * sizeof *all);
    gasnetw_sched_lock();
    do
        mine.id = GASNETW_TEAM_ID(gasnetw_job.mynode, ++team_count);
    while (!mine.id); /* 0 is GASNET_TEAM_ALL's */
    gasnetw_sched_unlock();
    gasnet_coll_gather_all(parent, all, &mine, sizeof mine,
                           GASNET_COLL_LOCAL | GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC);
    for (unsigned i = 0; i < n; i++)
        all[i].member = i;
    struct gasnetw_team *t = team_choose(all, n, color, v);
    free(all);
    return t;
}

void gasnet_coll_team_free(gasnet_team_handle_t team)
{
    gasnetw_coll_check(team, "gasnet_coll_team_free");
    if (team == gasnetw_team_all)
        gasnetw_fatal("gasnet_coll_team_free: GASNET_TEAM_ALL stays until gasnet_exit");
    gasnetw_sched_lock();
    if (--team->refs) {
        gasnetw_sched_unlock();
        return;
    }
    if (team->under_way)
        gasnetw_fatal("gasnet_coll_team_free: %u calls have not been waited for; do before",
                      team->under_way);
    struct gasnetw_team **at = &teams;
    while (*at != team)
        at = &(*at)->next;
    *at = team->next;
    gasnetw_sched_unlock();
    team_fini(team);
    free(team);
}

gasnet_node_t gasnet_coll_team_size(gasnet_team_handle_t team)
{
    gasnetw_coll_check_team(team, "gasnet_coll_team_size");
    return team->view[VIEW_NODES].nodes;
}

gasnet_node_t gasnet_coll_team_rank(gasnet_team_handle_t team)
{
    gasnetw_coll_check_team(team, "gasnet_coll_team_rank");
    return team->view[VIEW_NODES].me;
}

gasnet_node_t gasnet_coll_team_rank2node(gasnet_team_handle_t team, int rank)
{
    gasnetw_coll_check_team(team, "gasnet_coll_team_rank2node");
    const struct gasnetw_view *v = &team->view[VIEW_NODES];
    if (rank < 0 || (unsigned)rank >= v->nodes)
        gasnetw_fatal("gasnet_coll_team_rank2node: rank %d; the team has %u nodes", rank, v->nodes);
    return v->node[rank];
}

gasnet_node_t gasnet_coll_team_node2rank(gasnet_team_handle_t team, gasnet_node_t node)
{
    gasnetw_coll_check_team(team, "gasnet_coll_team_node2rank");
    const struct gasnetw_view *v = &team->view[VIEW_NODES];
    for (unsigned r = 0; r < v->nodes; r++)
        if (v->node[r] == node)
            return r;
    gasnetw_fatal("gasnet_coll_team_node2rank: node %u is not in the team", node);
}
