#include "store/hub_ref.h"

#include <string.h>

#include "base/file.h"

#define HUB_REF_FORMS "owner/repo[@REV][:QUANT] or https://HOST/owner/repo/blob/REV/FILE expected"

static bool hub_ref_has_only(str s, const char *punctuation)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.p[i];
        bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_word && (!c || !strchr(punctuation, c)))
            return false;
    }
    return true;
}

/* One name of a repository, 96 characters as the hub allows, two times. */
static bool hub_ref_is_name(str s)
{
    return s.len && s.len <= 96 && hub_ref_has_only(s, "-_.") && s.p[0] != '.' && s.p[0] != '-' &&
           str_find(s, STR("..")) == STR_NONE;
}

bool hub_ref_is_revision(str s)
{
    return s.len && s.len <= 200 && hub_ref_has_only(s, "-_./+") && s.p[0] != '/' &&
           s.p[0] != '-' && s.p[s.len - 1] != '/' && str_find(s, STR("..")) == STR_NONE &&
           str_find(s, STR("//")) == STR_NONE;
}

static bool hub_ref_bad(struct err *e, const char *what, str text)
{
    return err_set(e, ERR_USAGE, "%s \"%.*s\": " HUB_REF_FORMS, what,
                   STR_ARG(str_sub(text, 0, 60)));
}

static bool hub_ref_take_repo(struct hub_ref *out, str repo, str text, struct err *e)
{
    size_t at = str_find_byte(repo, '/');
    if (at == STR_NONE || !hub_ref_is_name(str_sub(repo, 0, at)) ||
        !hub_ref_is_name(str_from(repo, at + 1)))
        return hub_ref_bad(e, "reference", text);
    out->repo = repo;
    return true;
}

/* owner/repo[@REV][:QUANT]. A revision has no colon, so the first one ends it. */
static bool hub_ref_parse_plain(struct hub_ref *out, str text, struct err *e)
{
    size_t colon = str_find_byte(text, ':');
    str head = str_sub(text, 0, colon);
    size_t at = str_find_byte(head, '@');
    if (colon != STR_NONE) {
        out->quant = str_from(text, colon + 1);
        if (!out->quant.len || !hub_ref_has_only(out->quant, "-_.+/"))
            return hub_ref_bad(e, "quant", out->quant);
    }
    if (at != STR_NONE) {
        out->revision = str_from(head, at + 1);
        if (!hub_ref_is_revision(out->revision))
            return hub_ref_bad(e, "revision", out->revision);
    }
    return hub_ref_take_repo(out, str_sub(head, 0, at), text, e);
}

static bool hub_ref_is_host(str host)
{
    str name = str_sub(host, 0, host.len && host.p[0] == '[' ? str_find_byte(host, ']') + 1
                                                             : str_find_byte(host, ':'));
    return name.len && hub_ref_has_only(host, "-.:[]");
}

/* owner/repo/blob/REV/FILE of an address; a query (?download=true) means nothing here. */
static bool hub_ref_parse_path(struct hub_ref *out, str path, str text, struct err *e)
{
    str owner, name, verb, revision, rest = str_sub(path, 0, str_find_byte(path, '?'));
    rest = str_sub(rest, 0, str_find_byte(rest, '#'));
    if (!str_split(&rest, '/', &owner) || !str_split(&rest, '/', &name))
        return hub_ref_bad(e, "address", text);
    str repo = str_view(owner.p, (size_t)(name.p + name.len - owner.p));
    if (!hub_ref_take_repo(out, repo, text, e))
        return false;
    if (!rest.len)
        return true; /* the page of the repository itself */
    if (!str_split(&rest, '/', &verb) || !str_split(&rest, '/', &revision) ||
        !(str_eq_z(verb, "blob") || str_eq_z(verb, "resolve") || str_eq_z(verb, "tree")))
        return hub_ref_bad(e, "address", text);
    if (!hub_ref_is_revision(revision))
        return hub_ref_bad(e, "revision", revision);
    out->revision = revision;
    bool is_file = !str_eq_z(verb, "tree");
    out->file = is_file ? rest : (str){NULL, 0};
    if (is_file != (rest.len > 0) || str_find_byte(rest, '%') != STR_NONE)
        return hub_ref_bad(e, "address", text);
    return true;
}

static bool hub_ref_parse_address(struct hub_ref *out, str text, size_t scheme, struct err *e)
{
    str rest = str_from(text, scheme);
    size_t slash = str_find_byte(rest, '/');
    str host = str_sub(rest, 0, slash);
    if (slash == STR_NONE || !hub_ref_is_host(host))
        return hub_ref_bad(e, "address", text);
    /* The page of the default hub is whatever hub is configured for it. */
    if (!str_eq_z(host, "huggingface.co") && !str_eq_z(host, "hf.co"))
        out->origin = str_sub(text, 0, scheme + host.len);
    return hub_ref_parse_path(out, str_from(rest, slash + 1), text, e);
}

static bool hub_ref_parse_any(struct hub_ref *out, str text, struct err *e)
{
    static const str hosts[] = {STR_INIT("hf.co/"), STR_INIT("huggingface.co/")};
    if (!text.len || text.len > HUB_REF_MAX)
        return err_set(e, ERR_USAGE, "reference of %zu bytes: " HUB_REF_FORMS, text.len);
    if (str_starts(text, STR("https://")))
        return hub_ref_parse_address(out, text, 8, e);
    if (str_starts(text, STR("http://127.0.0.1:")) || str_starts(text, STR("http://localhost:")))
        return hub_ref_parse_address(out, text, 7, e); /* a hub of one's own, on this machine */
    for (size_t i = 0; i < countof(hosts); i++)
        if (str_starts(text, hosts[i])) {
            str rest = str_from(text, hosts[i].len);
            bool has_file = str_find(rest, STR("/blob/")) != STR_NONE ||
                            str_find(rest, STR("/resolve/")) != STR_NONE;
            return has_file ? hub_ref_parse_path(out, rest, text, e)
                            : hub_ref_parse_plain(out, rest, e);
        }
    return hub_ref_parse_plain(out, text, e);
}

bool hub_ref_parse(struct hub_ref *out, str text, struct err *e)
{
    *out = (struct hub_ref){.revision = STR("main")};
    return hub_ref_parse_any(out, text, e);
}

/* No part of it leads up, and it does not begin at a root. */
static bool hub_ref_is_inside(str path)
{
    str part, rest = path;
    bool ok = path.len && path.p[0] != '/';
    while (ok && str_split(&rest, '/', &part))
        ok = !str_eq_z(part, "..") && !str_eq_z(part, ".") && part.len;
    return ok;
}

bool hub_ref_base(str *out, str path, struct err *e)
{
    str base = file_base_name(path);
    const char *why = NULL;
    if (!hub_ref_is_inside(path) || !base.len)
        why = "is no path inside a repository";
    else if (base.p[0] == '.')
        why = "begins with a dot";
    else if (base.len > HUB_REF_NAME_MAX)
        why = "is longer than 240 bytes";
    else if (str_utf8_valid(base) != base.len)
        why = "is not UTF-8";
    for (size_t i = 0; i < base.len && !why; i++) {
        unsigned char c = (unsigned char)base.p[i];
        bool is_c1 = i > 0 && (unsigned char)base.p[i - 1] == 0xc2 && c < 0xa0; /* U+0080 to 9F */
        if (c < 0x20 || c == 0x7f || c == '\\' || is_c1)
            why = "holds a control character or a backslash";
    }
    if (why)
        return err_set(e, ERR_FORMAT, "hub: the name \"%.*s\" %s", STR_ARG(str_sub(path, 0, 60)),
                       why);
    *out = base;
    return true;
}
