#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/proc.h"
#include "base/version.h"
#include "cli/cmd.h"
#include "cli/run_local.h"
#include "engine/engine_host.h"

#define CMD_ENGINE_CREDIT ((int64_t)4 << 20) /* BEHAVIOUR 8.7: bytes ahead of a slow reader */

static bool cmd_engine_run(struct cmd_context *c, struct err *e)
{
    struct stat st;
    if (fstat(PROC_FD, &st) || !S_ISSOCK(st.st_mode))
        return err_set(e, ERR_USAGE, "engine: shoal starts this command itself");
    /* The terminal sends Ctrl-C to the whole group; what it means is the parent's decision. */
    signal(SIGINT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    bool traces = str_eq_z(config_env("SHOAL_DEBUG_SCHED"), "1");
    log_init(&(struct log_options){.level = traces ? LOG_LEVEL_INFO : LOG_LEVEL_WARN,
                                   .fd = STDERR_FILENO, .name = "engine"});
    struct engine_host_options o = {.fd = PROC_FD, .build_id = run_local_build_id(c->arena),
                                    .version = STR(VERSION_TEXT), .credit = CMD_ENGINE_CREDIT,
                                    .traces = traces};
    struct err why;
    c->exit_code = engine_host_run(&o, &why);
    return true;
}

const struct cmd cmd_engine = {
    .name = "engine",
    .summary = "The engine child of a model; started by shoal itself",
    .is_hidden = true,
    .run = cmd_engine_run,
};
