// The events, one per line. Only the visible lines are elements of the page.

const LINE = 20;
// Browsers limit scrolled content to about 16 million pixels: longer lists scroll in larger steps.
const MAX_HEIGHT = 10e6;

function startEvents() {
  const scroll = byId('events-scroll'), rows = byId('events-rows');
  let shown = new Uint32Array(0);

  const height = () => Math.min(MAX_HEIGHT, shown.length * LINE);
  const firstLine = () => {
    const room = height() - scroll.clientHeight, lines = Math.max(0, shown.length - Math.floor(scroll.clientHeight / LINE));
    return room <= 0 ? 0 : Math.round(scroll.scrollTop / room * lines);
  };

  function text(i) {
    const {device} = page.model, action = device.action[i];
    const place = action === OOM ? `${bytesText(device.address[i])} free`.padEnd(18) : addressText(device.address[i]).padEnd(18);
    const tag = tagText(device.tag[i]);
    const pool = device.pool[i] === 0 ? '' : ` pool ${poolText(device.pool[i])}`;
    return `${String(i).padStart(8)}  ${timeText(device.time[i])}  ${ACTIONS[action].padEnd(14)}  ${bytesText(device.size[i]).padStart(10)}  ` +
      `${place}  stream ${streamText(device.stream[i])}${pool}  ${device.stack[i] ? stackLabel(device.stack[i]) : ''}${tag ? `  [${tag}]` : ''}`;
  }

  const draw = onceAFrame(() => {
    if (page.view !== 'events') return;
    const first = firstLine(), count = Math.ceil(scroll.clientHeight / LINE) + 1;
    rows.style.transform = `translateY(${scroll.scrollTop}px)`;
    rows.replaceChildren(...Array.from(shown.subarray(first, first + count), i => {
      const line = element('div', {textContent: text(i)});
      if (page.model.device.action[i] === OOM) line.classList.add('oom');
      if (i === page.moment) line.classList.add('now');
      line.dataset.event = String(i);
      return line;
    }));
  });

  function filter() {
    const {device, n, ooms} = page.model, filterName = byId('events-actions').value, words = searchWords();
    const keep = i => {
      const name = ACTIONS[device.action[i]];
      if (filterName === 'alloc' ? device.action[i] > FREE_COMPLETED : !name.startsWith(filterName)) return false;
      if (words.length === 0 || stackMatches(device.stack[i], words)) return true;
      const text = `${tagText(device.tag[i])} ${addressText(device.address[i])} ${name}`.toLowerCase();
      return words.every(word => text.includes(word));
    };
    shown = filterName === 'oom' ? Uint32Array.from(ooms.filter(keep)) : Uint32Array.from({length: n}, (_, i) => i).filter(keep);
    byId('events-height').style.height = `${height()}px`;
    byId('events-count').textContent = `${countText(shown.length)} of ${countText(n)} events`;
    draw();
  }

  // Scrolls to the selected moment.
  function follow() {
    let low = 0, high = shown.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (shown[middle] < page.moment) low = middle + 1;
      else high = middle;
    }
    const first = firstLine(), seen = Math.floor(scroll.clientHeight / LINE) - 1;
    if (low < first || low > first + seen) {
      const lines = Math.max(1, shown.length - seen - 1);
      scroll.scrollTop = Math.max(0, low - seen / 2) / lines * Math.max(0, height() - scroll.clientHeight);
    }
    draw();
  }

  scroll.onscroll = draw;
  rows.onclick = event => {
    const line = event.target.closest('[data-event]');
    if (!line) return;
    const i = Number(line.dataset.event), {model} = page, {device} = model;
    if (device.action[i] === OOM) return goToOom(i);
    setMoment(i);
    const block = [model.bornAt[i], model.goneAt[i]].find(id => id >= 0) ?? null;
    if (block !== null) return selectBlock(block);
    showDetails(ACTIONS[device.action[i]], [
      ['size', `${bytesText(device.size[i])} (${countText(device.size[i])})`], ['address', addressText(device.address[i])],
      ['stream', streamText(device.stream[i])], ['pool', poolText(device.pool[i])], ['thread', threadText(device.thread[i])],
      ['tag', tagText(device.tag[i])], ['time', timeText(device.time[i])],
    ], device.stack[i]);
  };
  scroll.onkeydown = event => {
    const step = {ArrowUp: -1, ArrowDown: 1}[event.key];
    if (!step) return;
    event.preventDefault();
    const at = shown.findIndex(i => i >= page.moment);
    const next = shown[Math.max(0, Math.min(shown.length - 1, (at < 0 ? shown.length : at) + step))];
    if (next !== undefined) setMoment(next);
  };
  byId('events-actions').onchange = filter;
  new ResizeObserver(draw).observe(scroll);
  page.listeners.push(what => {
    if (page.view !== 'events') return;
    if (what === 'device' || what === 'search' || what === 'view') filter();
    if (what === 'moment' || what === 'view') follow();
  });
}
