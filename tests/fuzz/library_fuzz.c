/* Any bytes where other programs, or a broken disk, put a small file: an Ollama manifest, the
 * revision of a hub cache, our own record of checks. Whatever they say, the library opens, and no
 * model's path leaves its store. First byte: which file. */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "store/library.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const places[] = {
    "/.ollama/models/manifests/registry.ollama.ai/library/m/latest",
    "/hub/models--o--n/refs/main",
    "/own/.checked",
};

static char home[64];

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *level)
{
    (void)st, (void)kind, (void)level;
    return remove(path);
}

static void tidy_up(void) { (void)nftw(home, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static void put(const char *place, str bytes)
{
    char path[256];
    struct err e;
    snprintf(path, sizeof path, "%s%s", home, place);
    *strrchr(path, '/') = 0;
    if (!file_make_dirs(path, 0700, &e))
        abort();
    snprintf(path, sizeof path, "%s%s", home, place);
    FILE *f = fopen(path, "wb"); /* file_write would sync the disk each time */
    if (!f || (bytes.len && fwrite(bytes.p, 1, bytes.len, f) != bytes.len) || fclose(f) != 0)
        abort();
}

static void begin(void)
{
    /* In memory where possible: the record of checks is synced each time it is written. */
    bool has_shm = access("/dev/shm", W_OK) == 0;
    snprintf(home, sizeof home, "%s/shoal_library_XXXXXX", has_shm ? "/dev/shm" : "/tmp");
    if (!mkdtemp(home) || atexit(tidy_up) != 0)
        abort();
    put("/own/mine.gguf", STR("x"));
    put("/hub/models--o--n/snapshots/r1/hub.gguf", STR("x"));
    put("/secret.gguf", STR("x"));
    put("/.ollama/models/blobs/sha256-"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", STR("12345"));
}

static bool check(void *ctx, const struct library_entry *entry, struct err *e)
{
    (void)ctx, (void)entry, (void)e;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct library *l;
    struct err e = {0};
    char own[80], hub[80];
    if (size == 0)
        return 0;
    if (!home[0])
        begin();
    snprintf(own, sizeof own, "%s/own", home);
    snprintf(hub, sizeof hub, "%s/hub", home);
    for (size_t i = 0; i < countof(places); i++)
        put(places[i], data[0] % countof(places) == i ? str_view(data + 1, size - 1) : STR(""));
    struct library_options o = {.own = str_of(own), .home = str_of(home), .ollama = STR("auto"),
                                .hf = str_of(hub), .lmstudio = STR("off"), .check = check,
                                .tag = "t"};
    if (!library_open(&l, &o, &e))
        abort();
    for (uint32_t i = 0; i < library_count(l); i++) {
        str path = library_at(l, i)->path;
        if (str_find(path, STR("/..")) != STR_NONE || str_ends(path, STR("secret.gguf")))
            abort();
    }
    library_close(l);
    return 0;
}
