// Draws the timeline: first the block or layer of every pixel, then their colours and patterns. The second step alone is
// repeated when the pointer moves to another block.

const REST = -2;

// The moment that each column shows.
function columnsOf(count) {
  const {model} = page, columns = new Int32Array(count);
  let from = momentAt(timeline.from);
  for (let index = 0; index < count; index++) {
    const place = timeline.from + (index + 1) / count * (timeline.to - timeline.from);
    const to = Math.max(from, momentAt(place));
    columns[index] = busiest(model, from, to);
    from = to;
  }
  return columns;
}

// Passes over the moments of the columns. `reset` receives all live blocks, at the first column and after many events;
// `born` and `gone` receive the blocks that change between two columns; `each` is called at every column.
function sweep(columns, {reset, born, gone, each}) {
  const {model} = page, {bornAt, goneAt} = model;
  let moment = -Infinity;
  for (let index = 0; index < columns.length; index++) {
    const to = columns[index];
    if (to - moment > 2 * model.step) reset(liveAt(model, to));
    else {
      for (let i = moment; i < to; i++) {
        if (bornAt[i] >= 0) born(bornAt[i]);
        if (goneAt[i] >= 0) gone(goneAt[i]);
      }
    }
    moment = to;
    each(index, to);
  }
}

// The cells of the plot are stored column by column, from the top. A cell is twice the number of a block or layer, plus
// 1 in the line that separates it from the next.

function placeBlocks(columns, scale) {
  const {model} = page, {size, gone} = model.blocks, {least, cells, high} = timeline;
  // The live blocks with their sizes and ends side by side: the columns of all blocks are too long for a cache.
  let room = 1 << 12, count = 0, ids = new Int32Array(room), sizes = new Float64Array(room), ends = new Int32Array(room);
  const longer = array => {
    const made = new array.constructor(2 * room);
    made.set(array);
    return made;
  };
  const add = id => {
    if (size[id] < least) return;
    if (count === room) {
      [ids, sizes, ends] = [ids, sizes, ends].map(longer);
      room *= 2;
    }
    ids[count] = id;
    sizes[count] = size[id];
    ends[count++] = gone[id];
  };
  sweep(columns, {
    reset(live) {
      count = 0;
      live.forEach(add);
    },
    born: add,
    gone() {},
    each(index, moment) {
      let kept = 0, bytes = 0;
      for (let i = 0; i < count; i++) {
        if (ends[i] < moment) continue;
        ids[kept] = ids[i];
        ends[kept] = ends[i];
        bytes += sizes[kept++] = sizes[i];
      }
      count = kept;
      const bottom = (index + 1) * high;
      let at = Math.max(0, model.active[moment] - bytes) * scale, from = bottom - Math.round(at);
      cells.fill(REST, from, bottom);
      for (let i = 0; i < count; i++) {
        at += sizes[i] * scale;
        const to = bottom - Math.round(at);
        for (let cell = to; cell < from; cell++) cells[cell] = 2 * ids[i];
        if (from - to > 3) cells[to]++;
        from = to;
      }
    },
  });
}

function placeLayers(columns, scale) {
  const {size} = page.model.blocks, {cells, high} = timeline, {of, names} = timeline.layers, sums = new Float64Array(names.length);
  const add = id => {
    sums[of[id]] += size[id];
  };
  sweep(columns, {
    reset(live) {
      sums.fill(0);
      live.forEach(add);
    },
    born: add,
    gone(id) {
      sums[of[id]] -= size[id];
    },
    each(index) {
      const bottom = (index + 1) * high;
      let at = 0, from = bottom;
      sums.forEach((sum, layer) => {
        at += sum * scale;
        const to = bottom - Math.round(at);
        cells.fill(2 * layer, to, from);
        if (from - to > 3) cells[to]++;
        from = to;
      });
    },
  });
}

// Decides what every pixel of the plot shows.
function layOutTimeline() {
  const canvas = byId('timeline-canvas'), {model} = page;
  const {ratio} = fit(canvas, canvas.clientWidth, canvas.clientHeight), box = plotBox(canvas);
  const wide = Math.max(1, Math.round(box.w * ratio)), high = Math.max(1, Math.round(box.h * ratio));
  const columns = columnsOf(wide);
  let top = 1;
  for (const m of columns) top = Math.max(top, model.active[m], model.held[m]);
  Object.assign(timeline, {columns, wide, high, ratio, top: top * 1.06, cells: new Int32Array(wide * high).fill(-1)});
  (timeline.layers ? placeLayers : placeBlocks)(columns, high / timeline.top);
  canvas.dataset.columns = String(wide);
}

function colourTimeline(context, box) {
  const {cells, wide, high, ratio, layers} = timeline, {stack} = page.model.blocks, {styles} = page.model.stackStyles;
  const image = context.createImageData(wide, high), pixels = new Uint32Array(image.data.buffer);
  const chosen = timeline.hover ?? (layers ? null : page.selected), edge = pixelOf(channels(css('--back'))), bright = pixelOf(channels(css('--text')));
  const rest = pixelOf(channels(css('--free')));
  for (let x = 0; x < wide; x++) {
    for (let y = 0, at = x * high, to = x; y < high; y++, at++, to += wide) {
      const cell = cells[at];
      if (cell === -1) continue;
      if (cell === REST) pixels[to] = rest;
      else if (cell & 1) pixels[to] = edge;
      else if (cell >> 1 === chosen) pixels[to] = bright;
      else {
        const style = layers ? layers.styles[cell >> 1] : styles[stack[cell >> 1]];
        pixels[to] = TILES[style * TILE * TILE + y % TILE * TILE + x % TILE];
      }
    }
  }
  context.putImageData(image, Math.round(box.x * ratio), Math.round(box.y * ratio));
}

function paintTimeline() {
  const canvas = byId('timeline-canvas'), {model} = page;
  if (page.view !== 'timeline' || canvas.clientWidth === 0) return;
  if (timeline.isOld) {
    layOutTimeline();
    timeline.isOld = false;
  }
  const {ratio} = timeline, box = plotBox(canvas), context = canvas.getContext('2d');
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = '12px system-ui, sans-serif';
  if (model.n === 0) {
    context.fillStyle = css('--dim');
    context.fillText('No history was recorded: call plinth_record_memory_history before the allocations of interest.', 20, 40);
    return;
  }
  colourTimeline(context, box);
  paintLines(context, box);
  paintAxes(context, box);
  paintBands(context, box);
  paintMarks(context, box);
}
const recolourTimeline = onceAFrame(paintTimeline);
function drawTimeline() {
  timeline.isOld = true;
  recolourTimeline();
}

function paintLines(context, box) {
  const {model} = page, {columns} = timeline;
  const line = (values, colour, dash) => {
    context.beginPath();
    columns.forEach((moment, index) => {
      const x = box.x + (index + 0.5) / columns.length * box.w, y = yOf(box, values[moment]);
      if (index === 0) context.moveTo(x, y);
      else context.lineTo(x, y);
    });
    context.setLineDash(dash);
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.stroke();
    context.setLineDash([]);
  };
  line(model.held, css('--text'), []);
  line(model.allocated, css('--text'), [4, 3]);
  if (model.device.limit > 0 && model.device.limit < timeline.top) {
    const y = yOf(box, model.device.limit);
    context.fillStyle = css('--mark');
    context.fillRect(box.x, y, box.w, 1);
    context.fillText(`limit ${bytesText(model.device.limit)}`, box.x + 4, y - 4);
  }
}

// Returns a step of 1, 2 or 5 times a power of ten, so that at most `most` of them cover a width.
function niceStep(width, most) {
  const power = 10 ** Math.max(0, Math.floor(Math.log10(width / most)));
  return power * ([1, 2, 5].find(factor => width / (power * factor) <= most) ?? 10);
}

function paintAxes(context, box) {
  context.fillStyle = css('--dim');
  context.textAlign = 'right';
  let step = 1;
  while (timeline.top / step > Math.max(2, Math.min(7, box.h / 24))) step *= 2;
  for (let bytes = 0; bytes <= timeline.top; bytes += step) {
    const y = yOf(box, bytes);
    context.fillText(bytesText(bytes), box.x - 6, y + 4);
    context.globalAlpha = 0.25;
    context.fillRect(box.x, y, box.w, 1);
    context.globalAlpha = 1;
  }
  context.textAlign = 'center';
  const start = placeOf(0), zero = byTime() ? start : 0, across = niceStep(timeline.to - timeline.from, Math.max(2, Math.min(9, box.w / 90)));
  for (let place = zero + Math.ceil((timeline.from - zero) / across) * across; place <= timeline.to; place += across) {
    context.fillText(byTime() ? durationText(place - start) : countText(place), Math.min(xOf(box, place), box.x + box.w - 20), box.y + box.h + 18);
  }
  context.textAlign = 'left';
}

function paintBands(context, box) {
  const momentOf = time => (byTime() ? time : momentAtTime(time)), ends = [-1, -1];
  for (const band of timeline.bands) {
    const from = Math.max(box.x, xOf(box, momentOf(band.from)));
    if (from > box.x + box.w) break;
    const to = Math.min(box.x + box.w, band.to === Infinity ? box.x + box.w : xOf(box, momentOf(band.to)));
    // Bands within a pixel that is drawn are left out.
    if (to < box.x || to - ends[band.line] < 0.5) continue;
    ends[band.line] = to;
    context.fillStyle = css('--band');
    context.fillRect(from, 2 + band.line * 15, Math.max(1, to - from - 1), 13);
    if (to - from <= 30) continue;
    context.fillStyle = css('--text');
    context.save();
    context.beginPath();
    context.rect(from, 0, to - from - 2, 34);
    context.clip();
    context.fillText(band.name, from + 3, 12 + band.line * 15);
    context.restore();
  }
}

function paintMarks(context, box) {
  const {model} = page;
  const upright = (x, colour, width) => {
    if (x < box.x - 1 || x > box.x + box.w + 1) return false;
    context.fillStyle = colour;
    context.fillRect(x - width / 2, box.y - 4, width, box.h + 4);
    return true;
  };
  let last = -Infinity;
  for (const i of model.ooms) {
    const x = xOf(box, placeOf(i));
    if (x - last < 1) continue;
    last = x;
    if (!upright(x, css('--mark'), 2)) continue;
    context.beginPath();
    context.moveTo(x - 6, box.y - 4);
    context.lineTo(x + 6, box.y - 4);
    context.lineTo(x, box.y + 6);
    context.fill();
  }
  upright(xOf(box, placeOf(page.moment)), css('--text'), 1);
  if (timeline.pointer !== null) upright(timeline.pointer, css('--dim'), 1);
}
