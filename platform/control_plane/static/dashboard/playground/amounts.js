// What an answer took: measured here as it comes, and exact by its last frame.
const PICOS_AND_PERMILLE = 1_000_000n;
const NANOS = 1_000_000_000n;
const CENTS = 2;

export class Meter {
  #first = 0;
  #last = 0;

  constructor() {
    this.sentAt = performance.now();
    this.pieces = 0;
    this.usage = null;
  }

  piece() {
    this.#last = performance.now();
    if (this.pieces === 0) this.#first = this.#last;
    this.pieces += 1;
  }

  get firstTokenMs() {
    return this.pieces ? Math.round(this.#first - this.sentAt) : null;
  }

  get tokens() {
    return this.usage ? this.usage.completion_tokens : this.pieces;
  }

  get tokensPerSecond() {
    const seconds = (this.#last - this.#first) / 1000;
    return this.tokens > 1 && seconds > 0 ? (this.tokens - 1) / seconds : null;
  }

  // Nano-dollars, as the bill has them; before the end those of the output alone.
  cost(prices) {
    const usage = this.usage ?? { prompt_tokens: 0, completion_tokens: this.pieces };
    const prompt = BigInt(usage.prompt_tokens);
    const cached = least(BigInt(usage.prompt_tokens_details?.cached_tokens ?? 0), prompt);
    const picos = (prompt - cached) * prices.prompt + cached * prices.cached + BigInt(usage.completion_tokens) * prices.completion;
    return halfEven(picos * prices.permille, PICOS_AND_PERMILLE);
  }
}

export function pricesOf(option) {
  const { prompt, cached, completion, permille } = option.dataset;
  return { prompt: BigInt(prompt), cached: BigInt(cached), completion: BigInt(completion), permille: BigInt(permille) };
}

export function dollars(nanos) {
  const decimals = String(nanos % NANOS).padStart(9, "0").replace(/0+$/, "").padEnd(CENTS, "0");
  return `$${(nanos / NANOS).toLocaleString("en")}.${decimals}`;
}

function least(one, other) {
  return one < other ? one : other;
}

function halfEven(numerator, denominator) {
  const quotient = numerator / denominator;
  const twice = 2n * (numerator % denominator);
  return twice > denominator || (twice === denominator && quotient % 2n === 1n) ? quotient + 1n : quotient;
}
