// Memory over time: live blocks stacked up, the reserved memory above them, and out-of-memory errors.
//
// The picture is drawn column by column, independently of the number of blocks: a column shows the moment of its
// events with the highest use, so no peak is lost, and the list of live blocks is carried from one column to the next.
// Blocks too small to be visible among thousands are summed up at the bottom.

const timeline = {from: 0, to: 1, columns: [], top: 1, hover: null, drag: null, least: 0};
const MARGIN = {left: 74, right: 12, top: 34, bottom: 26};
const MAX_BLOCKS = 3000, MAX_LAYERS = 24;

// ---- coordinates

const byTime = () => byId('axis').value === 'time';

// The horizontal position of a moment, in events or microseconds, and the first moment at or after a position.
function placeOf(moment) {
  const {n, device} = page.model;
  if (!byTime()) return moment;
  return moment < n ? device.time[moment] : device.time[n - 1] + 1;
}

function momentAt(place) {
  const {n, device} = page.model;
  if (!byTime()) return Math.max(0, Math.min(n, Math.floor(place)));
  let low = 0, high = n;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (device.time[middle] < place) low = middle + 1;
    else high = middle;
  }
  return low;
}

const plotBox = canvas => ({
  x: MARGIN.left, y: MARGIN.top, w: Math.max(1, canvas.clientWidth - MARGIN.left - MARGIN.right),
  h: Math.max(1, canvas.clientHeight - MARGIN.top - MARGIN.bottom),
});

const xOf = (box, place) => box.x + (place - timeline.from) / (timeline.to - timeline.from) * box.w;
const yOf = (box, bytes) => box.y + box.h - bytes / timeline.top * box.h;

function showAll() {
  [timeline.from, timeline.to] = [placeOf(0), Math.max(placeOf(page.model.n), placeOf(0) + 1)];
  drawTimeline();
}

function zoom(factor, place = (timeline.from + timeline.to) / 2) {
  const first = placeOf(0), last = Math.max(placeOf(page.model.n), first + 1);
  const width = Math.min(last - first, Math.max((timeline.to - timeline.from) * factor, 8));
  const share = (place - timeline.from) / (timeline.to - timeline.from);
  pan(place - share * width, width);
}

function pan(from, width = timeline.to - timeline.from) {
  const first = placeOf(0), last = Math.max(placeOf(page.model.n), first + 1);
  timeline.from = Math.max(first, Math.min(from, last - width));
  timeline.to = timeline.from + width;
  drawTimeline();
}

// Scrolls to a moment that is not visible.
function reveal(moment) {
  const place = placeOf(moment);
  if (place < timeline.from || place > timeline.to) pan(place - (timeline.to - timeline.from) / 2);
}

// ---- layers

// Returns the layer of each block; null if each block is its own layer.
function layersOf(model) {
  const kind = byId('layers').value;
  if (kind === 'block') return null;
  const key = model.blocks[kind], sums = new Map();
  for (const id of liveAt(model, model.peak)) sums.set(key[id], (sums.get(key[id]) ?? 0) + model.blocks.size[id]);
  for (let id = 0; id < model.blocks.count; id++) if (!sums.has(key[id])) sums.set(key[id], 0);
  const keys = [...sums].sort((a, b) => b[1] - a[1]).map(([value]) => value);
  const numbers = new Map(keys.map((value, index) => [value, Math.min(index, MAX_LAYERS)]));
  const of = Uint32Array.from({length: model.blocks.count}, (_, id) => numbers.get(key[id]));
  const name = {stack: stackLabel, stream: streamText, pool: poolText, thread: threadText, tag: value => tagText(value) || 'no tag'}[kind];
  const names = keys.slice(0, MAX_LAYERS).map(value => `${kind === 'stack' ? '' : kind + ' '}${name(value)}`);
  if (keys.length > MAX_LAYERS) names.push(`${countText(keys.length - MAX_LAYERS)} others`);
  return {of, names, stacks: kind === 'stack' ? keys : null};
}

// The minimum size of a block that is drawn separately.
function leastSize(model) {
  let most = 0;
  for (let m = 0; m <= model.n; m++) if (model.live[m] > model.live[most]) most = m;
  let least = 0;
  for (const moment of new Set([most, model.peak, model.n])) {
    if (model.live[moment] <= MAX_BLOCKS) continue;
    const sizes = Float64Array.from(liveAt(model, moment), id => model.blocks.size[id]).sort();
    least = Math.max(least, sizes[sizes.length - MAX_BLOCKS]);
  }
  return least;
}

function prepareTimeline() {
  const {model} = page;
  timeline.least = leastSize(model);
  timeline.layers = layersOf(model);
  timeline.hover = null;
  const {blocks} = model;
  timeline.pixels = Uint32Array.from({length: blocks.count}, (_, id) => pixelOf(colourOf(blocks.stack[id])));
  timeline.bands = bandsOf(model.device);
}

// Pairs the starts and ends of annotations, and puts each on the first free line.
function bandsOf(device) {
  const bands = [], open = new Map();
  for (const {time, name, begin} of device.annotations) {
    if (begin) {
      if (!open.has(name)) open.set(name, []);
      open.get(name).push({name, from: time, to: Infinity});
    } else {
      const band = open.get(name)?.pop();
      if (band) bands.push({...band, to: time});
    }
  }
  for (const rest of open.values()) bands.push(...rest);
  bands.sort((a, b) => a.from - b.from || b.to - a.to);
  const ends = [];
  for (const band of bands) {
    let line = ends.findIndex(end => end <= band.from);
    if (line < 0) line = ends.length;
    ends[line] = band.to;
    band.line = line;
  }
  return bands.filter(band => band.line < 2);
}

// ---- drawing

// The moment that each column shows.
function columnsOf(count) {
  const {model} = page, columns = new Int32Array(count);
  let from = momentAt(timeline.from);
  for (let column = 0; column < count; column++) {
    const place = timeline.from + (column + 1) / count * (timeline.to - timeline.from);
    const to = Math.max(from, momentAt(place));
    let best = from;
    for (let m = from + 1; m <= to; m++) if (model.active[m] > model.active[best]) best = m;
    columns[column] = best;
    from = to;
  }
  return columns;
}

// Calls `each` for every column with the live blocks that are drawn separately, oldest first, and the bytes of the
// others.
function sweep(columns, each) {
  const {model} = page, {blocks, bornAt, goneAt} = model, {least} = timeline;
  const next = new Int32Array(blocks.count + 1).fill(-1), back = new Int32Array(blocks.count + 1).fill(-1);
  const head = blocks.count;
  let tail = head, small = 0;
  const add = id => {
    if (blocks.size[id] < least) {
      small += blocks.size[id];
      return;
    }
    next[tail] = id;
    back[id] = tail;
    next[id] = -1;
    tail = id;
  };
  const remove = id => {
    if (blocks.size[id] < least) {
      small -= blocks.size[id];
      return;
    }
    next[back[id]] = next[id];
    if (next[id] >= 0) back[next[id]] = back[id];
    else tail = back[id];
  };
  liveAt(model, columns[0]).forEach(add);
  let moment = columns[0];
  for (let column = 0; column < columns.length; column++) {
    for (; moment < columns[column]; moment++) {
      if (bornAt[moment] >= 0) add(bornAt[moment]);
      if (goneAt[moment] >= 0) remove(goneAt[moment]);
    }
    each(column, next, next[head], small);
  }
}

const paintTimeline = () => {
  if (page.view !== 'timeline') return;
  const canvas = byId('timeline-canvas'), {model} = page;
  const {ratio, w, h} = fit(canvas, canvas.clientWidth, canvas.clientHeight);
  const context = canvas.getContext('2d');
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, w, h);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = '12px system-ui, sans-serif';
  const box = plotBox(canvas);
  if (model.n === 0) {
    context.fillStyle = css('--dim');
    context.fillText('No history was recorded: call plinth_record_memory_history before the allocations of interest.', 20, 40);
    return;
  }
  const wide = Math.max(1, Math.round(box.w * ratio)), high = Math.max(1, Math.round(box.h * ratio));
  const columns = timeline.columns = columnsOf(wide);
  let top = 1;
  for (const m of columns) top = Math.max(top, model.active[m], model.held[m]);
  timeline.top = top * 1.06;
  const image = context.createImageData(wide, high), pixels = new Uint32Array(image.data.buffer);
  if (timeline.layers) paintLayers(pixels, columns, wide, high);
  else paintBlocks(pixels, columns, wide, high);
  context.putImageData(image, Math.round(box.x * ratio), Math.round(box.y * ratio));
  paintLines(context, box, columns);
  paintAxes(context, box);
  paintMarks(context, box);
  canvas.dataset.columns = String(columns.length);
};
const drawTimeline = onceAFrame(paintTimeline);

function fillColumn(pixels, wide, high, column, low, up, colour, edge) {
  let from = high - Math.round(up), to = high - Math.round(low);
  if (from < 0) from = 0;
  if (to <= from) return;
  for (let y = from, at = from * wide + column; y < to; y++, at += wide) pixels[at] = colour;
  if (to - from > 3) pixels[from * wide + column] = edge;
}

function paintBlocks(pixels, columns, wide, high) {
  const {blocks} = page.model, scale = high / timeline.top, chosen = timeline.hover ?? page.selected;
  const rest = pixelOf(css('--free')), edge = pixelOf(css('--back')), bright = pixelOf(css('--accent'));
  sweep(columns, (column, next, first, small) => {
    let at = small * scale;
    fillColumn(pixels, wide, high, column, 0, at, rest, edge);
    for (let id = first; id >= 0; id = next[id]) {
      const up = at + blocks.size[id] * scale;
      fillColumn(pixels, wide, high, column, at, up, id === chosen ? bright : timeline.pixels[id], edge);
      at = up;
    }
  });
}

function paintLayers(pixels, columns, wide, high) {
  const {blocks, bornAt, goneAt} = page.model, {of, names} = timeline.layers, scale = high / timeline.top;
  const sums = new Float64Array(names.length), colours = names.map((_, layer) => pixelOf(colourOf(layer + 1)));
  const edge = pixelOf(css('--back')), bright = pixelOf(css('--accent'));
  for (const id of liveAt(page.model, columns[0])) sums[of[id]] += blocks.size[id];
  let moment = columns[0];
  for (let column = 0; column < columns.length; column++) {
    for (; moment < columns[column]; moment++) {
      if (bornAt[moment] >= 0) sums[of[bornAt[moment]]] += blocks.size[bornAt[moment]];
      if (goneAt[moment] >= 0) sums[of[goneAt[moment]]] -= blocks.size[goneAt[moment]];
    }
    let at = 0;
    sums.forEach((sum, layer) => {
      const up = at + sum * scale;
      fillColumn(pixels, wide, high, column, at, up, layer === timeline.hover ? bright : colours[layer], edge);
      at = up;
    });
  }
}

function paintLines(context, box, columns) {
  const {model} = page;
  const line = (values, colour, dash) => {
    context.beginPath();
    columns.forEach((moment, column) => {
      const x = box.x + (column + 0.5) / columns.length * box.w, y = yOf(box, values[moment]);
      if (column === 0) context.moveTo(x, y);
      else context.lineTo(x, y);
    });
    context.setLineDash(dash);
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.stroke();
    context.setLineDash([]);
  };
  line(model.held, css('--held'), []);
  line(model.allocated, css('--accent'), [4, 3]);
  if (model.device.limit > 0 && model.device.limit < timeline.top) {
    const y = yOf(box, model.device.limit);
    context.fillStyle = css('--mark');
    context.fillRect(box.x, y, box.w, 1);
    context.fillText(`limit ${bytesText(model.device.limit)}`, box.x + 4, y - 4);
  }
}

function niceStep(width, most, base) {
  let step = base;
  while (width / step > most) step *= base === 1 ? (String(step)[0] === '2' ? 2.5 : 2) : 2;
  return step;
}

function paintAxes(context, box) {
  context.fillStyle = css('--dim');
  context.textAlign = 'right';
  let step = 1;
  while (timeline.top / step > 7) step *= 2;
  for (let bytes = 0; bytes <= timeline.top; bytes += step) {
    const y = yOf(box, bytes);
    context.fillText(bytesText(bytes), box.x - 6, y + 4);
    context.globalAlpha = 0.25;
    context.fillRect(box.x, y, box.w, 1);
    context.globalAlpha = 1;
  }
  context.textAlign = 'center';
  const width = timeline.to - timeline.from, across = niceStep(width, 9, 1), start = placeOf(0), zero = byTime() ? start : 0;
  for (let place = zero + Math.ceil((timeline.from - zero) / across) * across; place <= timeline.to; place += across) {
    context.fillText(byTime() ? durationText(place - start) : countText(place), xOf(box, place), box.y + box.h + 18);
  }
  context.textAlign = 'left';
}

function paintMarks(context, box) {
  const {model} = page;
  const upright = (moment, colour, width) => {
    const x = xOf(box, placeOf(moment));
    if (x < box.x - 1 || x > box.x + box.w + 1) return;
    context.fillStyle = colour;
    context.fillRect(x - width / 2, box.y - 4, width, box.h + 4);
  };
  const momentOf = time => (byTime() ? time : indexOfTime(time));
  context.save();
  for (const band of timeline.bands) {
    const from = Math.max(box.x, xOf(box, momentOf(band.from)));
    const to = Math.min(box.x + box.w, band.to === Infinity ? box.x + box.w : xOf(box, momentOf(band.to)));
    if (to < box.x || from > box.x + box.w) continue;
    context.fillStyle = css('--accent');
    context.globalAlpha = 0.35;
    context.fillRect(from, 2 + band.line * 15, Math.max(1, to - from - 1), 13);
    context.globalAlpha = 1;
    if (to - from > 30) {
      context.fillStyle = css('--text');
      context.save();
      context.beginPath();
      context.rect(from, 0, to - from - 2, 34);
      context.clip();
      context.fillText(band.name, from + 3, 12 + band.line * 15);
      context.restore();
    }
  }
  context.restore();
  let last = -Infinity;
  for (const i of model.ooms) {
    const x = xOf(box, placeOf(i));
    if (x - last >= 1) upright(i, css('--mark'), 2);
    last = x;
  }
  upright(page.moment, css('--text'), 1);
}

function indexOfTime(time) {
  const {n, device} = page.model;
  let low = 0, high = n;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (device.time[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

// ---- pointer and keyboard

function under(event) {
  const canvas = byId('timeline-canvas'), box = plotBox(canvas), {model} = page;
  const x = event.offsetX - box.x, y = box.y + box.h - event.offsetY;
  if (model.n === 0 || x < 0 || x >= box.w || y < 0 || y > box.h) return null;
  const moment = timeline.columns[Math.floor(x / box.w * timeline.columns.length)] ?? model.n;
  const bytes = y / box.h * timeline.top, {blocks} = model;
  if (timeline.layers) {
    const sums = new Float64Array(timeline.layers.names.length);
    for (const id of liveAt(model, moment)) sums[timeline.layers.of[id]] += blocks.size[id];
    let at = 0;
    const layer = sums.findIndex(sum => (at += sum) > bytes);
    return {moment, layer: layer < 0 ? null : layer, sum: sums[layer], block: null};
  }
  let at = 0, small = 0;
  const ids = liveAt(model, moment);
  for (const id of ids) if (blocks.size[id] < timeline.least) small += blocks.size[id];
  at = small;
  if (bytes < at) return {moment, small, block: null, layer: null};
  const block = ids.find(id => blocks.size[id] >= timeline.least && (at += blocks.size[id]) > bytes);
  return {moment, block: block ?? null, layer: null};
}

function tipOf(found) {
  const {model} = page, {moment} = found;
  const lines = [];
  if (found.block !== null) {
    const {blocks} = model, id = found.block;
    lines.push(`${bytesText(blocks.size[id])} at ${addressText(blocks.address[id])}${tagText(blocks.tag[id]) ? `, ${tagText(blocks.tag[id])}` : ''}`);
    lines.push(...tipFrames(blocks.stack[id], 8));
  } else if (found.layer !== null) lines.push(`${bytesText(found.sum)}: ${timeline.layers.names[found.layer]}`);
  else if (found.small) lines.push(`${bytesText(found.small)} in blocks smaller than ${bytesText(timeline.least)}`);
  lines.push(`in use ${bytesText(model.active[moment])}, reserved ${bytesText(model.held[moment])}, ${countText(model.live[moment])} blocks`);
  lines.push(momentText(model, moment));
  return lines.join('\n');
}

function nextOom(step) {
  const {ooms} = page.model;
  if (ooms.length === 0) return;
  const after = step > 0 ? ooms.find(i => i > page.moment) : ooms.findLast(i => i < page.moment);
  goToOom(after ?? (step > 0 ? ooms[0] : ooms.at(-1)));
}

function goToOom(i) {
  const {model} = page, {device} = model;
  setMoment(i);
  reveal(i);
  showDetails('Out of memory', [
    ['requested', `${bytesText(device.size[i])} (${countText(device.size[i])})`], ['free on the device', bytesText(device.address[i])],
    ['in use', bytesText(model.active[i])], ['reserved', bytesText(model.held[i])],
    ['free in the cache', bytesText(Math.max(0, model.held[i] - model.active[i]))], ['stream', streamText(device.stream[i])],
    ['pool', poolText(device.pool[i])], ['thread', threadText(device.thread[i])], ['tag', tagText(device.tag[i])],
    ['time', `event ${countText(i)}, ${timeText(device.time[i])}`],
  ], device.stack[i]);
}

function startTimeline() {
  const canvas = byId('timeline-canvas');
  byId('layers').onchange = () => {
    timeline.layers = layersOf(page.model);
    timeline.hover = null;
    drawTimeline();
  };
  byId('axis').onchange = showAll;
  byId('zoom-in').onclick = () => zoom(0.5);
  byId('zoom-out').onclick = () => zoom(2);
  byId('zoom-all').onclick = showAll;
  canvas.onwheel = event => {
    event.preventDefault();
    const box = plotBox(canvas), width = timeline.to - timeline.from;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(timeline.from + event.deltaX / box.w * width);
    else zoom(Math.exp(Math.sign(event.deltaY) * Math.min(0.5, Math.abs(event.deltaY) / 300)), timeline.from + (event.offsetX - box.x) / box.w * width);
  };
  canvas.onpointerdown = event => {
    timeline.drag = {x: event.offsetX, from: timeline.from, moved: false};
    canvas.setPointerCapture(event.pointerId);
  };
  canvas.onpointermove = event => {
    const {drag} = timeline, box = plotBox(canvas);
    if (drag) {
      drag.moved ||= Math.abs(event.offsetX - drag.x) > 3;
      if (drag.moved) pan(drag.from - (event.offsetX - drag.x) / box.w * (timeline.to - timeline.from));
      return;
    }
    const found = under(event), hover = found ? found.block ?? found.layer : null;
    if (hover !== timeline.hover) {
      timeline.hover = hover;
      drawTimeline();
    }
    showTip(event, found && tipOf(found));
  };
  canvas.onpointerup = event => {
    const {drag} = timeline;
    timeline.drag = null;
    if (drag?.moved) return;
    const found = under(event);
    if (!found) return;
    setMoment(found.moment);
    selectBlock(found.block);
    if (found.layer !== null && timeline.layers.stacks && found.layer < MAX_LAYERS) {
      showDetails('Stack', [['in use at that moment', bytesText(found.sum)]], timeline.layers.stacks[found.layer]);
    }
  };
  canvas.onpointerleave = event => {
    timeline.hover = null;
    showTip(event, null);
    drawTimeline();
  };
  canvas.ondblclick = showAll;
  canvas.onkeydown = event => {
    const width = timeline.to - timeline.from;
    const keys = {
      ArrowLeft: () => (event.shiftKey ? setMoment(page.moment - 1) : pan(timeline.from - width / 8)),
      ArrowRight: () => (event.shiftKey ? setMoment(page.moment + 1) : pan(timeline.from + width / 8)),
      '+': () => zoom(0.5, placeOf(page.moment)), '=': () => zoom(0.5, placeOf(page.moment)), '-': () => zoom(2, placeOf(page.moment)), 0: showAll,
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
    if (event.shiftKey) reveal(page.moment);
  };
  new ResizeObserver(drawTimeline).observe(canvas);
  page.listeners.push(what => {
    if (what === 'device') {
      prepareTimeline();
      byId('timeline-legend').textContent = 'solid line: reserved; dashed: allocated; red: out of memory';
      canvas.setAttribute('aria-label', `Memory over ${countText(page.model.n)} events, at most ${bytesText(page.model.active[page.model.peak])} in use. ` +
        'Arrow keys move, plus and minus zoom, Shift and arrows step through events.');
      showAll();
    }
    drawTimeline();
  });
}
