// The memory map at the selected moment: every segment in rows of equal size, blocks coloured by state.

const map = {rows: [], bytes: 0, segments: [], height: 0};
const ROW = 14, GAP = 3, TITLE = 20;

function layOutMap() {
  const {model} = page;
  map.segments = segmentsAt(model, page.moment);
  const largest = map.segments.reduce((most, segment) => Math.max(most, segment.size), 0);
  if (map.bytes === 0) for (map.bytes = 2 << 20; map.bytes * 16 < largest;) map.bytes *= 2;
  map.rows = [];
  let y = 4;
  map.segments.forEach((segment, index) => {
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
  byId('map-scale').textContent = `${countText(map.segments.length)} segments, ${bytesText(sum)}; ${bytesText(map.bytes)} per row. ` +
    'green: in use; orange: freed, but a stream may still use it; grey: free';
  byId('map-canvas').setAttribute('aria-label', `${countText(map.segments.length)} segments with ${bytesText(sum)}, at ${momentText(model, page.moment)}`);
  drawMap();
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
  const colours = [css('--free'), css('--pending'), css('--active')], byStack = byId('map-colours').value === 'stack';
  const words = searchWords(), back = css('--back'), dim = css('--dim'), text = css('--text');
  if (map.rows.length === 0) {
    context.fillStyle = dim;
    context.fillText('No memory is reserved at this moment.', 20, 30);
  }
  const full = width - 24, top = scroll.scrollTop;
  for (let index = firstRow(top); index < map.rows.length && map.rows[index].y < top + height; index++) {
    const row = map.rows[index], y = row.y - top, {segment} = row;
    if (row.title) {
      const used = segment.blocks.reduce((sum, block) => sum + (block.state === INACTIVE ? 0 : block.size), 0);
      context.fillStyle = text;
      context.fillText(`${segmentName(segment)}: ${percentText(used, segment.size)} in use${segment.asleep ? ', asleep' : ''}`, 12, y + 15);
      continue;
    }
    const start = segment.address + row.from, end = start + row.bytes, scale = full / map.bytes;
    context.fillStyle = colours[INACTIVE];
    context.fillRect(12, y, row.bytes * scale, ROW);
    let drawnTo = -1;
    for (let i = firstBlock(segment, start); i < segment.blocks.length && segment.blocks[i].address < end; i++) {
      const block = segment.blocks[i];
      if (block.state === INACTIVE) continue;
      const from = 12 + Math.max(0, block.address - start) * scale, to = 12 + Math.min(row.bytes, block.address + block.size - start) * scale;
      // Blocks in the same pixel are drawn once.
      if (to - from < 1 && Math.floor(to * ratio) === drawnTo) continue;
      drawnTo = Math.floor(to * ratio);
      context.globalAlpha = words.length > 0 && !stackMatches(block.stack, words) ? 0.25 : 1;
      context.fillStyle = byStack && block.state === ACTIVE ? colourOf(block.stack) : colours[block.state];
      context.fillRect(from, y, Math.max(to - from, 1 / ratio), ROW);
      if (to - from > 3) {
        context.fillStyle = back;
        context.fillRect(to - 1, y, 1, ROW);
      }
    }
    context.globalAlpha = 1;
  }
});

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

function startMap() {
  const canvas = byId('map-canvas'), scroll = byId('map-scroll');
  const rescale = factor => {
    map.bytes = Math.max(64 << 10, Math.min(2 ** 36, map.bytes * factor));
    layOutMap();
  };
  byId('map-closer').onclick = () => rescale(0.5);
  byId('map-further').onclick = () => rescale(2);
  byId('map-colours').onchange = drawMap;
  scroll.onscroll = drawMap;
  scroll.onkeydown = event => {
    if (event.key === '+' || event.key === '=') rescale(0.5);
    else if (event.key === '-') rescale(2);
  };
  canvas.onpointermove = event => {
    const found = blockUnder(event);
    if (!found?.block) return showTip(event, null);
    const {segment, block} = found, lines = [`${bytesText(block.size)} ${STATES[block.state]} at ${addressText(block.address)}`];
    if (block.state !== INACTIVE) lines.push(...tipFrames(block.stack, 6));
    showTip(event, [...lines, `in ${segmentName(segment)}`].join('\n'));
  };
  canvas.onpointerleave = event => showTip(event, null);
  canvas.onclick = event => {
    const found = blockUnder(event);
    if (!found?.block) return;
    const {segment, block} = found, {blocks} = page.model;
    const id = liveAt(page.model, page.moment).find(id => blocks.address[id] === block.address);
    if (block.state !== INACTIVE && id !== undefined) return selectBlock(id);
    showDetails('Free memory', [
      ['size', `${bytesText(block.size)} (${countText(block.size)})`], ['address', addressText(block.address)], ['segment', segmentName(segment)],
    ], 0);
  };
  new ResizeObserver(() => page.view === 'map' && layOutMap()).observe(scroll);
  page.listeners.push(what => {
    if (what === 'device') map.bytes = 0;
    if (page.view === 'map') (what === 'search' || what === 'selected' ? drawMap : layOutMap)();
  });
}
