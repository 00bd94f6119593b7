// Reads the data that the library wrote: the tables as JSON, entries and blocks as a sequence of numbers.

const ACTIONS = [
  'alloc', 'free_requested', 'free_completed', 'segment_alloc', 'segment_free', 'segment_map', 'segment_unmap', 'snapshot', 'oom',
];
const [ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, SNAPSHOT, OOM] =
  ACTIONS.keys();
const INACTIVE = 0, PENDING = 1, ACTIVE = 2;

function readSnapshot() {
  const tables = JSON.parse(document.getElementById('tables').textContent);
  const text = atob(document.getElementById('rows').textContent);
  let at = 0;
  // Seven bits per byte, lowest first. Addresses and sizes stay below 2^53.
  function number() {
    let value = 0, scale = 1, byte;
    do {
      byte = text.charCodeAt(at++);
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return value;
  }
  const table = () => Float64Array.from({length: number()}, number);
  const addresses = table(), sizes = table();
  const devices = tables.devices.map(([total, limit, held], index) => {
    const device = readEntries(number, addresses, sizes);
    device.number = index;
    device.total = total;
    device.limit = limit;
    device.held = held;
    device.segments = readSegments(number);
    device.annotations = tables.annotations.filter(([of]) => of === index)
      .map(([, time, name, begin]) => ({time, name: tables.texts[name], begin: begin === 1}));
    return device;
  });
  if (at !== text.length) throw new Error(`${text.length - at} unexpected bytes at the end of the snapshot`);
  return {tables, devices};
}

function readEntries(number, addresses, sizes) {
  const count = number();
  const device = {
    count,
    action: new Uint8Array(count), address: new Float64Array(count), size: new Float64Array(count),
    stream: new Uint32Array(count), pool: new Uint32Array(count), time: new Float64Array(count),
    stack: new Uint32Array(count), tag: new Uint32Array(count), thread: new Uint32Array(count),
  };
  let time = number();
  for (let i = 0; i < count; i++) {
    device.action[i] = number();
    device.address[i] = addresses[number()];
    device.size[i] = sizes[number()];
    device.stream[i] = number();
    device.pool[i] = number();
    device.time[i] = time += number();
    device.stack[i] = number();
    device.tag[i] = number();
    device.thread[i] = number();
  }
  return device;
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
