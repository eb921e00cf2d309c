#include "store/pull_state.h"

#include "base/digest.h"

#define PULL_STATE_FORMAT "shoal pull 1"

uint32_t pull_state_pieces(uint64_t size, uint64_t *piece_size)
{
    must(*piece_size > 0);
    while (size / *piece_size >= PULL_STATE_PIECES_MAX)
        *piece_size *= 2;
    return (uint32_t)(size / *piece_size + (size % *piece_size != 0));
}

uint64_t pull_state_piece_bytes(const struct pull_state *s, uint32_t i)
{
    uint64_t first = (uint64_t)i * s->piece_size;
    return s->size - first < s->piece_size ? s->size - first : s->piece_size;
}

uint64_t pull_state_received(const struct pull_state *s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->pieces; i++)
        sum += s->marks[i].is_done ? pull_state_piece_bytes(s, i) : s->marks[i].got;
    return sum;
}

/* --- writing --- */

static void pull_state_add_text(struct buf *out, const char *key, str value)
{
    if (!value.len)
        return;
    buf_printf(out, "%s ", key);
    buf_add(out, value);
    buf_add_byte(out, '\n');
}

void pull_state_add_head(struct buf *out, const struct pull_state *s)
{
    char hex[65];
    buf_add_z(out, PULL_STATE_FORMAT "\n");
    pull_state_add_text(out, "repo", s->repo);
    pull_state_add_text(out, "path", s->path);
    pull_state_add_text(out, "revision", s->revision);
    pull_state_add_text(out, "etag", s->etag);
    pull_state_add_text(out, "modified", s->modified);
    buf_printf(out, "size %llu\n", (unsigned long long)s->size);
    if (s->has_sha256) {
        digest_hex(hex, s->sha256, 32);
        pull_state_add_text(out, "sha256", str_of(hex));
    }
    buf_printf(out, "pieces %llu\n", (unsigned long long)s->piece_size);
}

void pull_state_add_done(struct buf *out, uint32_t piece, uint64_t hash)
{
    buf_printf(out, "done %u %016llx\n", piece, (unsigned long long)hash);
}

void pull_state_add_part(struct buf *out, uint32_t piece, uint64_t bytes)
{
    buf_printf(out, "part %u %llu\n", piece, (unsigned long long)bytes);
}

void pull_state_add_drop(struct buf *out, uint32_t piece)
{
    buf_printf(out, "drop %u\n", piece);
}

/* --- reading --- */

/* One line that ends in a line feed; without it a crash cut it. */
static bool pull_state_line(str text, size_t *at, str *line)
{
    str rest = str_from(text, *at);
    size_t len = str_find_byte(rest, '\n');
    if (len == STR_NONE)
        return false;
    *line = str_sub(rest, 0, len);
    *at += len + 1;
    return true;
}

static bool pull_state_read_field(struct pull_state *s, str key, str value)
{
    if (str_eq_z(key, "repo"))
        s->repo = value;
    else if (str_eq_z(key, "path"))
        s->path = value;
    else if (str_eq_z(key, "revision"))
        s->revision = value;
    else if (str_eq_z(key, "etag"))
        s->etag = value;
    else if (str_eq_z(key, "modified"))
        s->modified = value;
    else if (str_eq_z(key, "size"))
        return str_to_u64(value, &s->size);
    else if (str_eq_z(key, "sha256"))
        return s->has_sha256 = digest_unhex(s->sha256, 32, value);
    else
        return false;
    return value.len > 0;
}

static bool pull_state_read_head(struct pull_state *s, str text, size_t *at, struct err *e)
{
    str line, key;
    s->size = UINT64_MAX;
    if (!pull_state_line(text, at, &line) || !str_eq_z(line, PULL_STATE_FORMAT))
        return err_set(e, ERR_FORMAT, "journal: no line \"" PULL_STATE_FORMAT "\"");
    for (int i = 0; i < 16 && pull_state_line(text, at, &line); i++) {
        str rest = line;
        if (!str_split(&rest, ' ', &key))
            break;
        if (str_eq_z(key, "pieces")) {
            bool ok = str_to_u64(rest, &s->piece_size) && s->piece_size > 0 && s->repo.len &&
                      s->path.len && s->size != UINT64_MAX &&
                      s->size / s->piece_size < PULL_STATE_PIECES_MAX;
            return ok || err_set(e, ERR_FORMAT, "journal: a head without repo, path or size");
        }
        if (!pull_state_read_field(s, key, rest))
            break;
    }
    return err_set(e, ERR_FORMAT, "journal: the head is cut or holds \"%.*s\"",
                   STR_ARG(str_sub(line, 0, 40)));
}

static bool pull_state_hash(str text, uint64_t *out)
{
    uint8_t bytes[8];
    if (!digest_unhex(bytes, 8, text))
        return false;
    *out = 0;
    for (int i = 0; i < 8; i++)
        *out = *out << 8 | bytes[i];
    return true;
}

static bool pull_state_read_mark(struct pull_state *s, str line)
{
    str word, number;
    uint64_t i, value;
    str rest = line;
    if (!str_split(&rest, ' ', &word) || !str_split(&rest, ' ', &number) ||
        !str_to_u64(number, &i) || i >= s->pieces)
        return false;
    struct pull_mark *m = &s->marks[i];
    if (str_eq_z(word, "drop") && !rest.len) {
        *m = (struct pull_mark){0};
    } else if (str_eq_z(word, "done") && pull_state_hash(rest, &value)) {
        *m = (struct pull_mark){.is_done = true, .hash = value};
    } else if (str_eq_z(word, "part") && str_to_u64(rest, &value) &&
               value <= pull_state_piece_bytes(s, (uint32_t)i)) {
        if (!m->is_done)
            m->got = value;
    } else {
        return false;
    }
    return true;
}

bool pull_state_read(struct pull_state *out, str text, size_t *end, struct arena *a,
                     struct err *e)
{
    struct pull_state s = {0};
    size_t at = 0;
    str line;
    if (text.len > PULL_STATE_SIZE_MAX)
        return err_set(e, ERR_LIMIT, "journal: %zu bytes, at most %zu", text.len,
                       PULL_STATE_SIZE_MAX);
    if (!pull_state_read_head(&s, text, &at, e))
        return false;
    s.pieces = pull_state_pieces(s.size, &s.piece_size);
    s.marks = ARENA_ARRAY(a, struct pull_mark, (size_t)s.pieces + 1);
    if (!s.marks)
        return err_set(e, ERR_MEMORY, "journal: no memory for %u pieces", s.pieces);
    for (*end = at; pull_state_line(text, &at, &line); *end = at)
        if (line.len > PULL_STATE_LINE_MAX || !pull_state_read_mark(&s, line))
            break;
    *out = s;
    return true;
}

bool pull_state_name(str file_name, str *name)
{
    if (file_name.len <= 7 || file_name.p[0] != '.' || !str_ends(file_name, STR(".state")))
        return false;
    *name = str_sub(file_name, 1, file_name.len - 7);
    return true;
}
