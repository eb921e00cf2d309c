/* cmd - the command line: one row per command, flags by table, help made from it.
 *
 * Owns:      struct cmd and its flags, finding, parsing, help; exit codes.
 * Not:       settings and their values (config), what a command does (cmd_NAME.c).
 * Invariant: -x v, -x=v, one or two dashes; booleans -b, -b=false. Flags end at the first word or
 *            at --. The last wins, except repeatable ones. Anything else is ERR_USAGE.
 * Thread:    main.
 * Limits:    CMD_FLAGS_MAX flags of a command, its settings included.
 */
#ifndef SHOAL_CLI_CMD_H
#define SHOAL_CLI_CMD_H

#include "cli/config.h"
#include "store/library.h"

#define CMD_FLAGS_MAX 64

enum cmd_exit {
    CMD_EXIT_DONE = 0,
    CMD_EXIT_ERROR = 1,
    CMD_EXIT_USAGE = 2,
    CMD_EXIT_SIGINT = 130,
    CMD_EXIT_SIGTERM = 143,
};

struct cmd_flag {
    const char *name;
    const char *value;    /* "N", "PATH": for the help; NULL for a boolean */
    struct config_spec spec;
    const char *standard; /* default as text, NULL: none */
    bool is_repeatable;   /* the spec's type holds for each */
    bool is_later;        /* known, but not built: refused by name */
    const char *help;
};

struct cmd_context;
struct cmd {
    const char *name, *alias; /* alias NULL: none */
    const char *words;        /* "MODEL [PROMPT...]", NULL: none */
    uint16_t words_min, words_max;
    const char *summary; /* one line of the command list */
    const char *text;    /* paragraphs of the help, or NULL */
    const struct cmd_flag *flags;
    uint16_t flags_count;
    const char *settings_of; /* takes the flags of that command's settings; NULL: its own */
    bool has_json, takes_server; /* -json; -addr and -key-file */
    bool is_hidden, is_later;
    bool judges_config;      /* runs with a broken configuration too: config_problems says why */
    bool flags_anywhere;     /* flags may stand behind words too, until -- */
    bool refuses_late_flags; /* a word behind the first one that looks like one of its flags */
    /* False: main prints "shoal: ..." and exits 1, ERR_USAGE 2, ERR_CANCELLED 130. True: exits
     * with c->exit_code. */
    bool (*run)(struct cmd_context *c, struct err *e);
};

/* Entries of cmd_table.c; ends with NULL. */
extern const struct cmd *const cmd_table[];
const struct cmd *cmd_find(str name);

struct cmd_value {
    const struct cmd_flag *flag;
    struct config_value value;
    bool is_given;
};
struct cmd_context {
    const struct cmd *cmd;
    struct arena *arena; /* process lifetime */
    const struct config *config;
    str config_problems; /* judges_config: a line each; then config holds only defaults */
    const str *words;
    uint32_t words_count;
    bool wants_help;
    int exit_code;

    struct cmd_value values[CMD_FLAGS_MAX];
    uint32_t values_count;
    struct config_flag settings[CMD_FLAGS_MAX];
    uint32_t settings_count;
    const char *config_path;
};

/* argv: what follows the command's name. ERR_USAGE with a sentence. Settings among the flags are
 * collected, not yet loaded. */
bool cmd_parse(struct cmd_context *c, int argc, char **argv, struct err *e) BASE_USE_RESULT;

/* Values of the command's own flags; a name that is not in its table is our mistake. */
bool cmd_bool(const struct cmd_context *c, const char *flag);
int64_t cmd_number(const struct cmd_context *c, const char *flag);
double cmd_real(const struct cmd_context *c, const char *flag);
str cmd_text(const struct cmd_context *c, const char *flag); /* empty when not given */
const struct config_value *cmd_value(const struct cmd_context *c, const char *flag);
bool cmd_is_given(const struct cmd_context *c, const char *flag);

/* Every flag that help shows, in its order: own ones, settings, shared ones. */
struct cmd_help {
    const char *name, *value, *standard, *help; /* value NULL: a boolean */
};
void cmd_each_flag(const struct cmd *cmd, void (*on_flag)(void *ctx, const struct cmd_help *f),
                   void *ctx);

/* Usage of one command, or of the program for NULL. */
void cmd_add_help(struct buf *out, const struct cmd *cmd);

/* Is the stream a terminal on which colour and in-place progress make sense? */
bool cmd_is_terminal(int fd);
/* --- models, for every command that takes one (cmd_models.c) --- */

/* The model of that name or path (BEHAVIOUR 4.2); its texts live in c->arena. ERR_NOT_FOUND,
 * ERR_REQUEST (ambiguous). Whether the file is sound shows when it is opened. */
bool cmd_models_find(const struct cmd_context *c, str name, struct library_entry *out,
                     struct err *e) BASE_USE_RESULT;

/* The library of the configuration; checked: every file's header. */
bool cmd_models_open(const struct cmd_context *c, bool own_only, bool checked,
                     struct library **out, struct err *e) BASE_USE_RESULT;
/* "3.1 / 17.0 GB": both in the unit of the larger. */
void cmd_models_add_share(struct buf *out, uint64_t done, uint64_t size);

/* Where models are, as the configuration says. */
void cmd_models_options(const struct cmd_context *c, struct library_options *out);

/* "2048 tokens a conversation, ...": what serve would choose for that model here (cmd_plan.c).
 * False: the file is not sound, or there is no such device. */
bool cmd_plan_add_choice(struct buf *out, const struct cmd_context *c,
                         const struct library_entry *m, struct err *e) BASE_USE_RESULT;

/* --- hubs, for every command that asks one (cmd_pull.c) --- */

struct hub_net_options;
/* Endpoints, token, roots and proxies as configuration and environment say. ERR_CONFIG, ERR_IO. */
bool cmd_pull_hub(const struct cmd_context *c, struct hub_net_options *out,
                  struct err *e) BASE_USE_RESULT;
/* Can our engine do something with that model_type of a config.json? */
bool cmd_pull_supports(void *ctx, str model_type);

/* --- the answer of `version -json` and of GET /version (cmd_version.c) --- */

void cmd_version_put(struct buf *out);

#endif
