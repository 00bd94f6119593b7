// Pointer and keyboard of the timeline.

// Returns what is at a position of the canvas: a block, a layer, or the sum of small blocks.
function under(event) {
  const canvas = byId('timeline-canvas'), box = plotBox(canvas), {model} = page, {cells, columns, wide, high, ratio} = timeline;
  const x = Math.floor((event.offsetX - box.x) * ratio), y = Math.floor((event.offsetY - box.y) * ratio);
  if (model.n === 0 || x < 0 || x >= wide || y < 0 || y >= high) return null;
  const cell = cells[x * high + y], number = cell >= 0 ? cell >> 1 : null;
  return {moment: columns[x], block: timeline.layers ? null : number, layer: timeline.layers ? number : null, rest: cell === REST};
}

function layerBytes(layer, moment) {
  const {model} = page;
  return liveAt(model, moment).reduce((sum, id) => (timeline.layers.of[id] === layer ? sum + model.blocks.size[id] : sum), 0);
}

function restBytes(moment) {
  const {model} = page;
  return liveAt(model, moment).reduce((sum, id) => (model.blocks.size[id] < timeline.least ? sum + model.blocks.size[id] : sum), 0);
}

// Shows what is under the pointer, or what is selected.
function describeTimeline(found = {moment: page.moment, block: page.selected, layer: null}) {
  const {model} = page, {moment} = found;
  let line = '';
  if (found.block !== null) line = blockLine(model, found.block);
  else if (found.layer !== null) line = `${bytesText(layerBytes(found.layer, moment))}: ${timeline.layers.names[found.layer]}`;
  else if (found.rest) line = `${bytesText(restBytes(moment))} in blocks smaller than ${bytesText(timeline.least)}`;
  showReadout(line, `in use ${bytesText(model.active[moment])}, reserved ${bytesText(model.held[moment])}, ${countText(model.live[moment])} blocks, ` +
    momentText(model, moment));
}

function nextOom(step) {
  const {ooms} = page.model;
  if (ooms.length === 0) return;
  const after = step > 0 ? ooms.find(i => i > page.moment) : ooms.findLast(i => i < page.moment);
  goToOom(after ?? (step > 0 ? ooms[0] : ooms.at(-1)));
}

function goToOom(i) {
  page.selected = null;
  setMoment(i);
  reveal(i);
  showDetails('Out of memory', oomFacts(page.model, i), page.model.device.stack[i]);
}

// Selects the moment a number of steps from the selected one.
function stepMoment(direction, byEvent) {
  const {n} = page.model, far = placeOf(page.moment) + direction * (timeline.to - timeline.from) / 50;
  const moment = byEvent ? page.moment + direction : Math.max(0, Math.min(n, direction > 0 ? Math.max(page.moment + 1, momentAt(far)) : Math.min(page.moment - 1, momentAt(far))));
  setMoment(moment);
  reveal(page.moment);
  // The block may not exist at this moment.
  if (page.selected !== null && !isLive(page.selected, page.moment)) selectBlock(null);
}

const isLive = (id, moment) => page.model.blocks.born[id] < moment && page.model.blocks.gone[id] >= moment;

// Selects the block above or below the selected one, at the selected moment.
function stepBlock(direction) {
  const {model} = page, ids = liveAt(model, page.moment).filter(id => model.blocks.size[id] >= timeline.least), at = ids.indexOf(page.selected);
  const next = at < 0 ? (direction > 0 ? 0 : ids.length - 1) : Math.max(0, Math.min(ids.length - 1, at + direction));
  if (ids.length > 0) selectBlock(ids[next]);
}

function choose(found) {
  if (!found) return;
  setMoment(found.moment);
  selectBlock(found.block);
  if (found.layer === null) return;
  const {names, stacks} = timeline.layers, {layer} = found;
  showDetails(stacks ? 'Stack' : names[layer], [['in use at that moment', bytesText(layerBytes(layer, found.moment))]], stacks?.[layer] ?? 0);
}

function startTimeline() {
  const canvas = byId('timeline-canvas');
  byId('layers').onchange = () => {
    timeline.layers = layersOf(page.model);
    timeline.hover = null;
    showLegend();
    drawTimeline();
  };
  byId('axis').onchange = showAll;
  byId('zoom-in').onclick = () => zoom(0.5);
  byId('zoom-out').onclick = () => zoom(2);
  byId('zoom-all').onclick = showAll;
  canvas.addEventListener('wheel', event => {
    event.preventDefault();
    const box = plotBox(canvas), width = timeline.to - timeline.from;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(timeline.from + event.deltaX / box.w * width);
    else zoom(Math.exp(Math.sign(event.deltaY) * Math.min(0.5, Math.abs(event.deltaY) / 300)), timeline.from + (event.offsetX - box.x) / box.w * width);
  }, {passive: false});
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
    if (timeline.isOld || page.model.n === 0) return;
    const found = under(event);
    timeline.hover = found ? found.block ?? found.layer : null;
    timeline.pointer = found ? event.offsetX : null;
    recolourTimeline();
    describeTimeline(found ?? undefined);
  };
  canvas.onpointerup = event => {
    const {drag} = timeline;
    timeline.drag = null;
    if (drag && !drag.moved && !timeline.isOld) choose(under(event));
  };
  canvas.onpointerleave = () => {
    Object.assign(timeline, {hover: null, pointer: null});
    describeTimeline();
    recolourTimeline();
  };
  canvas.ondblclick = showAll;
  canvas.onkeydown = event => {
    const keys = {
      ArrowLeft: () => stepMoment(-1, event.shiftKey), ArrowRight: () => stepMoment(1, event.shiftKey), ArrowUp: () => stepBlock(1), ArrowDown: () => stepBlock(-1),
      PageUp: () => pan(timeline.from - (timeline.to - timeline.from) / 2), PageDown: () => pan(timeline.from + (timeline.to - timeline.from) / 2),
      '+': () => zoom(0.5, placeOf(page.moment)), '=': () => zoom(0.5, placeOf(page.moment)), '-': () => zoom(2, placeOf(page.moment)), 0: showAll,
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  };
  new ResizeObserver(drawTimeline).observe(canvas);
  page.listeners.push(what => {
    if (what === 'device') {
      prepareTimeline();
      showLegend();
      const {model} = page;
      canvas.setAttribute('aria-label', `Memory over ${countText(model.n)} events, at most ${bytesText(model.active[model.peak])} in use. ` +
        'Left and right arrows select a moment, with Shift the next event; up and down arrows select a block; plus and minus zoom.');
      showAll();
    }
    if (page.view !== 'timeline') return;
    if (what === 'view' || what === 'moment' || what === 'selected') describeTimeline();
    recolourTimeline();
  });
}
