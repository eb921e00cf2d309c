/* Hugging Face, and what speaks its protocol (docs/formats/hub.md). */
#include <string.h>

#include "base/digest.h"
#include "base/json.h"
#include "store/hub.h"

#define HUB_HF_DEPTH 64

/* Everything but unreserved characters (RFC 3986) and the slash between names. */
static bool hub_hf_add_path(struct buf *out, str path)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789-._~/";
    for (size_t i = 0; i < path.len; i++) {
        if (memchr(plain, path.p[i], sizeof plain - 1))
            buf_add_byte(out, path.p[i]);
        else
            buf_printf(out, "%%%02X", (unsigned)(unsigned char)path.p[i]);
    }
    return !out->full;
}

/* A revision may be a branch with slashes; there they are part of the name. */
static bool hub_hf_add_revision(struct buf *out, str revision)
{
    str part, rest = revision;
    for (bool first = true; str_split(&rest, '/', &part); first = false) {
        if (!first)
            buf_add_z(out, "%2F");
        hub_hf_add_path(out, part);
    }
    return !out->full;
}

static bool hub_hf_list_url(struct buf *out, str endpoint, str repo, str revision)
{
    buf_printf(out, "%.*s/api/models/%.*s/revision/", STR_ARG(endpoint), STR_ARG(repo));
    hub_hf_add_revision(out, revision);
    return buf_add_z(out, "?blobs=true");
}

static bool hub_hf_file_url(struct buf *out, str endpoint, str repo, str revision, str path)
{
    buf_printf(out, "%.*s/%.*s/resolve/", STR_ARG(endpoint), STR_ARG(repo));
    hub_hf_add_revision(out, revision);
    buf_add_byte(out, '/');
    return hub_hf_add_path(out, path);
}

static bool hub_hf_search_url(struct buf *out, str endpoint, str words)
{
    buf_printf(out, "%.*s/api/models?filter=gguf&sort=downloads&direction=-1&limit=%u&search=",
               STR_ARG(endpoint), HUB_FOUND_MAX);
    return hub_hf_add_path(out, words);
}

static bool hub_hf_read_file(struct hub_file *out, struct json v, struct arena *a, struct err *e)
{
    struct json lfs = json_member(v, "lfs"), sha = json_member(lfs, "sha256");
    out->path = json_text(json_member(v, "rfilename"), a);
    out->size = HUB_SIZE_UNKNOWN;
    if (!out->path.p)
        return err_set(e, a->is_full ? ERR_MEMORY : ERR_FORMAT,
                       "hub: a file without rfilename in the list");
    /* Of a file in large storage the repository's own size may be that of the pointer. */
    if (!json_u64(json_member(lfs, "size"), &out->size))
        (void)json_u64(json_member(v, "size"), &out->size);
    if (json_kind(sha) == JSON_KIND_ABSENT || json_kind(sha) == JSON_KIND_NULL)
        return true;
    out->has_sha256 = digest_unhex(out->sha256, 32, json_text(sha, a));
    return out->has_sha256 || err_set(e, ERR_FORMAT, "hub: %.*s: sha256 of 64 hex digits expected",
                                      STR_ARG(str_sub(out->path, 0, 80)));
}

static bool hub_hf_parse(struct json *out, str body, struct arena *a, struct err *e)
{
    struct json_options options = {.depth_max = HUB_HF_DEPTH};
    if (body.len > HUB_ANSWER_MAX)
        return err_set(e, ERR_LIMIT, "hub: an answer of %zu bytes, at most %zu", body.len,
                       HUB_ANSWER_MAX);
    return json_parse(out, body, &options, a, e) || err_wrap(e, "hub");
}

static bool hub_hf_read_list(struct hub_repo *out, str body, struct arena *a, struct err *e)
{
    struct json v, siblings;
    if (!hub_hf_parse(&v, body, a, e))
        return false;
    siblings = json_member(v, "siblings");
    if (json_kind(siblings) != JSON_KIND_ARRAY)
        return err_set(e, ERR_FORMAT, "hub: the answer has no list of files (siblings)");
    uint32_t count = json_count(siblings), n = 0;
    if (count > HUB_FILES_MAX)
        return err_set(e, ERR_LIMIT, "hub: %u files in one repository, at most %u", count,
                       HUB_FILES_MAX);
    struct hub_file *files = ARENA_ARRAY(a, struct hub_file, (size_t)count + 1);
    if (!files)
        return err_set(e, ERR_MEMORY, "hub: no memory for %u files", count);
    for (struct json_walk w = json_walk(siblings); json_next(&w); n++)
        if (!hub_hf_read_file(&files[n], w.value, a, e))
            return false;
    *out = (struct hub_repo){
        .commit = json_text(json_member(v, "sha"), a),
        .model_type = json_text(json_member(json_member(v, "config"), "model_type"), a),
        .files = files,
        .files_count = n,
    };
    return !a->is_full || err_set(e, ERR_MEMORY, "hub: no memory for %u files", count);
}

static bool hub_hf_read_search(const str **out, uint32_t *count, str body, struct arena *a,
                               struct err *e)
{
    struct json v;
    str *names = ARENA_ARRAY(a, str, HUB_FOUND_MAX);
    uint32_t n = 0;
    if (!names)
        return err_set(e, ERR_MEMORY, "hub: no memory for a search");
    if (!hub_hf_parse(&v, body, a, e))
        return false;
    if (json_kind(v) != JSON_KIND_ARRAY)
        return err_set(e, ERR_FORMAT, "hub: a search answers with an array");
    for (struct json_walk w = json_walk(v); n < HUB_FOUND_MAX && json_next(&w);) {
        str name = json_text(json_member(w.value, "id"), a);
        if (name.len)
            names[n++] = name;
    }
    *out = names;
    *count = n;
    return true;
}

const struct hub hub_hf = {
    .name = "hf",
    .list_url = hub_hf_list_url,
    .file_url = hub_hf_file_url,
    .search_url = hub_hf_search_url,
    .read_list = hub_hf_read_list,
    .read_search = hub_hf_read_search,
};
