// Builds the model from the entries: the lifetime of each block, and totals at each moment.
//
// A moment is a number from 0 to the count of entries: the state after that many entries. A block exists at a moment m
// if born < m <= gone.

const UNIT = 512;
const roundUp = bytes => Math.ceil(bytes / UNIT) * UNIT;

// The block at an address is found by the index of the address, so no map of addresses is needed.
function findLifetimes(device, {addresses, block_names: names}) {
  const n = device.count, {action, address} = device;
  let allocs = 0;
  for (let i = 0; i < n; i++) if (action[i] === ALLOC) allocs++;
  const born = new Int32Array(allocs), freeRequested = new Int32Array(allocs).fill(n), gone = new Int32Array(allocs).fill(n);
  // Blocks from before the history. Their numbers are -2, -3, ... until all are known; NONE is -1.
  const older = [], NONE = -1, indexOf = id => -2 - id;
  const addOlder = block => -2 - (older.push({thread: 0, tag: 0, name: 0, stack: 0, freeRequested: n, gone: n, ...block}) - 1);
  // Their free does not record where they were allocated.
  const unknown = i => addOlder({
    address: device.addressOf(i), size: roundUp(device.sizeOf(i)), requested: device.sizeOf(i), stream: device.stream[i],
    pool: device.pool[i], name: device.name[i],
  });
  const request = (id, i) => {
    if (id >= 0) freeRequested[id] = Math.min(freeRequested[id], i);
    else older[indexOf(id)].freeRequested = Math.min(older[indexOf(id)].freeRequested, i);
  };
  const complete = (id, i) => {
    request(id, i);
    if (id >= 0) gone[id] = i;
    else older[indexOf(id)].gone = i;
  };
  const open = new Int32Array(addresses.length).fill(NONE);
  let next = 0;
  for (let i = 0; i < n; i++) {
    const place = address[i];
    switch (action[i]) {
      case ALLOC:
        // The free of the previous block was not recorded.
        if (open[place] !== NONE) complete(open[place], i);
        open[place] = next;
        born[next++] = i;
        break;
      case FREE_REQUESTED:
        if (open[place] === NONE) open[place] = unknown(i);
        request(open[place], i);
        break;
      case FREE_COMPLETED:
        complete(open[place] === NONE ? unknown(i) : open[place], i);
        open[place] = NONE;
        break;
    }
  }
  return {born, freeRequested, gone, older, atEnd: blocksAtEnd(device, addresses, names, open, {addOlder, freeRequested, complete, older, indexOf})};
}

// Compares the open blocks with those of the segments; returns the latter by their numbers.
function blocksAtEnd(device, addresses, names, open, {addOlder, freeRequested, complete, older, indexOf}) {
  const n = device.count, ids = new Map(), atEnd = new Map();
  const nameAt = new Map(names.map(([address, name]) => [parseInt(address, 16), name]));
  open.forEach((id, place) => id !== -1 && ids.set(addresses[place], id));
  for (const segment of device.segments) {
    for (const {address, size, requested, stack, state} of segment.blocks) {
      if (state === INACTIVE) continue;
      const id = ids.get(address), name = nameAt.get(address) ?? 0;
      ids.delete(address);
      if (id >= 0) atEnd.set(id, {size, requested, stack, name});
      else if (id !== undefined) Object.assign(older[indexOf(id)], {size, requested, stack, name});
      else addOlder({address, size, requested, stack, name, stream: segment.stream, pool: segment.pool, freeRequested: state === PENDING ? -1 : n});
    }
  }
  // The other open blocks do not exist at the end, but the completion of their free was not recorded: use its request.
  for (const id of ids.values()) {
    const requested = id >= 0 ? freeRequested[id] : older[indexOf(id)].freeRequested;
    if (requested < n) complete(id, requested);
  }
  return atEnd;
}

// Returns the blocks as columns, in the order of their allocation; those from before the history come first. The
// timeline stacks them in this order.
function findBlocks(device, tables) {
  const {born, freeRequested, gone, older, atEnd} = findLifetimes(device, tables);
  const first = older.length, count = first + born.length;
  const blocks = {
    count, address: new Float64Array(count), size: new Float64Array(count), requested: new Float64Array(count),
    stack: column(count, tables.stacks.length), stream: column(count, tables.streams.length), pool: column(count, tables.pools.length),
    thread: column(count, tables.threads.length), tag: column(count, tables.texts.length), name: column(count, tables.texts.length),
    born: new Int32Array(count).fill(-1, 0, first), freeRequested: new Int32Array(count), gone: new Int32Array(count),
  };
  older.forEach((block, id) => {
    for (const name in block) blocks[name][id] = block[name];
  });
  blocks.born.set(born, first);
  blocks.freeRequested.set(freeRequested, first);
  blocks.gone.set(gone, first);
  for (let index = 0; index < born.length; index++) {
    const id = first + index, i = born[index], requested = device.sizeOf(i);
    blocks.address[id] = device.addressOf(i);
    blocks.size[id] = roundUp(requested);
    blocks.requested[id] = requested;
    blocks.stack[id] = device.stack[i];
    blocks.stream[id] = device.stream[i];
    blocks.pool[id] = device.pool[i];
    blocks.thread[id] = device.thread[i];
    blocks.tag[id] = device.tag[i];
    blocks.name[id] = device.name[i];
  }
  for (const [index, {size, requested, stack, name}] of atEnd) {
    const id = first + index;
    blocks.size[id] = size;
    blocks.requested[id] = requested;
    blocks.stack[id] ||= stack;
    blocks.name[id] ||= name;
  }
  return blocks;
}

function buildModel(device, tables) {
  const n = device.count, blocks = findBlocks(device, tables);
  const bornAt = new Int32Array(n).fill(-1), goneAt = new Int32Array(n).fill(-1);
  const allocated = new Float64Array(n + 1), active = new Float64Array(n + 1), live = new Int32Array(n + 1);
  for (let id = 0; id < blocks.count; id++) {
    const size = blocks.size[id], from = blocks.born[id] + 1;
    if (from > 0) bornAt[from - 1] = id;
    allocated[from] += size;
    active[from] += size;
    live[from] += 1;
    if (blocks.freeRequested[id] < n) allocated[blocks.freeRequested[id] + 1] -= size;
    if (blocks.gone[id] < n) {
      active[blocks.gone[id] + 1] -= size;
      live[blocks.gone[id] + 1] -= 1;
      goneAt[blocks.gone[id]] = id;
    }
  }
  let mostLive = live[0];
  for (let m = 1; m <= n; m++) {
    allocated[m] += allocated[m - 1];
    active[m] += active[m - 1];
    live[m] += live[m - 1];
    if (live[m] > mostLive) mostLive = live[m];
  }
  const ooms = [];
  for (let i = 0; i < n; i++) if (device.action[i] === OOM) ooms.push(i);
  const segmentEvents = [];
  for (let i = 0; i < n; i++) if (device.action[i] >= SEGMENT_ALLOC && device.action[i] <= SEGMENT_UNMAP) segmentEvents.push(i);
  const model = {device, n, blocks, bornAt, goneAt, allocated, active, live, held: heldBytes(device), ooms, segmentEvents};
  addIndexes(model, mostLive);
  model.peak = busiest(model, 0, n);
  return model;
}

const GROUP = 256;

// Adds what makes the work for a picture independent of the number of events: the busiest moment of each group of
// moments, and the live blocks at every `step` moments. All these lists together are at most as long as the history.
function addIndexes(model, mostLive) {
  const {n, active, blocks} = model;
  model.busiest = new Int32Array(Math.ceil((n + 1) / GROUP));
  for (let m = 0; m <= n; m++) {
    const group = Math.floor(m / GROUP);
    if (m % GROUP === 0 || active[m] > active[model.busiest[group]]) model.busiest[group] = m;
  }
  model.step = Math.max(1 << 12, mostLive);
  const first = [];
  for (let id = 0; id < blocks.count && blocks.born[id] < 0; id++) first.push(id);
  model.liveAtSteps = [Int32Array.from(first)];
  for (let m = model.step; m <= n; m += model.step) model.liveAtSteps.push(Int32Array.from(liveFrom(model, model.liveAtSteps.length - 1, m)));
}

// Returns the first moment of the highest use in a range.
function busiest(model, from, to) {
  const {active} = model;
  let best = from;
  for (let m = from + 1; m <= to;) {
    const whole = m % GROUP === 0 && m + GROUP <= to + 1, candidate = whole ? model.busiest[m / GROUP] : m;
    if (active[candidate] > active[best]) best = candidate;
    m += whole ? GROUP : 1;
  }
  return best;
}

// The reserved bytes at each moment, computed backwards from the snapshot.
function heldBytes(device) {
  const held = new Float64Array(device.count + 1);
  let bytes = device.segments.reduce((sum, segment) => sum + segment.size - segment.asleep, 0);
  held[device.count] = bytes;
  for (let i = device.count - 1; i >= 0; i--) {
    const action = device.action[i];
    if (action === SEGMENT_ALLOC || action === SEGMENT_MAP) bytes -= device.sizeOf(i);
    else if (action === SEGMENT_FREE || action === SEGMENT_UNMAP) bytes += device.sizeOf(i);
    held[i] = bytes;
  }
  return held;
}

// Returns the blocks that exist at a moment, from those at an earlier step on.
function liveFrom({blocks: {gone}, bornAt, step, liveAtSteps}, index, moment) {
  const ids = [];
  for (const id of liveAtSteps[index]) if (gone[id] >= moment) ids.push(id);
  for (let i = index * step; i < moment; i++) if (bornAt[i] >= 0 && gone[bornAt[i]] >= moment) ids.push(bornAt[i]);
  return ids;
}

// Returns the blocks that exist at a moment, in the order of allocation.
const liveAt = (model, moment) => liveFrom(model, Math.floor(moment / model.step), moment);

// The mapped runs of memory at a moment, with their blocks. At the end they are the snapshot's segments.
function segmentsAt(model, moment) {
  const {device, n, blocks, segmentEvents} = model;
  if (moment === n) return device.segments;
  let runs = device.segments.map(({address, size, stream, pool, large, expandable}) =>
    ({address, end: address + size, stream, pool, large, expandable}));
  for (let index = segmentEvents.length - 1; index >= 0 && segmentEvents[index] >= moment; index--) {
    const i = segmentEvents[index], action = device.action[i], address = device.addressOf(i), end = address + device.sizeOf(i);
    if (action === SEGMENT_ALLOC || action === SEGMENT_MAP) runs = without(runs, address, end);
    else {
      // The addresses of sleeping memory are in the list already.
      runs = without(runs, address, end);
      runs.push({address, end, stream: device.stream[i], pool: device.pool[i], expandable: action === SEGMENT_UNMAP});
    }
  }
  runs.sort((a, b) => a.address - b.address);
  const segments = [];
  for (const run of runs) {
    const last = segments.at(-1);
    if (last && last.end === run.address && last.expandable && last.stream === run.stream && last.pool === run.pool) last.end = run.end;
    else segments.push({...run, blocks: []});
  }
  const ids = liveAt(model, moment).sort((a, b) => blocks.address[a] - blocks.address[b]);
  let next = 0;
  for (const segment of segments) {
    let at = segment.address;
    const free = to => {
      if (to > at) segment.blocks.push({address: at, size: to - at, requested: 0, state: INACTIVE, stack: 0});
    };
    while (next < ids.length && blocks.address[ids[next]] < segment.address) next++;
    for (; next < ids.length && blocks.address[ids[next]] < segment.end; next++) {
      const id = ids[next], size = Math.min(blocks.size[id], segment.end - blocks.address[id]);
      if (blocks.address[id] < at) continue;
      free(blocks.address[id]);
      const state = blocks.freeRequested[id] < moment ? PENDING : ACTIVE;
      segment.blocks.push({address: blocks.address[id], size, requested: blocks.requested[id], state, stack: blocks.stack[id]});
      at = blocks.address[id] + size;
    }
    free(segment.end);
    segment.size = segment.end - segment.address;
    segment.asleep = 0;
  }
  return segments;
}

function without(runs, address, end) {
  if (!runs.some(run => run.address < end && run.end > address)) return runs;
  return runs.flatMap(run => {
    if (run.end <= address || run.address >= end) return [run];
    return [{...run, end: address}, {...run, address: end}].filter(part => part.address < part.end);
  });
}
