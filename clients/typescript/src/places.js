// Which of a worker's events run at once. It knows nothing of what they are.

/** Who may run: as many as there are places, the first that came. */
export class Places {
  /** @type {Place[]} */
  #waiting = [];
  #running = 0;
  #max;
  /** @type {Set<() => void>} */
  #watching = new Set();

  /** @param {number} max */
  constructor(max) {
    this.#max = max;
  }

  get free() {
    return Math.max(0, this.#max - this.#running - this.#waiting.length);
  }

  /**
   * Waits until a place is free; false if the signal is aborted.
   * @param {AbortSignal} stopping
   */
  async someFree(stopping) {
    while (!stopping.aborted && this.free === 0) {
      await new Promise((resolve) => {
        const woken = () => {
          this.#watching.delete(woken);
          stopping.removeEventListener("abort", woken);
          resolve(undefined);
        };
        this.#watching.add(woken);
        stopping.addEventListener("abort", woken);
      });
    }
    return !stopping.aborted;
  }

  take() {
    const place = new Place(this);
    this.#waiting.push(place);
    this.next();
    return place;
  }

  next() {
    while (this.#running < this.#max && this.#waiting.length > 0) {
      this.#running += 1;
      this.#waiting.shift()?.enter();
    }
    if (this.free > 0) [...this.#watching].forEach((woken) => woken());
  }

  /** @param {Place} place */
  leave(place) {
    const waited = this.#waiting.indexOf(place);
    if (waited >= 0) this.#waiting.splice(waited, 1);
    else this.#running -= 1;
    this.next();
  }
}

export class Place {
  #places;
  #entered = new AbortController();

  /** @param {Places} places */
  constructor(places) {
    this.#places = places;
  }

  enter() {
    this.#entered.abort();
  }

  leave() {
    this.#places.leave(this);
  }

  /**
   * Waits for the turn; false if the signal is aborted before.
   * @param {AbortSignal} signal
   */
  async until(signal) {
    const first = AbortSignal.any([this.#entered.signal, signal]);
    if (!first.aborted) await new Promise((resolve) => first.addEventListener("abort", resolve, { once: true }));
    return !signal.aborted;
  }
}
