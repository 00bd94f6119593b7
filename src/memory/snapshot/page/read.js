// Reads the data that the library wrote: the tables as JSON, entries and blocks as a sequence of numbers.

const ACTIONS = [
  'alloc', 'free_requested', 'free_completed', 'segment_alloc', 'segment_free', 'segment_map', 'segment_unmap', 'snapshot', 'oom',
];
const [ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, SNAPSHOT, OOM] =
  ACTIONS.keys();
const INACTIVE = 0, PENDING = 1, ACTIVE = 2;

// Returns an array for `length` integers below `limit`, as small as possible.
function column(length, limit) {
  const Kind = limit <= 1 << 8 ? Uint8Array : limit <= 1 << 16 ? Uint16Array : Uint32Array;
  return new Kind(length);
}

// Returns a function that reads the next number: seven bits per byte, lowest first. Addresses and sizes stay below
// 2^53. The numbers are in several elements, because a string is limited to half a gigabyte. Each element is removed
// when it is read, so that its memory can be reused.
function numberReader() {
  const parts = [...document.querySelectorAll('script.rows')].reverse();
  let text = '', at = 0;
  function refill() {
    const part = parts.pop();
    if (!part) throw new Error('the snapshot is incomplete');
    text = atob(part.textContent);
    at = 0;
    part.remove();
  }
  function number() {
    let value = 0, scale = 1;
    for (;;) {
      if (at === text.length) refill();
      const byte = text.charCodeAt(at++);
      if (byte < 128) return value + byte * scale;
      value += (byte & 127) * scale;
      scale *= 128;
    }
  }
  const isAtEnd = () => parts.length === 0 && at === text.length;
  return {number, isAtEnd};
}

function readSnapshot() {
  const tables = JSON.parse(document.getElementById('tables').textContent);
  document.getElementById('tables').remove();
  const {number, isAtEnd} = numberReader();
  const table = () => {
    const values = new Float64Array(number());
    for (let i = 0; i < values.length; i++) values[i] = number();
    return values;
  };
  tables.addresses = table();
  tables.sizes = table();
  const devices = tables.devices.map(([total, limit, held], index) => {
    const device = readEntries(number, tables);
    device.number = index;
    device.total = total;
    device.limit = limit;
    device.held = held;
    device.segments = readSegments(number);
    device.annotations = tables.annotations.filter(([of]) => of === index)
      .map(([, time, name, begin]) => ({time, name: tables.texts[name], begin: begin === 1}));
    return device;
  });
  if (!isAtEnd()) throw new Error('unexpected bytes at the end of the snapshot');
  return {tables, devices};
}

// Reads the entries of a device. Columns contain indices of the tables, except for actions and times.
function readEntries(number, tables) {
  const count = number(), of = table => column(count, table.length);
  const action = new Uint8Array(count), time = new Float64Array(count);
  const address = of(tables.addresses), size = of(tables.sizes), stream = of(tables.streams), pool = of(tables.pools);
  const stack = of(tables.stacks), tag = of(tables.texts), thread = of(tables.threads), name = of(tables.texts);
  let now = number();
  for (let i = 0; i < count; i++) {
    action[i] = number();
    address[i] = number();
    size[i] = number();
    stream[i] = number();
    pool[i] = number();
    time[i] = now += number();
    stack[i] = number();
    tag[i] = number();
    thread[i] = number();
    name[i] = number();
  }
  return {
    count, action, address, size, stream, pool, time, stack, tag, thread, name,
    addressOf: i => tables.addresses[address[i]], sizeOf: i => tables.sizes[size[i]],
  };
}

function readSegments(number) {
  return Array.from({length: number()}, () => {
    const segment = {address: number(), asleep: number(), stream: number(), pool: number()};
    const kind = number();
    segment.large = (kind & 1) !== 0;
    segment.expandable = (kind & 2) !== 0;
    let address = segment.address;
    segment.blocks = Array.from({length: number()}, () => {
      const block = {address, size: number(), requested: number(), state: number(), stack: number()};
      address += block.size;
      return block;
    });
    segment.size = address - segment.address;
    return segment;
  });
}
