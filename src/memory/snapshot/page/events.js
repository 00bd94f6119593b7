// The events, one per line.

function startEvents() {
  // The numbers of the events that are shown; null if all are.
  let shown = null;
  const eventOf = row => (shown ? shown[row] : row), count = () => (shown ? shown.length : page.model.n);

  function text(i) {
    const {device} = page.model, action = device.action[i], address = device.addressOf(i);
    const place = action === OOM ? `${bytesText(address)} free` : addressText(address), stream = device.stream[i];
    const tag = tagText(device.tag[i]), pool = device.pool[i] === 0 ? '' : `  pool ${poolText(device.pool[i])}`;
    const where = matchMedia('(max-width: 60rem)').matches && action !== OOM ? '' : `${place.padEnd(16)}  `;
    return `${String(i).padStart(8)}  ${timeText(device.time[i])}  ${ACTIONS[action].padEnd(14)}  ${bytesText(device.sizeOf(i)).padStart(10)}  ` +
      `${where}${(page.tables.stream_names[stream] || streamText(stream)).padEnd(10)}  ${quoted(tagText(device.name[i]))}` +
      `${device.stack[i] ? stackLabel(device.stack[i]) : ''}${tag ? `  [${tag}]` : ''}${pool}`;
  }

  const list = new Rows(byId('events-scroll'), {
    fill(line, row) {
      const i = eventOf(row);
      line.textContent = line.title = text(i);
      if (page.model.device.action[i] === OOM) line.classList.add('oom');
      line.dataset.event = String(i);
    },
    choose(row) {
      const i = eventOf(row), {model} = page, {device} = model;
      if (device.action[i] === OOM) return goToOom(i);
      setMoment(i);
      const block = [model.bornAt[i], model.goneAt[i]].find(id => id >= 0) ?? null;
      if (block !== null) return selectBlock(block);
      page.selected = null;
      showDetails(ACTIONS[device.action[i]], eventFacts(device, i), device.stack[i]);
    },
  });

  function filter() {
    const {device, n, ooms} = page.model, kind = byId('events-actions').value, {action} = device;
    const isKept = ACTIONS.map(name => (kind === 'alloc' ? ['alloc', 'free_requested', 'free_completed'].includes(name) : name.startsWith(kind)));
    const matches = i => page.search.matches(device.stack[i], device.tag[i], device.name[i], device.stream[i], device.addressOf(i), action[i]);
    if (kind === '' && page.search.isEmpty) shown = null;
    else if (kind === 'oom') shown = Uint32Array.from(page.search.isEmpty ? ooms : ooms.filter(matches));
    else {
      const kept = new Uint32Array(n);
      let length = 0;
      for (let i = 0; i < n; i++) if (isKept[action[i]] && (page.search.isEmpty || matches(i))) kept[length++] = i;
      shown = kept.slice(0, length);
    }
    list.setCount(count());
    byId('events-count').textContent = `${countText(count())} of ${countText(n)} events`;
  }

  // Shows the selected moment.
  function follow() {
    let low = 0, high = count();
    while (low < high) {
      const middle = (low + high) >> 1;
      if (eventOf(middle) < page.moment) low = middle + 1;
      else high = middle;
    }
    list.show(Math.min(low, count() - 1));
  }

  byId('events-actions').onchange = () => {
    filter();
    follow();
  };
  page.listeners.push(what => {
    if (page.view !== 'events') return;
    if (what === 'device' || what === 'search' || what === 'view') filter();
    if (what === 'moment' || what === 'view') follow();
  });
}
