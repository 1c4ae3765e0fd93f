# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# The page of mics report in headless Chromium: every chart is drawn and shows its figures under the pointer, the
# page is no wider than a phone, and nothing is said on the console.
. "$(dirname "$0")/lib.sh"

chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "skipped: there is no Chromium"
    exit 77
}
run 0 train "$mics" train run.json --ranks 4 --nodes 2 --set run.device=cpu --set run.trace_step=3 --set run.validate_every=4 \
    --set 'sharding={"params": 2, "grads": 2, "optimizer": 4}'
run 0 report "$mics" report out --out page.html
charts=$(grep -c '<svg class="chart"' page.html)
[ "$charts" -gt 7 ] || fail "$charts charts"

# What the page is asked, behind its own script. The answers stand in its title.
cat >asked.html <<'HTML'
<script>
const drawn = (part) => { const box = part.getBoundingClientRect(); return box.width > 1; };
let charts = 0, shown = 0;
document.querySelectorAll("svg.chart").forEach((svg) => {
    const box = svg.getBoundingClientRect();
    charts += drawn(svg) && Array.from(svg.querySelectorAll("path.line")).every(drawn);
    svg.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + box.width / 2, clientY: box.top + 9 }));
    shown += /^\S+ [0-9.e+-]+ at step [0-9]/.test(svg.parentNode.querySelector("output").textContent);
});
document.title = [charts, "drawn", shown, "shown", document.querySelectorAll(".streams rect").length, "entries",
                  getComputedStyle(document.body).backgroundColor, document.documentElement.scrollWidth <= innerWidth ? "fits" : "too wide"].join(" ");
</script>
HTML
cat page.html asked.html >both.html

look() { # NAME FLAGS...
    name=$1
    shift
    run 0 "$name" timeout 300 "$chromium" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" \
        --enable-logging=stderr --virtual-time-budget=5000 "$@" --dump-dom "file://$work/both.html"
    grep -i ':CONSOLE' "$name.err" && fail "$name: the console says something"
    sed -n 's|.*<title>\(.*\)</title>.*|\1|p' "$name.out" >"$name.title"
    contains "$name.title" "$charts drawn $charts shown $(grep -c '^<rect' page.html) entries"
    contains "$name.title" fits
}
look laptop --window-size=1280,900
contains laptop.title 'rgb(255, 255, 255)'
look phone --window-size=500,900
look dark --window-size=1280,900 --blink-settings=preferredColorScheme=0
contains dark.title 'rgb(22, 24, 27)'
