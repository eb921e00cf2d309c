/* Runs a fuzz target without a fuzz engine: each corpus file whole, cut at many lengths, and with
 * single bytes changed. So `make check` and the sanitizer builds see every parser on hostile bytes
 * though no fuzz engine is installed. One corpus file is one case. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CUTS = 256, CHANGES = 512, SECONDS_MAX = 20, FILES_MAX = 4096 };

static char replay_where[512];

/* A crash or a hang names the input that caused it; the signal then does its usual work. */
static void replay_on_signal(int number)
{
    ssize_t written = write(STDERR_FILENO, replay_where, strlen(replay_where));
    (void)written;
    signal(number, SIG_DFL);
    raise(number);
}

/* The target sees a heap block of exactly size bytes, so that ASan notices one byte too far. */
static void replay_one(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, bytes, size);
    alarm(SECONDS_MAX);
    LLVMFuzzerTestOneInput(copy, size);
    alarm(0);
    free(copy);
}

static void replay_variants(const char *path, uint8_t *bytes, size_t size)
{
    snprintf(replay_where, sizeof replay_where, "\nreplay: %s, whole\n", path);
    replay_one(bytes, size);
    size_t cuts = size < CUTS ? size : CUTS;
    for (size_t i = 0; i < cuts; i++) {
        size_t cut = size * i / cuts;
        snprintf(replay_where, sizeof replay_where, "\nreplay: %s, cut to %zu bytes\n", path, cut);
        replay_one(bytes, cut);
    }
    uint64_t x = 0x9e3779b97f4a7c15u ^ size;
    for (size_t i = 0; size && i < CHANGES; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        size_t at = (size_t)(x >> 8) % size;
        uint8_t old = bytes[at];
        bytes[at] = i & 1 ? (uint8_t)(x >> 40) : (uint8_t)(old ^ 1u << (x & 7));
        snprintf(replay_where, sizeof replay_where, "\nreplay: %s, byte %zu set to 0x%02x\n", path,
                 at, bytes[at]);
        replay_one(bytes, size);
        bytes[at] = old;
    }
}

static void replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) {
        fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
        exit(1);
    }
    size_t size = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = malloc(size + 1);
    if (!bytes || fread(bytes, 1, size, f) != size) {
        fprintf(stderr, "replay: %s: cannot read\n", path);
        exit(1);
    }
    fclose(f);
    replay_variants(path, bytes, size);
    free(bytes);
}

static int replay_is_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    static const int signals[] = {SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGSEGV};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], replay_on_signal);
    for (int i = 1; i < argc; i++)
        replay_file(argv[i]);
    if (argc > 1) {
        printf("%d passed, 0 failed\n", argc - 1);
        return 0;
    }
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    size_t len = strlen(name);
    if (len > 5 && !strcmp(name + len - 5, "_fuzz"))
        len -= 5;
    char folder[256];
    snprintf(folder, sizeof folder, "tests/fuzz/corpus/%.*s", (int)len, name);
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, replay_is_file, alphasort);
    if (count <= 0) {
        fprintf(stderr, "replay: no corpus in %s\n", folder);
        return 1;
    }
    for (int i = 0; i < count; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        replay_file(path);
        free(entries[i]);
    }
    free(entries);
    printf("%d passed, 0 failed\n", count);
    return 0;
}
