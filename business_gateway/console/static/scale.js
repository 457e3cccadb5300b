// The time axis of a journey: true to scale, but for idle gaps, which are folded; pure.
const FOLD_OVER_MS = 30_000;
const FOLDED_PART = 0.05;

/** Makes the scale of these moments: `place(ms)` answers 0 to 1; `folds` and `ticks` are drawn. */
export function timeScale(moments) {
  const points = [...new Set(moments.filter((one) => one != null))].sort((a, b) => a - b);
  const start = points[0];
  const gaps = points.slice(1).map((end, index) => ({ from: points[index], to: end, ms: end - points[index] }));
  const kept = gaps.filter((gap) => gap.ms <= FOLD_OVER_MS).reduce((sum, gap) => sum + gap.ms, 0);
  const folded = gaps.filter((gap) => gap.ms > FOLD_OVER_MS && gap.ms > kept * 0.2);
  const real = gaps.filter((gap) => !folded.includes(gap)).reduce((sum, gap) => sum + gap.ms, 0) || 1;
  const room = 1 - folded.length * FOLDED_PART;
  let x = 0;
  const pieces = gaps.map((gap) => {
    const width = folded.includes(gap) ? FOLDED_PART : (gap.ms / real) * room;
    const piece = { ...gap, x, width, folded: folded.includes(gap) };
    x += width;
    return piece;
  });
  const place = (ms) => {
    const piece = pieces.find((one) => ms <= one.to) || pieces.at(-1);
    if (!piece) return 0;
    return Math.max(0, Math.min(1, piece.x + ((ms - piece.from) / piece.ms) * piece.width));
  };
  return { start, end: points.at(-1), place, folds: pieces.filter((one) => one.folded), ticks: ticks(pieces, start) };
}

/** Round moments within the pieces that are true to scale, far enough from one another to be read. */
function ticks(pieces, start) {
  const real = pieces.filter((one) => !one.folded);
  const ms = real.reduce((sum, one) => sum + one.ms, 0);
  const rough = ms / 5;
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough) || power;
  const found = [{ x: 0, ms: 0 }];
  for (const piece of real)
    for (let at = Math.ceil((piece.from - start) / step) * step; at <= piece.to - start; at += step) {
      const x = piece.x + ((at + start - piece.from) / piece.ms) * piece.width;
      if (x - found.at(-1).x > 0.09 && x < 0.97) found.push({ x, ms: at });
    }
  return found;
}
