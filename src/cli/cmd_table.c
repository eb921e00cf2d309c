#include "cli/cmd.h"

extern const struct cmd cmd_bench, cmd_cache, cmd_can_run, cmd_daemon_ps, cmd_daemon_stop;
extern const struct cmd cmd_doctor;
extern const struct cmd cmd_docs_completion, cmd_docs_man, cmd_drill, cmd_engine, cmd_fit;
extern const struct cmd cmd_inspect, cmd_install, cmd_install_remove, cmd_launch, cmd_legs;
extern const struct cmd cmd_models_list, cmd_plan, cmd_pull, cmd_rm, cmd_run, cmd_serve;
extern const struct cmd cmd_stub, cmd_version;

/* Known, but not built: refused by name. */
#define LATER(command) &(const struct cmd){.name = command, .is_later = true}

/* The order is that of the help. */
const struct cmd *const cmd_table[] = {
    &cmd_serve,
    &cmd_run,
    &cmd_daemon_ps,
    &cmd_daemon_stop,
    &cmd_pull,
    &cmd_models_list,
    &cmd_rm,
    &cmd_plan,
    &cmd_fit,
    &cmd_can_run,
    &cmd_inspect,
    &cmd_bench,
    &cmd_launch,
    &cmd_install,
    &cmd_install_remove,
    &cmd_legs,
    &cmd_drill,
    &cmd_doctor,
    &cmd_version,
    LATER("worker"),
    &cmd_cache,
    &cmd_docs_completion,
    &cmd_docs_man,
    &cmd_engine,
    &cmd_stub,
    NULL,
};
