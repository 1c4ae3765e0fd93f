#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# check_layers.sh ROOT: who includes whom. Prints each include that the layers forbid.
#
#   A module is a folder of src; plan and io hold several, and the descriptors of ops are one, `op`. base is
#   free for all, its private headers too.
#   The pure half: goodput, mesh, op < model, cost < schedule < simulate < search, config < offers, whose pictures are report's, < tables, what is printed of them. The running half:
#   device < comm < ops, optim < engine, which also uses mesh, model and schedule. data, checkpoint and report
#   stand beside engine and use base alone. run joins them. measure, beside run, times what runs, on ranks that
#   run/ranks/world.h gives it. cli uses run, measure/measure.h, what is pure, and data, checkpoint and report, but not
#   what runs: engine, comm, device, ops. Foreign headers live where they are wrapped, and never in include/mics.
set -u
cd "$1" || exit 1

{ for file in include/mics/*.h include/mics/core/*.h src/*/*.[ch] src/*/*.cu src/*/*.cuh src/*/*/*.[ch] src/*/*/*.cu src/*/*/*.cuh \
    src/*/*/*/*.[ch]; do
    [ -f "$file" ] && echo "$file"
done; } | awk '
BEGIN {
    # The modules whose public headers a module may include, besides base and its own.
    may["base"] = may["goodput"] = may["mesh"] = may["op"] = may["optimizer"] = may["device"] = ""
    may["model"] = "op"
    may["cost"] = "op mesh"
    may["data"] = may["report"] = may["remote"] = ""
    may["checkpoint"] = "remote"
    may["comm"] = "device mesh"
    may["delta"] = ""
    may["schedule"] = "op optimizer mesh model delta"
    may["simulate"] = "op optimizer mesh model cost schedule"
    may["search"] = "op optimizer mesh model cost schedule simulate"
    may["offers"] = "op optimizer mesh model cost schedule simulate search goodput config report"
    may["config"] = "op optimizer mesh model schedule remote"
    may["ops"] = may["optim"] = "device comm op optimizer ops"
    may["engine"] = "op optimizer device comm delta ops mesh model schedule"
    may["tables"] = "op optimizer mesh model cost schedule simulate search goodput config offers"
    may["run"] = "remote op optimizer mesh model cost schedule simulate search goodput config offers device comm ops engine data checkpoint report"
    may["measure"] = "op optimizer mesh model cost schedule simulate config device comm ops engine"
    may["cli"] = "op optimizer mesh model cost schedule simulate search goodput config offers data checkpoint report remote run"
    may["mics"] = ""
    free = "^include/mics/mics\\.h$"
    # Private headers that these other modules may include.
    lent["device/cuda_launch.h"] = "ops"
    lent["run/ranks/world.h"] = "measure"
    lent["run/ranks/precision.h"] = "measure"
    lent["io/checkpoint/node.h"] = "run"
    lent["io/checkpoint/store.h"] = "run"
    lent["io/remote/s3.h"] = "checkpoint"
    lent["io/remote/download.h"] = "checkpoint"
    lent["io/checkpoint/magnitude.h"] = "run"
    lent["plan/offers/pick.h"] = "run"
    lent["plan/tables/found.h"] = lent["plan/tables/offer.h"] = lent["plan/tables/sweep.h"] = "cli"
    lent["plan/tables/tables.h"] = "cli"
    lent["measure/measure.h"] = "cli"
    lent["run/settings.h"] = "cli"
    lent["io/report/printer.h"] = "cli tables"
    lent["io/report/terminal.h"] = "cli"
    lent["io/report/page.h"] = "cli"
    lent["io/report/history.h"] = "cli"
    # Public headers that are not called like their module.
    split("status log memory dtype preference", base, " ")
    for (i in base)
        owner[base[i]] = "base"
    owner["builder"] = "model"
    owner["agreement"] = owner["ledger"] = owner["recompute"] = "schedule"
    owner["heartbeat"] = owner["transport"] = "comm"
    # What a module shows to other modules and to no user: its headers that may be included as public ones may.
    face["comm/delta/delta.h"] = "delta"
    face["config/config.h"] = face["config/peft.h"] = "config"
    face["io/data/data.h"] = face["io/data/train.h"] = face["io/data/chats.h"] = face["io/data/packing.h"] = "data"
    face["io/remote/remote.h"] = "remote"
    face["model/from_config.h"] = "model"
    face["ops/kernels.h"] = "ops"
    face["plan/cost/cluster.h"] = face["plan/cost/cost.h"] = face["plan/cost/software.h"] = "cost"
    face["plan/goodput/goodput.h"] = "goodput"
    face["plan/offers/planning.h"] = "offers"
    face["plan/search/plan.h"] = face["plan/search/baseline.h"] = face["plan/search/estimate.h"] = "search"
    face["plan/simulate/simulate.h"] = "simulate"
    face["schedule/layered.h"] = face["schedule/rules.h"] = "schedule"
    # Files (as patterns) that may include a foreign header (as a pattern).
    only["^mpi\\.h$"] = "^src/comm/mpi/"
    only["^nccl\\.h$"] = "^src/comm/nccl/"
    only["^(cuda|cublas|nvtx|mma)"] = "^src/(device/cuda(_[a-z]+)?\\.[ch]|(ops|optim)/.*(\\.cu|cuda\\.[ch]|\\.cuh)|comm/nccl/)"
    only["^(dnnl|oneapi/)"] = "^src/ops/"
    only["^(jansson|yaml)\\.h$"] = "^src/base/"
    only["^(oniguruma|utf8proc)\\.h$"] = "^src/io/data/"
    only["^(zlib|zstd|snappy-c)\\.h$"] = "^src/io/data/"
    only["^xxhash\\.h$"] = "^src/(io/(data|checkpoint)|run|ops/vector)/"
    only["^(pthread|threads|omp|dlfcn)\\.h$"] = "^src/(base|device|comm|ops|optim|engine|io|run|measure|cli)/"
    public_may = "^(inttypes|stdarg|stdbool|stddef|stdint|stdio)\\.h$"
}
function report(what) {
    print file ":" line ": " what
    wrong++
}
function module_of_header(path) {
    sub(/^.*mics\/(core\/)?/, "", path)
    sub(/\.h$/, "", path)
    return path in owner ? owner[path] : path
}
function module_of(path, parts) {
    if (path ~ /^optim\/(.*\/def\.[ch]|registry\.c)$/)
        return "optimizer"
    if (path ~ /^ops\/(.*\/def\.[ch]|registry\.c)$/)
        return "op"
    split(path, parts, "/")
    return parts[1] == "plan" || parts[1] == "io" ? parts[2] : parts[1]
}
function check_system(name, pattern) {
    if (public && name !~ public_may)
        report("a public header must not include <" name ">")
    for (pattern in only)
        if (name ~ pattern && file !~ only[pattern])
            report("<" name "> must not be included here")
}
function check_own(name, target, head) {
    if (name in face && public)
        report("a public header must not include \"" name "\"")
    if (name ~ /^mics\// || name in face) {
        target = name in face ? face[name] : module_of_header(name)
        if (target != "base" && target != module && file !~ free &&
            index(" " may[module] " ", " " target " ") == 0)
            report(module " must not include \"" name "\", of " target)
        return
    }
    head = module_of(name)
    if (public)
        report("a public header must not include \"" name "\"")
    else if (index(name, "/") > 0 && head != module && head != "base" && index(" " lent[name] " ", " " module " ") == 0 &&
             !(module == "ops" && head == "op") &&
             !(module == "optim" && (head == "ops" || head == "optimizer")))
        report("\"" name "\" is private to another module")
}
{
    file = $0
    line = 0
    public = file ~ /^include\//
    module = file
    sub(/^src\//, "", module)
    module = module_of(module)
    if (public)
        module = module_of_header(file)
    if (!(module in may))
        report("is of a module that check_layers.sh does not know: " module)
    while ((getline text < file) > 0) {
        line++
        if (text !~ /^[ \t]*#[ \t]*include[ \t]*[<"]/)
            continue
        includes++
        name = text
        sub(/^[^<"]*[<"]/, "", name)
        sub(/[>"].*$/, "", name)
        if (text ~ /</)
            check_system(name)
        else
            check_own(name)
    }
    close(file)
}
END {
    if (includes == 0)
        print "nothing to check"
    else if (wrong == 0)
        print includes " includes are as they should be"
    exit includes == 0 || wrong > 0
}'
