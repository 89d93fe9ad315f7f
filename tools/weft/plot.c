/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "plot.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PANEL_HEIGHT 420u
#define TICS 9u
#define LINEAR_SPREAD 30 /* ratio of values from which on the axis is logarithmic */

/* Start gnuplot with [in] as its input and [out] as its output; -1 with errno: not possible. */
static pid_t start(const char *argument, int in, int out)
{
    char *argv[] = {(char[]){"gnuplot"}, (char *)(size_t)argument, NULL};
    posix_spawn_file_actions_t files;
    pid_t pid = -1;
    int error;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    error = posix_spawnp(&pid, argv[0], &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    errno = error;
    return error ? -1 : pid;
}

/* Wait for it: 0 if it ended with code 0. */
static int finish(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static int missing(const char *who)
{
    fprintf(stderr, "%s needs gnuplot: %s (Debian: apt install gnuplot-nox)\n", who,
            errno ? strerror(errno) : "it does not start");
    return -1;
}

int wf_plot_check(const char *who, const char *file)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), fd;
    pid_t pid = start("--version", null, null);
    int bad = pid < 0 ? missing(who) : 0;
    if (pid >= 0 && finish(pid)) {
        errno = 0;
        bad = missing(who);
    }
    close(null);
    if (bad || !file)
        return bad;
    fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        fprintf(stderr, "%s %s: %s\n", who, file, strerror(errno));
        return -1;
    }
    close(fd);
    return 0;
}

static void write_data(FILE *to, const struct wf_plot *plot)
{
    for (size_t s = 0; s < plot->count; s++) {
        fprintf(to, "$d%zu << END\n", s);
        for (size_t i = 0; i < plot->series[s].n; i++)
            fprintf(to, "%.17g %.17g\n", plot->series[s].x[i], plot->series[s].y[i]);
        fputs("END\n", to);
    }
}

/* The ratio of the largest to the smallest value. */
static double spread(const struct wf_plot *plot)
{
    double low = 0, high = 0;
    for (size_t s = 0; s < plot->count; s++)
        for (size_t i = 0; i < plot->series[s].n; i++) {
            double y = plot->series[s].y[i];
            low = low == 0 || y < low ? y : low;
            high = y > high ? y : high;
        }
    return low > 0 ? high / low : 0;
}

static void write_terminal(FILE *to, size_t panels)
{
    size_t columns = panels > 1 ? 2 : 1, rows = (panels + 1) / columns;
    fprintf(to,
            "set terminal svg size %zu,%zu dynamic font 'sans-serif,13' background '#ffffff'\n"
            "set encoding utf8\nset grid ytics lc rgb '#d0d0d0'\nset border 3 lc rgb '#606060'\n"
            "set xtics nomirror\nset ytics nomirror\n"
            "set key outside below horizontal noenhanced\n",
            800 * columns, panels > 1 ? PANEL_HEIGHT * rows : 500);
    if (panels > 1)
        fprintf(to, "set multiplot layout %zu,%zu\n", rows, columns);
}

static void write_bar_axes(FILE *to, const struct wf_plot *plot)
{
    fputs("set key off\nset yrange [*:*]\nset logscale y 2\nset style fill solid 0.85\nset arrow "
          "from graph 0, first 1 to graph 1, "
          "first 1 "
          "nohead lc rgb '#606060'\nset xtics rotate by -40 noenhanced (",
          to);
    for (size_t i = 0; i < plot->series[0].n; i++)
        fprintf(to, "%s'%s' %zu", i ? ", " : "", plot->labels[i], i);
    fprintf(to, ")\nset xrange [-0.6:%g]\n", (double)plot->series[0].n - 0.4);
}

/* Powers of two, at most TICS. */
static void write_byte_tics(FILE *to, const struct wf_plot *plot)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    const struct wf_plot_series *s = &plot->series[0];
    unsigned octaves = 0, step;
    for (size_t i = 1; i < s->n; i++)
        for (double x = s->x[i - 1]; x < s->x[i]; x *= 2)
            octaves++;
    step = octaves / TICS + 1;
    fputs("set xtics (", to);
    for (unsigned i = 0; s->n && i <= octaves; i += step) {
        double x = ldexp(s->x[0], (int)i), shown = x;
        unsigned unit = 0;
        for (; shown >= 1024 && unit < 3; unit++)
            shown /= 1024;
        fprintf(to, "%s'%g %s' %.17g", i ? ", " : "", shown, units[unit], x);
    }
    fprintf(to, ")\nset xrange [%g:%g]\n", s->x[0] * 0.9, ldexp(s->x[0], (int)octaves) * 1.1);
}

static void write_axes(FILE *to, const struct wf_plot *plot)
{
    fprintf(to, "set title '%s' noenhanced\nset xlabel '%s'\nset ylabel '%s'\n", plot->title,
            plot->x_label, plot->y_label);
    if (plot->labels) {
        write_bar_axes(to, plot);
        return;
    }
    fputs("set yrange [0:*]\nset logscale x 2\nset format x '%.0b%B'\n", to);
    if (plot->y_unit || spread(plot) > LINEAR_SPREAD)
        fputs("set yrange [*:*]\nset logscale y 10\n", to);
    if (plot->y_unit) {
        fprintf(to, "set format y '%%.0s %%c%s'\nset grid x y\nset key inside %s vertical\n",
                plot->y_unit, plot->key);
        write_byte_tics(to, plot);
    }
}

static void write_curves(FILE *to, const struct wf_plot *plot)
{
    static const char *const colors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                         "#e69f00", "#56b4e9", "#999999"};
    double width = 0.8 / (double)plot->count;
    const char *before = "plot ";
    for (size_t s = 0; s < plot->count; s++) {
        const char *color = colors[s % (sizeof colors / sizeof *colors)];
        double shift = ((double)s - ((double)plot->count - 1) / 2) * width;
        if (plot->y_unit && !plot->series[s].n)
            continue;
        fputs(before, to);
        before = ", ";
        if (plot->labels)
            /* From the line at 1 up or down. */
            fprintf(to,
                    "$d%zu using ($1+%g):2:($1+%g):($1+%g):($2<1?$2:1):($2<1?1:$2) "
                    "with boxxyerror",
                    s, shift, shift - width / 2, shift + width / 2);
        else
            fprintf(to, "$d%zu using 1:2 with linespoints lw %d pt 7 ps 0.5", s,
                    plot->y_unit && s == 0 ? 4 : 2);
        fprintf(to, " lc rgb '%s' title '%s'", color, plot->series[s].name);
    }
    fputc('\n', to);
}

/* Without SIGPIPE, which would end this process if gnuplot died. */
static int write_script(int fd, const struct wf_plot *plots, size_t count)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    FILE *to = fdopen(fd, "w");
    int bad;
    if (!to) {
        close(fd);
        return -1;
    }
    sigaction(SIGPIPE, &ignore, &before);
    write_terminal(to, count);
    for (size_t i = 0; i < count; i++) {
        write_data(to, &plots[i]);
        write_axes(to, &plots[i]);
        write_curves(to, &plots[i]);
    }
    bad = fclose(to);
    sigaction(SIGPIPE, &before, NULL);
    return bad;
}

int wf_plot_draw(const char *who, const char *file, const struct wf_plot *plots, size_t count)
{
    int ends[2], out, bad;
    pid_t pid;
    out = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out < 0 || pipe2(ends, O_CLOEXEC)) {
        fprintf(stderr, "%s %s: %s\n", who, file, strerror(errno));
        if (out >= 0)
            close(out);
        return -1;
    }
    pid = start("-", ends[0], out);
    close(ends[0]);
    close(out);
    if (pid < 0) {
        close(ends[1]);
        return missing(who);
    }
    bad = write_script(ends[1], plots, count);
    if (finish(pid) || bad) {
        fprintf(stderr, "%s %s: gnuplot failed (5.0 or later is needed)\n", who, file);
        return -1;
    }
    return 0;
}
