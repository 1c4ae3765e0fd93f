# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# What cloud.sh's cases say: RATE NODES MICRO_STEPS SHARDING MEASURED PLANNED a line, times in ms.

function ascend(values, n,    i, j, swap) {
    for (i = 1; i <= n; i++)
        for (j = i + 1; j <= n; j++)
            if (values[j] < values[i]) { swap = values[i]; values[i] = values[j]; values[j] = swap }
}

$5 > 0 && $6 > 0 {
    count++
    rate[count] = $1; where[count] = $1 " " $2 " " $3; measured[count] = $5; planned[count] = $6
    error = ($6 - $5) / $5
    low += error < 0
    errors[count] = error < 0 ? -error : error
    next
}

{ print "no figures: " $0; missing++ }

END {
    if (count == 0) { print "no cases"; exit 1 }
    ascend(errors, count)
    for (i = 1; i <= count; i++) {
        for (j = i + 1; j <= count; j++) {
            ratio = measured[i] / measured[j]
            if (rate[i] == rate[j] && (ratio > 1.03 || ratio < 1 / 1.03)) {
                pairs++
                right += (measured[i] > measured[j]) == (planned[i] > planned[j])
            }
        }
        group = where[i]
        if (!(group in best) || measured[i] < best[group]) best[group] = measured[i]
        if (!(group in least) || planned[i] < least[group]) { least[group] = planned[i]; got[group] = measured[i] }
    }
    for (group in best) {
        regret = got[group] / best[group] - 1
        if (regret > most) most = regret
    }
    middle = count % 2 ? errors[(count + 1) / 2] : (errors[count / 2] + errors[count / 2 + 1]) / 2
    printf "%d cases, none of them used for calibration: median error %.1f %%, largest %.1f %% (%d low, %d high); ",
        count, 100 * middle, 100 * errors[count], low, count - low
    printf "%.1f %% of %d pairs in the right order; largest regret %.1f %%\n",
        pairs ? 100 * right / pairs : 100, pairs, 100 * most
    exit missing > 0
}
