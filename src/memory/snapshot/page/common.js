// Shared by all views: number formatting, colours, elements, the tooltip, and the state of the page.

const page = {
  tables: null, devices: [], model: null,
  moment: 0, search: '', view: '', selected: null,
  listeners: [],
  // Notifies every view of a change: 'device', 'moment', 'search', 'selected' or 'view'.
  changed(what) {
    for (const listener of this.listeners) listener(what);
  },
};

const byId = id => document.getElementById(id);

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// ---- number formatting

function bytesText(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0, value = bytes;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return unit === 0 ? `${bytes} B` : `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${units[unit]}`;
}

const countText = count => count.toLocaleString('en');
const addressText = address => '0x' + address.toString(16);
const percentText = (part, whole) => (whole > 0 ? (100 * part / whole).toFixed(1) + ' %' : '');

function timeText(us) {
  const date = new Date(us / 1000), two = value => String(value).padStart(2, '0');
  const fraction = String(Math.floor(us % 1e6)).padStart(6, '0');
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${fraction}`;
}

function durationText(us) {
  if (us < 1000) return `${us.toFixed(0)} µs`;
  if (us < 1e6) return `${(us / 1000).toFixed(us < 1e4 ? 2 : 1)} ms`;
  return `${(us / 1e6).toFixed(us < 1e7 ? 2 : 1)} s`;
}

function streamText(stream) {
  const handle = page.tables.streams[stream];
  return handle === 0 ? 'default' : handle < 3 ? `special ${handle}` : addressText(handle);
}

function poolText(pool) {
  const [owner, index] = page.tables.pools[pool];
  return owner === 0 && index === 0 ? 'default' : `(${owner}, ${index})`;
}

const tagText = tag => page.tables.texts[tag];
const threadText = thread => String(page.tables.threads[thread] ?? '');

function momentText(model, moment) {
  const {n, device, ooms} = model;
  if (n === 0) return 'the snapshot';
  const failed = moment < n && ooms.includes(moment) ? 'out of memory, ' : '';
  if (moment === n) return `the end (event ${countText(n)})`;
  return `${failed}event ${countText(moment)} of ${countText(n)}, ${timeText(device.time[Math.max(0, Math.min(n - 1, moment))])}`;
}

// ---- stacks

const placeText = (file, line) => (line > 0 ? `${file}:${line}` : file);
const shortPlace = ({file, line}) => placeText(file.split('/').pop(), line);
const tipFrames = (stack, most) => framesOf(stack).slice(0, most).map(frame => `  ${frame.name || '?'}  ${shortPlace(frame)}`);

function framesOf(stack) {
  return page.tables.stacks[stack].map(number => {
    const [name, file, line] = page.tables.frames[number];
    return {name: page.tables.texts[name], file: page.tables.texts[file], line};
  });
}

const labels = new Map();
function stackLabel(stack) {
  if (!labels.has(stack)) {
    // The innermost function is often a common wrapper, so show two more.
    const frames = framesOf(stack), [first] = frames, place = first?.file ? ` (${shortPlace(first)})` : '';
    const names = frames.slice(0, 3).map(({name}) => name || '?').join(' ← ');
    labels.set(stack, first ? names + place : 'no stack recorded');
  }
  return labels.get(stack);
}

const searched = new Map();
// Returns whether a stack matches the search: every word occurs in a name or a file.
function stackMatches(stack, words) {
  if (!searched.has(stack)) searched.set(stack, framesOf(stack).map(({name, file, line}) => `${name} ${file}:${line}`).join('\n').toLowerCase());
  const text = searched.get(stack);
  return words.every(word => text.includes(word));
}

function searchWords() {
  return page.search.toLowerCase().split(/\s+/).filter(word => word !== '');
}

function blockMatches(blocks, id, words) {
  if (words.length === 0 || stackMatches(blocks.stack[id], words)) return true;
  const text = `${tagText(blocks.tag[id])} ${addressText(blocks.address[id])}`.toLowerCase();
  return words.every(word => text.includes(word));
}

// ---- colours

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Hues differ by the golden angle, so consecutive keys have very different colours.
function colourOf(key) {
  const hue = (key * 137.508 + 210) % 360, light = parseFloat(css('--light')) + ((key * 7) % 3 - 1) * 6;
  return `hsl(${hue.toFixed(1)} ${key === 0 ? 8 : 58}% ${light}%)`;
}

const parsed = new Map();
// Returns a colour as a number in the byte order of a canvas.
function pixelOf(colour) {
  if (!parsed.has(colour)) {
    const canvas = element('canvas', {width: 1, height: 1}), context = canvas.getContext('2d', {willReadFrequently: true});
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b] = context.getImageData(0, 0, 1, 1).data;
    parsed.set(colour, ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0);
  }
  return parsed.get(colour);
}

// ---- tooltip and canvases

function showTip(event, text) {
  const tip = byId('tip');
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const {width, height} = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
}

// Matches a canvas to the screen's pixels; returns the ratio and the size in device pixels.
function fit(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  const w = Math.max(1, Math.round(width * ratio)), h = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, {width: w, height: h});
  return {ratio, w, h};
}

// Returns a function that calls `draw` once before the next frame, however often it is called.
function onceAFrame(draw) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  };
}

// ---- details panel

function showDetails(title, facts, stack) {
  const list = element('dl');
  for (const [name, value] of facts) if (value !== '' && value !== undefined) list.append(element('dt', {}, name), element('dd', {}, String(value)));
  const frames = element('ol', {className: 'stack'});
  for (const {name, file, line} of framesOf(stack ?? 0)) {
    frames.append(element('li', {}, name || '?', element('span', {}, placeText(file, line))));
  }
  byId('details').replaceChildren(element('h2', {}, title), list, ...(frames.children.length ? [element('h2', {}, 'Stack, innermost first'), frames] : []));
}

function blockFacts(model, id) {
  const {blocks, n, device} = model;
  const at = i => (i < 0 ? 'before the history' : i >= n ? 'not yet' : `event ${countText(i)}, ${timeText(device.time[i])}`);
  const end = blocks.gone[id] < n ? device.time[blocks.gone[id]] : n > 0 ? device.time[n - 1] : 0;
  return [
    ['size', `${bytesText(blocks.size[id])} (${countText(blocks.size[id])})`], ['requested', countText(blocks.requested[id])],
    ['address', addressText(blocks.address[id])], ['stream', streamText(blocks.stream[id])], ['pool', poolText(blocks.pool[id])],
    ['thread', blocks.born[id] < 0 ? '' : threadText(blocks.thread[id])], ['tag', tagText(blocks.tag[id])],
    ['allocated', at(blocks.born[id])], ['freed', at(blocks.freeRequested[id])],
    ['free', blocks.gone[id] === blocks.freeRequested[id] ? '' : at(blocks.gone[id])],
    ['lived', blocks.born[id] < 0 ? '' : durationText(end - device.time[blocks.born[id]])],
  ];
}

function selectBlock(id) {
  page.selected = id;
  if (id !== null) showDetails('Block', blockFacts(page.model, id), page.model.blocks.stack[id]);
  page.changed('selected');
}

function setMoment(moment) {
  page.moment = Math.max(0, Math.min(page.model.n, Math.round(moment)));
  page.changed('moment');
}
