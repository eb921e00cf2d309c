#include "cli/run_repl.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct run_repl {
    struct run_local *local;
    EditLine *edit;
    History *history;
    const char *history_path;
    int fd; /* of the terminal's input */
    struct loop_watch input;
    bool is_readable, is_more; /* is_more: inside triple quotes */
    struct buf text;
};

/* --- reading a line ------------------------------------------------------------------------ */

static void run_repl_on_input(void *ctx, enum loop_ready ready)
{
    struct run_repl *r = ctx;
    (void)ready;
    r->is_readable = true;
    loop_watch_set(&r->input, LOOP_READY_READ, false);
}

/* libedit asks for a character: the loop turns until there is one. -1 with EINTR after Ctrl-C. */
static int run_repl_getc(EditLine *edit, wchar_t *out)
{
    struct run_repl *r = NULL;
    unsigned char bytes[4];
    size_t len = 0, need = 1;
    el_get(edit, EL_CLIENTDATA, &r);
    while (len < need) {
        r->is_readable = false;
        loop_watch_set(&r->input, LOOP_READY_READ, true);
        while (!r->is_readable) {
            loop_step(run_local_loop(r->local), 1000);
            if (run_local_take_interrupt(r->local)) {
                errno = EINTR;
                return -1;
            }
        }
        ssize_t n = read(r->fd, &bytes[len], 1);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return (int)n;
        if (len == 0)
            need = bytes[0] >= 0xf0 ? 4 : bytes[0] >= 0xe0 ? 3 : bytes[0] >= 0xc0 ? 2 : 1;
        len++;
    }
    uint32_t code = 0xfffd;
    if (str_utf8_decode(str_view(bytes, len), &code) != len)
        code = 0xfffd;
    *out = (wchar_t)code;
    return 1;
}

static char *run_repl_prompt(EditLine *edit)
{
    static char prompt[] = ">>> ", more[] = "... ";
    struct run_repl *r = NULL;
    el_get(edit, EL_CLIENTDATA, &r);
    return r->is_more ? more : prompt;
}

enum run_repl_line { RUN_REPL_LINE_TEXT, RUN_REPL_LINE_INTERRUPTED, RUN_REPL_LINE_END };

static enum run_repl_line run_repl_read(struct run_repl *r, str *line)
{
    int count = 0;
    errno = 0;
    const char *p = el_gets(r->edit, &count);
    if (p && count > 0) {
        *line = str_view(p, (size_t)count);
        if (str_ends(*line, STR("\n")))
            line->len--;
        return RUN_REPL_LINE_TEXT;
    }
    bool was_interrupted = count < 0 && errno == EINTR;
    el_reset(r->edit);
    fputc('\n', stdout);
    return was_interrupted ? RUN_REPL_LINE_INTERRUPTED : RUN_REPL_LINE_END;
}

/* One input: a line, or what stands between triple quotes. Empty after Ctrl-C. False: the end. */
static bool run_repl_input(struct run_repl *r)
{
    static const str quotes = STR_INIT("\"\"\"");
    str line;
    buf_clear(&r->text);
    r->is_more = false;
    do {
        enum run_repl_line got = run_repl_read(r, &line);
        if (got == RUN_REPL_LINE_END)
            return false;
        if (got == RUN_REPL_LINE_INTERRUPTED) {
            buf_clear(&r->text);
            return true;
        }
        bool begins = !r->is_more && str_starts(str_trim(line), quotes);
        if (begins) {
            line = str_from(str_trim(line), quotes.len);
            r->is_more = true;
        }
        size_t at = r->is_more ? str_find(line, quotes) : STR_NONE;
        buf_add(&r->text, str_sub(line, 0, at));
        if (at != STR_NONE)
            r->is_more = false;
        if (r->is_more && !(begins && line.len == 0))
            buf_add_byte(&r->text, '\n');
    } while (r->is_more);
    if (r->text.full) {
        fprintf(stderr, "shoal: input is longer than %zu bytes\n", RUN_REPL_INPUT_MAX);
        buf_clear(&r->text);
    }
    return true;
}

/* --- commands ------------------------------------------------------------------------------ */

static void run_repl_help(void)
{
    fputs("/bye, /exit, /quit   leave (also Ctrl-D)\n"
          "/clear               forget the conversation\n"
          "/stats               numbers of the last reply\n"
          "/help, /?            this list\n"
          "\"\"\"                  begins and ends a text of several lines\n"
          "Ctrl-C               cancels the reply\n",
          stdout);
}

static bool run_repl_is_one_of(str word, const char *const *words)
{
    for (; *words; words++)
        if (str_eq_z(word, *words))
            return true;
    return false;
}

/* True: it was a command. *ends: leave. */
static bool run_repl_command(struct run_repl *r, str text, bool *ends)
{
    static const char *const bye[] = {"/bye", "/exit", "/quit", NULL};
    static const char *const help[] = {"/?", "/help", NULL};
    *ends = run_repl_is_one_of(text, bye);
    if (*ends)
        return true;
    if (run_repl_is_one_of(text, help))
        run_repl_help();
    else if (str_eq_z(text, "/clear"))
        run_local_clear(r->local);
    else if (str_eq_z(text, "/stats"))
        run_local_print_stats(r->local);
    else if (text.len && text.p[0] == '/' && str_find_byte(text, ' ') == STR_NONE &&
             str_find_byte(str_from(text, 1), '/') == STR_NONE)
        fprintf(stderr, "shoal: no command %.*s; /help lists them\n", STR_ARG(text));
    else
        return false;
    return true;
}

static void run_repl_remember(struct run_repl *r)
{
    HistEvent ev;
    history(r->history, &ev, H_ENTER, r->text.p);
}

static bool run_repl_talk(struct run_repl *r, struct err *e)
{
    bool ends = false;
    while (run_repl_input(r)) {
        str text = str_trim(buf_view(&r->text));
        struct err why;
        if (!text.len)
            continue;
        run_repl_remember(r);
        if (run_repl_command(r, text, &ends)) {
            if (ends)
                return true;
            continue;
        }
        if (!run_local_ask(r->local, text, &why) && why.code != ERR_CANCELLED) {
            if (run_local_has_failed(r->local, e))
                return false;
            fprintf(stderr, "shoal: %s\n", why.text);
        }
        run_local_take_interrupt(r->local);
        fputc('\n', stdout);
    }
    return true;
}

/* --- open, close --------------------------------------------------------------------------- */

static void run_repl_load_history(struct run_repl *r)
{
    HistEvent ev;
    history(r->history, &ev, H_SETSIZE, RUN_REPL_HISTORY_MAX);
    history(r->history, &ev, H_SETUNIQUE, 1);
    if (r->history_path[0])
        history(r->history, &ev, H_LOAD, r->history_path);
}

/* The mode must be right before the first line of a conversation is in the file. */
static void run_repl_save_history(struct run_repl *r)
{
    HistEvent ev;
    if (!r->history_path[0])
        return;
    int fd = open(r->history_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || fchmod(fd, 0600) || history(r->history, &ev, H_SAVE, r->history_path) < 0)
        fprintf(stderr, "shoal: %s: %s\n", r->history_path, strerror(errno));
    if (fd >= 0)
        close(fd);
}

/* The terminal, opened once more so that reading does not wait: Ctrl-C drops what was typed also
 * between our being told of it and our read, which would then sleep until the next key. Our stdin
 * itself stays as it is, others read from it too. A terminal of another user (after su) cannot be
 * opened; there that may happen. */
static int run_repl_open_input(void)
{
    int fd = open("/proc/self/fd/0", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fd < 0 ? STDIN_FILENO : fd;
}

static bool run_repl_open(struct run_repl *r, struct err *e)
{
    r->fd = run_repl_open_input();
    setlocale(LC_CTYPE, "C.UTF-8");
    buf_init(&r->text, RUN_REPL_INPUT_MAX);
    r->edit = el_init("shoal", stdin, stdout, stderr);
    r->history = history_init();
    if (!r->edit || !r->history)
        return err_set(e, ERR_IO, "run: the terminal cannot be used for line editing");
    run_repl_load_history(r);
    el_set(r->edit, EL_CLIENTDATA, r);
    el_set(r->edit, EL_PROMPT, run_repl_prompt);
    el_set(r->edit, EL_EDITOR, "emacs");
    el_set(r->edit, EL_SIGNAL, 0);
    el_set(r->edit, EL_HIST, history, r->history);
    el_set(r->edit, EL_GETCFN, run_repl_getc);
    el_source(r->edit, NULL);
    return loop_watch_open(&r->input, run_local_loop(r->local), r->fd, run_repl_on_input, r, e);
}

bool run_repl(struct run_local *local, const char *history_path, struct err *e)
{
    struct run_repl r = {.local = local, .history_path = history_path};
    bool ok = run_repl_open(&r, e);
    if (ok) {
        ok = run_repl_talk(&r, e);
        run_repl_save_history(&r);
    }
    loop_watch_close(&r.input);
    if (r.fd != STDIN_FILENO)
        close(r.fd);
    if (r.edit)
        el_end(r.edit);
    if (r.history)
        history_end(r.history);
    buf_deinit(&r.text);
    return ok;
}
