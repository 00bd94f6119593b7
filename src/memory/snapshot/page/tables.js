// The live memory at the selected moment: by stack, and by block.

// A table that is sorted by clicking a column's name. `columns` have a name, the value of a row, the text or element
// of a row, and the CSS class of its cells.
class Table {
  constructor(section, columns, choose) {
    Object.assign(this, {columns, sortedBy: 0, descending: true, rows: []});
    section.table = this;
    this.title = section.querySelector('h2');
    const scroll = section.querySelector('.scroll');
    this.heads = columns.map(({name, kind}, index) => element('div', {className: kind, role: 'columnheader'},
      element('button', {textContent: name, onclick: () => this.sort(index)})));
    scroll.querySelector('.head').replaceChildren(...this.heads);
    this.list = new Rows(scroll, {
      role: 'row',
      fill: (line, index) => line.append(...columns.map(({text, kind}) => element('div', {className: kind, role: 'gridcell'}, text(this.rows[index])))),
      choose: index => choose(this.rows[index]),
    });
  }

  sort(index) {
    this.descending = index === this.sortedBy ? !this.descending : true;
    this.sortedBy = index;
    this.show(this.rows);
  }

  show(rows) {
    const {value} = this.columns[this.sortedBy], sign = this.descending ? -1 : 1;
    const values = rows.map(value), order = rows.map((_, index) => index);
    order.sort((a, b) => (values[a] < values[b] ? -sign : values[a] > values[b] ? sign : a - b));
    this.rows = order.map(index => rows[index]);
    this.heads.forEach((head, index) => {
      if (index === this.sortedBy) head.setAttribute('aria-sort', this.descending ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    this.list.current = -1;
    this.list.setCount(rows.length);
  }
}

const stackCell = stack => swatch(stackStyle(stack), element('span', {title: stackLabel(stack)}, stackLabel(stack)));

function startTables() {
  let whole = 0;
  const bar = share => element('span', {className: 'bar', style: `width:${(100 * share).toFixed(1)}%`});
  const stacks = new Table(byId('stacks'), [
    {name: 'Bytes', value: row => row.bytes, text: row => bytesText(row.bytes), kind: 'number'},
    {name: 'Share', value: row => row.bytes, text: row => element('span', {className: 'share'}, element('span', {}, percentText(row.bytes, whole)),
      element('span', {className: 'track'}, bar(whole > 0 ? row.bytes / whole : 0))), kind: 'minor'},
    {name: 'Blocks', value: row => row.count, text: row => countText(row.count), kind: 'number'},
    {name: 'Largest', value: row => row.largest, text: row => bytesText(row.largest), kind: 'number minor'},
    {name: 'Rounding', value: row => row.bytes - row.requested, text: row => bytesText(row.bytes - row.requested), kind: 'number minor'},
    {name: 'Stack', value: row => stackLabel(row.stack), text: row => stackCell(row.stack), kind: ''},
  ], row => showDetails('Stack', [
    ['in use', exactText(row.bytes)], ['blocks', countText(row.count)], ['largest', bytesText(row.largest)],
    ['requested', exactText(row.requested)], ['at', momentText(page.model, page.moment)],
  ], row.stack));

  const of = name => id => page.model.blocks[name][id];
  const isOlder = id => of('born')(id) < 0, name = id => blockName(page.model, id);
  const blocks = new Table(byId('blocks'), [
    {name: 'Bytes', value: of('size'), text: id => bytesText(of('size')(id)), kind: 'number'},
    {name: 'Requested', value: of('requested'), text: id => countText(of('requested')(id)), kind: 'number minor'},
    {name: 'Name', value: name, text: name, kind: ''},
    {name: 'Stack', value: id => stackLabel(of('stack')(id)), text: id => stackCell(of('stack')(id)), kind: ''},
    {name: 'Stream', value: id => streamText(of('stream')(id)), text: id => streamText(of('stream')(id)), kind: ''},
    {name: 'Pool', value: of('pool'), text: id => poolText(of('pool')(id)), kind: 'minor'},
    {name: 'Thread', value: of('thread'), text: id => threadText(of('thread')(id)), kind: 'minor'},
    {name: 'Tag', value: id => tagText(of('tag')(id)), text: id => tagText(of('tag')(id)), kind: 'minor'},
    {name: 'Since event', value: id => -of('born')(id), text: id => (isOlder(id) ? 'before' : countText(of('born')(id))), kind: 'number'},
    {name: 'Address', value: of('address'), text: id => addressText(of('address')(id)), kind: 'minor'},
  ], selectBlock);

  function update() {
    if (page.view !== 'stacks' && page.view !== 'blocks') return;
    const {model, moment} = page, all = liveAt(model, moment), ids = page.search.isEmpty ? all : all.filter(id => blockMatches(model, id));
    whole = model.active[moment];
    const found = ids.reduce((sum, id) => sum + model.blocks.size[id], 0);
    const part = page.search.isEmpty ? '' : `, ${bytesText(found)} of it found`;
    if (page.view === 'blocks') {
      blocks.title.textContent = `${bytesText(whole)} in ${countText(all.length)} blocks at ${momentText(model, moment)}${part}`;
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
