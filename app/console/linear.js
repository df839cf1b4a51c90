// A little linear algebra: principal components of a sample, and the widths that a precision stands for.

const MOST_PAIRED = 200; // dimensions

/** @param {Float64Array} a @param {Float64Array} b */
function dot(a, b) {
  let sum = 0;
  for (let place = 0; place < a.length; place++) sum += a[place] * b[place];
  return sum;
}

/** Add a multiple of another row to the sums. @param {Float64Array} sums @param {Float64Array} row @param {number} factor */
function add(sums, row, factor) {
  for (let place = 0; place < row.length; place++) sums[place] += factor * row[place];
  return sums;
}

/** The first two principal components of rows, as coordinates of each row, and the share of the variance they hold. Power iteration, 60 passes a component. Cost: O(rows dim²), of many dimensions O(60 rows dim). @param {number[][]} rows */
export function components(rows) {
  const dim = rows[0]?.length ?? 0;
  const mean = Array.from({ length: dim }, (_, place) => rows.reduce((sum, row) => sum + row[place], 0) / rows.length);
  const centred = rows.map((row) => Float64Array.from(row, (value, place) => value - mean[place]));
  const total = centred.reduce((sum, row) => sum + dot(row, row), 0);
  // Rows with the same components: their products by pairs of coordinates are fewer, where arms are not long.
  const passed = dim > MOST_PAIRED ? centred : Array.from({ length: dim }, (_, place) => centred.reduce((sums, row) => add(sums, row, row[place]), /** @type {Float64Array} */ (new Float64Array(dim))));
  /** @type {Float64Array[]} */
  const axes = [];
  for (let count = 0; count < Math.min(2, dim); count++) {
    let axis = /** @type {Float64Array} */ (Float64Array.from({ length: dim }, (_, place) => Math.sin(1 + place * (count + 1.7))));
    for (let pass = 0; pass < 60; pass++) {
      const next = new Float64Array(dim);
      for (const row of passed) add(next, row, dot(row, axis));
      for (const other of axes) add(next, other, -dot(next, other));
      const length = Math.sqrt(dot(next, next));
      if (!length) break;
      axis = next.map((value) => value / length);
    }
    axes.push(axis);
  }
  const points = centred.map((row) => axes.map((axis) => dot(row, axis)).concat(0, 0).slice(0, 2));
  const held = points.reduce((sum, [x, y]) => sum + x * x + y * y, 0);
  return { points, share: total ? held / total : 0 };
}

/** The standard deviations that a precision matrix stands for: the roots of the diagonal of its inverse, by Cholesky. @param {number[][]} precision @returns {number[]} */
export function widths(precision) {
  const size = precision.length;
  const lower = precision.map((row) => [...row]);
  for (let i = 0; i < size; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = precision[i][j];
      for (let k = 0; k < j; k++) sum -= lower[i][k] * lower[j][k];
      lower[i][j] = i === j ? Math.sqrt(Math.max(sum, 1e-300)) : sum / lower[j][j];
    }
  }
  // The columns of the inverse of the factor: the diagonal of the inverse is their squared lengths.
  return Array.from({ length: size }, (_, column) => {
    const solved = new Array(size).fill(0);
    let squared = 0;
    for (let i = column; i < size; i++) {
      let sum = i === column ? 1 : 0;
      for (let k = column; k < i; k++) sum -= lower[i][k] * solved[k];
      solved[i] = sum / lower[i][i];
      squared += solved[i] ** 2;
    }
    return Math.sqrt(squared);
  });
}

/** The logarithm of the gamma function, by Stirling's series beyond 10: 12 digits. @param {number} x @returns {number} */
export function logGamma(x) {
  let below = 0;
  for (; x < 10; x++) below += Math.log(x);
  const rest = 1 / (12 * x) - 1 / (360 * x ** 3) + 1 / (1260 * x ** 5);
  return (x - 0.5) * Math.log(x) - x + Math.log(2 * Math.PI) / 2 + rest - below;
}

/**
 * How strongly counts of two groups speak against their shares, as a Bayes factor in favour of other shares, which
 * may be looked at as often as one likes: beyond 1 / alpha it errs with probability at most alpha.
 * @param {number} first @param {number} second @param {number} share of the second group
 */
export function mismatch(first, second, share) {
  const weight = 100;
  const [a, b] = [weight * (1 - share), weight * share];
  const logBeta = (/** @type {number} */ x, /** @type {number} */ y) => logGamma(x) + logGamma(y) - logGamma(x + y);
  return Math.exp(Math.min(700, logBeta(a + first, b + second) - logBeta(a, b) - first * Math.log(1 - share) - second * Math.log(share)));
}

/** A mean with the interval of two standard errors. @param {number[]} values */
export function meanOf(values) {
  const size = values.length;
  if (!size) return { mean: null, low: null, high: null, size };
  const mean = values.reduce((sum, value) => sum + value, 0) / size;
  if (size < 2) return { mean, low: null, high: null, size };
  const error = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (size - 1) / size);
  return { mean, low: mean - 2 * error, high: mean + 2 * error, size };
}

/**
 * What a mean surely is at least, by Wilson's bound at two standard errors for values between `least` and `most`: of
 * three of three that is .43, of 90 of 100 .82. @param {number[]} values @param {number} least @param {number} most
 */
export function surelyAtLeast(values, least, most) {
  const n = values.length;
  if (!n || !(most > least)) return least;
  const share = values.reduce((sum, value) => sum + (value - least) / (most - least), 0) / n;
  const bound = (share + 2 / n - 2 * Math.sqrt((share * (1 - share) + 1 / n) / n)) / (1 + 4 / n);
  return least + (most - least) * Math.max(0, bound);
}
