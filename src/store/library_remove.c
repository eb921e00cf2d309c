#include "store/library_remove.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "store/pull_state.h"

/* Which program's own command removes a model of its store. */
static bool library_remove_foreign(const struct library_entry *m, struct err *e)
{
    switch (m->source) {
    case LIBRARY_SOURCE_OLLAMA:
        return err_set(e, ERR_REQUEST, "%.*s belongs to Ollama: `ollama rm %.*s`",
                       STR_ARG(m->name), STR_ARG(m->name));
    case LIBRARY_SOURCE_HF:
        return err_set(e, ERR_REQUEST, "%.*s lies in the Hugging Face cache: `hf cache rm "
                       "model/%.*s`", STR_ARG(m->name), STR_ARG(m->name));
    case LIBRARY_SOURCE_LMSTUDIO:
        return err_set(e, ERR_REQUEST, "%.*s belongs to LM Studio: delete it under My Models",
                       STR_ARG(m->name));
    case LIBRARY_SOURCE_DIR:
        return m->is_directory
                   ? err_set(e, ERR_REQUEST, "%.*s: is a directory, not a model", STR_ARG(m->path))
                   : err_set(e, ERR_REQUEST, "%.*s is not in our store: `rm %s'%.*s'`",
                             STR_ARG(m->name), m->is_safetensors ? "-r " : "", STR_ARG(m->path));
    case LIBRARY_SOURCE_SHOAL:
        break;
    }
    return true;
}

/* Does the directory of path, links followed, lie in the store? The file itself may be a link: the
 * link goes, what it points to stays. */
static bool library_remove_is_below(str store, str path, struct arena *a)
{
    str dir = arena_copy(a, file_dir_name(path)), z = arena_copy(a, store);
    char *real_dir = dir.p ? realpath(dir.p, NULL) : NULL;
    char *real_store = z.p ? realpath(z.p, NULL) : NULL;
    size_t len = real_store ? strlen(real_store) : 0;
    bool ok = real_dir && real_store && !strncmp(real_dir, real_store, len) &&
              (real_dir[len] == 0 || real_dir[len] == '/');
    free(real_dir);
    free(real_store);
    return ok;
}

/* Is a pull at work on it? It would go on with files that have no names any more. */
static bool library_remove_is_fetched(str path)
{
    str name;
    if (!pull_state_name(file_base_name(path), &name))
        return false;
    int fd = open(path.p, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool is_held = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return is_held;
}

bool library_remove(const struct library_entry *m, str store, struct arena *a, struct err *e)
{
    const str *files;
    uint32_t count;
    bool is_link = false;
    struct file_info info;
    if (!library_remove_foreign(m, e))
        return false;
    if (file_stat(&info, m->path.p, e))
        is_link = info.is_link;
    if (m->is_safetensors && is_link) {
        files = &m->path;
        count = 1;
    } else if (!library_files(m, a, &files, &count, e)) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++)
        if (library_remove_is_fetched(files[i]))
            return err_set(e, ERR_REQUEST, "%.*s: a pull is fetching it: stop that first",
                           STR_ARG(m->name));
    for (uint32_t i = 0; i < count; i++) {
        if (!library_remove_is_below(store, files[i], a))
            return err_set(e, ERR_REQUEST, "%.*s is not below %.*s", STR_ARG(files[i]),
                           STR_ARG(store));
        if (unlink(files[i].p) != 0)
            return err_set_errno(e, errno, "%.*s", STR_ARG(files[i]));
    }
    if (m->is_safetensors && !is_link && rmdir(m->path.p) != 0)
        return err_set_errno(e, errno, "%.*s: its model is gone, the directory stays",
                             STR_ARG(m->path));
    return true;
}
