// Colours: the palette of Okabe and Ito, whose colours differ for colour-blind people, with patterns for what is
// beyond its seven colours and for states. A style is a colour with a pattern.

const PALETTE = ['#0072B2', '#E69F00', '#009E73', '#CC79A7', '#56B4E9', '#D55E00', '#F0E442'];
const NEUTRAL = '#5b6068';
const TILE = 8;
// Whether a pixel of a tile belongs to the lines of a pattern.
const PATTERNS = [
  () => false,
  (x, y) => (x + y) % TILE < 2,
  (x, y) => x % 4 < 2 && y % 4 < 2,
  (x, y) => (x - y + TILE) % TILE < 2,
  (x, y) => y % 4 === 0,
  (x, y) => x % 4 === 0,
  (x, y) => (x + y) % TILE === 0 || (x - y + TILE) % TILE === 0,
  (x, y) => x % TILE === 0 || y % TILE === 0,
];
const STYLES = PALETTE.length * PATTERNS.length;

// The colour and the pattern of a style. Style 0 means "none" or "others".
function styleParts(style) {
  if (style === 0) return {colour: NEUTRAL, pattern: 0};
  return {colour: PALETTE[(style - 1) % PALETTE.length], pattern: Math.floor((style - 1) / PALETTE.length)};
}

// The style of the entry with a rank, from 0 on: the first seven are without pattern.
const styleOfRank = rank => 1 + rank % STYLES;

const STATE_STYLES = [0, 1 + PALETTE.length + PALETTE.indexOf('#E69F00'), 1 + PALETTE.indexOf('#009E73')];

const channels = colour => [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
const pixelOf = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

// The lines of a pattern are darker than a light colour, and lighter than a dark one.
function lineColour(rgb) {
  const light = (rgb[0] * 2 + rgb[1] * 5 + rgb[2]) / 8 > 110;
  return rgb.map(value => Math.round(light ? value * 0.45 : value + (255 - value) * 0.6));
}

// The tiles of all styles, as pixels in the byte order of a canvas.
const TILES = (() => {
  const tiles = new Uint32Array((STYLES + 1) * TILE * TILE);
  for (let style = 0; style <= STYLES; style++) {
    const {colour, pattern} = styleParts(style), rgb = channels(colour), line = pixelOf(lineColour(rgb)), fill = pixelOf(rgb);
    for (let at = 0; at < TILE * TILE; at++) tiles[style * TILE * TILE + at] = PATTERNS[pattern](at % TILE, Math.floor(at / TILE)) ? line : fill;
  }
  return tiles;
})();

const tiles = new Map();
function tileOf(style) {
  if (!tiles.has(style)) {
    const canvas = element('canvas', {width: TILE, height: TILE}), context = canvas.getContext('2d');
    const image = context.createImageData(TILE, TILE), size = TILE * TILE;
    new Uint32Array(image.data.buffer).set(TILES.subarray(style * size, (style + 1) * size));
    context.putImageData(image, 0, 0);
    tiles.set(style, {canvas, url: canvas.toDataURL()});
  }
  return tiles.get(style);
}

const fillOf = (context, style) => context.createPattern(tileOf(style).canvas, 'repeat');

function swatch(style, ...content) {
  return element('span', {}, element('span', {className: 'swatch', style: `background:url(${tileOf(style).url})`}), ...content);
}

// Ranks the stacks by their bytes at the peak, and then by their largest block; returns their styles.
function stylesOfStacks(model) {
  const {blocks} = model, count = page.tables.stacks.length;
  const bytes = new Float64Array(count), largest = new Float64Array(count);
  for (const id of liveAt(model, model.peak)) bytes[blocks.stack[id]] += blocks.size[id];
  for (let id = 0; id < blocks.count; id++) if (blocks.size[id] > largest[blocks.stack[id]]) largest[blocks.stack[id]] = blocks.size[id];
  const ranked = Array.from({length: count - 1}, (_, index) => index + 1).sort((a, b) => bytes[b] - bytes[a] || largest[b] - largest[a] || a - b);
  const styles = new Uint8Array(count);
  ranked.forEach((stack, rank) => {
    styles[stack] = styleOfRank(rank);
  });
  return {styles, ranked: ranked.filter(stack => bytes[stack] > 0)};
}

const stackStyle = stack => page.model.stackStyles.styles[stack];
