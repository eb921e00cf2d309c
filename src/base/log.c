#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/chrono.h"

/* The one global of the program. Lines are made on the stack of the caller; the lock covers the
 * copy into the ring and one write. */
static struct {
    pthread_mutex_t lock;
    struct log_options options; /* set by log_init */
    atomic_int level;
    uint64_t lines; /* written since start; line i lies in ring[i % LOG_RING_LINES] */
    struct {
        uint16_t len;
        char text[LOG_LINE_MAX];
    } ring[LOG_RING_LINES];
} log_state = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .options = {LOG_LEVEL_INFO, LOG_FORM_TEXT, -1, ""},
    .level = LOG_LEVEL_INFO,
};

static const char *const log_names[] = {"error", "warn", "info", "debug", "trace"};

bool log_level_parse(str name, enum log_level *out)
{
    for (size_t i = 0; i < countof(log_names); i++)
        if (str_eq_z(name, log_names[i])) {
            *out = (enum log_level)i;
            return true;
        }
    return false;
}

/* --- one line --- */

struct log_line {
    size_t len;
    bool is_cut, has_dots;
    char text[LOG_LINE_MAX];
};
#define LOG_LINE_ROOM (LOG_LINE_MAX - 16) /* keeps quotes, "...", a closing brace, line feed */

static void log_put(struct log_line *l, const char *p, size_t len)
{
    if (l->is_cut || l->len + len > LOG_LINE_ROOM) {
        l->is_cut = true;
        return;
    }
    memcpy(l->text + l->len, p, len);
    l->len += len;
}

static void log_put_z(struct log_line *l, const char *z) { log_put(l, z, strlen(z)); }

/* The end of a line may pass LOG_LINE_ROOM: that is what the room is kept for. */
static void log_put_end(struct log_line *l, const char *z)
{
    size_t len = strlen(z);
    must(l->len + len <= LOG_LINE_MAX);
    memcpy(l->text + l->len, z, len);
    l->len += len;
}

static void log_put_dots(struct log_line *l)
{
    if (l->is_cut && !l->has_dots)
        log_put_end(l, "...");
    l->has_dots = l->is_cut;
}

/* Printable text as it is; quotes, backslashes, control characters (C0, DEL, C1) escaped as in
 * JSON, which people can read too; bytes that are no UTF-8 as the replacement character. */
static void log_put_escaped(struct log_line *l, str s, bool quotes)
{
    while (s.len && !l->is_cut) {
        uint32_t c = 0;
        size_t n = str_utf8_decode(s, &c);
        char text[16];
        if (n == 0) {
            log_put_z(l, "\xef\xbf\xbd");
            n = 1;
        } else if (quotes && (c == '"' || c == '\\')) {
            text[0] = '\\';
            text[1] = (char)c;
            log_put(l, text, 2);
        } else if (c == '\n' || c == '\t' || c == '\r') {
            log_put_z(l, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r");
        } else if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029) {
            snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
            log_put_z(l, text);
        } else {
            log_put(l, s.p, n);
        }
        s = str_from(s, n);
    }
}

static void log_put_quoted(struct log_line *l, str s)
{
    log_put_end(l, "\"");
    log_put_escaped(l, s, true);
    log_put_dots(l);
    log_put_end(l, "\"");
}

static void log_put_time(struct log_line *l)
{
    int64_t ms = chrono_unix_ms(&chrono_real);
    time_t seconds = (time_t)(ms / 1000);
    struct tm t;
    char text[48];
    must(gmtime_r(&seconds, &t));
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &t);
    snprintf(text + n, sizeof text - n, ".%03dZ", (int)(ms % 1000));
    log_put_z(l, text);
}

static void log_put_head(struct log_line *l, enum log_level level, enum log_form form)
{
    const char *name = log_state.options.name;
    log_put_z(l, form == LOG_FORM_JSON ? "{\"time\":\"" : "");
    log_put_time(l);
    log_put_z(l, form == LOG_FORM_JSON ? "\",\"level\":\"" : " ");
    log_put_z(l, log_names[level]);
    if (*name) {
        log_put_z(l, form == LOG_FORM_JSON ? "\",\"from\":\"" : " ");
        log_put_z(l, name);
    }
    log_put_z(l, form == LOG_FORM_JSON ? "\",\"event\":" : ": ");
}

/* The ring keeps lines of every level: after a crash the silent ones are what one wants to see. */
static void log_emit(struct log_line *l, enum log_level level)
{
    pthread_mutex_lock(&log_state.lock);
    uint64_t at = log_state.lines++ % LOG_RING_LINES;
    memcpy(log_state.ring[at].text, l->text, l->len);
    log_state.ring[at].len = (uint16_t)l->len;
    int fd = log_state.options.fd;
    bool is_shown = fd >= 0 && (int)level <= atomic_load(&log_state.level);
    /* A log that cannot be written (closed pipe, full disk) must not stop the program. */
    if (is_shown && write(fd, l->text, l->len) < 0)
        is_shown = false;
    pthread_mutex_unlock(&log_state.lock);
}

void log_fields(enum log_level level, const char *event, const struct log_field *fields,
                size_t count)
{
    struct log_line l = {0};
    bool is_json = log_state.options.form == LOG_FORM_JSON;
    log_put_head(&l, level, log_state.options.form);
    if (is_json)
        log_put_quoted(&l, str_of(event));
    else
        log_put_escaped(&l, str_of(event), false);
    for (size_t i = 0; i < count && !l.is_cut; i++) {
        size_t before = l.len;
        log_put_z(&l, is_json ? ",\"" : " ");
        log_put_z(&l, fields[i].key);
        log_put_z(&l, is_json ? "\":" : "=");
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)fields[i].number);
        if (l.is_cut)
            ; /* below */
        else if (!fields[i].text.p)
            log_put_z(&l, number);
        else {
            log_put_quoted(&l, fields[i].text);
            continue; /* it closes its quotes itself */
        }
        if (l.is_cut)
            l.len = before; /* half a member would break the JSON form */
    }
    if (!is_json)
        log_put_dots(&l);
    log_put_end(&l, is_json ? "}\n" : "\n");
    log_emit(&l, level);
}

static void log_format(enum log_level level, const char *format, va_list args)
{
    char text[LOG_LINE_MAX];
    int n = vsnprintf(text, sizeof text, format, args);
    struct log_line l = {0};
    bool is_json = log_state.options.form == LOG_FORM_JSON;
    size_t len = n < 0 ? 0 : base_min((size_t)n, sizeof text - 1);
    if ((size_t)n >= sizeof text) /* cut: not in the middle of a character */
        len = str_utf8_complete(str_view(text, len));
    log_put_head(&l, level, log_state.options.form);
    if (is_json)
        log_put_quoted(&l, str_view(text, len));
    else
        log_put_escaped(&l, str_view(text, len), false);
    if (!is_json)
        log_put_dots(&l);
    log_put_end(&l, is_json ? "}\n" : "\n");
    log_emit(&l, level);
}

#define LOG_LEVEL_FUNCTION(name, level)                                                          \
    void name(const char *format, ...)                                                           \
    {                                                                                            \
        va_list args;                                                                            \
        va_start(args, format);                                                                  \
        log_format(level, format, args);                                                         \
        va_end(args);                                                                            \
    }

LOG_LEVEL_FUNCTION(log_error, LOG_LEVEL_ERROR)
LOG_LEVEL_FUNCTION(log_warn, LOG_LEVEL_WARN)
LOG_LEVEL_FUNCTION(log_info, LOG_LEVEL_INFO)
LOG_LEVEL_FUNCTION(log_debug, LOG_LEVEL_DEBUG)

/* --- state and ring --- */

static void log_crash(void) { log_dump(STDERR_FILENO); }

int log_init(const struct log_options *o)
{
    pthread_mutex_lock(&log_state.lock);
    int before = log_state.options.fd;
    log_state.options = *o;
    if (!log_state.options.name)
        log_state.options.name = "";
    atomic_store(&log_state.level, (int)o->level);
    pthread_mutex_unlock(&log_state.lock);
    base_set_crash_hook(log_crash);
    return before;
}

/* Without the lock: whoever crashed may hold it. A line that is being written right now may come
 * out mixed, which is better than a second crash. */
void log_dump(int fd)
{
    uint64_t end = log_state.lines;
    uint64_t first = end > LOG_RING_LINES ? end - LOG_RING_LINES : 0;
    for (uint64_t i = first; i < end; i++) {
        size_t len = log_state.ring[i % LOG_RING_LINES].len;
        if (write(fd, log_state.ring[i % LOG_RING_LINES].text, base_min(len, LOG_LINE_MAX)) < 0)
            return;
    }
}
