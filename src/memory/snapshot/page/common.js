// Shared by all views: the state of the page, elements, texts of numbers, stacks and names, and canvases.

const page = {
  tables: null, devices: [], model: null, search: null,
  moment: 0, view: '', selected: null,
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

// ---- numbers

function bytesText(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0, value = bytes;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return unit === 0 ? `${bytes} B` : `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${units[unit]}`;
}

const countFormat = new Intl.NumberFormat('en');
const countText = count => countFormat.format(count);
const exactText = bytes => `${bytesText(bytes)} (${countText(bytes)})`;
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

// ---- names

function streamText(stream) {
  const handle = page.tables.streams[stream], name = page.tables.stream_names[stream];
  if (name) return `${name} (${addressText(handle)})`;
  return handle === 0 ? 'default' : handle < 3 ? `special ${handle}` : addressText(handle);
}

function poolText(pool) {
  const [owner, index] = page.tables.pools[pool];
  return owner === 0 && index === 0 ? 'default' : `(${owner}, ${index})`;
}

const tagText = tag => page.tables.texts[tag];
const threadText = thread => (thread > 0 ? String(page.tables.threads[thread]) : '');
const blockName = ({blocks}, id) => page.tables.texts[blocks.name[id]];
const quoted = name => (name ? `"${name}" ` : '');

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

// Returns the name of a C++ function without its return type and arguments: they hide the name in a line of a table.
function shortName(name) {
  let depth = 0, start = 0;
  for (let i = 0; i < name.length; i++) {
    const isPart = depth > 0 || name.endsWith('operator', i);
    if (name[i] === '(' && !isPart && i > start) return name.slice(start, i);
    if (name[i] === ' ' && !isPart) start = i + 1;
    else if ('<({'.includes(name[i])) depth++;
    else if ('>)}'.includes(name[i])) depth = Math.max(0, depth - 1);
  }
  return name.slice(start) || '?';
}

function framesOf(stack) {
  return page.tables.stacks[stack].map(number => {
    const [name, file, line, library] = page.tables.frames[number];
    return {name: page.tables.texts[name], file: page.tables.texts[file], line, library: library === 1};
  });
}

// Returns the frames of the program: those of plinth's C++ headers and of the C++ library are left out, unless there
// are no others.
function programFrames(stack) {
  const frames = framesOf(stack), own = frames.filter(({library}) => !library);
  return own.length > 0 ? own : frames;
}

const labels = new Map();
function stackLabel(stack) {
  if (!labels.has(stack)) {
    // The innermost function is often a common wrapper, so show two more, but not the callers of main.
    const frames = programFrames(stack), main = frames.findIndex(({name}) => name === 'main');
    const shown = frames.slice(0, Math.min(3, main < 0 ? 3 : main + 1));
    const texts = shown.map((frame, index) => shortName(frame.name) + (index === 0 && frame.file ? ` (${shortPlace(frame)})` : ''));
    labels.set(stack, texts.join(' ← ') || 'no stack recorded');
  }
  return labels.get(stack);
}

// ---- search

// A search: every word must occur in one of the texts of an event or a block. Results are cached by the numbers of
// stacks, texts and streams, because a history of millions of events repeats them.
class Search {
  constructor(text) {
    const {stacks, texts, streams} = page.tables;
    this.words = text.toLowerCase().split(/\s+/).filter(word => word !== '').map(word => ({
      word, stacks: new Uint8Array(stacks.length), texts: new Uint8Array(texts.length), streams: new Uint8Array(streams.length),
      actions: ACTIONS.map(name => name.includes(word)), isAddress: /^(0x)?[0-9a-f]*\d[0-9a-f]*$/.test(word),
    }));
  }

  get isEmpty() {
    return this.words.length === 0;
  }

  // Returns whether every word occurs in a text of the stack.
  stack(stack) {
    return this.words.every(one => this.find(one, 'stacks', stack));
  }

  matches(stack, tag, name, stream, address, action) {
    for (const one of this.words) {
      const found = this.find(one, 'stacks', stack) || this.find(one, 'texts', tag) || this.find(one, 'texts', name) || this.find(one, 'streams', stream) ||
        one.actions[action] || (one.isAddress && addressText(address).includes(one.word));
      if (!found) return false;
    }
    return true;
  }

  find(one, kind, number) {
    const NO = 1, YES = 2, results = one[kind];
    if (results[number] === 0) results[number] = this.text(kind, number).toLowerCase().includes(one.word) ? YES : NO;
    return results[number] === YES;
  }

  text(kind, number) {
    if (kind === 'stacks') return framesOf(number).map(({name, file, line}) => `${name} ${file}:${line}`).join('\n');
    return kind === 'texts' ? page.tables.texts[number] : streamText(number);
  }
}

function blockMatches({blocks}, id) {
  return page.search.matches(blocks.stack[id], blocks.tag[id], blocks.name[id], blocks.stream[id], blocks.address[id]);
}

// ---- canvases

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

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

// The moment of the page, and the lines below a chart that say what is under the pointer. They never cover the chart.
function setMoment(moment) {
  page.moment = Math.max(0, Math.min(page.model.n, Math.round(moment)));
  page.changed('moment');
}

function showReadout(first, second) {
  byId('readout').replaceChildren(element('div', {title: first}, first || '\u00a0'), element('div', {title: second}, second || '\u00a0'));
}
