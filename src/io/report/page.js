// Shows the figures under the pointer, of the step that is nearest. Charts are there without it.
"use strict";
document.querySelectorAll("svg.chart").forEach(function (svg) {
    const [left, right] = svg.dataset.plot.split(" ").map(Number);
    const [low, high] = svg.dataset.steps.split(" ").map(Number);
    const shown = svg.parentNode.querySelector("output");
    const lines = Array.from(svg.querySelectorAll("path.line"), function (path) {
        const list = (name) => (path.dataset[name] || "").split(" ");
        return { name: path.dataset.name, first: +path.dataset.first, width: +path.dataset.width,
                 mean: list("mean"), min: list("min"), max: list("max") };
    });
    const cursor = document.createElementNS(svg.namespaceURI, "path");
    cursor.setAttribute("class", "cursor");
    svg.append(cursor);

    // The nearest bucket with a value: validations are rare.
    function nearest(line, step) {
        const at = Math.round((step - line.first - (line.width - 1) / 2) / line.width);
        for (let away = 0; away < line.mean.length; away++)
            for (const i of [at - away, at + away])
                if (i >= 0 && i < line.mean.length && line.mean[i] !== "-")
                    return i;
        return -1;
    }

    svg.addEventListener("pointermove", function (event) {
        const box = svg.getBoundingClientRect();
        const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
        const step = low + (Math.min(Math.max(x, left), right) - left) / (right - left) * (high - low);
        cursor.setAttribute("d", "M" + x.toFixed(1) + " 10V202");
        shown.textContent = lines.map(function (line) {
            const i = nearest(line, step), from = line.first + i * line.width;
            const range = line.width > 1 ? " (" + line.min[i] + " to " + line.max[i] + ")" : "";
            const steps = line.width > 1 ? "steps " + from + " to " + (from + line.width - 1) : "step " + from;
            return i < 0 ? "" : line.name + " " + line.mean[i] + range + " at " + steps;
        }).join("; ");
    });
    svg.addEventListener("pointerleave", function () {
        cursor.removeAttribute("d");
        shown.textContent = "";
    });
});
