#include "text/tok.h"

/* Every tokenizer.ggml.model we read. Others (rwkv, plamo2, none ...) are refused by name. */
extern const struct tok_kind tok_bpe, tok_gemma4, tok_spm, tok_wpm;

static const struct tok_kind *const tok_table[] = {&tok_bpe, &tok_gemma4, &tok_spm, &tok_wpm};

const struct tok_kind *tok_kind_find(str model)
{
    for (size_t i = 0; i < countof(tok_table); i++)
        if (str_eq_z(model, tok_table[i]->model))
            return tok_table[i];
    return NULL;
}
