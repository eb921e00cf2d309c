#include "serve/context_file.h"

#include <stdio.h>
#include <string.h>

#include "base/digest.h"
#include "base/json.h"

#define DEPTH_MAX 160u /* a body's limit, and what stands around it */
#define NAME_END ".context"

static const char magic[8] = {'s', 'h', 'o', 'a', 'l', 'c', 't', 'x'};

/* --- the header ---------------------------------------------------------------------------- */

static void context_file_put(char *to, uint64_t n, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        to[i] = (char)(uint8_t)(n >> (8 * i));
}

static uint64_t context_file_get(const char *from, uint32_t bytes)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < bytes; i++)
        n |= (uint64_t)(uint8_t)from[i] << (8 * i);
    return n;
}

static void context_file_head(char head[CONTEXT_FILE_HEADER], str json)
{
    memset(head, 0, CONTEXT_FILE_HEADER);
    memcpy(head, magic, sizeof magic);
    context_file_put(head + 8, CONTEXT_FILE_VERSION, 4);
    context_file_put(head + 16, json.len, 8);
    context_file_put(head + 24, digest_xxh3(json, CONTEXT_FILE_VERSION), 8);
    context_file_put(head + 32, digest_xxh3(str_view(head, 32), CONTEXT_FILE_VERSION), 8);
}

/* --- writing ------------------------------------------------------------------------------- */

static void context_file_put_json(struct json_writer *w, const struct context_file *f)
{
    const struct {
        const char *key;
        str text;
    } texts[] = {{"scope", f->scope}, {"id", f->id}, {"model", f->model}};
    const struct {
        const char *key;
        int64_t n;
    } numbers[] = {{"tokens", f->tokens}, {"cached_tokens", f->cached_tokens},
                   {"created_at", f->created_s},
                   {"last_used_at", f->used_s}, {"expires_at", f->expires_s}};
    json_open_object(w);
    for (size_t i = 0; i < countof(texts); i++) {
        json_key_z(w, texts[i].key);
        json_put_text(w, texts[i].text);
    }
    for (size_t i = 0; i < countof(numbers); i++) {
        json_key_z(w, numbers[i].key);
        json_put_i64(w, numbers[i].n);
    }
    json_key_z(w, "pinned");
    json_put_bool(w, f->is_pinned);
    if (f->prefix.pages) {
        char key[2 * API_PREFIX_KEY_SIZE + 1];
        digest_hex(key, f->prefix.key, sizeof f->prefix.key);
        json_put_key_text(w, "prefix", str_of(key));
        json_put_key_u64(w, "pages", f->prefix.pages);
    }
    json_put_key_u64(w, "bytes", f->prefix.bytes);
    json_key_z(w, "content");
    json_put_raw(w, f->content);
    json_close_object(w);
}

bool context_file_write(struct buf *out, const struct context_file *f)
{
    char head[CONTEXT_FILE_HEADER] = {0};
    size_t at = out->len;
    struct json_writer w = json_writer(out);
    buf_add(out, str_view(head, sizeof head)); /* its room: the sum comes last */
    context_file_put_json(&w, f);
    if (out->full)
        return false;
    context_file_head(head, str_from(buf_view(out), at + sizeof head));
    memcpy(out->p + at, head, sizeof head);
    return true;
}

/* --- reading ------------------------------------------------------------------------------- */

static bool context_file_check(str bytes, str *json, struct err *e)
{
    char head[CONTEXT_FILE_HEADER];
    if (bytes.len < sizeof head || memcmp(bytes.p, magic, sizeof magic) != 0)
        return err_set(e, ERR_FORMAT, "context: %zu bytes without its header", bytes.len);
    uint64_t version = context_file_get(bytes.p + 8, 4);
    if (version != CONTEXT_FILE_VERSION)
        return err_set(e, ERR_UNSUPPORTED, "context: version %llu, known is %u",
                       (unsigned long long)version, CONTEXT_FILE_VERSION);
    *json = str_from(bytes, sizeof head);
    context_file_head(head, *json);
    return !memcmp(head, bytes.p, sizeof head) ||
           err_set(e, ERR_FORMAT, "context: damaged, a sum over its %zu bytes is wrong",
                   bytes.len);
}

static bool context_file_text(struct json root, const char *key, str *out, struct arena *a,
                              struct err *e)
{
    *out = json_text(json_member(root, key), a);
    return out->p || err_set(e, ERR_FORMAT, "context: %s: no text", key);
}

static bool context_file_number(struct json root, const char *key, int64_t max, int64_t *out,
                                struct err *e)
{
    return (json_i64(json_member(root, key), out) && *out >= 0 && *out <= max) ||
           err_set(e, ERR_FORMAT, "context: %s: no number up to %lld", key, (long long)max);
}

/* What older programs did not write: then a next prefill tells it. */
static bool context_file_prefix(struct json root, struct api_prefix *out, struct arena *a,
                                struct err *e)
{
    struct json key = json_member(root, "prefix"), size = json_member(root, "bytes");
    int64_t pages = 0, bytes = 0;
    *out = (struct api_prefix){.pages = 0};
    if (json_kind(size) != JSON_KIND_ABSENT &&
        !context_file_number(root, "bytes", INT64_MAX, &bytes, e))
        return false;
    out->bytes = (uint64_t)bytes;
    if (json_kind(key) == JSON_KIND_ABSENT)
        return true;
    if (json_kind(key) != JSON_KIND_STRING ||
        !digest_unhex(out->key, sizeof out->key, json_text(key, a)))
        return err_set(e, ERR_FORMAT, "context: prefix: %u hex digits expected",
                       2 * API_PREFIX_KEY_SIZE);
    if (!context_file_number(root, "pages", UINT32_MAX, &pages, e))
        return false;
    out->pages = (uint32_t)pages;
    return true;
}

bool context_file_read(struct context_file *out, str bytes, struct arena *a, struct err *e)
{
    const struct json_options o = {.depth_max = DEPTH_MAX};
    const int64_t time_max = INT64_C(1) << 40; /* far from where seconds or ms overflow */
    struct json root;
    int64_t tokens, cached;
    str json;
    *out = (struct context_file){.tokens = 0};
    if (!context_file_check(bytes, &json, e) || !json_parse(&root, json, &o, a, e))
        return false;
    if (!context_file_text(root, "scope", &out->scope, a, e) ||
        !context_file_text(root, "id", &out->id, a, e) ||
        !context_file_text(root, "model", &out->model, a, e) ||
        !context_file_number(root, "tokens", UINT32_MAX, &tokens, e) ||
        !context_file_number(root, "cached_tokens", UINT32_MAX, &cached, e) ||
        !context_file_number(root, "created_at", time_max, &out->created_s, e) ||
        !context_file_number(root, "last_used_at", time_max, &out->used_s, e) ||
        !context_file_number(root, "expires_at", time_max, &out->expires_s, e))
        return false;
    if (!json_bool(json_member(root, "pinned"), &out->is_pinned) ||
        json_kind(json_member(root, "content")) != JSON_KIND_OBJECT)
        return err_set(e, ERR_FORMAT, "context: pinned or content is missing");
    if (!context_file_prefix(root, &out->prefix, a, e))
        return false;
    out->tokens = (uint32_t)tokens;
    out->cached_tokens = (uint32_t)cached;
    out->content = json_raw(json_member(root, "content"));
    return true;
}

/* --- names --------------------------------------------------------------------------------- */

bool context_file_name(char out[CONTEXT_FILE_NAME_SIZE], str scope, str id, struct err *e)
{
    struct digest_sha256 d;
    uint8_t sum[32];
    uint64_t len = scope.len; /* so that no two pairs are the same bytes */
    digest_sha256_init(&d);
    digest_sha256_add(&d, str_view(&len, sizeof len));
    digest_sha256_add(&d, scope);
    digest_sha256_add(&d, id);
    if (!digest_sha256_end(&d, sum, e))
        return false;
    for (uint32_t i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", sum[i]);
    memcpy(out + 32, NAME_END, sizeof NAME_END);
    return true;
}

bool context_file_is_name(const char *name)
{
    uint8_t sum[16];
    return strlen(name) + 1 == CONTEXT_FILE_NAME_SIZE && !strcmp(name + 32, NAME_END) &&
           digest_unhex(sum, sizeof sum, str_view(name, 32));
}
