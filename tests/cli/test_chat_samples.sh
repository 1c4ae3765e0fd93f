# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# mics explain --samples: rows of every kind as they train, and what is refused; the start lines of
# runs on them; the same samples from every kind of file. And examples/chat.json, shortened.
# test_chat_samples.sh PROGRAM ROOT
. "$(dirname "$0")/lib.sh"
root=$(cd "$2" && pwd) || exit 1

cat >model.json <<'JSON'
{"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
 "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 256,
 "max_position_embeddings": 128, "tie_word_embeddings": true}
JSON
# Blocks tell what the assistant writes; prefixes do; nothing does.
cat >blocks.jinja <<'JINJA'
{%- if tools %}{{- 'T' ~ tools | length ~ ' ' }}{%- endif %}{%- for m in messages %}
{{- m.role ~ ':' }}{%- if m.role == 'assistant' %}{%- generation %}{{- m.content ~ ';' }}
{%- endgeneration %}{%- else %}{{- m.content ~ '|' }}{%- endif %}{%- endfor %}
JINJA
cat >prefixes.jinja <<'JINJA'
{%- for m in messages %}{{- m.role ~ ':' ~ m.content ~ '|' }}{%- endfor %}
{%- if add_generation_prompt %}{{- 'assistant:' }}{%- endif %}
JINJA
cat >untold.jinja <<'JINJA'
{%- for m in messages %}{{- messages | length ~ m.role ~ ':' ~ m.content | upper ~ '|' }}{%- endfor %}
JINJA
cat >run.json <<'JSON'
{"model": {"config": "model.json", "init": "random"},
 "data": {"train": ["rows.jsonl"], "chat_template": "blocks.jinja", "sequence_length": 64},
 "run": {"steps": 1, "seed": 1, "validation_batches": 0, "device": "cpu", "threads": 1},
 "train_micro_batch_size_per_gpu": 1}
JSON
cat >rows.jsonl <<'JSON'
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}
{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "system": "S"}
{"conversations": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
{"prompt": "ab", "completion": "cd"}
{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]}
{"instruction": "i", "input": "n", "output": "o"}
{"instruction": "i", "output": "o", "system": "S"}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "tools": "[{\"name\": \"f\"}]"}
JSON

# samples NAME FLAGS...: the rows as text, without names and empty lines.
samples() {
    name=$1
    shift
    run 0 "$name" "$mics" explain run.json --samples 99 "$@"
    no_line "$name.err"
    grep -v -e '^$' -e ' tokens, ' "$name.out" | tr -d '\000' >"$name.txt"
}
are() { # NAME, and on standard input the lines that NAME.txt must have
    cat >wanted.txt
    cmp -s wanted.txt "$1.txt" || fail "$1: other samples: $(diff wanted.txt "$1.txt")"
}

# ---- kinds of rows, and what counts ----

samples kinds
are kinds <<'END'
user:a|assistant:[[b;]]user:c|assistant:[[d;]]
system:S|user:a|assistant:[[b;]]
user:a|assistant:[[b;]]
ab[[cd]]
user:a|[[assistant:b;]]
user:i
n|assistant:[[o;]]
system:S|user:i|assistant:[[o;]]
T1 user:a|assistant:[[b;]]
END
contains kinds.out 'rows.jsonl, line 1: 38 tokens, 4 count'
contains kinds.out 'rows.jsonl, line 4: 5 tokens, 3 count' # with the end token
samples last --set data.loss_on=last
sed -n 1p last.txt | grep -qxF 'user:a|assistant:b;user:c|assistant:[[d;]]' || fail "not the last one"
samples all --set data.loss_on=all
sed -n 1p all.txt | grep -qxF 'u[[ser:a|assistant:b;user:c|assistant:d;]]' || fail "not all"
samples completion --set data.loss_on=completion
sed -n 1p completion.txt | grep -qxF 'u[[ser:a|assistant:b;user:c|assistant:d;]]' || fail "not all of a chat"
sed -n 4p completion.txt | grep -qxF 'ab[[cd]]' || fail "not the completion"
# What says nothing: a message without text, blocks of which the last is empty, no completion.
cat >bare.jinja <<'JINJA'
{%- for m in messages %}{{- m.role ~ ':' ~ m.content ~ '|' }}{%- endfor %}
JINJA
sed "s/m.content ~ ';'/m.content/; s/{%- endgeneration %}/&{{- ';' }}/" blocks.jinja >inner.jinja
cat >empty.jsonl <<'JSON'
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": ""}]}
{"prompt": "ab", "completion": ""}
{"prompt": "", "completion": ""}
JSON
samples bare --set data.train=empty.jsonl --set data.chat_template=bare.jinja
are bare <<'END'
user:a|assistant:[[b|]]user:c|assistant:[[|]]
ab[[]]
END
contains bare.out 'empty.jsonl, line 2: 3 tokens, 1 count'
contains bare.out 'empty.jsonl, line 3: 1 tokens, 0 count'
samples inner --set data.train=empty.jsonl --set data.chat_template=inner.jinja --set data.loss_on=last
sed -n 1p inner.txt | grep -qxF 'user:a|assistant:b;user:c|assistant:;' || fail "an empty last message counts"
run 0 two "$mics" explain run.json --samples 2
[ "$(grep -c ' tokens, ' two.out)" = 2 ] || fail "--samples 2 shows others"

# As transformers: a null is not there, and reasoning has both names that templates read. A weight of
# 0 is not learned, whether blocks or prefixes tell the messages apart.
cat >fields.jinja <<'JINJA'
{%- for m in messages %}{{- m.role ~ ':' }}{%- if 'tool_calls' in m %}{{- 'C' }}{%- endif %}
{%- if m.thinking is defined %}{{- '<' ~ m.thinking ~ '=' ~ m.reasoning_content ~ '>' }}{%- endif %}
{{- m.content | default('') ~ '|' }}{%- endfor %}{%- if add_generation_prompt %}{{- 'assistant:' }}
{%- endif %}
JINJA
cat >fields.jsonl <<'JSON'
{"messages": [{"role": "user", "content": "a", "tool_calls": null}, {"role": "assistant", "content": "b", "reasoning": "r"}]}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "thinking": "r", "reasoning_content": null}]}
{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b", "reasoning_content": "r"}]}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": [{"name": "f"}]}]}
JSON
samples fields --set data.train=fields.jsonl --set data.chat_template=fields.jinja
are fields <<'END'
user:a|assistant:[[<r=r>b|]]
user:a|assistant:[[<r=r>b|]]
user:a|assistant:[[<r=r>b|]]
user:a|assistant:[[C|]]
END
cat >weights.jsonl <<'JSON'
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": "c", "weight": 1}, {"role": "assistant", "content": "d", "weight": 1}]}
JSON
for template in prefixes blocks; do
    samples weights --set data.train=weights.jsonl --set data.chat_template=$template.jinja
    grep -q 'assistant:b[|;]user:c|.*d[|;]]]$' weights.txt || fail "$template: a weight of 0 counts"
done
# Reasoning that stands before calls of the last message alone, as Qwen 3 has it.
cat >calls.jinja <<'JINJA'
{%- for m in messages %}{{- m.role ~ ':' }}{%- if loop.last and m.role == 'assistant' %}{{- '<>' }}
{%- endif %}{{- m.content }}{%- for c in m.tool_calls or [] %}{{- '(' ~ c.function.name ~ ')' }}
{%- endfor %}{{- ';' }}{%- endfor %}{%- if add_generation_prompt %}{{- 'assistant:' }}{%- endif %}
JINJA
cat >calls.jsonl <<'JSON'
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]}, {"role": "tool", "content": "3"}, {"role": "assistant", "content": "b"}]}
JSON
samples calls --set data.train=calls.jsonl --set data.chat_template=calls.jinja
are calls <<'END'
user:a;assistant:[[(f);]]tool:3;assistant:[[<>b;]]
END

# The same as JSON: tokens are the bytes here, and each says whether it counts.
head -n 1 rows.jsonl >one.jsonl
run 0 json "$mics" explain run.json --samples 9 --json --set data.train=one.jsonl
contains json.out '"name": "one.jsonl, line 1", "tokens": [117, 115, 101, 114, 58, 97, 124,'
contains json.out '"counts": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0,'
[ "$(grep -c '"name"' json.out)" = 1 ] || fail "one row is one sample"

# ---- names of fields ----

cat >named.jsonl <<'JSON'
{"dialog": [{"who": "user", "says": "a"}, {"who": "assistant", "says": "b"}]}
{"q": "ab", "a": "cd"}
{"task": "i", "more": "n", "answer": "o"}
JSON
samples named --set data.train=named.jsonl --set 'data.fields={"messages": "dialog", "role": "who",
    "content": "says", "prompt": "q", "completion": "a", "instruction": "task", "input": "more",
    "output": "answer"}'
are named <<'END'
user:a|assistant:[[b;]]
ab[[cd]]
user:i
n|assistant:[[o;]]
END
run 2 unnamed "$mics" explain run.json --samples 1 --set data.train=named.jsonl
contains unnamed.err 'data.fields names fields that are called otherwise'
run 2 misnamed "$mics" explain run.json --samples 1 --set 'data.fields={"message": "dialog"}'
contains misnamed.err 'did you mean "messages"?'

run 2 weighed "$mics" explain run.json --samples 1 --set data.train=weights.jsonl --set data.loss_on=all
contains weighed.err 'weights.jsonl, line 1: message 2 has the weight 0 (not learned), where all'
echo '{"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "b"}], "rejected": [{"role": "assistant", "content": "c", "weight": 0}]}' >pairs.jsonl
run 2 paired "$mics" explain run.json --samples 1 --set data.train=pairs.jsonl --set objective.type=dpo
contains paired.err 'pairs.jsonl, line 1: message 2 has the weight 0 (not learned), where all'

# ---- bad rows ----

# bad TEXT ROW: as the second line; it is refused by file and line, or passed over and counted.
bad() {
    { head -n 1 rows.jsonl && printf '%s\n' "$2" && sed -n 4p rows.jsonl; } >bad.jsonl
    run 2 refused "$mics" explain run.json --samples 9 --set data.train=bad.jsonl
    one_line refused.err
    grep -qF "bad.jsonl, line 2" refused.err || fail "no line is named: $(cat refused.err)"
    contains refused.err "$1"
    run 2 untrained "$mics" train run.json --out bad --set data.train=bad.jsonl
    contains untrained.err "$1"
    run 0 passed "$mics" explain run.json --samples 9 --set data.train=bad.jsonl \
        --set data.skip_bad_lines=1
    [ "$(grep -c ' tokens, ' passed.out)" = 2 ] || fail "other rows are shown: $2"
}
bad 'has no messages' '{"messages": []}'
bad '"messages" is no array of messages' '{"messages": "text"}'
bad '"conversations" is no array of messages' '{"conversations": {"from": "human"}}'
bad 'message 1 has no "role" that is a text' '{"messages": [{"role": 1, "content": "a"}]}'
bad 'message 2 has the weight 0.5; 0 (not learned) and 1 are built' '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0.5}]}'
bad 'message 2 has the weight of another kind than a number; 0' '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": "0"}]}'
bad 'has the weight 0.5, and all rows count alike' '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "weight": 0.5}'
bad 'has the weight 0, and all rows count alike' '{"prompt": "a", "completion": "b", "weight": 0}'
bad 'has the weight 2, and all rows count alike' '{"instruction": "a", "output": "b", "weight": 2}'
bad 'message 2 has the weight 0 (not learned), where all' '{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b", "weight": 0}]}'
bad 'message 2 has the weight 0.5; 0 (not learned) and 1 are built' '{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b", "weight": 0.5}]}'
bad 'message 1 has no "role" that is a text' '{"messages": ["a"]}'
bad 'message 1 has no "content"' '{"messages": [{"role": "user", "text": "a"}]}'
bad 'message 2 has no "content"' '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null}]}'
bad 'message 2 is of "function_call"' '{"conversations": [{"from": "human", "value": "a"}, {"from": "function_call", "value": "b"}]}'
bad 'has neither "messages" nor "conversations" nor "prompt" and "completion"' '{"text": "plain"}'
bad 'has neither "messages"' '{"prompt": "without one"}'
bad 'neither two texts nor two arrays of messages' '{"prompt": "a", "completion": 5}'
bad 'neither two texts nor two arrays of messages' '{"prompt": "a", "completion": [{"role": "assistant", "content": "b"}]}'
bad '"instruction" is no text' '{"instruction": 5, "output": "b"}'
bad 'has a "history", which would be left out' '{"instruction": "a", "output": "b", "history": [["c", "d"]]}'
bad 'has "images", and models here read text alone' '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "images": ["a.png"]}'
bad 'has "image", and models here read text alone' '{"prompt": "a", "completion": "b", "image": {"path": "a.png"}}'
bad 'the text of "tools"' '{"messages": [{"role": "user", "content": "a"}], "tools": "none"}'
bad 'is no JSON object' '[1]'
bad 'column' '{"messages": [}'

run 0 skipped "$mics" train run.json --out skipped --set data.train=bad.jsonl --set data.skip_bad_lines=1
contains skipped.err 'bad.jsonl: 1 bad lines are passed over'
contains skipped.out 'samples   2 in '
# What a row holds moves no terminal.
echo '{"prompt": "a\u001b[2Jb", "completion": "c"}' >steers.jsonl
run 0 steers "$mics" explain run.json --samples 1 --set data.train=steers.jsonl
contains steers.out 'a.[2Jb[[c'
# Nothing at all is no sample; where nothing is to be said, the end is.
echo '{%- for m in messages if m.content -%}{{- m.content -}}{%- endfor -%}' >said.jinja
echo '{"messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]}' >nothing.jsonl
run 2 nothing "$mics" explain run.json --samples 1 --set data.train=nothing.jsonl \
    --set data.chat_template=said.jinja
contains nothing.err 'nothing.jsonl, line 1: becomes no tokens'
echo '{"prompt": "ab", "completion": ""}' >empty.jsonl
run 0 empty "$mics" explain run.json --samples 1 --set data.train=empty.jsonl
contains empty.out 'empty.jsonl, line 1: 3 tokens, 1 count'
# No pictures are none.
echo '{"prompt": "ab", "completion": "c", "images": [], "image": null, "audio": ""}' >none.jsonl
run 0 none "$mics" explain run.json --samples 1 --set data.train=none.jsonl
pictures="$root/tests/golden/pictures"
for file in none nulls; do
    run 0 none "$mics" explain run.json --samples 1 --set data.train="$pictures/$file.parquet"
done
run 2 paths "$mics" explain run.json --samples 1 --set data.train="$pictures/paths.parquet"
contains paths.err 'row 1: has "images", and models here read text alone'
run 2 bytes "$mics" explain run.json --samples 1 --set data.train="$pictures/bytes.parquet"
contains bytes.err 'column "images.list.element.bytes" is binary data'
# An exported byte tokenizer is "bytes", as mics train has it.
run 0 bytes "$mics" train run.json --out bytes --set data.train=one.jsonl
run 0 folder "$mics" convert bytes folder
run 0 export "$mics" explain folder --data empty.jsonl --steps 1 --samples 1
contains export.out 'empty.jsonl, line 1: 3 tokens, 1 count'
# Also where the first row is the bad one.
{ echo '{"messages": []' && cat one.jsonl; } >first.jsonl
run 0 first "$mics" explain run.json --samples 1 --set data.train=first.jsonl --set data.skip_bad_lines=1
contains first.out 'first.jsonl, line 2: 38 tokens, 4 count'
echo '{"messages": [{"role": "user", "content": "a"}]}' >silent.jsonl
run 2 silent "$mics" train run.json --out silent --set data.train=silent.jsonl
contains silent.err 'no token of its 1 samples counts'

# What a row has and its tokens lack is a warning.
lacks() { # ROW TEMPLATE
    { cat one.jsonl && echo "$1"; } >lossy.jsonl
    rm -rf lossy
    run 0 lossy "$mics" train run.json --out lossy --set data.train=lossy.jsonl --set data.chat_template="$2"
}
calls='{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]}]}'
for row in "$calls" '{"messages": [{"role": "assistant", "content": [{"type": "text", "text": "b"}]}]}' \
    '{"messages": [{"role": "assistant", "content": "b"}], "system": "S"}' \
    '{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}], "system": "S"}' \
    '{"messages": [{"role": "assistant", "content": "b"}], "tools": [{"name": "f"}]}'; do
    lacks "$row" prefixes.jinja
    contains lossy.err 'warning: 1 chats have what their tokens lack'
done
{ echo '{#- tool_calls #}' && cat prefixes.jinja; } >calls.jinja
lacks "$calls" calls.jinja
grep -q lack lossy.err && fail "the template writes calls"

# So are answers without text.
for row in '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": " "}]}' \
    '{"prompt": "a", "completion": ""}' '{"instruction": "a", "output": ""}'; do
    lacks "$row" prefixes.jinja
    contains lossy.err 'warning: 1 answers are empty: of these at most what ends an answer is learned'
done
lacks "$calls" calls.jinja
grep -q empty lossy.err && fail "a call is no empty answer"
# And TRL's log-probabilities of a reference, which is computed here.
{
    echo '{"prompt": "a", "chosen": "b", "rejected": "c", "ref_chosen_logps": -1.5, "ref_rejected_logps": -2}'
    echo '{"prompt": "a", "chosen": "b", "rejected": "c", "ref_chosen_logps": null}'
} >references.jsonl
run 0 references "$mics" train run.json --out references --set data.train=references.jsonl --set objective.type=dpo \
    --set run.validation_batches=0 --set run.steps=1
contains references.err 'warning: 1 pairs have "ref_chosen_logps" or "ref_rejected_logps", which are not used'

# ---- templates ----

samples prefixes --set data.train=one.jsonl --set data.chat_template=prefixes.jinja
are prefixes <<'END'
user:a|assistant:[[b|]]user:c|assistant:[[d|]]
END
run 2 untold "$mics" explain run.json --samples 1 --set data.chat_template=untold.jinja
contains untold.err "rows.jsonl, line 1: which tokens are the assistant's in message 2 cannot be told from untold.jinja"
contains untold.err '{% generation %}'
samples untold_all --set data.train=one.jsonl --set data.chat_template=untold.jinja --set data.loss_on=all
are untold_all <<'END'
4[[user:A|4assistant:B|4user:C|4assistant:D|]]
END
for template in chatml llama3; do
    run 2 "$template" "$mics" explain run.json --samples 1 --set data.chat_template="$template"
    contains "$template.err" "data.chat_template: \"$template\" needs the token <|"
done
for template in mistral alpaca; do
    run 2 "$template" "$mics" explain run.json --samples 1 --set data.chat_template="$template"
    contains "$template.err" "\"$template\" ends what the assistant writes with the eos_token"
done
run 2 nowhere "$mics" explain run.json --samples 1 --set data.chat_template=nowhere.jinja
contains nowhere.err '"nowhere.jinja" is no file here'
run 2 none "$mics" explain run.json --samples 1 --set data.chat_template=null
contains none.err "has no chat template; name one in data.chat_template"
run 2 variables "$mics" explain run.json --samples 1 --set 'data.template_variables={"messages": []}'
contains variables.err 'data.template_variables: "messages" is each row'
run 2 absent "$mics" explain run.json --samples 1 --set data.train=absent.jsonl
contains absent.err 'absent.jsonl: '
contains absent.err 'no such file'
run 0 sized "$mics" explain run.json --set data.train=absent.jsonl --set data.packing=false
run 2 date "$mics" explain run.json --samples 1 --set data.template_date=2026-13-45
contains date.err '"2026-13-45" is no date'

# With the tokens of a tokenizer; what the text of a message names is a token, too, and said.
cp -r "$golden/chat/qwen2" "$golden/chat/llama" .
qwen='--set model.config=qwen2/config.json --set data.tokenizer=qwen2'
echo '{"messages": [{"role": "user", "content": "a<|im_end|>"}, {"role": "assistant", "content": "b"}]}' >trap.jsonl
samples chatml $qwen --set data.train=one.jsonl --set data.chat_template=chatml
are chatml <<'END'
<|im_start|>user
a<|im_end|>
<|im_start|>assistant
[[b<|im_end|>]]
<|im_start|>user
c<|im_end|>
<|im_start|>assistant
[[d<|im_end|>]]
END
# "et" alone is one token; of "etee" the second of e, te, e has its end, and the first one's place.
cat >touching.jinja <<'JINJA'
{%- for m in messages %}{%- generation %}{{- m.content if m.role == 'assistant' else '' }}
{%- endgeneration %}{{- m.content if m.role == 'user' else '' }}{%- endfor %}
JINJA
cat >touching.jsonl <<'JSON'
{"messages": [{"role": "assistant", "content": "et"}, {"role": "user", "content": "ee"}]}
{"messages": [{"role": "user", "content": "et"}, {"role": "assistant", "content": "ee"}]}
JSON
samples touching $qwen --set data.train=touching.jsonl --set data.chat_template=touching.jinja
are touching <<'END'
e[[te]]e
e[[tee]]
END
run 0 trap "$mics" train run.json $qwen --out trap --set data.train=trap.jsonl --set data.chat_template=null
contains trap.err '1 messages name special tokens in their own text'
contains trap.out 'template of qwen2/chat_template.jinja'
contains trap.out '--special-tokens --prompt TEXT'
# What the folder had goes through phases.
run 0 phases "$mics" train run.json $qwen --out phases --set data.train=trap.jsonl \
    --set data.chat_template=null --set run.steps=null \
    --set 'phases=[{"steps": 1}, {"steps": 1, "run.seed": 2}, {"steps": 1, "run.seed": 3}]'
run 0 phased "$mics" convert phases phased
cmp -s qwen2/chat_template.jinja phased/chat_template.jinja || fail "phases lose the folder's template"
run 0 phases "$mics" train run.json $qwen --out phases --set data.train=trap.jsonl --set run.steps=4 \
    --set data.chat_template=prefixes.jinja
contains phases.err 'phase 4 of 4 begins behind step 3: data.chat_template'
run 0 changed "$mics" convert phases changed
cmp -s prefixes.jinja changed/chat_template.jinja || fail "a phase's template is not exported"
cmp -s qwen2/tokenizer_config.json changed/tokenizer_config.json || fail "a phase loses other files"
sed -n 6p rows.jsonl >alpaca.jsonl
samples alpaca --set model.config=llama/config.json --set data.tokenizer=llama \
    --set data.train=alpaca.jsonl --set data.chat_template=alpaca
tail -n 7 alpaca.txt >end.txt && mv end.txt alpaca.txt
are alpaca <<'END'
<s>Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the request.
### Instruction:
i
### Input:
n
### Response:
[[o</s>]]
END

# ---- what else is among the files ----

printf 'plain words, and more of them\n' >plain.txt
printf 'instruction,input,output\na,b,c\n' >table.csv
echo '{"text": "plain words"}' >text.jsonl
run 0 tokenize "$mics" tokenize plain.txt --out plain.bin
mixed() { # TEXT FILES
    run 2 mixed "$mics" train run.json --out mixed --set data.train="$2"
    contains mixed.err "$1"
}
mixed 'plain.txt: has no rows of JSON, but other files have chats' '["rows.jsonl", "plain.txt"]'
mixed 'plain.txt: has no rows of JSON, but other files have chats' '["plain.txt", "rows.jsonl"]'
mixed 'table.csv: has no rows of JSON' '["rows.jsonl", "table.csv"]'
mixed 'plain.bin: is a token shard among chats' '["rows.jsonl", "plain.bin"]'
mixed 'plain.bin: is a token shard among chats' '["plain.bin", "rows.jsonl"]'
mixed 'text.jsonl, line 1: has neither "messages"' '["rows.jsonl", "text.jsonl"]'
mixed 'rows.jsonl, line 1: has no "text"' '["text.jsonl", "rows.jsonl"]'
run 2 shown "$mics" explain run.json --samples 1 --set data.train=text.jsonl
contains shown.err 'text.jsonl: is read as texts'
run 2 whole "$mics" train run.json --out whole --set data.train=text.jsonl --set data.packing=false
contains whole.err 'data.packing: false is for rows of chats'

# ---- kinds of files: the same samples ----

same() { # FILE OTHER FLAGS...: but for their names
    left=$1 right=$2
    shift 2
    for file in "$left" "$right"; do
        run 0 same "$mics" explain run.json --samples 99 --json --set data.train="$file" "$@"
        sed 's/"name": "[^"]*"//' same.out >"same.${file##*/}"
    done
    [ "$(grep -c tokens "same.${left##*/}")" -gt 5 ] || fail "$left: hardly any samples"
    cmp -s "same.${left##*/}" "same.${right##*/}" || fail "$left and $right give other samples"
}
gzip -k rows.jsonl
same rows.jsonl rows.jsonl.gz
if command -v zstd >/dev/null; then
    zstd -q rows.jsonl
    same rows.jsonl rows.jsonl.zst
fi
{ echo '[' && sed '$!s/$/,/' rows.jsonl && echo ']'; } >rows.json
same rows.jsonl rows.json
{ cat rows.json | tr '\n' ' '; } >line.json
same rows.jsonl line.json
same "$golden/parquet/chats.jsonl" "$golden/parquet/chats.parquet"

# A template with other text under its name is said. An export has the one that was named.
sed 's/;/!/' blocks.jinja >changed.jinja
run 0 template "$mics" train run.json --out template
contains template.err 'checkpoints and exports keep chat_template.jinja'
run 0 named "$mics" convert template named
cmp -s blocks.jinja named/chat_template.jinja || fail "an export has another template"
mv changed.jinja blocks.jinja
run 2 template "$mics" train run.json --out template --steps 2
contains template.err 'or with another chat template; restore it'
sed 's/!/;/' blocks.jinja >changed.jinja && mv changed.jinja blocks.jinja

# ---- lengths ----

start() { # TEXT FLAGS...
    text=$1
    shift
    rm -rf start
    run 0 start "$mics" train run.json --out start --set data.sequence_length=30 "$@"
    contains start.out "$text"
}
start 'samples   8 in 7 sequences, packed, 18.1 % of them padding; of their tokens 15.7 % count; template of blocks.jinja; 1 are cut to data.sequence_length'
start '9.0 % count; template of blocks.jinja; 7 are cut to data.sequence_length; of 6 no token counts' --set data.sequence_length=12
run 2 cut "$mics" train run.json --out cut --set data.train=one.jsonl --set data.sequence_length=12
contains cut.err 'or a completion in the first 12 tokens (data.sequence_length)'
start 'samples   7 in 6 sequences, packed' --set data.too_long=drop
contains start.out '; 1 longer ones are left out'
start 'samples   8 in 8 sequences, ' --set data.packing=false
{ sed -n 4p rows.jsonl && head -n 1 rows.jsonl; } >last.jsonl
run 2 held "$mics" train run.json --out held --set data.train=last.jsonl --set data.sequence_length=30 \
    --set data.too_long=drop --set run.validation_batches=1
contains held.err 'all 1 samples are longer'
contains held.err 'held out for validation'
run 2 long "$mics" train run.json --out long --set data.sequence_length=30 --set data.too_long=error
contains long.err '1 of 8 samples are longer than a data.sequence_length of 30, the longest has 38 tokens'

# ---- the example ----

cp -r "$root/examples" .
run 0 shown "$mics" explain examples/chat.json --samples 100
[ "$(grep -c ' tokens, ' shown.out)" = 100 ] || fail "examples/chats.jsonl has a hundred chats"
contains shown.out '[[Lower it into boiling water, wait six minutes, then cool it in cold water.<|im_end|>]]'
run 0 example "$mics" train examples/chat.json --ranks 2 --out example --steps 12
contains example.out 'samples   100 in 24 sequences, packed'
losses example >loss.txt
awk 'NR == 1 { first = $2 } END { exit !($2 < first - 0.5) }' loss.txt || fail "the loss does not fall"
run 0 convert "$mics" convert example exported
for file in config.json tokenizer.json tokenizer_config.json chat_template.jinja; do
    [ -s "exported/$file" ] || fail "exported/$file is missing"
done
cmp -s exported/chat_template.jinja examples/chat/chat_template.jinja || fail "another template"
