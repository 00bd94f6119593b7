// Builds the model from the entries: the lifetime of each block, and totals at each moment.
//
// A moment is a number from 0 to the count of entries: the state after that many entries. A block exists at a moment m
// if born < m <= gone.

const UNIT = 512;
const roundUp = bytes => Math.ceil(bytes / UNIT) * UNIT;

class Blocks {
  constructor(capacity) {
    this.count = 0;
    for (const name of ['address', 'size', 'requested']) this[name] = new Float64Array(capacity);
    for (const name of ['stack', 'stream', 'pool', 'thread', 'tag']) this[name] = new Uint32Array(capacity);
    for (const name of ['born', 'freeRequested', 'gone']) this[name] = new Int32Array(capacity);
  }

  add(lifetime) {
    const id = this.count++;
    for (const name in lifetime) this[name][id] = lifetime[name];
    return id;
  }
}

function buildModel(device) {
  const n = device.count;
  const lifetimes = findLifetimes(device);
  // By start; blocks from before the first entry come first. The timeline stacks them in this order.
  const order = lifetimes.map((_, index) => index).sort((a, b) => lifetimes[a].born - lifetimes[b].born || a - b);
  const blocks = new Blocks(lifetimes.length);
  order.forEach(index => blocks.add(lifetimes[index]));
  const bornAt = new Int32Array(n).fill(-1), goneAt = new Int32Array(n).fill(-1);
  const allocated = new Float64Array(n + 1), active = new Float64Array(n + 1), live = new Float64Array(n + 1);
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
  let peak = n;
  for (let m = 1; m <= n; m++) {
    allocated[m] += allocated[m - 1];
    active[m] += active[m - 1];
    live[m] += live[m - 1];
  }
  for (let m = n; m >= 0; m--) if (active[m] > active[peak]) peak = m;
  const ooms = [];
  for (let i = 0; i < n; i++) if (device.action[i] === OOM) ooms.push(i);
  return {device, n, blocks, bornAt, goneAt, allocated, active, live, held: heldBytes(device), peak, ooms};
}

function findLifetimes(device) {
  const n = device.count;
  const lifetimes = [], open = new Map();
  const begin = lifetime => {
    lifetimes.push(lifetime);
    return lifetime;
  };
  // A block from before the history: its free does not record where it was allocated.
  const unknown = i => begin({
    address: device.address[i], size: roundUp(device.size[i]), requested: device.size[i], stack: 0, stream: device.stream[i],
    pool: device.pool[i], thread: 0, tag: 0, born: -1, freeRequested: n, gone: n,
  });
  for (let i = 0; i < n; i++) {
    const address = device.address[i];
    switch (device.action[i]) {
      case ALLOC: {
        const before = open.get(address);
        // The free of the previous block was not recorded.
        if (before) Object.assign(before, {freeRequested: Math.min(before.freeRequested, i), gone: i});
        open.set(address, begin({
          address, size: roundUp(device.size[i]), requested: device.size[i], stack: device.stack[i], stream: device.stream[i],
          pool: device.pool[i], thread: device.thread[i], tag: device.tag[i], born: i, freeRequested: n, gone: n,
        }));
        break;
      }
      case FREE_REQUESTED: {
        const lifetime = open.get(address) ?? unknown(i);
        lifetime.freeRequested = i;
        open.set(address, lifetime);
        break;
      }
      case FREE_COMPLETED: {
        const lifetime = open.get(address) ?? unknown(i);
        Object.assign(lifetime, {freeRequested: Math.min(lifetime.freeRequested, i), gone: i});
        open.delete(address);
        break;
      }
    }
  }
  for (const segment of device.segments) {
    for (const block of segment.blocks) {
      if (block.state === INACTIVE) continue;
      const lifetime = open.get(block.address);
      if (lifetime) {
        Object.assign(lifetime, {size: block.size, requested: block.requested, stack: lifetime.stack || block.stack});
        open.delete(block.address);
      } else {
        begin({
          address: block.address, size: block.size, requested: block.requested, stack: block.stack, stream: segment.stream,
          pool: segment.pool, thread: 0, tag: 0, born: -1, freeRequested: block.state === PENDING ? -1 : n, gone: n,
        });
      }
    }
  }
  // The other open blocks do not exist at the end, but the completion of their free was not recorded: use its request.
  for (const lifetime of open.values()) if (lifetime.freeRequested < n) lifetime.gone = lifetime.freeRequested;
  return lifetimes;
}

// The reserved bytes at each moment, computed backwards from the snapshot.
function heldBytes(device) {
  const held = new Float64Array(device.count + 1);
  let bytes = device.segments.reduce((sum, segment) => sum + segment.size - segment.asleep, 0);
  held[device.count] = bytes;
  for (let i = device.count - 1; i >= 0; i--) {
    const action = device.action[i];
    if (action === SEGMENT_ALLOC || action === SEGMENT_MAP) bytes -= device.size[i];
    else if (action === SEGMENT_FREE || action === SEGMENT_UNMAP) bytes += device.size[i];
    held[i] = bytes;
  }
  return held;
}

// The blocks that exist at a moment, in the order of allocation.
function liveAt(model, moment, keep = () => true) {
  const {born, gone, count} = model.blocks, ids = [];
  for (let id = 0; id < count && born[id] < moment; id++) if (gone[id] >= moment && keep(id)) ids.push(id);
  return ids;
}

// The mapped runs of memory at a moment, with their blocks. At the end they are the snapshot's segments.
function segmentsAt(model, moment) {
  const {device, n, blocks} = model;
  if (moment === n) return device.segments;
  let runs = device.segments.map(({address, size, stream, pool, large, expandable}) =>
    ({address, end: address + size, stream, pool, large, expandable}));
  for (let i = n - 1; i >= moment; i--) {
    const action = device.action[i], address = device.address[i], end = address + device.size[i];
    if (action === SEGMENT_ALLOC || action === SEGMENT_MAP) runs = without(runs, address, end);
    else if (action === SEGMENT_FREE || action === SEGMENT_UNMAP) {
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
