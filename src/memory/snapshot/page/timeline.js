// Memory over time: live blocks stacked up, the reserved memory above them, and out-of-memory errors.
//
// The picture is drawn column by column, independently of the number of blocks: a column shows the moment of its
// events with the highest use, so no peak is lost. Blocks too small to be visible among thousands are summed up at the
// bottom. timeline_paint.js draws, and timeline_input.js handles pointer and keys.

const timeline = {from: 0, to: 1, columns: [], top: 1, hover: null, pointer: null, drag: null, least: 0, layers: null};
const MARGIN = {left: 74, right: 12, top: 34, bottom: 26};
const MAX_BLOCKS = 2000, MAX_LAYERS = 24;

// ---- coordinates

const byTime = () => byId('axis').value === 'time';

// The horizontal position of a moment, in events or microseconds, and the first moment at or after a position.
function placeOf(moment) {
  const {n, device} = page.model;
  if (!byTime()) return moment;
  return moment < n ? device.time[moment] : device.time[n - 1] + 1;
}

function momentAt(place) {
  return byTime() ? momentAtTime(place) : Math.max(0, Math.min(page.model.n, Math.floor(place)));
}

function momentAtTime(time) {
  const {n, device} = page.model;
  let low = 0, high = n;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (device.time[middle] < time) low = middle + 1;
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
  const kind = byId('layers').value, {blocks} = model;
  if (kind === 'block') return null;
  const key = blocks[kind], sums = new Map();
  for (const id of liveAt(model, model.peak)) sums.set(key[id], (sums.get(key[id]) ?? 0) + blocks.size[id]);
  for (let id = 0; id < blocks.count; id++) if (!sums.has(key[id])) sums.set(key[id], 0);
  const keys = [...sums].sort((a, b) => b[1] - a[1]).map(([value]) => value);
  const numbers = new Map(keys.map((value, index) => [value, Math.min(index, MAX_LAYERS)]));
  const of = new Uint8Array(blocks.count);
  for (let id = 0; id < blocks.count; id++) of[id] = numbers.get(key[id]);
  const text = {
    stack: stackLabel, stream: value => `stream ${streamText(value)}`, pool: value => `pool ${poolText(value)}`,
    thread: value => (value > 0 ? `thread ${threadText(value)}` : 'no thread recorded'),
    tag: value => (tagText(value) ? `tag ${tagText(value)}` : 'no tag'), name: value => (tagText(value) ? `name "${tagText(value)}"` : 'no name'),
  }[kind];
  const names = keys.slice(0, MAX_LAYERS).map(text), styles = names.map((_, index) => styleOfRank(index));
  if (keys.length > MAX_LAYERS) {
    names.push(`${countText(keys.length - MAX_LAYERS)} others`);
    styles.push(0);
  }
  return {of, names, styles, stacks: kind === 'stack' ? keys.slice(0, MAX_LAYERS) : null};
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
  timeline.bands = bandsOf(model.device);
}

// Names the lines and, with their patterns, the layers or the stacks that use the most memory at the peak.
function showLegend() {
  const {layers} = timeline, {ranked} = page.model.stackStyles;
  const entries = layers ? layers.names.map((name, index) => swatch(layers.styles[index], name)) :
    ranked.slice(0, MAX_LAYERS).map(stack => swatch(stackStyle(stack), stackLabel(stack)));
  const lines = [['solid', 'reserved'], ['dashed', 'allocated']].map(([kind, name]) => element('span', {}, element('span', {className: `stroke ${kind}`}), name));
  if (page.model.ooms.length > 0) lines.push(element('span', {className: 'oom'}, '▼ out of memory'));
  byId('timeline-legend').replaceChildren(...lines, ...entries);
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
