// The page as a whole: devices, views, search, and the selected moment.

const VIEWS = ['timeline', 'map', 'stacks', 'blocks', 'events'];

function showView(view) {
  page.view = view;
  for (const name of VIEWS) {
    const tab = byId(`tab-${name}`), chosen = name === view;
    tab.setAttribute('aria-selected', String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    byId(name).hidden = !chosen;
  }
  byId('readout').hidden = view !== 'timeline' && view !== 'map';
  showReadout('', '');
  page.changed('view');
}

function showDevice(number) {
  page.model = null; // so that its memory can be reused
  page.model = buildModel(page.devices[number], page.tables);
  page.model.stackStyles = stylesOfStacks(page.model);
  page.selected = null;
  page.moment = page.model.n;
  const {model} = page, {device} = model, n = model.n;
  const figures = [
    ['in use', bytesText(model.active[n])], ['reserved', bytesText(device.held)],
    ['free in the cache', bytesText(Math.max(0, model.held[n] - model.active[n])), 'minor'], ['peak in use', bytesText(model.active[model.peak])],
    ['device', device.total ? bytesText(device.total) : '', 'minor'], ['limit', device.limit ? bytesText(device.limit) : '', 'minor'],
    ['events', countText(n)], ['out of memory', model.ooms.length ? countText(model.ooms.length) : ''],
  ];
  byId('figures').replaceChildren(...figures.filter(([, value]) => value !== '').map(([name, value, className]) =>
    element('div', {className: className ?? ''}, element('dt', {}, name), element('dd', {}, value))));
  byId('to-oom').disabled = model.ooms.length === 0;
  byId('to-peak').disabled = n === 0;
  clearDetails();
  Object.assign(document.body.dataset, {
    events: n, blocks: model.live[n], inUse: model.active[n], held: model.held[n], peak: model.active[model.peak],
    segments: device.segments.length, ooms: model.ooms.length,
  });
  page.changed('device');
  page.changed('moment');
}

// The chart or list of a view.
const focusOf = view => byId({timeline: 'timeline-canvas'}[view] ?? `${view}-scroll`);

// Escape ends the search, then the selection, and returns to the view.
function leave(from) {
  const search = byId('search');
  if (from === search && search.value !== '') {
    search.value = '';
    page.search = new Search('');
    page.changed('search');
  } else if (from !== search) selectBlock(null);
  focusOf(page.view).focus();
}

function showProblem(text) {
  const problem = byId('problem');
  problem.hidden = false;
  problem.textContent = `The page failed: ${text}`;
  document.body.dataset.problem = text;
}

function start() {
  const {tables, devices} = readSnapshot();
  Object.assign(page, {tables, devices});
  page.search = new Search('');
  byId('reading').remove();
  document.querySelector('main').hidden = false;
  byId('taken').textContent = `plinth ${tables.version}, ${new Date(tables.time / 1000).toLocaleString()}`;
  byId('device').replaceChildren(...devices.map(({number, count, segments}) =>
    element('option', {value: String(number), textContent: `${number}${count === 0 && segments.length === 0 ? ' (empty)' : ''}`})));
  byId('device').onchange = event => showDevice(Number(event.target.value));
  [startTimeline, startMap, startTables, startEvents].forEach(begin => begin());
  page.listeners.push(what => {
    if (what === 'moment') byId('moment').textContent = momentText(page.model, page.moment);
  });
  for (const view of VIEWS) byId(`tab-${view}`).onclick = () => showView(view);
  byId('tabs').onkeydown = event => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step) return;
    const view = VIEWS[(VIEWS.indexOf(page.view) + step + VIEWS.length) % VIEWS.length];
    showView(view);
    byId(`tab-${view}`).focus();
    event.stopPropagation();
  };
  let waiting = 0;
  byId('search').oninput = event => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      page.search = new Search(event.target.value);
      page.changed('search');
    }, 150);
  };
  const go = moment => {
    setMoment(moment);
    if (page.model.n > 0) reveal(page.moment);
  };
  byId('to-peak').onclick = () => go(page.model.peak);
  byId('to-end').onclick = () => go(page.model.n);
  byId('to-oom').onclick = () => nextOom(1);
  byId('to-keys').onclick = () => byId('keys').showModal();
  byId('to-details').onclick = () => openDetails(byId('details').hidden);
  byId('close-details').onclick = () => {
    openDetails(false);
    focusOf(page.view).focus();
  };
  addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId('keys').open) return;
    if (event.key === 'Escape') return leave(event.target);
    if (/^(INPUT|SELECT)$/.test(event.target.tagName)) return;
    const keys = {
      p: () => go(page.model.peak), o: () => nextOom(1), O: () => nextOom(-1), '/': () => byId('search').focus(), '?': () => byId('keys').showModal(),
      d: () => openDetails(byId('details').hidden), End: event.target.closest('.scroll, aside') ? undefined : () => go(page.model.n),
    };
    if (keys[event.key]) {
      keys[event.key]();
      event.preventDefault();
    }
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => page.changed('view'));
  const first = devices.findIndex(({count, segments}) => count > 0 || segments.length > 0);
  if (devices.length === 0) throw new Error('the snapshot has no devices');
  byId('device').value = String(Math.max(0, first));
  page.view = devices[Math.max(0, first)].count > 0 ? 'timeline' : 'map';
  showDevice(Math.max(0, first));
  showView(page.view);
  document.body.dataset.ready = 'true';
}

addEventListener('error', event => showProblem(event.message));
addEventListener('unhandledrejection', event => showProblem(String(event.reason)));
try {
  start();
} catch (error) {
  showProblem(error.message);
  throw error;
}
