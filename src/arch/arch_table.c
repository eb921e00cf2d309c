#include "arch/arch.h"

extern const struct arch arch_llama, arch_qwen3, arch_gemma, arch_gptoss;

const struct arch *const arch_table[] = {
    &arch_llama,
    &arch_qwen3,
    &arch_gemma,
    &arch_gptoss,
    NULL,
};

const struct arch *arch_find(str file_name)
{
    for (size_t i = 0; arch_table[i]; i++)
        for (size_t k = 0; arch_table[i]->file_names[k]; k++)
            if (str_eq_z(file_name, arch_table[i]->file_names[k]))
                return arch_table[i];
    return NULL;
}

bool arch_read(struct hparams *hp, const struct model_file *f, struct err *e)
{
    const struct arch *a = arch_find(model_file_arch(f));
    if (!a)
        return err_set(e, ERR_UNSUPPORTED, "%.*s: architecture '%.*s' is not supported",
                       STR_ARG(model_file_name(f)), STR_ARG(model_file_arch(f)));
    *hp = (struct hparams){.arch = a};
    return a->read_hparams(hp, f, e);
}
