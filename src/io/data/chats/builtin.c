// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Each tells by generation blocks what the assistant writes, and refuses what it has no place for.
#include "io/data/chats/builtin.h"
#include <stddef.h>
#include <string.h>

#define EACH "{%- for message in messages %}"
#define REFUSE_OTHERS                                                                              \
    "{%- else %}{{- raise_exception('this template knows no messages of ' ~ message.role) }}"      \
    "{%- endif %}{%- endfor %}"
#define REFUSE_TOOLS                                                                               \
    "{%- if tools %}{{- raise_exception('this template has no place for tools') }}{%- endif %}"
// System prompts stand before the first user's text.
#define TAKE_SYSTEM                                                                                \
    "{%- set ns = namespace(system='') %}" EACH                                                    \
    "{%- if message.role == 'system' %}{%- set ns.system = ns.system ~ message.content %}"

static const mics_chat_builtin templates[] = {
    {.name = "chatml",
     .tokens = {"<|im_start|>", "<|im_end|>"},
     .text = REFUSE_TOOLS EACH
     "{%- if message.role == 'assistant' %}"
     "{{- '<|im_start|>assistant\n' }}{%- generation %}{{- message.content ~ '<|im_end|>' }}"
     "{%- endgeneration %}{{- '\n' }}"
     "{%- else %}{{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' }}"
     "{%- endif %}{%- endfor %}"
     "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"},
    {.name = "llama3",
     .tokens = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     .text = REFUSE_TOOLS
     "{{- bos_token }}" EACH "{{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' }}"
     "{%- if message.role == 'assistant' %}{%- generation %}"
     "{{- message.content | trim ~ '<|eot_id|>' }}{%- endgeneration %}"
     "{%- else %}{{- message.content | trim ~ '<|eot_id|>' }}{%- endif %}{%- endfor %}"
     "{%- if add_generation_prompt %}"
     "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"},
    {.name = "mistral",
     .text = REFUSE_TOOLS
     "{{- bos_token }}" TAKE_SYSTEM "{%- elif message.role == 'user' %}"
     "{{- '[INST] ' ~ (ns.system ~ '\n\n' if ns.system else '') ~ message.content ~ ' [/INST]' }}"
     "{%- set ns.system = '' %}"
     "{%- elif message.role == 'assistant' %}{%- generation %}"
     "{{- ' ' ~ message.content | trim ~ eos_token }}{%- endgeneration %}" REFUSE_OTHERS},
    // Source of the words: Taori et al., Stanford Alpaca, 2023.
    {.name = "alpaca",
     .text = REFUSE_TOOLS
     "{{- bos_token }}" TAKE_SYSTEM "{%- elif message.role == 'user' %}"
     "{%- if ns.system %}{{- ns.system ~ '\n\n' }}"
     "{%- elif loop.first or (loop.index0 == 1 and messages[0].role == 'system') %}"
     "{{- 'Below is an instruction that describes a task' }}"
     "{{- ', paired with an input that provides further context' if message.input else '' }}"
     "{{- '. Write a response that appropriately completes the request.\n\n' }}{%- endif %}"
     "{%- set ns.system = '' %}"
     "{{- '### Instruction:\n' ~ message.content ~ '\n\n' }}"
     "{%- if message.input %}{{- '### Input:\n' ~ message.input ~ '\n\n' }}{%- endif %}"
     "{{- '### Response:\n' }}"
     "{%- elif message.role == 'assistant' %}{%- generation %}"
     "{{- message.content ~ eos_token }}{%- endgeneration %}"
     "{{- '' if loop.last else '\n\n' }}" REFUSE_OTHERS},
};

const mics_chat_builtin *mics_chat_builtin_find(const char *name)
{
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        if (strcmp(templates[i].name, name) == 0)
            return &templates[i];
    }
    return NULL;
}
