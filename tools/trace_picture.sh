#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# Draws one traced step of one rank as an SVG: a row a stream, a bar a step of the schedule.
#
#   tools/trace_picture.sh OUT/trace.json [RANK] >step.svg
#
# The trace comes from a run with run.trace_step. docs/step.svg is made by tools/trace_picture.sh --example MICS.
set -eu

example() { # MICS: a short run on an emulated cloud of two nodes of two ranks
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
    tools/cloud with 2 4gbit -r 2 "$1" train bench/cloud/run.json --out "$out" --steps 8 --set 'sharding={"params": 2}' \
        --set model.config=bench/cloud/gpt2-3m.json --set gradient_accumulation_steps=2 --set run.share_params=false \
        --set run.trace_step=8 >&2
    draw "$out/trace.json" 0
}

draw() { # TRACE RANK
    awk -v rank="$2" '
    function number(key, text) { return match($0, "\"" key "\": [-0-9.]+") ? substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4) + 0 : 0 }
    function text(key) { return match($0, "\"" key "\": \"[^\"]*\"") ? substr($0, RSTART + length(key) + 5, RLENGTH - length(key) - 6) : "" }
    /"ph": "M"/ && number("pid") == rank && /"thread_name"/ {
        tid = number("tid")
        row_of[tid] = rows + 0
        sub(/^.*"args"/, "")
        row_name[rows + 0] = text("name")
        rows++
    }
    /"ph": "X"/ && number("pid") == rank {
        at[n] = number("ts"); took[n] = number("dur"); row[n] = row_of[number("tid")]; label[n] = text("name"); kind[n] = text("cat")
        if (n == 0 || at[n] < first) first = at[n]
        if (at[n] + took[n] > last) last = at[n] + took[n]
        n++
    }
    END {
        if (n == 0) { print "no step of rank " rank " in the trace" >"/dev/stderr"; exit 1 }
        split("forward #4e79a7 backward #76b7b2 update #59a14f norm #59a14f agree #bab0ac gather #f28e2b reduce #e15759 second-hop #9c3848 param-sync #b07aa1", c, " ")
        for (i = 1; i < 18; i += 2) colour[c[i]] = c[i + 1]
        left = 110; wide = 860; high = 34; gap = 12; top = 20; scale = wide / (last - first)
        total = top + rows * (high + gap) + 34
        printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n", left + wide + 20, total
        printf "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
        for (r = 0; r < rows; r++) {
            y = top + r * (high + gap)
            printf "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f4f4f4\"/>\n", left - 8, y + high / 2 + 4, row_name[r], left, y, wide, high
        }
        for (i = 0; i < n; i++) {
            y = top + row[i] * (high + gap); x = left + (at[i] - first) * scale; w = took[i] * scale
            k = kind[i] in colour ? kind[i] : kind[i] ~ /scatter|^replica/ ? "second-hop" : "param-sync"
            used[k] = 1
            printf "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" stroke=\"white\" stroke-width=\"0.4\"><title>%s, %.0f us</title></rect>\n", x, y, w < 0.6 ? 0.6 : w, high, colour[k], label[i], took[i]
            if (w > 7 * length(label[i])) printf "<text x=\"%.2f\" y=\"%d\" fill=\"white\" text-anchor=\"middle\">%s</text>\n", x + w / 2, y + high / 2 + 4, label[i]
        }
        y = top + rows * (high + gap) + 10; x = left
        for (i = 1; i < 18; i += 2) if (c[i] in used) {
            printf "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n", x, y, c[i + 1], x + 16, y + 11, c[i]
            x += 28 + 7 * length(c[i])
        }
        printf "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.1f ms</text>\n</svg>\n", left + wide, y + 11, (last - first) / 1000
    }' "$1"
}

case ${1:-} in
--example) example "${2:?tools/trace_picture.sh --example MICS}" ;;
"" | --help) sed -n '5,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
*) draw "$1" "${2:-0}" ;;
esac
