// A list of any length of which only the visible rows are elements of the page. Arrow keys, page keys, Home and End
// move the current row; the current row is announced as the active descendant of the list.

// Browsers limit scrolled content to about 16 million pixels: longer lists scroll in larger steps by the scroll bar, and
// line by line by the wheel and the keys.
const MAX_HEIGHT = 10e6;
const LINE = 22;

class Rows {
  // `fill` adds the content of a row to its element; `choose` is called with the row that the user selects.
  constructor(scroll, {fill, choose, role = 'option'}) {
    Object.assign(this, {scroll, fill, choose, role, count: 0, current: -1, top: 0, expected: NaN});
    scroll.list = this;
    this.head = scroll.querySelector('.head');
    this.lines = element('div', {className: 'lines', role: 'presentation'});
    this.room = element('div', {className: 'room', role: 'presentation'}, this.lines);
    scroll.append(this.room);
    this.draw = onceAFrame(() => this.paint());
    scroll.onscroll = () => {
      // A position that was set from a line would be less exact than the line.
      if (!(Math.abs(scroll.scrollTop - this.expected) <= 1)) this.top = this.isScaled() ? scroll.scrollTop / this.span() * this.lastTop() : scroll.scrollTop / LINE;
      this.expected = NaN;
      this.draw();
    };
    scroll.addEventListener('wheel', event => {
      if (!this.isScaled() || event.ctrlKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
      event.preventDefault();
      this.scrollTo(this.top + event.deltaY / LINE);
    }, {passive: false});
    scroll.onkeydown = event => this.key(event);
    this.lines.onclick = event => {
      const line = event.target.closest('[data-row]');
      if (line) this.select(Number(line.dataset.row));
    };
    new ResizeObserver(this.draw).observe(scroll);
  }

  isScaled() {
    return this.count * LINE > MAX_HEIGHT;
  }

  visible() {
    return Math.max(1, Math.floor((this.scroll.clientHeight - (this.head?.offsetHeight ?? 0)) / LINE));
  }

  // How far the list can be scrolled, in pixels and in rows.
  span() {
    return this.scroll.scrollHeight - this.scroll.clientHeight;
  }

  lastTop() {
    return Math.max(0, this.count - this.visible());
  }

  scrollTo(top) {
    this.top = Math.max(0, Math.min(this.lastTop(), top));
    this.expected = Math.round(this.isScaled() ? this.top / this.lastTop() * this.span() : this.top * LINE);
    this.scroll.scrollTop = this.expected;
    this.draw();
  }

  setCount(count) {
    this.count = count;
    this.current = Math.min(this.current, count - 1);
    this.room.style.height = `${Math.min(MAX_HEIGHT, this.count * LINE)}px`;
    this.scroll.setAttribute('aria-rowcount', String(count));
    this.scrollTo(this.top);
  }

  // Makes a row the current one and scrolls to it if it is not visible.
  show(row) {
    this.current = row;
    const seen = this.visible();
    if (row < this.top || row > this.top + seen - 1) this.scrollTo(row - seen / 2);
    this.draw();
  }

  select(row) {
    this.show(Math.max(0, Math.min(this.count - 1, row)));
    if (this.count > 0) this.choose(this.current);
  }

  key(event) {
    const page = this.visible() - 1, last = this.count - 1;
    const to = {
      ArrowDown: this.current + 1, ArrowUp: this.current < 0 ? 0 : this.current - 1, PageDown: this.current + page, PageUp: this.current - page,
      Home: 0, End: last, Enter: this.current, ' ': this.current,
    }[event.key];
    if (to === undefined || event.target !== this.scroll) return;
    event.preventDefault();
    event.stopPropagation();
    this.select(to);
  }

  paint() {
    if (this.scroll.clientHeight === 0) return;
    const first = Math.floor(this.top), last = Math.min(this.count, first + this.visible() + 2), made = [];
    for (let row = first; row < last; row++) {
      const line = element('div', {className: 'line', role: this.role, id: `${this.scroll.id}-${row}`});
      line.dataset.row = String(row);
      line.setAttribute('aria-rowindex', String(row + 1));
      line.setAttribute('aria-selected', String(row === this.current));
      this.fill(line, row);
      made.push(line);
    }
    this.lines.style.top = `${this.isScaled() ? this.scroll.scrollTop : first * LINE}px`;
    this.lines.replaceChildren(...made);
    if (this.current >= first && this.current < last) this.scroll.setAttribute('aria-activedescendant', `${this.scroll.id}-${this.current}`);
    else this.scroll.removeAttribute('aria-activedescendant');
  }
}
