(() => {
  const { data } = slabnet, get = (id) => document.getElementById(id);
  let threshold = data.doubt ? data.doubt.threshold : data.network ? data.network.threshold : 0.95;
  let refresh = () => {};

  if (data.doubt) {
    const sure = slabnet.floats(data.doubt.confidence), right = data.doubt.right, mark = get("risk-mark");
    const x1 = Number(mark.getAttribute("x1")), left = 52, wide = x1 - left;
    const update = () => {
      threshold = Number(get("threshold").value);
      const cut = Math.fround(threshold);  // Python compares float32 numbers
      let decided = 0, good = 0;
      for (let i = 0; i < sure.length; i++) if (sure[i] > cut) { decided += 1; good += right[i] === "1" ? 1 : 0; }
      get("threshold-value").textContent = String(threshold);
      get("decided").textContent = String(decided);
      get("share").textContent = (decided / sure.length).toFixed(4);
      get("accuracy").textContent = decided ? (good / decided).toFixed(4) : "–";
      const at = left + wide * decided / sure.length;
      mark.setAttribute("x1", at); mark.setAttribute("x2", at);
      refresh();
    };
    get("threshold").addEventListener("input", update);
    update();
  }

  if (!slabnet.network) return;
  const packed = data.network, structure = get("structure");
  let exposure = 1;
  const options = () => ({ structure: structure ? structure.checked : false, exposure });
  if (structure) structure.addEventListener("change", () => refresh());

  const lines = packed.numbers ? [] : packed.classes.map((name) => {
    const line = document.createElement("div"), label = document.createElement("span"), track = document.createElement("div");
    const fill = document.createElement("div"), tick = document.createElement("div"), value = document.createElement("span");
    line.className = "barline"; track.className = "track"; fill.className = "fill"; tick.className = "tickmark";
    label.textContent = name;
    track.append(fill, tick); line.append(label, track, value); get("bars").append(line);
    return { fill, tick, value };
  });

  function show(x) {
    const prediction = slabnet.network.predict(x, options());
    window.slabnet.shown = { x: Array.from(x), ...prediction };
    if (packed.numbers) {
      const unit = (v) => Number((v * packed.response.scale + packed.response.centre).toPrecision(4));
      get("verdict").textContent = `${packed.response.name}: ${unit(prediction.mean[0])}`;
      get("interval").textContent = prediction.predictive.map(unit).join(" to ");
      get("interval-mean").textContent = prediction.interval.map(unit).join(" to ");
      return;
    }
    const best = prediction.mean.indexOf(Math.max(...prediction.mean));
    lines.forEach((line, k) => {
      line.fill.style.width = `${100 * prediction.votes[k] / packed.draws}%`;
      line.fill.classList.toggle("best", k === best);
      line.tick.style.left = `${100 * prediction.mean[k]}%`;
      line.value.textContent = prediction.mean[k].toFixed(3);
    });
    get("entropy").textContent = prediction.entropy.toFixed(3);
    get("epistemic").textContent = prediction.epistemic.toFixed(3);
    const verdict = Math.fround(prediction.mean[best]) > Math.fround(threshold) ? "decided" : "in doubt";
    get("verdict").textContent = `${packed.classes[best]} with ${(100 * prediction.mean[best]).toFixed(1)}%: ${verdict} (it takes more than ${threshold})`;
  }

  if (packed.kind === "table") {
    const size = packed.layers[0].inputs, inputs = [...document.querySelectorAll("[data-control]")];
    refresh = () => {
      const x = new Float64Array(size);
      inputs.forEach((input) => {
        const control = packed.controls[Number(input.dataset.control)];
        if (control.options) {
          control.options.forEach((_, k) => {
            x[control.index + k] = (Number(k === Number(input.value)) - control.centres[k]) / control.scales[k];
          });
          return;
        }
        const value = control.binary ? Number(input.checked) : Number(input.value);
        if (control.exposure) exposure = value;
        else x[control.index] = (value - control.centre) / control.scale;
        if (!control.binary) get(`o${input.dataset.control}`).textContent = Number(value.toPrecision(4));
      });
      show(x);
    };
    get("controls").addEventListener("input", refresh);
    get("controls").addEventListener("submit", (event) => event.preventDefault());
    // Without a step the arrow keys would do nothing useful: a fiftieth of the range.
    inputs.forEach((input) => input.addEventListener("keydown", (event) => {
      const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      if (!way || input.type !== "range") return;
      event.preventDefault();
      input.value = Number(input.value) + way * (Number(input.max) - Number(input.min)) / 50;
      refresh();
    }));
    refresh();
    return;
  }

  const pad = get("pad"), pen = pad.getContext("2d", { willReadFrequently: true }), side = pad.width;
  const seen = get("seen"), preview = seen.getContext("2d"), picks = [...document.querySelectorAll(".pick")];
  const under = document.createElement("canvas");
  under.width = under.height = side;  // the drawing alone, without the pen's mark
  const ink = under.getContext("2d", { willReadFrequently: true });
  let current = null, last = null, waiting = false;
  const cursor = { x: side / 2, y: side / 2, down: false, shown: false };

  function paint() {
    pen.fillStyle = "#ffffff"; pen.fillRect(0, 0, side, side);
    pen.drawImage(under, 0, 0);
    if (!cursor.shown) return;
    pen.strokeStyle = cursor.down ? "#c0392b" : "#1f6fb2"; pen.lineWidth = 2;
    pen.beginPath(); pen.arc(cursor.x, cursor.y, side / 20, 0, 2 * Math.PI); pen.stroke();
  }
  function look(x) {
    const [height, width] = packed.shape, image = preview.createImageData(width, height);
    for (let i = 0; i < height * width; i++) {
      const value = 255 - Math.round(255 * Math.min(1, Math.max(0, x[i])));
      image.data.set([value, value, value, 255], 4 * i);
    }
    preview.putImageData(image, 0, 0);
    current = x;
    show(x);
  }
  function read() {
    waiting = false;
    const pixels = ink.getImageData(0, 0, side, side).data;
    look(slabnet.digest(Float64Array.from({ length: side * side }, (_, i) => pixels[4 * i + 3] / 255), side, packed.shape, packed.box, packed.centre));
  }
  function stroke(to) {
    ink.strokeStyle = "#000000"; ink.lineWidth = side / 10; ink.lineCap = ink.lineJoin = "round";
    ink.beginPath(); ink.moveTo((last ?? to).x, (last ?? to).y); ink.lineTo(to.x + 0.01, to.y); ink.stroke();
    last = to;
    press(-1);
    paint();
    if (!waiting) { waiting = true; requestAnimationFrame(read); }
  }
  function press(which) { picks.forEach((button, i) => button.setAttribute("aria-pressed", String(i === which))); }
  function clear() {
    ink.clearRect(0, 0, side, side); last = null; cursor.down = false; press(-1); paint();
    look(new Float64Array(packed.shape[0] * packed.shape[1]));
    current = null;  // an empty canvas is no image to decide about
    get("verdict").textContent = "Draw something.";
  }
  const place = (event) => {
    const box = pad.getBoundingClientRect();
    return { x: (event.clientX - box.left) * side / box.width, y: (event.clientY - box.top) * side / box.height };
  };
  pad.addEventListener("pointerdown", (event) => {
    event.preventDefault(); pad.focus({ preventScroll: true }); pad.setPointerCapture(event.pointerId);
    cursor.shown = false; last = null; stroke(place(event));
  });
  pad.addEventListener("pointermove", (event) => { if (event.buttons) stroke(place(event)); });
  pad.addEventListener("pointerup", () => { last = null; });
  pad.addEventListener("pointercancel", () => { last = null; });
  pad.addEventListener("blur", () => { cursor.shown = false; cursor.down = false; last = null; paint(); });
  pad.addEventListener("keydown", (event) => {
    const step = side / 24, moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (event.key === "Delete" || event.key === "Backspace") clear();
    else if (event.key === " ") {
      cursor.down = !cursor.down; last = null;
      if (cursor.down) stroke({ x: cursor.x, y: cursor.y });
    } else if (moves[event.key]) {
      cursor.x = Math.min(side - 8, Math.max(8, cursor.x + moves[event.key][0]));
      cursor.y = Math.min(side - 8, Math.max(8, cursor.y + moves[event.key][1]));
      if (cursor.down) stroke({ x: cursor.x, y: cursor.y });
    } else return;
    event.preventDefault(); cursor.shown = true; paint();
  });
  get("clear").addEventListener("click", clear);
  picks.forEach((button, i) => button.addEventListener("click", () => {
    ink.clearRect(0, 0, side, side);
    const [height, width] = packed.shape, x = slabnet.floats(packed.images[i].pixels);
    look(x); press(i);
    ink.imageSmoothingEnabled = false;
    const small = document.createElement("canvas");
    small.width = width; small.height = height;
    const image = small.getContext("2d").createImageData(width, height);
    x.forEach((v, k) => image.data.set([0, 0, 0, Math.round(255 * v)], 4 * k));
    small.getContext("2d").putImageData(image, 0, 0);
    pen.fillStyle = "#ffffff"; pen.fillRect(0, 0, side, side);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, 0, 0, side, side);
  }));
  refresh = () => { if (current) show(current); };
  paint();
  if (picks.length) picks[0].click(); else clear();
})();
