// The live memory at the selected moment: by stack, and by block.

const MAX_ROWS = 500;

// A table that is sorted by clicking a column's name. `columns` are [name, value of a row, text of a row, is a
// number].
class Table {
  constructor(section, columns, sortedBy, choose) {
    Object.assign(this, {columns, sortedBy, choose, descending: true, rows: []});
    this.body = section.querySelector('tbody');
    this.title = section.querySelector('h2');
    this.heads = columns.map(([name, , , number], index) => element('th', {className: number ? 'number' : '', scope: 'col'},
      element('button', {textContent: name, onclick: () => this.sort(index)})));
    section.querySelector('thead').replaceChildren(element('tr', {}, ...this.heads));
    this.body.onclick = event => this.select(event.target.closest('tr'));
    this.body.onkeydown = event => this.key(event);
  }

  sort(index) {
    this.descending = index === this.sortedBy ? !this.descending : true;
    this.sortedBy = index;
    this.show(this.rows);
  }

  show(rows) {
    this.rows = rows;
    const value = this.columns[this.sortedBy][1], sign = this.descending ? -1 : 1;
    const compare = (a, b) => (a < b ? -sign : a > b ? sign : 0);
    rows.sort((a, b) => compare(value(a), value(b)));
    this.heads.forEach((head, index) => {
      if (index === this.sortedBy) head.setAttribute('aria-sort', this.descending ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    this.body.replaceChildren(...rows.slice(0, MAX_ROWS).map((row, index) => {
      const line = element('tr', {tabIndex: index === 0 ? 0 : -1}, ...this.columns.map(([, , text, number]) =>
        element('td', {className: number ? 'number' : ''}, text(row))));
      line.row = row;
      return line;
    }));
  }

  select(line) {
    if (!line) return;
    for (const other of this.body.querySelectorAll('[aria-selected]')) other.removeAttribute('aria-selected');
    line.setAttribute('aria-selected', 'true');
    this.choose(line.row);
  }

  key(event) {
    const line = event.target.closest('tr'), other = {ArrowDown: line.nextElementSibling, ArrowUp: line.previousElementSibling}[event.key];
    if (other) {
      line.tabIndex = -1;
      other.tabIndex = 0;
      other.focus();
      event.preventDefault();
    } else if (event.key === 'Enter' || event.key === ' ') {
      this.select(line);
      event.preventDefault();
    }
  }
}

function swatch(stack, ...content) {
  return element('span', {}, element('span', {className: 'swatch', style: `background:${colourOf(stack)}`}), ...content);
}

function startTables() {
  let whole = 0;
  const stacks = new Table(byId('stacks'), [
    ['Bytes', row => row.bytes, row => bytesText(row.bytes), true],
    ['Share', row => row.bytes, row => element('span', {}, percentText(row.bytes, whole) + ' ',
      element('span', {className: 'bar', style: `width:${(whole > 0 ? 6 * row.bytes / whole : 0).toFixed(2)}rem`})), false],
    ['Blocks', row => row.count, row => countText(row.count), true],
    ['Largest', row => row.largest, row => bytesText(row.largest), true],
    ['Rounding', row => row.bytes - row.requested, row => bytesText(row.bytes - row.requested), true],
    ['Stack', row => stackLabel(row.stack), row => swatch(row.stack, stackLabel(row.stack)), false],
  ], 0, row => showDetails('Stack', [
    ['in use', `${bytesText(row.bytes)} (${countText(row.bytes)})`], ['blocks', countText(row.count)], ['largest', bytesText(row.largest)],
    ['requested', bytesText(row.requested)], ['at', momentText(page.model, page.moment)],
  ], row.stack));

  const of = name => id => page.model.blocks[name][id];
  const age = id => page.model.n - of('born')(id);
  const blocks = new Table(byId('blocks'), [
    ['Bytes', of('size'), id => bytesText(of('size')(id)), true],
    ['Requested', of('requested'), id => countText(of('requested')(id)), true],
    ['Address', of('address'), id => addressText(of('address')(id)), false],
    ['Stack', id => stackLabel(of('stack')(id)), id => swatch(of('stack')(id), stackLabel(of('stack')(id))), false],
    ['Stream', of('stream'), id => streamText(of('stream')(id)), false],
    ['Pool', of('pool'), id => poolText(of('pool')(id)), false],
    ['Thread', of('thread'), id => (of('born')(id) < 0 ? '' : threadText(of('thread')(id))), false],
    ['Tag', id => tagText(of('tag')(id)), id => tagText(of('tag')(id)), false],
    ['Since event', age, id => (of('born')(id) < 0 ? 'before' : countText(of('born')(id))), true],
  ], 0, selectBlock);

  function update() {
    if (page.view !== 'stacks' && page.view !== 'blocks') return;
    const {model, moment} = page, words = searchWords(), all = liveAt(model, moment);
    const ids = all.filter(id => blockMatches(model.blocks, id, words));
    whole = model.active[moment];
    const found = ids.reduce((sum, id) => sum + model.blocks.size[id], 0);
    const part = words.length > 0 ? `, ${bytesText(found)} of it found` : '';
    if (page.view === 'blocks') {
      const shown = ids.length > MAX_ROWS ? `, the first ${MAX_ROWS} of them` : '';
      blocks.title.textContent = `${bytesText(whole)} in ${countText(all.length)} blocks at ${momentText(model, moment)}${part}${shown}`;
      blocks.show(ids);
      return;
    }
    const groups = new Map();
    for (const id of ids) {
      const stack = model.blocks.stack[id];
      if (!groups.has(stack)) groups.set(stack, {stack, bytes: 0, requested: 0, count: 0, largest: 0});
      const group = groups.get(stack), size = model.blocks.size[id];
      group.bytes += size;
      group.requested += model.blocks.requested[id];
      group.count++;
      group.largest = Math.max(group.largest, size);
    }
    stacks.title.textContent = `${bytesText(whole)} from ${countText(groups.size)} stacks at ${momentText(model, moment)}${part}`;
    stacks.show([...groups.values()]);
  }
  page.listeners.push(what => what !== 'selected' && update());
}
