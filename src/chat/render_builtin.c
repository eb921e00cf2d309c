#include "chat/render_builtin.h"

/* Qwen, SmolLM and many others. */
#define CHATML                                                                            \
    "{%- for message in messages %}\n"                                                    \
    "    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n" \
    "{%- endfor %}\n"                                                                     \
    "{%- if add_generation_prompt %}\n"                                                   \
    "    {{- '<|im_start|>assistant\\n' }}\n"                                             \
    "{%- endif %}\n"

/* Llama 3, without tools and dates. */
#define LLAMA3                                                                            \
    "{{- bos_token }}\n"                                                                  \
    "{%- for message in messages %}\n"                                                    \
    "    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}\n"       \
    "    {{- message.content | trim + '<|eot_id|>' }}\n"                                  \
    "{%- endfor %}\n"                                                                     \
    "{%- if add_generation_prompt %}\n"                                                   \
    "    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n"                  \
    "{%- endif %}\n"

/* Mistral 7B and its kin: a system text stands before the first user text; user and assistant take
 * turns. */
#define MISTRAL                                                                           \
    "{{- bos_token }}\n"                                                                  \
    "{%- set ns = namespace(system='', expected='user') %}\n"                             \
    "{%- for message in messages %}\n"                                                    \
    "    {%- if message.role == 'system' and loop.first %}\n"                             \
    "        {%- set ns.system = message.content + '\\n\\n' %}\n"                         \
    "    {%- elif message.role != ns.expected %}\n"                                       \
    "        {{- raise_exception('user and assistant must take turns') }}\n"              \
    "    {%- elif message.role == 'user' %}\n"                                            \
    "        {{- '[INST] ' + ns.system + message.content + ' [/INST]' }}\n"               \
    "        {%- set ns.system = '' %}\n"                                                 \
    "        {%- set ns.expected = 'assistant' %}\n"                                      \
    "    {%- else %}\n"                                                                   \
    "        {{- ' ' + message.content + eos_token }}\n"                                  \
    "        {%- set ns.expected = 'user' %}\n"                                           \
    "    {%- endif %}\n"                                                                  \
    "{%- endfor %}\n"

const struct render_builtin render_builtin_rows[] = {
    {"chatml", {"<|im_start|>", "<|im_end|>"}, CHATML},
    {"llama3", {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}, LLAMA3},
    {"mistral", {"[INST]", "[/INST]"}, MISTRAL},
};
const uint32_t render_builtin_count = countof(render_builtin_rows);

const struct render_builtin *render_builtin_find(str name)
{
    for (uint32_t i = 0; i < render_builtin_count; i++)
        if (str_eq_z(name, render_builtin_rows[i].name))
            return &render_builtin_rows[i];
    return NULL;
}
