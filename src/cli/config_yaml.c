#include "cli/config_yaml.h"

#include <string.h>
#include <yaml.h>

#include "base/map.h"

struct config_yaml_parser {
    yaml_parser_t yaml;
    struct arena *arena;
    struct err *e;
};

static bool config_yaml_fail(struct config_yaml_parser *p, yaml_mark_t at, const char *what)
{
    return err_set(p->e, ERR_CONFIG, "%zu:%zu: %s", at.line + 1, at.column + 1, what);
}

/* The next event; what the subset leaves out is refused here, for every kind alike. */
static bool config_yaml_next(struct config_yaml_parser *p, yaml_event_t *event)
{
    if (!yaml_parser_parse(&p->yaml, event)) {
        const char *problem = p->yaml.problem ? p->yaml.problem : "cannot be read";
        return config_yaml_fail(p, p->yaml.problem_mark, problem);
    }
    const char *refused = NULL;
    bool has_anchor = false, has_tag = false;
    if (event->type == YAML_ALIAS_EVENT) {
        refused = "aliases are not allowed";
    } else if (event->type == YAML_SCALAR_EVENT) {
        has_anchor = event->data.scalar.anchor != NULL;
        has_tag = event->data.scalar.tag != NULL;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        has_anchor = event->data.sequence_start.anchor != NULL;
        has_tag = event->data.sequence_start.tag != NULL;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        has_anchor = event->data.mapping_start.anchor != NULL;
        has_tag = event->data.mapping_start.tag != NULL;
    }
    if (has_anchor)
        refused = "anchors are not allowed";
    else if (has_tag)
        refused = "tags are not allowed";
    if (!refused)
        return true;
    config_yaml_fail(p, event->start_mark, refused);
    yaml_event_delete(event);
    return false;
}

static bool config_yaml_node(struct config_yaml_parser *p, struct config_yaml **out,
                             yaml_event_t *event, int depth);

static struct config_yaml *config_yaml_new(struct config_yaml_parser *p, enum config_yaml_kind kind,
                                           const yaml_event_t *event)
{
    struct config_yaml *n = ARENA_NEW(p->arena, struct config_yaml);
    if (!n) {
        config_yaml_fail(p, event->start_mark, "too large");
        return NULL;
    }
    n->kind = kind;
    n->line = (uint32_t)event->start_mark.line + 1;
    n->column = (uint32_t)event->start_mark.column + 1;
    return n;
}

static bool config_yaml_scalar(struct config_yaml_parser *p, struct config_yaml **out,
                               const yaml_event_t *event)
{
    struct config_yaml *n = config_yaml_new(p, CONFIG_YAML_SCALAR, event);
    if (!n)
        return false;
    str text = str_view(event->data.scalar.value, event->data.scalar.length);
    n->text = arena_copy(p->arena, text);
    n->is_null = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
                 (text.len == 0 || str_eq_z(text, "~") || str_eq_z(text, "null"));
    *out = n;
    return n->text.p || config_yaml_fail(p, event->start_mark, "too large");
}

/* One child at a time, until the end event; in a map a key precedes each. */
static bool config_yaml_children(struct config_yaml_parser *p, struct config_yaml *n,
                                 struct map *keys, int depth)
{
    struct config_yaml **last = &n->first;
    yaml_event_type_t end = n->kind == CONFIG_YAML_MAP ? YAML_MAPPING_END_EVENT
                                                       : YAML_SEQUENCE_END_EVENT;
    for (;; n->count++) {
        yaml_event_t event;
        struct config_yaml *key = NULL, *child;
        if (!config_yaml_next(p, &event))
            return false;
        if (event.type == end) {
            yaml_event_delete(&event);
            return true;
        }
        if (n->kind == CONFIG_YAML_MAP) {
            yaml_mark_t at = event.start_mark;
            if (!config_yaml_node(p, &key, &event, depth + 1))
                return false;
            if (key->kind != CONFIG_YAML_SCALAR)
                return config_yaml_fail(p, at, "a key must be a text");
            if (map_find(keys, key->text))
                return err_set(p->e, ERR_CONFIG, "%u:%u: %.*s: stands twice", key->line,
                               key->column, STR_ARG(str_sub(key->text, 0, 64)));
            if (!map_put(keys, key->text, 1))
                return config_yaml_fail(p, at, "too large");
            if (!config_yaml_next(p, &event))
                return false;
        }
        if (!config_yaml_node(p, &child, &event, depth + 1))
            return false;
        if (key) {
            child->key = key->text;
            child->key_line = key->line;
            child->key_column = key->column;
        }
        *last = child;
        last = &child->next;
    }
}

/* Takes the event. Depth is limited by CONFIG_YAML_DEPTH. */
static bool config_yaml_node(struct config_yaml_parser *p, struct config_yaml **out,
                             yaml_event_t *event, int depth)
{
    bool ok = false, is_map = event->type == YAML_MAPPING_START_EVENT;
    struct map keys = {0};
    if (event->type == YAML_SCALAR_EVENT) {
        ok = config_yaml_scalar(p, out, event);
    } else if (depth > CONFIG_YAML_DEPTH) {
        ok = config_yaml_fail(p, event->start_mark, "nested too deeply");
    } else if ((*out = config_yaml_new(p, is_map ? CONFIG_YAML_MAP : CONFIG_YAML_LIST, event))) {
        map_init(&keys, 1u << 20);
        ok = config_yaml_children(p, *out, &keys, depth);
        map_deinit(&keys);
    }
    yaml_event_delete(event);
    return ok;
}

/* STREAM-START, then nothing or one document. */
static bool config_yaml_document(struct config_yaml_parser *p, struct config_yaml **root)
{
    yaml_event_t event;
    bool got_root = false;
    for (;;) {
        if (!config_yaml_next(p, &event))
            return false;
        yaml_event_type_t type = event.type;
        if (type == YAML_STREAM_END_EVENT) {
            yaml_event_delete(&event);
            return true;
        }
        if (type == YAML_DOCUMENT_START_EVENT && got_root) {
            config_yaml_fail(p, event.start_mark, "a second document is not allowed");
            yaml_event_delete(&event);
            return false;
        }
        if (type == YAML_STREAM_START_EVENT || type == YAML_DOCUMENT_START_EVENT ||
            type == YAML_DOCUMENT_END_EVENT) {
            yaml_event_delete(&event);
            continue;
        }
        if (!config_yaml_node(p, root, &event, 1))
            return false;
        got_root = true;
    }
}

bool config_yaml_parse(struct config_yaml **root, str text, struct arena *a, struct err *e)
{
    struct config_yaml_parser p = {.arena = a, .e = e};
    *root = NULL;
    if (!yaml_parser_initialize(&p.yaml))
        return err_set(e, ERR_CONFIG, "1:1: no memory for the YAML reader");
    yaml_parser_set_encoding(&p.yaml, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&p.yaml, (const unsigned char *)(text.len ? text.p : ""),
                                 text.len);
    bool ok = config_yaml_document(&p, root);
    yaml_parser_delete(&p.yaml);
    return ok;
}
