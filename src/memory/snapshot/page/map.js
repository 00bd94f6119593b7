// The memory map at the selected moment: every segment in rows of equal size, blocks coloured by state or by stack.

const map = {rows: [], bytes: 0, segments: [], height: 0, cursor: null};
const ROW = 14, GAP = 3, TITLE = 20;

function layOutMap() {
  const {model} = page;
  map.segments = segmentsAt(model, page.moment);
  map.cursor = cursorOf(page.selected);
  const largest = map.segments.reduce((most, segment) => Math.max(most, segment.size), 0);
  if (map.bytes === 0) for (map.bytes = 2 << 20; map.bytes * 16 < largest;) map.bytes *= 2;
  map.rows = [];
  let y = 4;
  map.segments.forEach((segment, index) => {
    segment.used ??= segment.blocks.reduce((sum, block) => sum + (block.state === INACTIVE ? 0 : block.size), 0);
    map.rows.push({y, segment, title: true, index});
    y += TITLE;
    for (let from = 0; from < segment.size; from += map.bytes) {
      map.rows.push({y, segment, from, bytes: Math.min(map.bytes, segment.size - from)});
      y += ROW + GAP;
    }
    y += 6;
  });
  map.height = y;
  const scroll = byId('map-scroll');
  byId('map-height').style.height = `${Math.max(0, y - scroll.clientHeight)}px`;
  const sum = map.segments.reduce((all, segment) => all + segment.size, 0);
  byId('map-scale').textContent = `${countText(map.segments.length)} segments, ${bytesText(sum)}; ${bytesText(map.bytes)} per row`;
  byId('map-canvas').setAttribute('aria-label', `${countText(map.segments.length)} segments with ${bytesText(sum)}, at ${momentText(model, page.moment)}`);
  drawMap();
}

// Returns the place of a block on the map, if it is there.
function cursorOf(id) {
  if (id === null) return null;
  const address = page.model.blocks.address[id], segment = map.segments.find(one => address >= one.address && address < one.address + one.size);
  const block = segment?.blocks[firstBlock(segment, address)];
  return block?.address === address && block.state !== INACTIVE ? {segment, block} : null;
}

// The first row that ends below a position.
function firstRow(y) {
  let low = 0, high = map.rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (map.rows[middle].y + TITLE < y) low = middle + 1;
    else high = middle;
  }
  return low;
}

function firstBlock(segment, address) {
  let low = 0, high = segment.blocks.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const block = segment.blocks[middle];
    if (block.address + block.size <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

const segmentName = segment => `${addressText(segment.address)}  ${bytesText(segment.size)}, stream ${streamText(segment.stream)}, pool ${poolText(segment.pool)}`;

const drawMap = onceAFrame(() => {
  if (page.view !== 'map') return;
  const scroll = byId('map-scroll'), canvas = byId('map-canvas');
  const width = scroll.clientWidth, height = scroll.clientHeight;
  const {ratio, w, h} = fit(canvas, width, height);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, w, h);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = '12px system-ui, sans-serif';
  const fills = new Map(), byStack = byId('map-colours').value === 'stack';
  const fill = style => {
    if (!fills.has(style)) fills.set(style, fillOf(context, style));
    return fills.get(style);
  };
  const back = css('--back'), dim = css('--dim'), text = css('--text'), free = css('--free');
  if (map.rows.length === 0) {
    context.fillStyle = dim;
    context.fillText('No memory is reserved at this moment.', 20, 30);
  }
  const full = width - 24, top = scroll.scrollTop;
  for (let index = firstRow(top); index < map.rows.length && map.rows[index].y < top + height; index++) {
    const row = map.rows[index], y = row.y - top, {segment} = row;
    if (row.title) {
      context.fillStyle = text;
      context.fillText(`${segmentName(segment)}: ${percentText(segment.used, segment.size)} in use${segment.asleep ? ', asleep' : ''}`, 12, y + 15);
      continue;
    }
    const start = segment.address + row.from, end = start + row.bytes, scale = full / map.bytes;
    context.fillStyle = free;
    context.fillRect(12, y, row.bytes * scale, ROW);
    let drawnTo = -1;
    for (let i = firstBlock(segment, start); i < segment.blocks.length && segment.blocks[i].address < end; i++) {
      const block = segment.blocks[i];
      if (block.state === INACTIVE) continue;
      const from = 12 + Math.max(0, block.address - start) * scale, to = 12 + Math.min(row.bytes, block.address + block.size - start) * scale;
      // Blocks in the same pixel are drawn once.
      if (to - from < 1 && Math.floor(to * ratio) === drawnTo) continue;
      drawnTo = Math.floor(to * ratio);
      context.globalAlpha = page.search.isEmpty || page.search.stack(block.stack) ? 1 : 0.25;
      context.fillStyle = fill(byStack && block.state === ACTIVE ? stackStyle(block.stack) : STATE_STYLES[block.state]);
      context.fillRect(from, y, Math.max(to - from, 1 / ratio), ROW);
      if (to - from > 3) {
        context.fillStyle = back;
        context.fillRect(to - 1, y, 1, ROW);
      }
    }
    context.globalAlpha = 1;
    paintCursor(context, row, y, scale);
  }
});

// Outlines the part of the current block that is in a row.
function paintCursor(context, {segment, from, bytes}, y, scale) {
  if (map.cursor === null) return;
  const {segment: of, block} = map.cursor, start = Math.max(segment.address + from, block.address), end = Math.min(segment.address + from + bytes, block.address + block.size);
  if (of !== segment || start >= end) return;
  context.strokeStyle = css('--text');
  context.lineWidth = 2;
  context.strokeRect(12 + (start - segment.address - from) * scale, y - 1, Math.max(2, (end - start) * scale), ROW + 2);
}

function blockUnder(event) {
  const scroll = byId('map-scroll'), y = event.offsetY + scroll.scrollTop;
  const row = map.rows.slice(Math.max(0, firstRow(y) - 1), firstRow(y) + 3).find(row => !row.title && y >= row.y && y < row.y + ROW);
  if (!row) return null;
  const offset = (event.offsetX - 12) / (scroll.clientWidth - 24) * map.bytes;
  if (offset < 0 || offset >= row.bytes) return null;
  const address = row.segment.address + row.from + offset;
  return {segment: row.segment, block: row.segment.blocks[firstBlock(row.segment, address)]};
}

const STATES = ['free', 'freed, but a stream may still use it', 'in use'];

// Shows what is under the pointer, or what is selected.
function describeMap(found = map.cursor) {
  if (!found?.block) {
    const {model, moment} = page;
    return showReadout(`in use ${bytesText(model.active[moment])} of ${bytesText(model.held[moment])}, ${countText(model.live[moment])} blocks`, momentText(model, moment));
  }
  const {segment, block} = found, id = block.state === INACTIVE ? undefined : blockAt(block.address);
  const line = id === undefined ? bytesText(block.size) : blockLine(page.model, id);
  showReadout(`${STATES[block.state]}: ${line}`, `${addressText(block.address)} in ${segmentName(segment)}`);
}

// Returns the block that is live at an address, at the selected moment.
const blockAt = address => liveAt(page.model, page.moment).find(id => page.model.blocks.address[id] === address);

function chooseInMap(found) {
  if (!found?.block) return;
  const {segment, block} = found, id = blockAt(block.address);
  if (block.state !== INACTIVE && id !== undefined) selectBlock(id);
  else {
    page.selected = null;
    showDetails('Free memory', [['size', exactText(block.size)], ['address', addressText(block.address)], ['segment', segmentName(segment)]]);
  }
  map.cursor = found;
  describeMap(found);
  drawMap();
}

// Moves to another block: to the next or previous one, or to the one a row below or above.
function stepInMap(blocks, rows) {
  const {segments, cursor} = map, first = segments[0];
  if (!first) return;
  if (cursor === null) return chooseInMap({segment: first, block: first.blocks[0]});
  const at = segments.indexOf(cursor.segment), index = cursor.segment.blocks.indexOf(cursor.block), address = cursor.block.address + rows * map.bytes;
  let segment = cursor.segment, next = segment.blocks[blocks !== 0 ? index + blocks : firstBlock(segment, address)];
  if (!next || address < segment.address) {
    const forward = blocks + rows > 0;
    segment = segments[at + (forward ? 1 : -1)];
    next = forward ? segment?.blocks[0] : segment?.blocks.at(-1);
  }
  if (!next) return;
  chooseInMap({segment, block: next});
  const scroll = byId('map-scroll'), row = map.rows.find(row => row.segment === segment && !row.title && segment.address + row.from + row.bytes > next.address);
  if (row.y - TITLE < scroll.scrollTop) scroll.scrollTop = row.y - TITLE;
  else if (row.y + ROW > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = row.y + ROW + GAP - scroll.clientHeight;
}

function startMap() {
  const canvas = byId('map-canvas'), scroll = byId('map-scroll');
  const rescale = factor => {
    map.bytes = Math.max(64 << 10, Math.min(2 ** 36, map.bytes * factor));
    layOutMap();
  };
  byId('map-closer').onclick = () => rescale(0.5);
  byId('map-further').onclick = () => rescale(2);
  byId('map-colours').onchange = drawMap;
  byId('map-legend').replaceChildren(...[ACTIVE, PENDING, INACTIVE].map(state => state === INACTIVE ?
    element('span', {}, element('span', {className: 'swatch', style: 'background:var(--free)'}), STATES[state]) : swatch(STATE_STYLES[state], STATES[state])));
  scroll.onscroll = drawMap;
  scroll.onkeydown = event => {
    const keys = {
      ArrowLeft: () => stepInMap(-1, 0), ArrowRight: () => stepInMap(1, 0), ArrowUp: () => stepInMap(0, -1), ArrowDown: () => stepInMap(0, 1),
      '+': () => rescale(0.5), '=': () => rescale(0.5), '-': () => rescale(2),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  };
  canvas.onpointermove = event => describeMap(blockUnder(event) ?? undefined);
  canvas.onpointerleave = () => describeMap();
  canvas.onclick = event => chooseInMap(blockUnder(event));
  new ResizeObserver(() => page.view === 'map' && layOutMap()).observe(scroll);
  page.listeners.push(what => {
    if (what === 'device') map.bytes = 0;
    if (page.view !== 'map') return;
    if (what !== 'search' && what !== 'selected') layOutMap();
    else drawMap();
    if (what === 'selected' && page.selected === null) map.cursor = null;
    if (what === 'view' || what === 'moment') describeMap();
  });
}
