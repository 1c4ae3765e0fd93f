# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Files of TRL, axolotl, LLaMA-Factory and run_clm.py with rows of chats: which tokens count, what
# is padded or packed, and what is refused once it is known that the data are chats, or texts.
. "$(dirname "$0")/lib.sh"

model=$golden/chat/qwen2
for i in 1 2 3 4 5 6 7 8; do
    echo '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "so"}, {"role": "assistant", "content": "no"}]}' >>chat.jsonl
    echo '{"prompt": "one ", "completion": "two"}' >>pair.jsonl
    echo '{"instruction": "say one", "input": "", "output": "two", "text": "text of row '$i'"}' >>alpaca.jsonl
    echo '{"talk": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yes"}]}' >>talk.jsonl
    echo '{"text": "the text of row '$i', which is long enough for a window of it"}' >>text.jsonl
done

common='"per_device_train_batch_size": 1, "max_steps": 2, "learning_rate": 1e-4, "bf16": false'
trl="$common, \"max_length\": 32"
clm="$common, \"block_size\": 32"
factory="$common, \"cutoff_len\": 64"
axolotl='"micro_batch_size": 1, "max_steps": 2, "learning_rate": 1e-4, "bf16": false'

# Which tokens of the first row count, in [[ ]], on one line.
counts() { # DATA KEYS EXPECTED; without DATA: the file has them
    echo "{$2}" >f.json
    run 0 samples "$mics" explain f.json --model "$model" ${1:+--data "$1.jsonl"} --samples 1
    tail -n +2 samples.out | tr '\n' '/' >said
    contains said "$3"
}

refused() { # DATA KEYS EXPECTED
    echo "{$2}" >f.json
    run_name=refused
    "$mics" train f.json --model "$model" ${1:+--data "$1.jsonl"} >refused.out 2>refused.err && fail "$2 is taken"
    contains refused.err "$3"
}

trains() { # DATA KEYS EXPECTED...
    echo "{$2}" >f.json
    rm -rf out
    run 0 trains "$mics" train f.json --model "$model" ${1:+--data "$1.jsonl"} --out out
    shift 2
    cat trains.err trains.out >said
    for part; do
        contains said "$part"
    done
}

# ---- TRL ----

whole='<|im_start|>[[system/You are a helpful clerk.<|im_end|>/<|im_start|>user/hi<|im_end|>/<|im_start|>assistant/yes<|im_end|>/<|im_start|>user/so<|im_end|>/<|im_start|>assistant/no<|im_end|>/]]'
turns='assistant/[[yes<|im_end|>]]/<|im_start|>user/so<|im_end|>/<|im_start|>assistant/[[no<|im_end|>]]/'
counts chat "$trl" "$whole"
counts chat "$trl, \"dataset_text_field\": \"text\"" "$whole"
counts chat "$trl, \"assistant_only_loss\": true" "$turns"
counts talk "$trl, \"data\": {\"fields\": {\"conversations\": \"talk\"}}, \"assistant_only_loss\": true" '[[yes<|im_end|>]]'
counts pair "$trl" 'one[[ two<|im_end|>]]'
counts pair "$trl, \"completion_only_loss\": true" 'one[[ two<|im_end|>]]'
counts pair "$trl, \"completion_only_loss\": false" 'o[[ne two<|im_end|>]]'
refused pair "$trl, \"assistant_only_loss\": true" 'f.json:1: assistant_only_loss: is for chats of messages, and pair.jsonl has none'
refused text "$trl, \"assistant_only_loss\": true" 'assistant_only_loss: is for chats of messages, and text.jsonl has none'
refused text "$trl, \"packing\": false" 'f.json:1: packing: false is for rows of chats, and text.jsonl has texts'
refused chat "$trl, \"packing\": true, \"packing_strategy\": \"bfd_split\"" 'packing_strategy: must be "bfd"'
refused chat "$trl, \"chat_template_path\": \"$model\"" 'name its chat_template.jinja'
counts chat "$trl, \"chat_template_path\": \"$model/chat_template.jinja\"" "$whole"

trains chat "$trl" 'samples   7 in 7 sequences, 0.0 % of them padding' 'but for packing of texts' '7 are cut'
trains pair "$trl, \"packing\": true" 'samples   7 in 2 sequences, packed'
trains text "$trl" 'windows of them held out'
# Rows of Alpaca's fields have a text that TRL takes.
trains alpaca "$trl" 'windows of them held out'
# The resolved run trains the same.
trains pair "$trl" 'samples   7 in 7 sequences'
contains out/resolved.json '"loss_on": "completion"'
run 0 again "$mics" train out/resolved.json --out again
same_losses out again
trains text "$trl" 'windows of them held out'
run 0 texts "$mics" train out/resolved.json --out texts
same_losses out texts

# ---- run_clm.py ----

trains alpaca "$clm" 'windows of them held out'
refused chat "$clm" 'chat.jsonl, line 1: has no "text"'
refused pair "$clm" 'pair.jsonl, line 1: has no "text"'

# ---- axolotl ----

chats='"path": "chat.jsonl", "type": "chat_template"'
talk='"path": "talk.jsonl", "type": "chat_template", "field_messages": "talk"'
counts '' "$axolotl, \"datasets\": [{$chats}]" "$turns"
counts '' "$axolotl, \"datasets\": [{$chats}], \"chat_template\": \"chatml\"" "$turns"
grep -q clerk said && fail "chatml has no system prompt of its own"
counts '' "$axolotl, \"datasets\": [{$talk, \"message_property_mappings\": {\"role\": \"from\", \"content\": \"value\"}}]" '[[yes<|im_end|>]]'
counts '' "$axolotl, \"datasets\": [{$talk, \"message_field_role\": \"from\", \"message_field_content\": \"value\"}]" '[[yes<|im_end|>]]'
counts talk "$axolotl, \"datasets\": [{$talk, \"message_field_role\": \"from\", \"message_field_content\": \"value\"}]" '[[yes<|im_end|>]]'
refused '' "$axolotl, \"datasets\": [{\"path\": \"text.jsonl\", \"type\": \"chat_template\"}]" 'datasets: is for chats of messages, and text.jsonl has none'
refused '' "$axolotl, \"datasets\": [{\"path\": \"chat.jsonl\", \"type\": \"completion\"}]" 'has no "text"'
refused text "$axolotl, \"sequence_len\": 32, \"sample_packing\": false" 'sample_packing: false is for rows of chats'
trains '' "$axolotl, \"datasets\": [{$chats}], \"sequence_len\": 64, \"data\": {\"too_long\": \"truncate\"}" 'but for sample_packing of texts' '7 are cut'
refused '' "$axolotl, \"datasets\": [{$chats}], \"sequence_len\": 64" 'data.too_long: all 1 samples'
trains '' "$axolotl, \"datasets\": [{$chats}], \"sequence_len\": 128, \"sample_packing\": true" 'packed' "all of the assistant's turns counts"
refused '' "$axolotl, \"datasets\": [{\"path\": \"alpaca.jsonl\", \"type\": \"chat_template\"}]" 'is for chats of messages'
counts '' "$axolotl, \"sequence_len\": 32, \"data\": {\"train\": [\"alpaca.jsonl\"], \"chat_template\": \"alpaca\"}" '### Response:/[[two<|im_end|>]]'
trains '' "$axolotl, \"datasets\": [{\"path\": \"alpaca.jsonl\", \"type\": \"completion\"}], \"sequence_len\": 32" 'windows of them held out'

# ---- LLaMA-Factory ----

counts chat "$factory, \"stage\": \"sft\"" "$turns"
counts chat "$factory, \"stage\": \"sft\", \"mask_history\": true" 'yes<|im_end|>/<|im_start|>user/so<|im_end|>/<|im_start|>assistant/[[no<|im_end|>]]/'
counts chat "$factory, \"stage\": \"sft\", \"train_on_prompt\": true" "$whole"
counts alpaca "$factory, \"stage\": \"sft\"" '[[two<|im_end|>]]'
trains chat "$factory, \"stage\": \"sft\"" 'samples   7 in 7 sequences' 'lose their end'
trains pair "$factory" 'samples   7 in 7 sequences'
trains alpaca "$common, \"cutoff_len\": 32, \"stage\": \"pt\", \"packing\": true" 'windows of them held out'
refused pair "$factory, \"stage\": \"sft\"" 'stage: is for chats of messages, and pair.jsonl has none'
refused text "$factory, \"stage\": \"sft\"" 'stage: is for chats of messages, and text.jsonl has none'
refused text "$factory, \"neat_packing\": true" 'neat_packing: is for chats of messages'
refused text "$factory, \"packing\": false" 'packing: false is for rows of chats'
refused chat "$factory, \"stage\": \"pt\"" 'has no "text"'
