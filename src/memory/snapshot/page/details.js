// The panel of details: what is selected, and its call stack.

function showDetails(title, facts, stack = 0) {
  const list = element('dl');
  for (const [name, value] of facts) if (value !== '' && value !== undefined) list.append(element('dt', {}, name), element('dd', {}, String(value)));
  const frames = element('ol', {className: 'stack'}), all = framesOf(stack), hidden = [];
  const foldable = all.some(({library}) => !library);
  for (const {name, file, line, library} of all) {
    const item = element('li', {}, name || '?', element('span', {}, placeText(file, line)));
    if (foldable && library) hidden.push(item);
    item.hidden = foldable && library;
    frames.append(item);
  }
  const parts = [element('h2', {}, title), list];
  if (all.length > 0) parts.push(element('h2', {}, 'Stack, innermost first'), frames);
  if (hidden.length > 0) {
    const show = element('button', {}, `Show ${hidden.length} of plinth's headers and the C++ library`);
    show.onclick = () => {
      for (const item of hidden) item.hidden = false;
      show.remove();
      byId('details').focus();
    };
    parts.push(show);
  }
  byId('details-content').replaceChildren(...parts);
  byId('details').scrollTop = 0;
  openDetails(true);
}

function openDetails(open) {
  byId('details').hidden = !open;
  byId('to-details').setAttribute('aria-expanded', String(open));
}

// Shows the panel as it is while nothing is selected. In a small window it is closed, so that the view has the room.
function clearDetails() {
  showDetails('Nothing selected', [
    ['', 'Click a block, a stack or an event to see its call stack. Click the timeline to select a moment: map, stacks and blocks show the memory at that moment.'],
  ]);
  openDetails(!matchMedia('(max-width: 60rem)').matches);
}

function blockFacts(model, id) {
  const {blocks, n, device} = model;
  const at = i => (i < 0 ? 'before the history' : i >= n ? 'not yet' : `event ${countText(i)}, ${timeText(device.time[i])}`);
  const end = blocks.gone[id] < n ? device.time[blocks.gone[id]] : n > 0 ? device.time[n - 1] : 0;
  return [
    ['name', blockName(model, id)], ['size', exactText(blocks.size[id])], ['requested', countText(blocks.requested[id])],
    ['address', addressText(blocks.address[id])], ['stream', streamText(blocks.stream[id])], ['pool', poolText(blocks.pool[id])],
    ['thread', blocks.born[id] < 0 ? '' : threadText(blocks.thread[id])], ['tag', tagText(blocks.tag[id])],
    ['allocated', at(blocks.born[id])], ['freed', at(blocks.freeRequested[id])],
    ['free', blocks.gone[id] === blocks.freeRequested[id] ? '' : at(blocks.gone[id])],
    ['lived', blocks.born[id] < 0 ? '' : durationText(end - device.time[blocks.born[id]])],
  ];
}

// Returns a line about a block: size, name, and the innermost functions of the program.
function blockLine(model, id) {
  const {blocks} = model, tag = tagText(blocks.tag[id]);
  return `${bytesText(blocks.size[id])} ${quoted(blockName(model, id))}in stream ${streamText(blocks.stream[id])}: ` +
    `${stackLabel(blocks.stack[id])}${tag ? ` [${tag}]` : ''}`;
}

function eventFacts(device, i) {
  return [
    ['name', tagText(device.name[i])], ['size', exactText(device.sizeOf(i))], ['address', addressText(device.addressOf(i))],
    ['stream', streamText(device.stream[i])], ['pool', poolText(device.pool[i])], ['thread', threadText(device.thread[i])],
    ['tag', tagText(device.tag[i])], ['time', `event ${countText(i)}, ${timeText(device.time[i])}`],
  ];
}

function oomFacts(model, i) {
  const {device} = model;
  return [
    ['requested', exactText(device.sizeOf(i))], ['free on the device', bytesText(device.addressOf(i))],
    ['in use', bytesText(model.active[i])], ['reserved', bytesText(model.held[i])],
    ['free in the cache', bytesText(Math.max(0, model.held[i] - model.active[i]))],
    ...eventFacts(device, i).filter(([name]) => !['size', 'address', 'name'].includes(name)),
  ];
}

function selectBlock(id) {
  page.selected = id;
  if (id === null) clearDetails();
  else showDetails('Block', blockFacts(page.model, id), page.model.blocks.stack[id]);
  page.changed('selected');
}
